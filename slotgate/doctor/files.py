"""
The folder of slot files and the doctor's own files in it. Blocking calls.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

from slotgate.doctor.facts import Folder

#: The doctor's files, and nobody else's: no snapshot's name matches it, so nothing sweeps them.
PROBE = re.compile(r"slotgate-doctor-[0-9a-f]{16}\.probe\Z")

#: How much is written to find out how fast the disk is, and how long that may take at most.
MOST_BYTES = 32 << 20
MOST_SECONDS = 0.3
_CHUNK = 4 << 20


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


def look(path: Path, min_free_bytes: int) -> Folder:
    """
    Look at a folder, and find out how fast its disk is where there is room for that.

    :param min_free_bytes: what is to stay free.
    """
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
        written, read = _speeds(path / probe_name())
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
