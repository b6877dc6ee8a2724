"""
The SQLite file of the index: its tables, how it is opened, and on which thread it is used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import frozen
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred, execute

_T = TypeVar("_T")

#: How long a transaction waits for somebody else's, in seconds: a backup, a curious operator.
BUSY_SECONDS = 0.5

#: Raised when the tables change; an index of another version is not opened.
SCHEMA_VERSION = 3

#: One row for each slot whose content is known; a belief, which the next look confirms or refutes.
_LEFT = """
CREATE TABLE left_in_slots (
    server TEXT NOT NULL,
    model TEXT NOT NULL,
    slot INTEGER NOT NULL,
    client TEXT NOT NULL,
    route TEXT NOT NULL,
    session TEXT NOT NULL,
    source TEXT NOT NULL,
    beginning TEXT NOT NULL,
    saved INTEGER NOT NULL,
    task INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (server, model, slot)
);
"""

#: One row for each folder of slot files; shared: files of ours were in it when it was seen first.
_FOLDERS = """
CREATE TABLE folders (
    path TEXT PRIMARY KEY,
    identity TEXT NOT NULL,
    shared INTEGER NOT NULL
);
"""

#: One row for each conversation that goes on: how it is recognised.
_CONVERSATIONS = """
CREATE TABLE conversations (
    client TEXT NOT NULL,
    route TEXT NOT NULL,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    tip BLOB NOT NULL,
    bare BLOB NOT NULL,
    first BLOB NOT NULL,
    before BLOB NOT NULL,
    start BLOB NOT NULL,
    size INTEGER NOT NULL,
    used REAL NOT NULL,
    PRIMARY KEY (client, route, session)
);
"""

_SCHEMA = f"""
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
    checksum TEXT NOT NULL,
    model TEXT NOT NULL,
    model_file TEXT NOT NULL,
    build TEXT NOT NULL,
    beginning TEXT NOT NULL,
    source TEXT NOT NULL,
    created REAL NOT NULL,
    used REAL NOT NULL,
    PRIMARY KEY (client, route, session),
    UNIQUE (server, file)
);
CREATE INDEX by_route ON snapshots (route, used);
CREATE INDEX by_use ON snapshots (used);
CREATE INDEX by_client ON snapshots (client, used, size);
{_FOLDERS}{_LEFT}{_CONVERSATIONS}"""

#: From each earlier version to the next.
_MIGRATIONS = {
    # slots of routers have a model too; what was left is a belief and is given up
    1: f"DROP TABLE left_in_slots; {_LEFT}{_CONVERSATIONS}",
    # a folder that was seen by now is our own
    2: (
        f"ALTER TABLE folders RENAME TO old_folders; {_FOLDERS}"  # noqa: S608 - no value in it
        "INSERT INTO folders SELECT path, identity, 0 FROM old_folders; DROP TABLE old_folders;"
    ),
}


class IndexUnusable(Exception):
    """The index can not be opened; the message is one line for the operator."""


class IndexAway(Exception):
    """The index does not answer: somebody has locked it, or its disk hangs."""

    def __init__(self, why: str = "it did not a moment ago") -> None:
        """
        :param why: the database's own words.
        """
        super().__init__(f"the index does not answer: {why}")


class Transactions(Protocol):
    """What the index asks of a database: :class:`twisted.enterprise.adbapi.ConnectionPool`."""

    def runInteraction(self, interaction: Callable[..., _T], *args: object) -> Deferred[_T]:
        """Run a function with a cursor in one transaction."""


@frozen
class Direct:
    """A database used on the calling thread: when slotgate starts, and in tests."""

    connection: sqlite3.Connection

    def runInteraction(self, interaction: Callable[..., _T], *args: object) -> Deferred[_T]:
        """As :class:`Transactions` says; the Deferred has fired."""

        def run() -> _T:
            with self.connection:
                return interaction(self.connection.cursor(), *args)

        return execute(run)


_check: type[Transactions] = Direct


@contextmanager
def opened(path: Path) -> Iterator[Direct]:
    """
    The database of a state folder, for as long as the block runs; its tables are made.

    :raises IndexUnusable: the file can not be opened, or another version of slotgate made it.
    """
    try:
        connection = sqlite3.connect(path)
        try:
            prepare(connection)
            yield Direct(connection)
        finally:
            connection.close()
    except (sqlite3.Error, IndexUnusable) as error:
        raise IndexUnusable(f"{path}: {error}") from error


def connect(reactor: object, path: Path) -> ConnectionPool:
    """
    The database of a state folder, off the reactor's thread; :func:`opened` has seen it.
    """
    # one connection: SQLite has one writer anyway, and the statements keep their order
    return ConnectionPool(
        "sqlite3",
        str(path),
        check_same_thread=False,
        timeout=BUSY_SECONDS,
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
    Make the tables of a new database, and bring up those of an older one.

    :raises IndexUnusable: the database is of another version, and none that can be brought up.
    """
    _configure(connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        _execute(connection, _SCHEMA, SCHEMA_VERSION)
        return
    while version in _MIGRATIONS:
        _execute(connection, _MIGRATIONS[version], version + 1)
        version += 1
    if version != SCHEMA_VERSION:
        raise IndexUnusable(
            f"version {version} of the index, and this slotgate reads {SCHEMA_VERSION};"
            " use another state_dir, or remove the index and the snapshots"
        )


def _execute(connection: sqlite3.Connection, script: str, version: int) -> None:
    connection.executescript(f"BEGIN; {script} PRAGMA user_version = {version}; COMMIT;")
