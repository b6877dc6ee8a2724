"""
The snapshots of one server: the records and the files together.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from typing import Literal, Protocol, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from slotgate.sessions import Session, SessionKey, session_digits
from slotgate.snapshots.eviction import for_space, surplus
from slotgate.snapshots.fates import Fate, Fates
from slotgate.snapshots.files import Folder, FolderAway, file_mark
from slotgate.snapshots.fingerprints import Fingerprint
from slotgate.snapshots.index import Index
from slotgate.snapshots.names import file_name
from slotgate.snapshots.records import Snapshot

_T = TypeVar("_T")


class Blocking(Protocol):
    """Runs a blocking function off the reactor's thread."""

    def __call__(self, function: Callable[..., _T], *args: object) -> Deferred[_T]: ...


def _nobody(snapshot: Snapshot, fate: Fate) -> None:
    """Told where nobody counts."""


class NoRoom(Exception):
    """There is no room for a save, or no name that is safe to write to."""


@define
class Snapshots:
    """
    What is saved of one server's slots.

    Invariant: a record that :meth:`find` returns points at a file that was whole when it was
    committed and, where the folder is visible, still has its size.
    """

    server: str
    index: Index
    #: ``None``: this process does not see the folder; files are never checked or deleted.
    _folder: Folder | None
    _blocking: Blocking
    _secret: bytes
    _clock: IReactorTime
    #: What of a file is checked before it is restored.
    _verify: Literal["size", "xxh3"] = "size"
    #: The disk keeps at least so many bytes free.
    _min_free_bytes: int = 0
    #: Told of each snapshot that is dropped.
    _dropped: Callable[[Snapshot, Fate], None] = _nobody
    #: What became of the sessions that were here.
    fates: Fates = field(factory=Fates, init=False)
    #: Saves that got no answer: the server may still write their files.
    _abandoned: dict[SessionKey, list[Snapshot]] = field(factory=dict, init=False)
    #: Files during whose restore the server went away, once.
    _suspects: set[str] = field(factory=set, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def find(self, key: SessionKey) -> Snapshot | None:
        """
        The session's snapshot, if its file is what the record says.

        A record whose file is gone or has another size is dropped with a reason in the log: that
        is a miss, never an error.
        """
        found = await self.found(key)
        return found if isinstance(found, Snapshot) else None

    async def found(self, key: SessionKey) -> Snapshot | Fate | None:
        """
        As :meth:`find`, or what became of the session's cache; ``None``: it was never here.
        """
        snapshot = await self.index.find(key)
        if snapshot is None or snapshot.server != self.server:
            return self.fates.of(key)
        try:
            problem = await self._problem(snapshot.file, snapshot.size)
        except (FolderAway, OSError) as error:
            self._log.warn("{file} is not seen: {error}", file=snapshot.file, error=error)
            return Fate.FOLDER_AWAY
        if problem:
            missing = problem == os.strerror(errno.ENOENT)
            fate = Fate.MISSING if missing else Fate.DAMAGED
            await self.drop(snapshot, problem, fate)
            return fate
        return snapshot

    async def verified(self, snapshot: Snapshot) -> Snapshot | None:
        """
        The snapshot, if its bytes are those that were saved; checked where ``verify`` asks for it.

        llama-server notices a flipped byte in the tokens and not in the cache.
        """
        if self._verify == "size" or self._folder is None or not snapshot.checksum:
            return snapshot
        try:
            found = await self._blocking(self._folder.checksum, snapshot.file)
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                # a slow disk says nothing of the file
                self._log.warn("{file} is not restored: {error}", file=snapshot.file, error=error)
                return None
            found = str(error)
        if found == snapshot.checksum:
            return snapshot
        why = f"damaged: its xxh3 is {found} instead of {snapshot.checksum}"
        await self.drop(snapshot, why, Fate.DAMAGED)
        return None

    async def model_file(self, path: str) -> str:
        """Size and time of the model's file; empty where this process does not see it."""
        try:
            return await self._blocking(file_mark, path)
        except OSError:
            return ""

    def next_save(
        self,
        session: Session,
        previous: Snapshot | None,
        slot: int,
        written_by: Fingerprint,
    ) -> Snapshot:
        """
        What the next save of a session will be, with a file name that is not the good one's.

        Where the folder is not visible nothing can be deleted, so two names take turns: a session
        never leaves more than two files.

        :raises NoRoom: both names are taken, one of them by a save that may still come.
        """
        last = 0 if previous is None else previous.generation
        key = session.key
        abandoned = self._abandoned.get(key, [])
        if self._folder is None:
            generation = last % 2 + 1
            if abandoned:
                raise NoRoom("an earlier save of it got no answer and may still be written")
        else:
            generation = max(last, *(one.generation for one in abandoned), 0) + 1
        now = self._clock.seconds()
        return Snapshot(
            client=key.client or "",
            route=key.route,
            session=key.id,
            server=self.server,
            slot=slot,
            file=file_name(key.route, session_digits(key, self._secret), generation),
            generation=generation,
            tokens=0,
            size=0,
            checksum="",
            model=written_by.model,
            model_file=written_by.model_file,
            build=written_by.build,
            beginning=session.beginning,
            source=session.source,
            created=now if previous is None else previous.created,
            used=now,
        )

    async def make_room(
        self,
        session: Session,
        previous: Snapshot | None,
        tokens: int,
        needed: Collection[SessionKey],
    ) -> None:
        """
        Delete what a save that is about to come would push over the limits.

        :param tokens: how many are about to be saved, 0 when that is not known.
        :param needed: sessions whose snapshots stay.
        :raises NoRoom: the disk would have less than ``min_free_gib`` left.
        """
        if self._folder is None:
            return
        # before anything goes for a save that can not come
        await self._free_bytes()
        coming = 0
        if previous is not None and previous.tokens:
            # the cache grows with its tokens, checkpoints apart
            coming = previous.size * max(tokens, previous.tokens) // previous.tokens
        stays = {session.key, *needed}
        # the old generation goes right after the new one is whole, so it does not count
        await self._evict_surplus(
            session,
            stays,
            coming_files=0 if previous else 1,
            coming_bytes=coming - (previous.size if previous else 0),
        )
        free = await self._free_bytes()
        missing = self._min_free_bytes + coming - free
        if missing <= 0:
            return
        ours = [one for one in await self.index.all() if one.server == self.server]
        going = for_space(ours, stays, missing)
        if not going:
            raise NoRoom(f"the disk has {free / 1e9:.2f} GB left")
        for snapshot in going:
            await self.drop(snapshot, "evicted: the disk is nearly full", Fate.EVICTED)

    async def _free_bytes(self) -> int:
        """
        :raises NoRoom: the folder is not there, or does not answer.
        """
        if self._folder is None:
            return 0
        try:
            return await self._blocking(self._folder.free_bytes)
        except OSError as error:
            raise NoRoom(str(error)) from error

    async def evict(self, session: Session, needed: Collection[SessionKey]) -> None:
        """
        Delete what is over the limits of the session's route.

        :param needed: sessions whose snapshots stay: the one just saved and the one about to be
            restored.
        """
        if self._folder is None:
            return
        policy = session.policy
        left = await self._evict_surplus(session, needed)
        size = sum(snapshot.size for snapshot in left)
        if policy.max_bytes and size > policy.max_bytes:
            self._log.warn(
                "{route}: the snapshots that are needed now take {size} bytes alone, more than"
                " its limit of {limit}",
                route=session.key.route,
                size=size,
                limit=policy.max_bytes,
            )

    async def _evict_surplus(
        self,
        session: Session,
        needed: Collection[SessionKey],
        coming_files: int = 0,
        coming_bytes: int = 0,
    ) -> list[Snapshot]:
        policy = session.policy
        if not (policy.max_files or policy.max_bytes):
            return []
        snapshots = await self.index.of_route(self.server, session.key.route)
        going = surplus(
            snapshots, policy, needed, coming_files=coming_files, coming_bytes=coming_bytes
        )
        for snapshot in going:
            await self.drop(snapshot, "evicted: over the limits of its route", Fate.EVICTED)
        return [snapshot for snapshot in snapshots if snapshot not in going]

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
        problem = "no tokens in it"
        if tokens > 0:
            try:
                problem = await self._problem(saved.file, size)
            except (FolderAway, OSError) as error:
                problem = str(error)
        checksum = ""
        if not problem and self._verify == "xxh3" and self._folder is not None:
            try:
                checksum = await self._blocking(self._folder.checksum, saved.file)
            except OSError as error:
                problem = str(error)
        if problem:
            self._log.warn("{file} is not kept: {problem}", file=saved.file, problem=problem)
            await self.discard(saved)
            return None
        snapshot = evolve(saved, tokens=tokens, size=size, checksum=checksum)
        await self.index.commit(snapshot)
        if previous is not None and previous.server == self.server:
            await self.discard(previous)
        for abandoned in self._abandoned.pop(snapshot.key, []):
            await self.discard(abandoned)
        return snapshot

    def abandon(self, planned: Snapshot) -> None:
        """
        A save got no answer. llama-server carries it out even when nobody waits any longer
        (b11549), so its file may appear at any time; it is never restored.
        """
        self._abandoned.setdefault(planned.key, []).append(planned)

    def nothing_pending(self) -> None:
        """Contact with the server was lost: what it had not written by then it never will."""
        if self._folder is None:
            self._abandoned.clear()

    async def suspect(self, snapshot: Snapshot, reason: str) -> None:
        """
        The server went away during a restore.

        Of a file whose size is right it hardly died, so it gets a second chance. Where nobody can
        see the size it gets none: a truncated file would kill the server again and again.
        """
        if self._folder is not None and snapshot.file not in self._suspects:
            self._suspects.add(snapshot.file)
            self._log.warn("{file}: {reason}; tried once more", file=snapshot.file, reason=reason)
            return
        self._suspects.discard(snapshot.file)
        await self.drop(snapshot, reason, Fate.DAMAGED)

    async def used(self, snapshot: Snapshot) -> None:
        """A restore is a use: the snapshot is the last one to go."""
        await self.index.touch(snapshot, self._clock.seconds())

    async def drop(self, snapshot: Snapshot, reason: str, fate: Fate = Fate.DELETED) -> None:
        """
        Remove the record and its file: the next request of the session starts colder.

        :param reason: for the log.
        """
        self._log.info(
            "{file} of session {session} is dropped: {reason}",
            file=snapshot.file,
            session=snapshot.key.shown,
            reason=reason,
        )
        if await self.index.forget(snapshot):
            # once, however many find the same file gone
            self.fates.note(snapshot.key, fate)
            self._dropped(snapshot, fate)
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

    async def _problem(self, file: str, size: int) -> str:
        if self._folder is None:
            return ""
        return await self._blocking(self._folder.problem, file, size)
