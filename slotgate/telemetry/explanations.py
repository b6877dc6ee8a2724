"""
Why a request read what it read: one word and one sentence. No I/O.
"""

from __future__ import annotations

import enum

from attrs import frozen

from slotgate.llama.wire import Usage
from slotgate.slots.choice import Verdict
from slotgate.slots.reasons import Cause, Reason
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
    EMPTIED = "slot emptied"


@frozen
class Explanation:
    """Why a request read what it read."""

    finding: Finding
    #: The finding as people see it: ``prompt differs at message 12``.
    finding_text: str
    #: One sentence.
    sentence: str


@frozen
class Reuse:
    """What of a prompt could be reused, as far as two prompts tell."""

    #: About how many tokens, at the most; ``None``: characters do not tell, as with images.
    possible: int | None
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

#: What happened to the slot since the session's last request, and what to do about it.
_HAPPENED = {
    Fate.RESTARTED: (
        Finding.RESTARTED,
        "the server was restarted, or its model fell asleep, since the last request",
        "",
    ),
    Fate.OVERWRITTEN: (
        Finding.OVERWRITTEN,
        "another client used the slot since the last request",
        "let every client come through slotgate",
    ),
    Fate.EMPTIED: (
        Finding.EMPTIED,
        "the slot was emptied since the last request",
        "start llama-server with -np 1, as automatic slots are emptied when they are idle",
    ),
}


def explain(
    verdict: Verdict,
    cause: Cause,
    usage: Usage | None,
    reuse: Reuse | None,
    side: str = "",
) -> Explanation:
    """
    Why a request read what it read.

    :param cause: why it was cold, and what had become of its session's cache before it.
    :param usage: the token counts of the answer; ``None``: it told none.
    :param reuse: what could be reused; ``None``: there is no prompt to compare with.
    :param side: why it is none of its conversation, if it is not.
    """
    start = _RESTORED.get(verdict) or cause.meaning
    if cause.reason is Reason.SIDE_REQUEST and side:
        start = f"{start} ({side})"
    finding, text, more = _found(verdict, cause, usage, reuse)
    return Explanation(finding, text, f"{start}; {more}" if more else start)


def _found(
    verdict: Verdict, cause: Cause, usage: Usage | None, reuse: Reuse | None
) -> tuple[Finding, str, str]:
    lost = verdict is Verdict.RESTORED or cause.reason is Reason.NO_SNAPSHOT
    if lost and cause.fate in _HAPPENED:
        finding, sentence, advice = _HAPPENED[cause.fate]
        if verdict is not Verdict.RESTORED:
            # why it is cold says the same
            sentence = ""
        return finding, finding.value, ": ".join(filter(None, (sentence, advice)))
    if usage is None or reuse is None or verdict not in _RESTORED:
        return Finding.NONE, "", ""
    prompt = usage.read + usage.reused
    if usage.read <= FEW_TOKENS or usage.reused >= prompt - FEW_TOKENS:
        return Finding.NONE, "", ""
    possible = reuse.possible
    if possible is not None and usage.reused + FEW_TOKENS < _SHARE * possible:
        finding = Finding.NOT_REUSED
        if verdict is Verdict.RESTORED:
            finding = Finding.NOT_HELPFUL
        return (
            finding,
            f"{finding.value} (sliding window or hybrid model?)",
            f"{usage.read} of {prompt} tokens were read, though about {possible} are the same:"
            f" {_SLIDING}",
        )
    if reuse.differs_at is not None and verdict is not Verdict.FORKED:
        # a branch differs by its nature
        where = f"message {reuse.differs_at}" if reuse.differs_at else "the tools"
        role = f" ({reuse.role})" if reuse.role and reuse.differs_at else ""
        return (
            Finding.PROMPT_DIFFERS,
            f"{Finding.PROMPT_DIFFERS.value} {'at' if reuse.differs_at else 'in'} {where}",
            f"the prompt differs from the last one {'at' if reuse.differs_at else 'in'}"
            f" {where}{role}, and what follows is read again",
        )
    return Finding.NONE, "", ""
