"""
Why a request read what it read: one word and one sentence. No I/O.
"""

from __future__ import annotations

import enum

from attrs import frozen

from slotgate.llama.wire import Usage
from slotgate.slots.choice import Verdict
from slotgate.slots.reasons import MEANINGS, Reason
from slotgate.snapshots.fates import Fate


class Finding(enum.Enum):
    """What the answer told besides the verdict."""

    #: Nothing: it reused what could be reused.
    NONE = ""
    PROMPT_DIFFERS = "prompt differs"
    NOT_HELPFUL = "restore did not help"
    NOT_REUSED = "cache not reused"
    RESTARTED = "server restarted"
    OVERWRITTEN = "used by another client"


@frozen
class Explanation:
    """Why a request read what it read."""

    finding: Finding
    #: The finding as people see it: ``prompt differs at message 12``.
    words: str
    #: One sentence.
    sentence: str


@frozen
class Reuse:
    """What of a prompt could be reused, as far as two prompts tell."""

    #: About how many tokens, at the most.
    possible: int
    #: The first message that differs, counted from 1; 0: the tools; ``None``: the last prompt is
    #: all there.
    differs_at: int | None
    #: Its role.
    role: str = ""


#: So few tokens are read in any case: the end of a template, what a tokenizer joins.
FEW_TOKENS = 64

#: Less than this part of what could be reused is "not reused": an estimate by characters.
_SHARE = 0.5

_RESTORED = {
    Verdict.RESIDENT: "its cache was in the slot",
    Verdict.RESTORED: "its snapshot was restored",
    Verdict.FORKED: "it began with the cache of the conversation that it branches from",
}
_SLIDING = (
    "a model with a sliding window or a recurrent part can only go on from a checkpoint; use a"
    " llama-server that keeps them in its slot files (2026-10-08 or later), or --swa-full"
)

_LOST = {
    Fate.RESTARTED: "the server was restarted before it was saved",
    Fate.UNLOADED: "its model was unloaded before it was saved",
    Fate.OVERWRITTEN: "another client used the slot, past slotgate, before it was saved",
    Fate.DELETED: "its snapshot was deleted",
    Fate.UNSAVED: "it was not saved before its slot was used for something else",
}


def explain(
    verdict: Verdict,
    reason: Reason,
    fate: Fate | None,
    usage: Usage | None,
    reuse: Reuse | None,
    side: str = "",
) -> Explanation:
    """
    Why a request read what it read.

    :param fate: what had become of its session's cache before it.
    :param usage: the token counts of the answer; ``None``: it told none.
    :param reuse: what could be reused; ``None``: there is no prompt to compare with.
    :param side: why it is none of its conversation, if it is not.
    """
    start = _start(verdict, reason, fate, side)
    finding, words, more = _found(verdict, fate, usage, reuse)
    return Explanation(finding, words, f"{start}; {more}" if more else start)


def _start(verdict: Verdict, reason: Reason, fate: Fate | None, side: str) -> str:
    if reason is Reason.SIDE_REQUEST and side:
        return f"{MEANINGS[reason]} ({side})"
    if reason is Reason.NO_SNAPSHOT and fate in _LOST:
        return _LOST[fate]
    return _RESTORED.get(verdict) or MEANINGS[reason]


def _found(
    verdict: Verdict, fate: Fate | None, usage: Usage | None, reuse: Reuse | None
) -> tuple[Finding, str, str]:
    if verdict in (Verdict.RESTORED, Verdict.COLD) and fate is Fate.RESTARTED:
        return Finding.RESTARTED, Finding.RESTARTED.value, "the server was restarted meanwhile"
    if verdict in (Verdict.RESTORED, Verdict.COLD) and fate is Fate.OVERWRITTEN:
        return (
            Finding.OVERWRITTEN,
            Finding.OVERWRITTEN.value,
            "another client used the slot meanwhile: let every client come through slotgate",
        )
    if usage is None or reuse is None or verdict not in _RESTORED:
        return Finding.NONE, "", ""
    prompt = usage.read + usage.reused
    if usage.read <= FEW_TOKENS or usage.reused >= prompt - FEW_TOKENS:
        return Finding.NONE, "", ""
    if usage.reused + FEW_TOKENS < _SHARE * reuse.possible:
        read = f"{usage.read} of {prompt} tokens were read, though about {reuse.possible} are the"
        if verdict is Verdict.RESTORED:
            words = "restore did not help (sliding window or hybrid model?)"
            return Finding.NOT_HELPFUL, words, f"{read} same: {_SLIDING}"
        words = "cache not reused (sliding window or hybrid model?)"
        return Finding.NOT_REUSED, words, f"{read} same: {_SLIDING}"
    if reuse.differs_at is not None:
        where = f"message {reuse.differs_at}" if reuse.differs_at else "the tools"
        role = f" ({reuse.role})" if reuse.role and reuse.differs_at else ""
        return (
            Finding.PROMPT_DIFFERS,
            f"prompt differs at {where}",
            f"the prompt differs from the last one at {where}{role}, and what follows is read"
            " again",
        )
    return Finding.NONE, "", ""
