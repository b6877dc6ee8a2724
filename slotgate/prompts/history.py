"""
The last prompts of sessions.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Self

from attrs import define, evolve, field, frozen

from slotgate import config
from slotgate.llama.wire import Usage
from slotgate.prompts.comparison import Comparison, compare
from slotgate.prompts.outline import Outline, outline_of
from slotgate.sessions import SessionKey

#: What a session costs beside its key and its prompts, in bytes: its record, the number in it, and
#: its place in the dictionary.
_RECORD = 512


@frozen(eq=False)
class Remembered:
    """What is remembered of a session's prompts."""

    #: The last one.
    new: Outline
    #: The one before it; ``None``: it is the first.
    old: Outline | None = None
    #: The one before it is that of the session that this one begins as.
    of_parent: bool = False
    #: What the server said of the tokens of the last one; ``None``: nothing, or not yet.
    usage: Usage | None = None
    #: How the last one found its cache (``X-Slotgate-Cache``), and why, in a sentence.
    cache: str = ""
    verdict: str = ""

    def compared(self) -> Comparison | None:
        """The last prompt beside the one before it."""
        if self.old is None:
            return None
        return evolve(compare(self.old, self.new), of_parent=self.of_parent)


@define(eq=False)
class PromptHistory:
    """
    The last two prompts of each session, of those that were used last.

    Invariants: at most ``sessions`` of them, and at most ``most_bytes`` for all. A part that two
    sessions share counts for both, so that is no less than it takes.
    """

    #: Of so many sessions; 0: of none.
    sessions: int
    most_bytes: int
    #: Keep the texts too.
    keep_prompts: bool
    #: How many bytes all of it takes.
    size: int = field(default=0, init=False)
    _known: OrderedDict[SessionKey, tuple[Remembered, int]] = field(
        factory=OrderedDict, init=False, repr=False
    )

    @classmethod
    def of(cls, settings: config.PromptHistory) -> Self:
        """As the configuration says."""
        return cls(settings.sessions, int(settings.mib * 1024 * 1024), settings.keep_prompts)

    def __len__(self) -> int:
        return len(self._known)

    def note(
        self, key: SessionKey, fields: Mapping[str, object], parent: SessionKey | None = None
    ) -> Comparison | None:
        """
        Remember the prompt of a session's request, and compare it with the one before.

        :param fields: the request's JSON.
        :param parent: the session that this one begins as, where it is a new one.
        :returns: ``None``: there is none to compare it with.
        """
        if not self.sessions:
            return None
        before = self.last_two(key)
        of_parent = before is None and parent is not None
        if before is None and parent is not None:
            before = self.last_two(parent)
        old = None if before is None else before.new
        new = outline_of(fields, previous=old, keep_text=self.keep_prompts)
        if new is None:
            # what the slot had is not there any more, so there is nothing to compare the next with
            self.forget(key)
            return None
        remembered = Remembered(new, old, of_parent=of_parent and old is not None)
        self._put(key, remembered)
        return remembered.compared()

    def answered(self, key: SessionKey, usage: Usage | None, cache: str, verdict: str) -> None:
        """
        Remember what came of the session's last request.

        :param cache: as in ``X-Slotgate-Cache``.
        :param verdict: a sentence.
        """
        if before := self.last_two(key):
            self._put(key, evolve(before, usage=usage, cache=cache, verdict=verdict))

    def last_two(self, key: SessionKey) -> Remembered | None:
        """What is remembered of a session."""
        found = self._known.get(key)
        return None if found is None else found[0]

    def known(self, key: SessionKey) -> bool:
        """Whether something is remembered of a session."""
        return key in self._known

    def named(self, client: str | None, session: str) -> list[SessionKey]:
        """
        The sessions with an id of which something is remembered.

        :param client: whose they are; ``None``: anybody's.
        """
        return [key for key in self._known if key.id == session and client in (None, key.client)]

    def forget(self, key: SessionKey) -> None:
        """Remember nothing of a session any longer."""
        _, size = self._known.pop(key, (None, 0))
        self.size -= size

    def _put(self, key: SessionKey, remembered: Remembered) -> None:
        self.forget(key)
        size = _size(key, remembered)
        if size > self.most_bytes:
            # all others would have to go for it, and then it as well
            return
        self._known[key] = remembered, size
        self.size += size
        while len(self._known) > self.sessions or self.size > self.most_bytes:
            self.forget(next(iter(self._known)))


def _size(key: SessionKey, remembered: Remembered) -> int:
    """How many bytes a session takes."""
    outlines = [one for one in (remembered.new, remembered.old) if one is not None]
    parts = {id(part): part for one in outlines for part in one.parts}
    said = (key.client or "", key.route, key.id, remembered.cache, remembered.verdict)
    return (
        _RECORD
        + sum(map(sys.getsizeof, said))
        + sum(sys.getsizeof(one) + sys.getsizeof(one.parts) for one in outlines)
        + sum(part.size for part in parts.values())
    )
