"""
The folder of a server's ``--slot-save-path``, where this process can see it. Blocking calls.
"""

from __future__ import annotations

import stat
from pathlib import Path

from attrs import frozen

from slotgate.snapshots.names import OURS


@frozen
class Folder:
    """A folder of slot files. Only regular files with our names are ever touched."""

    path: Path

    def problem(self, file: str, size: int) -> str:
        """
        Why a file is not what a record says of it; empty when it is.

        A truncated file kills llama-server, so this stands before every restore.
        """
        try:
            status = (self.path / file).lstat()
        except OSError as error:
            return error.strerror or str(error)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_size != size:
            return f"{status.st_size} bytes instead of {size}"
        return ""

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
