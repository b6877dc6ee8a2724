"""
Why a session's last prompt was read again, as lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotgate.commands.tables import NONE, as_number, count, table
from slotgate.plain import printable


def comparison(prompt: Mapping[str, Any] | None, width: int | None) -> list[str]:
    """
    A session's two last prompts compared.

    :param prompt: what the API says; ``None``: no two prompts are remembered.
    """
    if prompt is None:
        return ["no two prompts of it are remembered to compare"]
    lines = [printable(str(prompt.get("sentence") or "the two last prompts compared"))]
    tokens = prompt.get("tokens")
    if isinstance(tokens, dict) and (told := _tokens(tokens)):
        lines.append(told)
    if prompt.get("verdict"):
        lines.append(f"the cache: {printable(str(prompt['verdict']))}")
    rows = [row for row in _rows(prompt.get("messages")) if isinstance(row, dict)]
    if not rows:
        return lines
    table_rows = [
        [
            _number(row.get("number")),
            _number(row.get("old_number")),
            str(row.get("role") or NONE),
            str(row.get("status") or NONE) + (", read again" if _again(row) else ""),
            count(row.get("characters")),
            count(row.get("same_characters")),
        ]
        for row in rows
    ]
    headings = ["NO", "WAS", "ROLE", "STATUS", "CHARACTERS", "SAME"]
    right = ("NO", "WAS", "CHARACTERS", "SAME")
    yielding = ("ROLE", "STATUS")
    return [*lines, "", *table(headings, table_rows, width=width, right=right, yielding=yielding)]


def _again(row: Mapping[str, Any]) -> bool:
    return bool(row.get("read_again")) and row.get("status") != "read again"


def _tokens(tokens: Mapping[str, Any]) -> str:
    parts = [
        f"{printable(str(name)).replace('_', ' ')} {as_number(value):,.0f}"
        for name, value in tokens.items()
        if as_number(value) is not None
    ]
    return f"tokens: {', '.join(parts)}" if parts else ""


def _rows(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> str:
    return str(value) if isinstance(value, int) else NONE
