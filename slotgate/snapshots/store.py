"""
The snapshots of one server: the records and the files together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from slotgate.sessions import Session, SessionKey, session_digits
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index, Snapshot
from slotgate.snapshots.names import file_name

_T = TypeVar("_T")


class Blocking(Protocol):
    """Runs a blocking function off the reactor's thread."""

    def __call__(self, function: Callable[..., _T], *args: object) -> Deferred[_T]: ...


@define
class Snapshots:
    """
    What is saved of one server's slots.

    Invariant: a record that :meth:`find` returns points at a file that was whole when it was
    committed and, where the folder is visible, still has its size.
    """

    _server: str
    _index: Index
    #: ``None``: this process does not see the folder; files are never checked or deleted.
    _folder: Folder | None
    _blocking: Blocking
    _secret: bytes
    _clock: IReactorTime
    #: Generations whose save got no answer: the server may still write them, so their names are
    #: not used again.
    _abandoned: dict[SessionKey, int] = field(factory=dict, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def find(self, key: SessionKey) -> Snapshot | None:
        """
        The session's snapshot, if it may be restored.

        A record whose file is gone or has another size is dropped with a reason in the log: that
        is a miss, never an error.
        """
        snapshot = await self._index.find(key)
        if snapshot is None or snapshot.server != self._server:
            return None
        if self._folder is not None:
            problem = await self._blocking(self._folder.problem, snapshot.file, snapshot.size)
            if problem:
                await self.drop(snapshot, problem)
                return None
        return snapshot

    def next_save(self, session: Session, previous: Snapshot | None, slot: int) -> Snapshot:
        """
        What the next save of a session will be, with a file name that is not the good one's.

        Where the folder is not visible nothing can be deleted, so two names take turns: a session
        never leaves more than two files.
        """
        last = 0 if previous is None else previous.generation
        key = session.key
        if self._folder is None:
            generation = last % 2 + 1
        else:
            generation = max(last, self._abandoned.get(key, 0)) + 1
        now = self._clock.seconds()
        return Snapshot(
            client=key.client or "",
            route=key.route,
            session=key.id,
            server=self._server,
            slot=slot,
            file=file_name(key.route, session_digits(key, self._secret), generation),
            generation=generation,
            tokens=0,
            size=0,
            source=session.source,
            created=now,
            used=now,
        )

    async def commit(
        self, saved: Snapshot, tokens: int, size: int, previous: Snapshot | None
    ) -> Snapshot | None:
        """
        Make a save the session's snapshot; the file of the one before goes afterwards.

        :param tokens: ``n_saved`` of the server's answer.
        :param size: ``n_written`` of the server's answer.
        :returns: ``None`` when the save is not worth trusting: no tokens in it (an empty slot
            "saves" too), or the file has another size than the server said it wrote. The
            previous snapshot then stays the good one.
        """
        problem = "no tokens in it" if tokens <= 0 else ""
        if not problem and self._folder is not None:
            problem = await self._blocking(self._folder.problem, saved.file, size)
        if problem:
            self._log.warn("{file} is not kept: {problem}", file=saved.file, problem=problem)
            await self.discard(saved)
            return None
        snapshot = evolve(saved, tokens=tokens, size=size)
        await self._index.commit(snapshot)
        if previous is not None and previous.server == self._server:
            await self.discard(previous)
        return snapshot

    def abandon(self, planned: Snapshot) -> None:
        """
        A save got no answer. llama-server carries it out even when nobody waits any longer
        (b11549), so its file may appear at any time; it is never restored.
        """
        self._abandoned[planned.key] = planned.generation

    async def used(self, snapshot: Snapshot) -> None:
        """A restore is a use: the snapshot is the last one to go."""
        await self._index.touch(snapshot, self._clock.seconds())

    async def drop(self, snapshot: Snapshot, reason: str) -> None:
        """Remove the record and its file: the next request of the session starts colder."""
        self._log.info(
            "{file} of session {session} is dropped: {reason}",
            file=snapshot.file,
            session=snapshot.key.shown,
            reason=reason,
        )
        await self._index.forget(snapshot)
        await self.discard(snapshot)

    async def discard(self, snapshot: Snapshot) -> None:
        """Delete the file of a snapshot that has no record (any more)."""
        if self._folder is None:
            return
        try:
            await self._blocking(self._folder.remove, snapshot.file)
        except OSError as error:
            # it takes disk space and does no other harm: nothing is restored without a record
            self._log.warn("can not delete {file}: {error}", file=snapshot.file, error=error)
