"""
The folder of slot files, and the doctor's own files in it.

The disk is asked in threads: it can be a network folder whose server is away.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.python.failure import Failure

from slotgate.doctor.facts import Folder, Probe, Saving
from slotgate.doctor.stopping import Loose
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.wire import SlotStatus, slots_from

_T = TypeVar("_T")

#: The doctor's files, and nobody else's: no snapshot's name matches it, so nothing sweeps them.
PROBE = re.compile(r"slotgate-doctor-[0-9a-f]{16}\.probe\Z")

#: How much is written to find out how fast the disk is, and how long that may take at most.
MOST_BYTES = 32 << 20
MOST_SECONDS = 0.3
_CHUNK = 4 << 20

#: A slot with more tokens than this is not saved only to see whether that works: its file can
#: have gigabytes.
MOST_TOKENS = 32768

DISK_SECONDS = 10.0

#: A file that is older was left by a doctor that was killed: none runs so long.
LEFT_SECONDS = 3600.0

#: A name that llama-server refuses, but only after it has seen that it has a folder (b11434,
#: b11549): nothing is written, and no slot is touched.
_NO_NAME = "/"


def in_thread(reactor: Any, seconds: float, function: Callable[[], _T]) -> Deferred[_T]:
    """
    Call a function in a thread of its own, which does not keep the process from ending; the
    reactor's thread pool would.

    :param seconds: after so many it fails with :class:`twisted.internet.defer.TimeoutError`.
    """
    done: Deferred[_T] = Deferred(lambda _: None)

    def told(result: _T | Failure) -> None:
        if not done.called:
            done.callback(result)

    def work() -> None:
        try:
            result: _T | Failure = function()
        except BaseException:
            result = Failure()
        reactor.callFromThread(told, result)

    threading.Thread(target=work, daemon=True).start()
    return done.addTimeout(seconds, reactor)


def probe_name() -> str:
    """A name that no file has."""
    return f"slotgate-doctor-{secrets.token_hex(8)}.probe"


def size_of(folder: Path, file: str) -> int | None:
    """The size of a probe's file; ``None``: there is none that we can see."""
    try:
        return (folder / file).lstat().st_size
    except OSError:
        return None


def delete(folder: Path, file: str) -> str:
    """
    Delete one of our files.

    :returns: why it could not be deleted; empty: there is no such file any more.
    :raises ValueError: the name is not one of ours.
    """
    if not PROBE.match(file):
        raise ValueError(f"not a name of the doctor's: {file!r}")
    try:
        (folder / file).unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def left_in(path: Path, now: float) -> tuple[tuple[str, ...], int]:
    """
    The files of doctors that were killed, and their bytes together.

    :param now: in seconds since the epoch. Younger files can be those of a doctor that runs.
    """
    found: list[str] = []
    size = 0
    try:
        for file in path.iterdir():
            if PROBE.match(file.name):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and now - status.st_mtime > LEFT_SECONDS:
                    found.append(file.name)
                    size += status.st_size
    except OSError:
        # the folder went away, or a file; what is found wrong with it is told otherwise
        pass
    return tuple(sorted(found)), size


def look(path: Path, min_free_bytes: int, file: str) -> Folder:
    """
    Look at a folder, and find out how fast its disk is where there is room for that.

    :param min_free_bytes: what is to stay free.
    :param file: the name of a file of ours to write meanwhile.
    """
    found = _look(path, min_free_bytes, file)
    left, size = left_in(path, time.time()) if found.exists else ((), 0)
    return evolve(found, left=left, left_bytes=size)


def _look(path: Path, min_free_bytes: int, file: str) -> Folder:
    try:
        if not path.is_dir():
            there = path.exists()
            return Folder(path, False, trouble="it is no folder" if there else "")
        status = os.statvfs(path)
    except OSError as error:
        return Folder(path, False, trouble=error.strerror or str(error))
    free = status.f_bavail * status.f_frsize
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Folder(path, True, free_bytes=free)
    if free < min_free_bytes + MOST_BYTES:
        return Folder(path, True, True, free)
    try:
        written, read = _speeds(path / file)
    except OSError as error:
        return Folder(path, True, True, free, trouble=error.strerror or str(error))
    return Folder(path, True, True, free, written, read)


def _speeds(file: Path) -> tuple[float, float]:
    chunk = os.urandom(_CHUNK)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        size, began = 0, time.perf_counter()
        while size < MOST_BYTES and time.perf_counter() - began < MOST_SECONDS:
            size += os.write(descriptor, chunk)
            # a save is of use when it is on the disk, not in the memory beside it
            os.fsync(descriptor)
        written = size / (time.perf_counter() - began)
        with suppress(OSError, AttributeError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        size, began = 0, time.perf_counter()
        while time.perf_counter() - began < MOST_SECONDS and (piece := os.read(descriptor, _CHUNK)):
            size += len(piece)
        return written, size / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


@frozen
class Place:
    """Where slot files lie, as far as we see it."""

    reactor: Any
    folder: Path | None

    async def size(self, file: str) -> int | None:
        """The size of a file of ours; ``None``: it is not seen."""
        folder = self.folder
        return None if folder is None else await self._do(lambda: size_of(folder, file), None)

    async def delete(self, file: str) -> str:
        """Why a file of ours could not be deleted; empty: it is gone, or not seen here."""
        folder = self.folder
        if folder is None:
            return ""
        return await self._do(lambda: delete(folder, file), "the disk does not answer")

    async def _do(self, work: Callable[[], _T], late: _T) -> _T:
        try:
            return await in_thread(self.reactor, DISK_SECONDS, work)
        except DeferredTimeout:
            return late


async def has_folder(calls: Calls, slot: int) -> bool | None:
    """
    Whether a server with one model was started with ``--slot-save-path``; ``None``: unclear.
    """
    try:
        await calls.post(f"/slots/{slot}?action=save", {"filename": _NO_NAME})
    except errors.Unsupported:
        return False
    except errors.Refused as error:
        return True if error.status == 400 else None
    except errors.ControlError:
        pass
    return None


async def all_slots(calls: Calls, model: str) -> tuple[SlotStatus, ...]:
    """
    The slots of a model, which is not loaded for that.

    :param model: the id by which a router knows it; empty: the only one.
    :raises ControlError: they are not shown.
    """
    query = f"?model={quote(model, safe='')}&autoload=false" if model else ""
    return await calls.get(f"/slots{query}", slots_from)


def slot_to_probe(slots: Iterable[SlotStatus]) -> SlotStatus | None:
    """The slot that is the least trouble to save: idle, and with as little in it as there is."""
    idle = [slot for slot in slots if not slot.busy and (slot.tokens or 0) <= MOST_TOKENS]
    return min(idle, key=lambda slot: (slot.tokens or 0, slot.id), default=None)


async def probe(calls: Calls, model: str, place: Place, theirs: Place, loose: Loose) -> Saving:
    """
    Save a slot to a file of our own, look for the file, and delete it.

    :param model: the id by which a router knows it; empty: the only one.
    :param theirs: the folder of the server's command line: where our file may be instead.
    """
    try:
        # an earlier look would not do: the slot must be idle now
        slot = slot_to_probe(await all_slots(calls, model))
    except errors.ControlError as error:
        return Saving(True, why=str(error))
    if slot is None:
        return Saving(True, why="every slot is busy, or holds a long prompt")
    file = probe_name()
    with loose.file(file):
        return await _probed(LlamaClient(calls, model), slot.id, file, place, theirs)


async def _probed(
    control: LlamaClient, slot: int, file: str, place: Place, theirs: Place
) -> Saving:
    try:
        saved = await control.save(slot, file)
    except errors.Unsupported as error:
        return Saving(False, why=str(error), failed=True)
    except errors.ControlError as error:
        await place.delete(file)
        return Saving(True, why=str(error), failed=True)
    seen = await place.size(file)
    kept = await place.delete(file)
    elsewhere = ""
    if seen is None and await theirs.size(file) == saved.size and not await theirs.delete(file):
        elsewhere = str(theirs.folder)
    return Saving(True, Probe(slot, file, saved.tokens, saved.size, seen, kept, elsewhere))
