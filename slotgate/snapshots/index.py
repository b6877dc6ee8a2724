"""
The index: a record per snapshot in SQLite. A snapshot exists once its record is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import astuple, fields, frozen
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred

from slotgate.sessions import SessionKey

_T = TypeVar("_T")

#: Raised when the tables change; an index of another version is not opened.
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE snapshots (
    client TEXT NOT NULL,
    route TEXT NOT NULL,
    session TEXT NOT NULL,
    server TEXT NOT NULL,
    slot INTEGER NOT NULL,
    file TEXT NOT NULL,
    generation INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    size INTEGER NOT NULL,
    source TEXT NOT NULL,
    created REAL NOT NULL,
    used REAL NOT NULL,
    PRIMARY KEY (client, route, session),
    UNIQUE (server, file)
);
"""


class IndexUnusable(Exception):
    """The index can not be opened; the message is one line for the operator."""


@frozen
class Snapshot:
    """The record of one saved slot. The fields are the table's columns, in its order."""

    #: The client's name, empty where no keys are asked for.
    client: str
    route: str
    session: str
    #: The server that wrote the file, by its name in the configuration.
    server: str
    slot: int
    #: The file's name in the server's folder.
    file: str
    #: Grows with every save where the folder is visible, else 1 and 2 in turn.
    generation: int
    tokens: int
    #: Bytes the server said it wrote.
    size: int
    #: Where the session id came from, as in ``X-Slotgate-Source``.
    source: str
    #: Seconds since the epoch.
    created: float
    #: Seconds since the epoch; a restore counts as use.
    used: float

    @property
    def key(self) -> SessionKey:
        """The session it belongs to."""
        return SessionKey(self.client or None, self.route, self.session)


class Transactions(Protocol):
    """What the index asks of a database: :class:`twisted.enterprise.adbapi.ConnectionPool`."""

    def runInteraction(self, interaction: Callable[..., _T], *args: object) -> Deferred[_T]:
        """Run a function with a cursor in one transaction."""


def open_database(reactor: object, path: Path) -> ConnectionPool:
    """
    The database of a state folder, used by one thread at a time, off the reactor's.

    :raises IndexUnusable: the file can not be opened, or another version of slotgate made it.
    """
    try:
        connection = sqlite3.connect(path)
        try:
            prepare(connection)
        finally:
            connection.close()
    except (sqlite3.Error, IndexUnusable) as error:
        raise IndexUnusable(f"{path}: {error}") from error
    # one connection: SQLite has one writer anyway, and the statements keep their order
    return ConnectionPool(
        "sqlite3",
        str(path),
        check_same_thread=False,
        cp_min=1,
        cp_max=1,
        cp_noisy=False,
        cp_reactor=reactor,
        cp_openfun=_configure,
    )


def _configure(connection: sqlite3.Connection) -> None:
    # WAL with NORMAL survives a kill of the process without an fsync per commit; after a power
    # cut the last records may be missing, never torn
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def prepare(connection: sqlite3.Connection) -> None:
    """
    Make the tables of a new database.

    :raises IndexUnusable: the database is of another version.
    """
    _configure(connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        connection.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    elif version != SCHEMA_VERSION:
        raise IndexUnusable(
            f"version {version} of the index, and this slotgate reads {SCHEMA_VERSION};"
            " use another state_dir, or remove the index and the snapshots"
        )


_COLUMNS = ", ".join(attribute.name for attribute in fields(Snapshot))
_MARKS = ", ".join("?" for _ in fields(Snapshot))


@frozen
class Index:
    """
    The records. Each method is one transaction.

    Invariant: at most one record per session; its file was whole when the record was committed.
    """

    _database: Transactions

    async def find(self, key: SessionKey) -> Snapshot | None:
        """The snapshot of a session."""

        def find(cursor: sqlite3.Cursor) -> Snapshot | None:
            row = cursor.execute(
                f"SELECT {_COLUMNS} FROM snapshots"  # noqa: S608 - our own column names
                " WHERE client = ? AND route = ? AND session = ?",
                _identity(key),
            ).fetchone()
            return None if row is None else Snapshot(*row)

        return await self._database.runInteraction(find)

    async def all(self) -> list[Snapshot]:
        """Every snapshot, the one used longest ago first."""

        def every(cursor: sqlite3.Cursor) -> list[Snapshot]:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM snapshots ORDER BY used")  # noqa: S608
            return [Snapshot(*row) for row in rows.fetchall()]

        return await self._database.runInteraction(every)

    async def commit(self, snapshot: Snapshot) -> None:
        """From now on this is the session's snapshot, and no other one is."""

        def commit(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                f"INSERT OR REPLACE INTO snapshots ({_COLUMNS}) VALUES ({_MARKS})",  # noqa: S608
                astuple(snapshot),
            )

        await self._database.runInteraction(commit)

    async def touch(self, snapshot: Snapshot, now: float) -> None:
        """The snapshot was used at ``now`` (seconds since the epoch)."""

        def touch(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                "UPDATE snapshots SET used = ? WHERE server = ? AND file = ?",
                (now, snapshot.server, snapshot.file),
            )

        await self._database.runInteraction(touch)

    async def forget(self, snapshot: Snapshot) -> None:
        """Remove the record of this very file; a newer one of the session stays."""

        def forget(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                "DELETE FROM snapshots WHERE server = ? AND file = ?",
                (snapshot.server, snapshot.file),
            )

        await self._database.runInteraction(forget)


def _identity(key: SessionKey) -> tuple[str, str, str]:
    return key.client or "", key.route, key.id
