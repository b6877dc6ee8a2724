"""The index: in memory for what it promises, on disk for what survives."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from attrs import astuple, evolve
from doubles import memory_database
from gateway import CLOCK
from processes import ProcessCase
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from slotgate import service
from slotgate.config import load_config
from slotgate.sessions import Session, SessionKey
from slotgate.snapshots.database import SCHEMA_VERSION, IndexUnusable, connect, opened
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Left, SeenFolder, Snapshot
from slotgate.state import StateUnusable

T = TypeVar("T")


def snapshot(session: str, generation: int = 1, client: str = "", **fields: object) -> Snapshot:
    given = {
        "client": client,
        "route": "*",
        "session": session,
        "server": "local",
        "slot": 0,
        "file": f"{client}{session}.{generation}",
        "generation": generation,
        "tokens": 100,
        "size": 136,
        "checksum": "",
        "model": "model.gguf",
        "model_file": "",
        "build": "b1",
        "beginning": "",
        "source": "header:x-session-id",
        "created": 1.5,
        "used": 2.5,
    }
    return Snapshot(**{**given, **fields})  # type: ignore[arg-type]


class IndexTests(SynchronousTestCase):
    """One record per session."""

    def setUp(self) -> None:
        self.index = Index(memory_database())

    def run_now(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self.successResultOf(Deferred.fromCoroutine(work))
        return result

    def commit(self, *snapshots: Snapshot) -> None:
        for one in snapshots:
            self.run_now(self.index.commit(one))

    def found(self, session: str, client: str | None = None, route: str = "*") -> Snapshot | None:
        return self.run_now(self.index.find(SessionKey(client, route, session)))

    def all(self) -> list[Snapshot]:
        return self.run_now(self.index.all())

    def test_what_is_committed_is_found_as_it_was(self) -> None:
        made = snapshot("é ' \" -- 名", created=1764525600.123456, size=2**40, used=0.1)
        self.commit(made)
        self.assertEqual(self.found("é ' \" -- 名"), made)
        self.assertEqual(made.key, SessionKey(None, "*", "é ' \" -- 名"))

    def test_a_session_without_a_record_is_not_found(self) -> None:
        self.commit(snapshot("A"))
        self.assertIsNone(self.found("a"))
        self.assertIsNone(self.found("A%"))

    def test_the_same_id_of_another_client_or_route_is_another_session(self) -> None:
        mine, yours = snapshot("A", client="me"), snapshot("A", client="you")
        elsewhere = snapshot("A", client="me", route="other", file="f")
        self.commit(mine, yours, elsewhere)
        self.assertEqual(self.found("A", "me"), mine)
        self.assertEqual(self.found("A", "you"), yours)
        self.assertEqual(self.found("A", "me", "other"), elsewhere)
        self.assertIsNone(self.found("A"))

    def test_the_last_commit_of_a_session_counts(self) -> None:
        self.commit(snapshot("A"), snapshot("B"), snapshot("A", 2))
        self.assertEqual(self.found("A"), snapshot("A", 2))
        self.assertEqual(len(self.all()), 2)

    def test_a_file_has_one_record(self) -> None:
        self.commit(snapshot("A", file="same"), snapshot("B", file="same"))
        self.assertEqual([one.session for one in self.all()], ["B"])

    def test_two_servers_may_have_files_of_one_name(self) -> None:
        self.commit(snapshot("A", file="same"), snapshot("B", file="same", server="far"))
        self.assertEqual(len(self.all()), 2)

    def test_all_begins_with_the_one_used_longest_ago(self) -> None:
        self.commit(snapshot("A", used=2.0), snapshot("B", used=3.0), snapshot("C", used=1.0))
        self.assertEqual([one.session for one in self.all()], ["C", "A", "B"])
        self.run_now(self.index.touch(snapshot("C", used=1.0), 4.0))
        self.assertEqual([one.session for one in self.all()], ["A", "B", "C"])
        self.assertEqual(self.found("C"), snapshot("C", used=4.0))

    def test_forgetting_an_old_file_leaves_the_new_record(self) -> None:
        self.commit(snapshot("A"), snapshot("A", 2))
        self.run_now(self.index.forget(snapshot("A")))
        self.assertEqual(self.found("A"), snapshot("A", 2))
        self.run_now(self.index.forget(snapshot("A", 2)))
        self.assertIsNone(self.found("A"))

    def test_forgetting_leaves_the_file_of_that_name_on_another_server(self) -> None:
        far = snapshot("B", file="same", server="far")
        self.commit(snapshot("A", file="same"), far)
        self.run_now(self.index.forget(snapshot("A", file="same")))
        self.assertEqual(self.all(), [far])


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What comes of work that waits for nothing."""
    results: list[T] = []
    Deferred.fromCoroutine(work).addCallback(results.append)
    return results[0]


def open_database(path: Path) -> ConnectionPool:
    """The database as a gateway opens it."""
    with opened(path):
        return connect(CLOCK, path)


def unusable(path: Path) -> str:
    """What an operator reads about an index that can not be used."""
    with pytest.raises(IndexUnusable) as error, opened(path):
        raise AssertionError("it was opened")
    line = str(error.value)
    assert "\n" not in line
    return line


def test_an_index_of_another_version_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    line = unusable(path)
    assert line.startswith(f"{path}: version {SCHEMA_VERSION + 1} of the index")
    assert f"reads {SCHEMA_VERSION};" in line
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()


#: The tables of version 1, as they were made then.
VERSION_1 = """
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
CREATE TABLE folders (path TEXT PRIMARY KEY, identity TEXT NOT NULL);
CREATE TABLE left_in_slots (
    server TEXT NOT NULL,
    slot INTEGER NOT NULL,
    client TEXT NOT NULL,
    route TEXT NOT NULL,
    session TEXT NOT NULL,
    source TEXT NOT NULL,
    beginning TEXT NOT NULL,
    saved INTEGER NOT NULL,
    task INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (server, slot)
);
PRAGMA user_version = 1;
"""


def index_of_version_1(path: Path, *snapshots: Snapshot) -> None:
    """An index as the first slotgate left it, with something in a slot."""
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    marks = ", ".join("?" * 17)
    for one in snapshots:
        connection.execute(f"INSERT INTO snapshots VALUES ({marks})", astuple(one))
    connection.execute("INSERT INTO folders VALUES ('/slots', '1:2')")
    connection.execute(
        "INSERT INTO left_in_slots VALUES"
        " ('local', 0, '', '*', 'A', 'header:x-session-id', '', 1, 7, 100)"
    )
    connection.commit()
    connection.close()


def tables(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """What is in a database, and how it was made."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(name, " ".join(sql.split())) for name, sql in rows}


def test_an_index_of_version_1_is_brought_up_with_its_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    kept = [snapshot("A", used=1.0), snapshot("é", client="me", created=0.1, size=2**40, used=2.0)]
    index_of_version_1(path, *kept)
    for _ in range(2):
        with opened(path) as database:
            index = Index(database)
            assert at_once(index.all()) == kept
            assert at_once(index.seen("/slots")) == SeenFolder("1:2")
            version = database.connection.execute("PRAGMA user_version").fetchone()
            assert version == (SCHEMA_VERSION,)


def test_an_index_that_was_brought_up_is_as_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    index_of_version_1(path)
    with opened(path) as old:
        assert tables(old.connection) == tables(memory_database().connection)


def test_what_was_left_in_slots_before_is_given_up_and_can_be_left_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    index_of_version_1(path)
    session = Session(SessionKey(None, "*", "A"), "header:x-session-id", beginning="b")
    with opened(path) as database:
        index = Index(database)
        assert at_once(index.left_of("local")) == []
        assert at_once(index.left_in("local", "", 0)) is None
        for model, tokens in (("alpha", 1), ("beta", 2), ("", 3)):
            at_once(index.leave("local", model, 0, Left(session, True, 7, tokens)))
        assert sorted(at_once(index.left_of("local"))) == [("", 0), ("alpha", 0), ("beta", 0)]
    with opened(path) as database:
        index = Index(database)
        assert at_once(index.left_in("local", "beta", 0)) == Left(session, True, 7, 2)
        at_once(index.leave("local", "beta", 0, None))
        assert sorted(at_once(index.left_of("local"))) == [("", 0), ("alpha", 0)]
        assert at_once(index.left_of("far")) == []


def test_an_index_that_can_not_be_brought_up_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    index_of_version_1(path, snapshot("A"))
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE left_in_slots")
    connection.commit()
    before = tables(connection)
    assert unusable(path) == f"{path}: no such table: left_in_slots"
    assert tables(connection) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"something else altogether" * 100)
    assert unusable(path) == f"{path}: file is not a database"
    assert path.read_bytes() == b"something else altogether" * 100


def test_a_path_that_can_not_be_opened_is_named(tmp_path: Path) -> None:
    assert unusable(tmp_path) == f"{tmp_path}: unable to open database file"


def test_somebody_elses_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE snapshots (other)")
    connection.close()
    assert unusable(path) == f"{path}: table snapshots already exists"


COMMITS = """
import sys
from attrs import astuple, evolve
from pathlib import Path
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from slotgate.snapshots.database import connect, opened
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Snapshot

async def commit():
    path = Path("index.sqlite")
    with opened(path):
        index = Index(connect(reactor, path))
    first = Snapshot(
        "", "*", "", "local", 0, "", 1, 100, 136, "", "m", "", "b1", "", "default", 0.0, 0.0
    )
    for number in range(100000):
        await index.commit(evolve(first, session=str(number), file=f"f{number}"))
        print("committed", number, flush=True)

reactor.callWhenRunning(lambda: Deferred.fromCoroutine(commit()))
reactor.run()
"""


class DatabaseTests(ProcessCase):
    """The database on disk, through adbapi's thread."""

    def open(self) -> Index:
        """Open the index in the test's folder."""
        database = open_database(self.folder / "index.sqlite")
        self.addCleanup(database.close)
        return Index(database)

    async def test_records_are_there_after_closing(self) -> None:
        database = open_database(self.folder / "index.sqlite")
        await Index(database).commit(snapshot("A"))
        database.close()
        self.assertEqual(await self.open().all(), [snapshot("A")])

    async def test_a_kill_loses_nothing_that_was_committed(self) -> None:
        program = self.run_program(sys.executable, "-c", COMMITS)
        await program.says("committed 50\n")
        program.send("KILL")
        await program.gone
        last = int(program.output.split()[-1]) if program.output.endswith("\n") else 50
        sessions = {int(one.session) for one in await self.open().all()}
        self.assertLessEqual(set(range(last + 1)), sessions)
        self.assertLessEqual(len(sessions), last + 2)

    async def test_an_operator_may_read_while_a_record_is_written(self) -> None:
        index = self.open()
        await index.commit(snapshot("A"))
        reader = sqlite3.connect(self.folder / "index.sqlite")
        self.addCleanup(reader.close)
        reader.execute("BEGIN")
        count = "SELECT count(*) FROM snapshots"
        self.assertEqual(reader.execute(count).fetchone(), (1,))
        await index.commit(snapshot("B"))
        self.assertEqual(reader.execute(count).fetchone(), (1,), "the reader's own moment")
        reader.execute("COMMIT")
        self.assertEqual(reader.execute(count).fetchone(), (2,))

    async def test_a_failed_transaction_leaves_the_record_before(self) -> None:
        index = self.open()
        await index.commit(snapshot("A"))
        bad = evolve(snapshot("A", 2), size=None)  # type: ignore[arg-type]
        await self.assertFailure(Deferred.fromCoroutine(index.commit(bad)), sqlite3.IntegrityError)
        self.assertEqual(await index.all(), [snapshot("A")])

    async def test_statements_keep_their_order(self) -> None:
        index = self.open()
        commits = [Deferred.fromCoroutine(index.commit(snapshot("A", n))) for n in range(1, 30)]
        found = await index.find(SessionKey(None, "*", "A"))
        self.assertEqual(found, snapshot("A", 29))
        for commit in commits:
            self.assertTrue(commit.called)

    async def test_a_gateway_that_can_not_be_built_lets_go_of_everything(self) -> None:
        await self.pause(0)  # the reactor runs, so that a pool starts its thread at once
        databases: list[ConnectionPool] = []

        def connected(reactor: object, path: Path) -> ConnectionPool:
            database = connect(reactor, path)
            databases.append(database)
            self.addCleanup(lambda: database.running and database.close())
            return database

        self.patch(service, "connect", connected)
        config = load_config(self.write_config(), {})
        key = self.folder / "state" / "secret.key"
        key.parent.mkdir()
        key.write_bytes(b"short")
        for _ in range(2):
            # the second time it would say that another slotgate uses the folder
            with self.assertRaisesRegex(StateUnusable, "damaged"):
                service.make_service(config, CLOCK)
        self.assertEqual([database.running for database in databases], [False, False])
