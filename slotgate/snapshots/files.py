"""
The folder of a server's ``--slot-save-path``, where this process can see it. Blocking calls.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import xxhash
from attrs import frozen

from slotgate.snapshots.names import OURS

_CHUNK = 1 << 20


class FolderAway(Exception):
    """The folder is not there now: unmounted, renamed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no folder {path}")


@frozen
class Folder:
    """A folder of slot files. Only regular files with our names are ever touched."""

    path: Path

    def problem(self, file: str, size: int) -> str:
        """
        Why a file is not what a record says of it; empty when it is.

        A truncated file kills llama-server, so this stands before every restore.

        :raises FolderAway: the folder itself is not there, which says nothing about its files.
        """
        try:
            status = (self.path / file).lstat()
        except OSError as error:
            if not self.path.is_dir():
                raise FolderAway(str(self.path)) from error
            return error.strerror or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_size != size:
            return f"{status.st_size} bytes instead of {size}"
        return ""

    def checksum(self, file: str) -> str:
        """
        The xxh3 of a file's bytes (128 bits, hex).

        :raises OSError: it can not be read, or is a link.
        """
        digest = xxhash.xxh3_128()
        descriptor = os.open(self.path / file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb", buffering=0) as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def free_bytes(self) -> int:
        """
        How much may still be written to the disk.

        :raises OSError: the folder is not there.
        """
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def identity(self) -> str:
        """
        What tells this folder from another one at the same path.

        :raises OSError: the folder is not there.
        """
        status = self.path.stat()
        return f"{status.st_dev}:{status.st_ino}"

    def ours(self) -> list[str]:
        """
        The regular files with names of ours.

        :raises OSError: the folder can not be listed.
        """
        with os.scandir(self.path) as entries:
            return [
                entry.name
                for entry in entries
                if OURS.match(entry.name) and entry.is_file(follow_symlinks=False)
            ]

    def remove(self, file: str) -> None:
        """
        Delete one of our files; one that is gone already is fine.

        :raises OSError: it can not be deleted.
        :raises ValueError: the name is not one of ours.
        """
        if not OURS.match(file):
            raise ValueError(f"not a snapshot's name: {file!r}")
        # unlink removes a link itself, never what it points at
        (self.path / file).unlink(missing_ok=True)


def file_mark(path: str) -> str:
    """
    Size and time of a file, to notice that it is another one; empty where it is not seen.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size}:{status.st_mtime_ns}"
