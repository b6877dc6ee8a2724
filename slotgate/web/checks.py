"""
Whether what a gateway needs is there: its servers, their slot folders, the index.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import deferToThreadPool

from slotgate.config import Server
from slotgate.llama.calls import Calls, Requests
from slotgate.llama.errors import ControlError, Loading
from slotgate.snapshots.database import IndexAway, Transactions
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Use
from slotgate.web._looks import WAIT_SECONDS, Look, together

_T = TypeVar("_T")

_LATE = f"no answer within {WAIT_SECONDS:g} s"


@frozen
class Check:
    """One thing that must be there."""

    name: str
    #: What is wrong, in one line; empty: nothing.
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is there."""
        return not self.problem


@frozen
class _Disk:
    """What is seen of a slot folder."""

    free_bytes: int | None
    problem: str


@frozen
class Checks:
    """
    Looks at what a gateway needs. Wakes nothing and loads nothing, and changes nothing of what is
    known of a server.
    """

    _servers: Mapping[str, Look[str]]
    _folders: Mapping[str, Look[_Disk]]
    _opens: Look[None]
    _uses: Look[list[Use]]

    async def all(self) -> list[Check]:
        """Every check."""
        checks = [self.server(name) for name in self._servers]
        checks += [self._folder(name) for name in self._folders]
        return await together([*checks, self._index()])

    async def server(self, name: str) -> Check:
        """Whether a server answers, and has its model: ``GET /health``."""
        try:
            problem = await self._servers[name]()
        except DeferredTimeout:
            problem = _LATE
        return Check(f"server {name}", problem)

    async def free_bytes(self, name: str) -> int | None:
        """What is free on the disk of a server's folder; ``None`` where that is not seen."""
        if name not in self._folders:
            return None
        return (await self._disk(name)).free_bytes

    async def uses(self) -> list[Use] | None:
        """What the snapshots take; ``None``: the index does not say."""
        try:
            return await self._uses()
        except (DeferredTimeout, IndexAway, sqlite3.Error):
            return None

    async def _folder(self, name: str) -> Check:
        return Check(f"slot folder of {name}", (await self._disk(name)).problem)

    async def _disk(self, name: str) -> _Disk:
        try:
            return await self._folders[name]()
        except DeferredTimeout:
            return _Disk(None, _LATE)

    async def _index(self) -> Check:
        try:
            await self._opens()
        except DeferredTimeout:
            return Check("index", _LATE)
        except (IndexAway, sqlite3.Error) as error:
            return Check("index", str(error))
        return Check("index")


def make_checks(
    servers: Mapping[str, Server],
    upstreams: Mapping[str, Requests],
    database: Transactions,
    reactor: Any,
) -> Checks:
    """
    :param upstreams: the ways to the servers, by their names.
    :param reactor: a reactor with time and threads.
    """

    def look(begin: Callable[[], Deferred[_T]], *, lasts: bool) -> Look[_T]:
        return Look(begin, reactor, lasts)

    def reach(server: Server) -> Deferred[str]:
        hurried = evolve(server, control_timeout_seconds=WAIT_SECONDS)
        return Deferred.fromCoroutine(_reached(Calls(upstreams[server.name], reactor, hurried)))

    def disk(path: Path) -> Deferred[_Disk]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), _seen, path)

    folders = {
        name: server.slot_save_path
        for name, server in servers.items()
        if server.slot_save_path is not None
    }
    # a thread for each folder, whoever shares it
    disks = {path: look(partial(disk, path), lasts=True) for path in folders.values()}

    def uses() -> Deferred[list[Use]]:
        return Deferred.fromCoroutine(Index(database).uses())

    return Checks(
        {name: look(partial(reach, server), lasts=False) for name, server in servers.items()},
        {name: disks[path] for name, path in folders.items()},
        look(lambda: database.runInteraction(_opens), lasts=True),
        look(uses, lasts=True),
    )


async def _reached(calls: Calls) -> str:
    """What is wrong with a server; empty: nothing."""
    try:
        await calls.get("/health", lambda answer: answer)
    except Loading:
        return "it loads its model"
    except ControlError as error:
        return str(error)
    return ""


def _seen(path: Path) -> _Disk:
    """What is seen of a folder. Blocks, for as long as a disk that hangs."""
    try:
        status = os.statvfs(path)
    except OSError as error:
        return _Disk(None, f"{path}: {error.strerror}")
    free = status.f_bavail * status.f_frsize
    if not path.is_dir():
        return _Disk(free, f"{path} is not a folder")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return _Disk(free, f"{path} is not writable")
    return _Disk(free, "")


def _opens(cursor: sqlite3.Cursor) -> None:
    cursor.execute("SELECT 1 FROM folders LIMIT 1").fetchall()
