"""
Conversations known by their history: where no client names them, and which of the requests that
one name is used for belong together.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.histories import History
from slotgate.sessions import SessionKey

#: So many conversations are remembered; about 400 bytes each.
MOST = 20_000

#: A request that does not go on with its session is beside it when it has less than this part of
#: its characters.
SMALL = 0.25


@frozen
class Conversation:
    """What is remembered of a conversation."""

    key: SessionKey
    #: The name that its client uses for it, and maybe for others; empty: it has none.
    name: str
    #: The digest of its last request (:attr:`slotgate.histories.History.tip`).
    tip: bytes
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
    _by_tip: dict[tuple[str | None, str, str, bytes], SessionKey] = field(factory=dict, init=False)
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
        found = self._goes_on_with(client, route, "", history)
        key = found or SessionKey(client, route, f"chat-{self._new_id()}")
        self._went_on(key, "", history)
        return Belonging(key, found is not None)

    def named(self, key: SessionKey, history: History) -> Belonging:
        """
        The session of a request that names one.

        One name can stand for several conversations: titles and summaries of a chat, the
        sub-agents of an agent. What does not go on with the session, has another system prompt
        and is small beside it must not take its place; if that goes on, it is a session of its
        own.
        """
        found = self._goes_on_with(key.client, key.route, key.id, history)
        known = self._known.get(key)
        if found is None and known is not None and _beside(history, known):
            before = self._beside.pop(key, None)
            if before is None or not history.extends(before):
                self._beside[key] = history.tip
                while len(self._beside) > MOST:
                    self._beside.popitem(last=False)
                return Belonging(None, False)
            key, name = evolve(key, id=f"{key.id}~{self._new_id()}"), key.id
            self._went_on(key, name, history)
            return Belonging(key, False)
        self._went_on(found or key, key.id, history)
        return Belonging(found or key, found is not None)

    def _goes_on_with(
        self, client: str | None, route: str, name: str, history: History
    ) -> SessionKey | None:
        for digest in reversed(history.digests):
            key = self._by_tip.get((client, route, name, digest))
            if key is not None:
                return key
        return None

    def _went_on(self, key: SessionKey, name: str, history: History) -> None:
        conversation = Conversation(
            key, name, history.tip, history.start, history.size, self._seconds()
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
        self._by_tip[_place(conversation)] = conversation.key
        gone = []
        while len(self._known) > MOST:
            key = next(iter(self._known))
            self._drop(key)
            gone.append(key)
        return gone

    def _drop(self, key: SessionKey) -> None:
        before = self._known.pop(key, None)
        if before is not None and self._by_tip.get(_place(before)) == key:
            del self._by_tip[_place(before)]


def _beside(history: History, known: Conversation) -> bool:
    """Whether a request that does not go on with a session is something else than its next one."""
    same_kind = history.start == known.start != b""
    return not same_kind and history.size < SMALL * known.size


def _place(conversation: Conversation) -> tuple[str | None, str, str, bytes]:
    key = conversation.key
    return key.client, key.route, conversation.name, conversation.tip
