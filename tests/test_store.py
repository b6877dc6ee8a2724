"""Snapshots: the records and the files together, in the order that loses nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from doubles import at_once, memory_database, snapshots
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from slotgate.sessions import Policy, Session, SessionKey
from slotgate.snapshots.files import Folder
from slotgate.snapshots.fingerprints import Fingerprint
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Snapshot
from slotgate.snapshots.store import Snapshots

T = TypeVar("T")

SERVER = Fingerprint("model.gguf", "", "b1")


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of something that waits for nothing."""
    results: list[T | Failure] = []
    Deferred.fromCoroutine(work).addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


def session(name: str, client: str | None = None, route: str = "*") -> Session:
    return Session(SessionKey(client, route, name), "header:x-session-id", Policy(64))


class Saver:
    """Saves as a slot does: the server writes the file, then the record is committed."""

    def __init__(self, folder: Path | None) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.database = memory_database()
        self.path = folder
        self.store = snapshots(
            self.clock, None if folder is None else Folder(folder), self.database
        )

    def find(self, name: str) -> Snapshot | None:
        return now(self.store.find(session(name).key))

    def save(
        self, name: str, size: int = 100, said: int | None = None, tokens: int = 64
    ) -> Snapshot | None:
        """
        Save a session.

        :param size: bytes in the file.
        :param said: bytes that the server says it wrote.
        """
        previous = self.find(name)
        planned = self.store.next_save(session(name), previous, 0, SERVER)
        if self.path is not None:
            (self.path / planned.file).write_bytes(b"x" * size)
        said = size if said is None else said
        return now(self.store.commit(planned, tokens, said, previous))

    def files(self) -> set[str]:
        assert self.path is not None
        return {path.name for path in self.path.iterdir()}


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return Saver(tmp_path)


@pytest.fixture
def blind() -> Saver:
    """One that does not see the server's folder."""
    return Saver(None)


def test_what_was_saved_is_found(saver: Saver) -> None:
    saved = saver.save("A", size=123, tokens=77)
    assert saved is not None
    assert saver.find("A") == saved
    assert (saved.size, saved.tokens, saved.created, saved.used) == (123, 77, 1000, 1000)


def test_each_save_has_a_new_file_and_then_the_old_one_goes(saver: Saver) -> None:
    for generation in range(1, 4):
        saved = saver.save("A")
        assert saved is not None
        assert saved.generation == generation
        assert saver.files() == {saved.file}


def test_sessions_have_files_of_their_own(saver: Saver) -> None:
    saved = [saver.save(name) for name in "ABC"]
    assert saver.files() == {one.file for one in saved if one}
    assert len(saver.files()) == 3


@pytest.mark.parametrize(
    "bad", [{"tokens": 0, "size": 36}, {"size": 50, "said": 100}, {"size": 100, "said": 50}]
)
def test_a_bad_save_leaves_the_good_one(saver: Saver, bad: dict[str, int]) -> None:
    good = saver.save("A")
    assert good is not None
    assert saver.save("A", **bad) is None
    assert saver.find("A") == good
    assert saver.files() == {good.file}
    again = saver.save("A")
    assert again is not None
    assert saver.files() == {again.file}


def test_a_bad_first_save_leaves_nothing(saver: Saver) -> None:
    assert saver.save("A", size=50, said=100) is None
    assert saver.find("A") is None
    assert saver.files() == set()


def test_a_file_that_was_not_written_is_not_kept(saver: Saver) -> None:
    planned = saver.store.next_save(session("A"), None, 0, SERVER)
    assert now(saver.store.commit(planned, 64, 100, None)) is None
    assert saver.find("A") is None


@pytest.mark.parametrize("left", [None, b"", b"x" * 99, b"x" * 101])
def test_a_file_that_changed_is_a_miss_and_goes(saver: Saver, left: bytes | None) -> None:
    saved = saver.save("A")
    assert saved is not None
    assert saver.path is not None
    file = saver.path / saved.file
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left)
    assert saver.find("A") is None
    assert saver.files() == set()
    assert now(Index(saver.database).all()) == []


def test_the_file_of_a_dropped_snapshot_that_can_not_be_deleted_harms_nothing(
    saver: Saver,
) -> None:
    saved = saver.save("A")
    assert saved is not None
    assert saver.path is not None
    (saver.path / saved.file).unlink()
    (saver.path / saved.file).mkdir()
    assert saver.find("A") is None
    assert saver.find("A") is None
    assert now(Index(saver.database).all()) == []


def test_without_sight_of_the_folder_two_names_take_turns(blind: Saver) -> None:
    saved = [blind.save("A") for _ in range(4)]
    assert [one.generation for one in saved if one] == [1, 2, 1, 2]
    assert len({one.file for one in saved if one}) == 2
    assert blind.find("A") == saved[-1]


def test_without_sight_of_the_folder_a_bad_save_keeps_off_the_good_file(blind: Saver) -> None:
    good = blind.save("A")
    assert good is not None
    for _ in range(3):
        planned = blind.store.next_save(session("A"), blind.find("A"), 0, SERVER)
        assert planned.file != good.file
        assert blind.save("A", tokens=0) is None
        assert blind.find("A") == good


def test_a_use_makes_a_snapshot_the_last_to_go(saver: Saver) -> None:
    first = saver.save("A")
    assert first is not None
    saver.clock.advance(1)
    saver.save("B")
    saver.clock.advance(1)
    now(saver.store.used(first))
    every = now(Index(saver.database).all())
    assert [one.session for one in every] == ["B", "A"]


def test_another_servers_snapshot_is_not_this_ones(saver: Saver, tmp_path: Path) -> None:
    saved = saver.save("A")
    assert saved is not None
    index = Index(saver.database)
    other = Snapshots("other", index, Folder(tmp_path), at_once, b"secret", saver.clock)
    assert now(other.find(saved.key)) is None
    assert saver.find("A") == saved


def test_a_file_name_tells_a_stranger_nothing_about_the_session(saver: Saver) -> None:
    saved = saver.save("alice@example.org")
    assert saved is not None
    assert "alice" not in saved.file
    elsewhere = Snapshots("local", Index(memory_database()), None, at_once, b"x", Clock())
    planned = elsewhere.next_save(session("alice@example.org"), None, 0, SERVER)
    assert planned.file != saved.file


def test_32_hex_digits_stand_for_themselves_only_where_nobody_has_a_key(saver: Saver) -> None:
    digits = "0123456789abcdef" * 2
    plan = saver.store.next_save
    assert digits in plan(session(digits), None, 0, SERVER).file
    assert digits not in plan(session(digits, "webui"), None, 0, SERVER).file


def test_clients_and_routes_never_share_a_file(saver: Saver) -> None:
    plans = [
        saver.store.next_save(session("A", client, route), None, 0, SERVER)
        for client in (None, "a", "b")
        for route in ("x", "y", "x/", "x:")
    ]
    assert len({plan.file for plan in plans}) == len(plans)


class Snapshotting(RuleBasedStateMachine):
    """
    Saves, bad saves, deleted and cut files and kills, in any order.

    However it goes, what is found is whole and is the session's last good save, and a session
    whose file nobody touched is found.
    """

    names = st.sampled_from(["A", "B", "C"])

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.saver = Saver(Path(self.temporary.name))
        #: The last good save of each session whose file nobody touched.
        self.good: dict[str, Snapshot] = {}
        self.size = 100

    def teardown(self) -> None:
        self.temporary.cleanup()

    @property
    def path(self) -> Path:
        assert self.saver.path is not None
        return self.saver.path

    def another_size(self) -> int:
        # each save has its own, so that no file can pass for another one
        self.size += 10
        return self.size

    @rule(name=names)
    def save(self, name: str) -> None:
        saved = self.saver.save(name, self.another_size())
        assert saved is not None
        self.good[name] = saved

    @rule(name=names, missing=st.integers(1, 5))
    def save_half(self, name: str, missing: int) -> None:
        size = self.another_size()
        assert self.saver.save(name, size - missing, said=size) is None

    @rule(name=names)
    def save_nothing(self, name: str) -> None:
        assert self.saver.save(name, 36, tokens=0) is None

    @rule(name=names)
    def be_killed_before_the_commit(self, name: str) -> None:
        planned = self.saver.store.next_save(session(name), self.saver.find(name), 0, SERVER)
        (self.path / planned.file).write_bytes(b"x" * 7)

    @rule(name=names)
    def be_killed_before_the_old_file_goes(self, name: str) -> None:
        planned = self.saver.store.next_save(session(name), self.saver.find(name), 0, SERVER)
        size = self.another_size()
        (self.path / planned.file).write_bytes(b"x" * size)
        saved = now(self.saver.store.commit(planned, 64, size, None))
        assert saved is not None
        self.good[name] = saved

    @precondition(lambda self: self.good)
    @rule(data=st.data(), cut=st.booleans())
    def somebody_touches_a_file(self, data: st.DataObject, cut: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.good)))
        file = self.path / self.good.pop(name).file
        if cut:
            file.write_bytes(b"x")
        else:
            file.unlink()

    @rule()
    def start_again(self) -> None:
        self.saver.store = snapshots(self.saver.clock, Folder(self.path), self.saver.database)

    @invariant()
    def what_is_found_is_whole(self) -> None:
        for name in "ABC":
            found = self.saver.find(name)
            assert found == self.good.get(name)
            if found is not None:
                assert (self.path / found.file).stat().st_size == found.size


Snapshotting.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
SnapshottingTests = Snapshotting.TestCase
