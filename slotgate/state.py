"""
The state folder: who owns it, and the key that names of files are hashed with.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import IO

from attrs import define, field

SECRET_BYTES = 32


class StateUnusable(Exception):
    """The state folder can not be used; the message is one line for the operator."""


@define
class StateFolder:
    """
    The folder of ``state_dir``, owned by one slotgate at a time.
    """

    path: Path
    _lock: IO[bytes] | None = field(default=None, init=False)

    def open(self) -> None:
        """
        Make the folder if it is not there, and own it until :meth:`close` or the process's end.

        :raises StateUnusable: it can not be made or written, or another slotgate owns it.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self.path / "lock").open("wb")
        except OSError as error:
            raise StateUnusable(f"state_dir {self.path}: {error.strerror or error}") from error
        try:
            # the kernel's lock goes with the process, however that ends; a pid file would not
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise StateUnusable(f"state_dir {self.path}: another slotgate uses it") from error
        self._lock = lock

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def secret(self) -> bytes:
        """
        The key of this installation, made on first use.

        :raises StateUnusable: it can not be read or written.
        """
        path = self.path / "secret.key"
        try:
            if not path.exists():
                # whole under another name first: a kill in between must not leave half a key
                made = path.with_suffix(".new")
                descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(SECRET_BYTES))
                made.rename(path)
            secret = path.read_bytes()
        except OSError as error:
            raise StateUnusable(f"{path}: {error.strerror or error}") from error
        if len(secret) < SECRET_BYTES:
            raise StateUnusable(f"{path}: damaged; remove it, and sessions start anew")
        return secret
