"""
The slots of the fake server: what each holds and which one a request gets. No I/O, no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

_BOS = 1
_FIRST_BYTE = 3
_SPACE = 259
GAP = (260, 261, 262)
"""The tokens before the text before a gap, before the one after it, and at the gap."""
SIMILARITY = 0.1
"""The share of a prompt that a slot must hold to be chosen for it (llama-server's default)."""


def tokenize(text: str, *, begin: bool = True) -> list[int]:
    """
    Turn a text into tokens as the tiny models do: one per byte, and one for the beginning.
    """
    tokens = [_SPACE if byte == 0x20 else byte + _FIRST_BYTE for byte in text.encode()]
    return [_BOS, *tokens] if begin else tokens


def detokenize(tokens: Sequence[int]) -> str:
    """
    Turn tokens back into their text.
    """
    data = bytes(
        0x20 if t == _SPACE else t - _FIRST_BYTE for t in tokens if _FIRST_BYTE <= t <= _SPACE
    )
    return data.decode("utf-8", "replace")


def common_beginning(left: Sequence[int], right: Sequence[int]) -> int:
    """
    The number of tokens that two prompts begin with alike.
    """
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


@define
class Slot:
    """
    One slot.

    :ivar tokens: what its cache holds.
    :ivar task: the id of the last request that ran in it; None in a fresh one.
    :ivar used: the turn at which it was used last, 0 in a fresh one.
    :ivar processing: whether a request runs in it.
    :ivar params: the sampling parameters of that last request, as far as the fake knows them.
    """

    id: int
    tokens: list[int] = field(factory=list)
    task: int | None = None
    used: int = 0
    processing: bool = False
    read: int = 0
    reused: int = 0
    predicted: int = 0
    params: dict[str, Any] = field(factory=dict)

    def clear(self) -> int:
        """
        Empty the cache; the number of tokens it held.
        """
        count = len(self.tokens)
        self.tokens = []
        return count

    def begin(
        self,
        task: int,
        turn: int,
        prompt: Sequence[int],
        params: dict[str, Any],
        *,
        reuse: bool = True,
    ) -> int:
        """
        Start a request: keep what its prompt shares with the cache, but for the last token, which
        is always read again since the answer begins with it.

        :returns: the number of tokens that need not be read.
        """
        reused = common_beginning(self.tokens, prompt) if reuse else 0
        if reused == len(prompt):
            reused -= 1
        self.tokens = list(prompt[:reused])
        self.task, self.used, self.params = task, turn, params
        self.processing = True
        self.read, self.reused, self.predicted = 0, reused, 0
        return reused

    def end(self) -> None:
        """
        Let the request's result stand and be idle.
        """
        self.processing = False
        self.read = self.reused = self.predicted = 0

    def describe(self, context: int) -> dict[str, Any]:
        """
        The slot in ``GET /slots``: a fresh one tells least.
        """
        answer: dict[str, Any] = {
            "id": self.id,
            "n_ctx": context,
            "speculative": False,
            "is_processing": self.processing,
        }
        if self.task is None:
            return answer
        return {
            **answer,
            "id_task": self.task,
            "n_prompt_tokens": len(self.tokens),
            "n_prompt_tokens_processed": self.read,
            "n_prompt_tokens_cache": self.reused,
            "params": self.params,
            "next_token": [
                {
                    "has_next_token": self.processing,
                    "has_new_line": False,
                    "n_remain": -1,
                    "n_decoded": self.predicted,
                }
            ],
        }


def choose(slots: Sequence[Slot], prompt: Sequence[int]) -> Slot | None:
    """
    The idle slot for a request that asks for none: the one that shares the longest beginning, when
    that is more than a tenth of the prompt, else the least recently used. None when all are busy.
    """
    idle = [slot for slot in slots if not slot.processing]
    if not idle:
        return None
    best = max(idle, key=lambda slot: common_beginning(slot.tokens, prompt))
    if common_beginning(best.tokens, prompt) > SIMILARITY * len(prompt):
        return best
    # of slots never used, the last: as the real one does
    return min(idle, key=lambda slot: (slot.used, -slot.id))


def wrapped(slots: Sequence[Slot], slot_id: int) -> Slot:
    """
    The slot of an id, which the server does not check: it wraps around.
    """
    return slots[slot_id % len(slots)]
