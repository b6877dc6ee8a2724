"""
Conversations known by their history: where no client names them, and which of the requests that
one name is used for belong together.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeAlias

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.histories import History
from slotgate.sessions import SessionKey

#: So many conversations are remembered; about 400 bytes each.
MOST = 20_000

#: After so many new conversations in a row that begin with one system prompt, and none of which
#: goes on, the next ones are taken for single questions: a program that asks many must not wait
#: for a file to be written between any two.
QUESTIONS = 4

#: A request that does not go on with its session is beside it when it has less than this part of
#: its characters.
SMALL = 0.25


#: Client, route, name and a digest.
_Place: TypeAlias = tuple[str | None, str, str, bytes]


@frozen
class Conversation:
    """What is remembered of a conversation."""

    key: SessionKey
    #: The name that its client uses for it, and maybe for others; empty: it has none.
    name: str
    #: The digest of its last request (:attr:`slotgate.histories.History.tip`), the same without
    #: its system prompt, and those of its first message and of what came before the last one.
    tip: bytes
    bare: bytes
    first: bytes
    before: bytes
    #: How it begins (:attr:`slotgate.histories.History.start`).
    start: bytes
    #: Characters of its last request.
    size: int
    #: When that was, in seconds since the epoch.
    used: float


class Remembering(Protocol):
    """Where conversations outlive us: :class:`slotgate.snapshots.index.Index`."""

    async def remember(self, conversation: Conversation) -> None:
        """Remember it as it is now."""

    async def forget_conversations(self, keys: Iterable[SessionKey]) -> None:
        """Remember these no longer."""


def _random_id() -> str:
    return secrets.token_hex(8)


@frozen
class Belonging:
    """Which session a request belongs to."""

    #: ``None``: it is beside its session, and nothing of it is kept.
    key: SessionKey | None
    #: It begins with all of what the session was last.
    goes_on: bool
    #: The session that it begins as, where it is a new one.
    parent: SessionKey | None = None
    #: It is one of many single questions.
    passing: bool = False
    #: To be called when the server has worked on it: what comes next goes on with it.
    went_on: Callable[[], None] = lambda: None


@define(eq=False)
class Conversations:
    """
    The conversations of all clients.

    Invariants: at most :data:`MOST`, those used longest ago go first; a tip leads to one
    conversation of its client, route and name, the one that had it last.
    """

    _remembering: Remembering
    _seconds: Callable[[], float]
    _new_id: Callable[[], str] = _random_id
    _known: OrderedDict[SessionKey, Conversation] = field(factory=OrderedDict, init=False)
    _by_tip: dict[_Place, SessionKey] = field(factory=dict, init=False)
    _by_bare: dict[_Place, SessionKey] = field(factory=dict, init=False)
    _by_before: dict[_Place, SessionKey] = field(factory=dict, init=False)
    #: How many conversations of a client, a route and a system prompt began since one went on.
    _questions: OrderedDict[tuple[str | None, str, bytes], int] = field(
        factory=OrderedDict, init=False
    )
    #: The last request that was beside each session.
    _beside: OrderedDict[SessionKey, bytes] = field(factory=OrderedDict, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def recall(self, conversations: Iterable[Conversation]) -> None:
        """
        Know what the slotgate before us knew.

        :param conversations: the one used longest ago first.
        """
        for conversation in conversations:
            self._keep(conversation)

    def unnamed(self, client: str | None, route: str, history: History) -> Belonging:
        """
        The session of a request that names none: the one that it goes on with, else a new one.
        """
        found, strictly = self._goes_on_with(client, route, "", history)
        kind = client, route, history.start
        asked = 0 if found else self._questions.pop(kind, 0) + 1
        self._questions[kind] = asked
        while len(self._questions) > MOST:
            self._questions.popitem(last=False)
        parent = None if found else self._parent(client, route, "", history)
        key = found or SessionKey(client, route, f"chat-{self._new_id()}")
        return Belonging(
            key=key,
            goes_on=strictly,
            parent=parent,
            passing=asked > QUESTIONS,
            went_on=partial(self._went_on, key, "", history),
        )

    def named(self, key: SessionKey, history: History, *, shared: bool = False) -> Belonging:
        """
        The session of a request that names one.

        One name can stand for several conversations: titles and summaries of a chat, the
        sub-agents of an agent. What does not go on with the session must not take its place where
        it is small: it is beside it, and a session of its own if that goes on. Neither may what
        has another system prompt and begins otherwise.

        :param shared: the name may be that of an application, so that what begins with another
            message is another conversation.
        """
        name = key.id
        found, strictly = self._goes_on_with(key.client, key.route, name, history)
        known = self._known.get(key)
        parent = None
        if found is None and known is not None:
            if _beside(history, known):
                before = self._beside.pop(key, None)
                if before is None or not history.extends(before):
                    self._note_beside(key, history)
                    return Belonging(None, False)
                found = evolve(key, id=f"{name}~{self._new_id()}")
            elif _another(history, known) or (shared and history.digests[0] != known.first):
                parent = self._parent(key.client, key.route, name, history)
                found = evolve(key, id=f"{name}~{self._new_id()}")
        key = found or key
        went_on = partial(self._went_on, key, name, history)
        return Belonging(key, strictly, parent, went_on=went_on)

    def _note_beside(self, key: SessionKey, history: History) -> None:
        self._beside[key] = history.tip
        while len(self._beside) > MOST:
            self._beside.popitem(last=False)

    def _goes_on_with(
        self, client: str | None, route: str, name: str, history: History
    ) -> tuple[SessionKey | None, bool]:
        """The conversation that is the beginning of it, and whether its system prompt is, too."""
        for digest in reversed(history.digests):
            key = self._by_tip.get((client, route, name, digest))
            if key is not None:
                return key, True
        # a system prompt can have the time of day in it. Two messages are no chance any more
        for digest in reversed(history.bare[1:]):
            key = self._by_bare.get((client, route, name, digest))
            if key is not None and history.bare[0] == self._known[key].first:
                return key, False
        return None, False

    def _parent(
        self, client: str | None, route: str, name: str, history: History
    ) -> SessionKey | None:
        """The conversation that shares all but the last message of its last request."""
        for digest in reversed(history.digests[:-1]):
            key = self._by_before.get((client, route, name, digest))
            if key is not None:
                return key
        return None

    def _went_on(self, key: SessionKey, name: str, history: History) -> None:
        conversation = Conversation(
            key=key,
            name=name,
            tip=history.tip,
            bare=history.bare[-1],
            first=history.bare[0],
            before=history.digests[-2] if len(history.digests) > 1 else b"",
            start=history.start,
            size=history.size,
            used=self._seconds(),
        )
        if gone := self._keep(conversation):
            self._write(self._remembering.forget_conversations(gone))
        self._write(self._remembering.remember(conversation))

    def _write(self, work: object) -> None:
        """Nobody waits for it: what is lost by a kill costs a session its recognition."""
        Deferred.fromCoroutine(work).addErrback(self._not_written)  # type: ignore[arg-type]

    def _not_written(self, failure: Failure) -> None:
        self._log.debug("a conversation is not remembered: {error}", error=failure.value)

    def _keep(self, conversation: Conversation) -> list[SessionKey]:
        """Keep a conversation as it is now; which ones had to go for it."""
        self._drop(conversation.key)
        self._known[conversation.key] = conversation
        for places, digest in self._places(conversation):
            places[_place(conversation, digest)] = conversation.key
        gone = []
        while len(self._known) > MOST:
            key = next(iter(self._known))
            self._drop(key)
            gone.append(key)
        return gone

    def _drop(self, key: SessionKey) -> None:
        before = self._known.pop(key, None)
        if before is None:
            return
        for places, digest in self._places(before):
            if places.get(_place(before, digest)) == key:
                del places[_place(before, digest)]

    def _places(self, one: Conversation) -> list[tuple[dict[_Place, SessionKey], bytes]]:
        found = [(self._by_tip, one.tip), (self._by_bare, one.bare)]
        return [*found, (self._by_before, one.before)] if one.before else found


def _beside(history: History, known: Conversation) -> bool:
    """Whether a request that does not go on with a session is something small beside it."""
    return history.size < SMALL * known.size


def _another(history: History, known: Conversation) -> bool:
    """Whether it is another conversation: with another system prompt and another first message."""
    return history.start != known.start and history.bare[0] != known.first


def _place(conversation: Conversation, digest: bytes) -> _Place:
    key = conversation.key
    return key.client, key.route, conversation.name, digest
