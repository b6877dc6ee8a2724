"""
How the session API shows the last two prompts of a session. No I/O.
"""

from __future__ import annotations

from typing import Any

from slotgate.llama.wire import Usage
from slotgate.prompts.comparison import Comparison
from slotgate.prompts.history import Remembered
from slotgate.prompts.outline import Outline
from slotgate.prompts.parts import Agreement
from slotgate.prompts.rows import Row, rows_of, rows_of_first
from slotgate.prompts.sentences import about_last, reusable, sentence
from slotgate.sessions import SessionKey
from slotgate.web._session_json import Viewer, named_json

_FIRST = "the session's first prompt: there is none to compare it with"


def prompt_json(
    viewer: Viewer, key: SessionKey, source: str, remembered: Remembered
) -> dict[str, Any]:
    """
    A session's last prompt beside the one before it.

    :param source: where the session's id came from; empty: not known any more.
    """
    compared = remembered.compared()
    rows = rows_of_first(remembered.new) if compared is None else rows_of(compared)
    return {
        **named_json(viewer, key, source),
        **(_first_json(remembered.new) if compared is None else _compared_json(compared)),
        "tokens": _tokens_json(compared, remembered.usage),
        "cache": remembered.cache or None,
        "verdict": remembered.verdict or None,
        "messages": [_row_json(row) for row in rows],
    }


def _compared_json(compared: Comparison) -> dict[str, Any]:
    first, old, new = compared.first, compared.old, compared.new
    difference = first and {
        "number": first.number,
        "role": first.role,
        **_agreement_json(first.same, first.characters, first.old_characters),
    }
    last = _agreement_json(compared.last, new.parts[-1].length, old.parts[-1].length)
    agreed = Agreement(compared.same_characters, compared.exact)
    return {
        "sentence": sentence(compared),
        "change": compared.change.value,
        "with": "parent" if compared.of_parent else "last",
        "same": compared.same_messages,
        "new": new.messages,
        "old": old.messages,
        "first_difference": difference,
        "last_message": {"sentence": about_last(compared), **last},
        **_agreement_json(agreed, new.characters, old.characters),
    }


def _first_json(new: Outline) -> dict[str, Any]:
    return {
        "sentence": _FIRST,
        "change": None,
        "with": None,
        "same": 0,
        "new": new.messages,
        "old": None,
        "first_difference": None,
        "last_message": None,
        **_agreement_json(Agreement(0, exact=True), new.characters, None),
    }


def _agreement_json(same: Agreement, characters: int, old: int | None) -> dict[str, Any]:
    return {
        "same_characters": same.characters,
        "exact": same.exact,
        "characters": characters,
        "old_characters": old,
    }


def _tokens_json(compared: Comparison | None, usage: Usage | None) -> dict[str, Any]:
    prompt = None if usage is None else usage.reused + usage.read
    could = None
    if compared is not None and usage is not None:
        # an estimate by characters; what was reused could be
        could = max(reusable(compared, usage.reused + usage.read), usage.reused)
    return {
        "prompt": prompt,
        "could_reuse": could,
        "reused": usage and usage.reused,
        "read": usage and usage.read,
    }


def _row_json(row: Row) -> dict[str, Any]:
    texts = {"text": row.text, "old_text": row.old_text}
    return {
        "number": row.number,
        "old_number": row.old_number,
        "role": row.role,
        "status": row.status.value,
        "read_again": row.read_again,
        "characters": row.characters,
        "same_characters": row.same.characters,
        **{name: text for name, text in texts.items() if text is not None},
    }
