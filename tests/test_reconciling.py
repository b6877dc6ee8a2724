"""Index and folder are brought together before slotgate serves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from doubles import memory_database
from twisted.internet.defer import Deferred

from slotgate.config import Server
from slotgate.snapshots.index import Index
from slotgate.snapshots.names import file_name
from slotgate.snapshots.reconciling import reconcile
from slotgate.snapshots.records import Snapshot


def now(work: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    results: list[Any] = []
    Deferred.fromCoroutine(work).addCallback(results.append)
    return results[0]


class Kept:
    """An index and the folder of its server."""

    def __init__(self, path: Path) -> None:
        self.path = path / "slots"
        self.path.mkdir()
        self.index = Index(memory_database())
        self.server = Server("local", slot_save_path=self.path)
        # the first start, with nothing there
        self.start()

    def save(self, session: str, generation: int = 1, server: str = "local") -> Path:
        """A snapshot whose record is right."""
        file = file_name("*", f"{ord(session):032x}", generation)
        (self.path / file).write_bytes(b"x" * 100)
        snapshot = Snapshot(
            "", "*", session, server, 0, file, generation, 50, 100, "", "m", "", "b", "", "", 0, 0
        )
        now(self.index.commit(snapshot))
        return self.path / file

    def start(self, *servers: Server) -> None:
        """What happens when slotgate starts."""
        now(reconcile(self.index, servers or [self.server]))

    def records(self) -> set[str]:
        return {snapshot.session for snapshot in now(self.index.all())}

    def files(self) -> set[str]:
        return {file.name for file in self.path.iterdir()}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_what_is_whole_stays(kept: Kept) -> None:
    file = kept.save("A")
    kept.start()
    assert (kept.records(), kept.files()) == ({"A"}, {file.name})


def test_a_record_whose_file_is_gone_or_cut_goes_and_the_cut_file_too(kept: Kept) -> None:
    kept.save("A").unlink()
    kept.save("B").write_bytes(b"x" * 99)
    whole = kept.save("C")
    kept.start()
    assert (kept.records(), kept.files()) == ({"C"}, {whole.name})


def test_even_when_it_was_the_only_one(kept: Kept) -> None:
    kept.save("A")
    kept.start()
    (file,) = kept.path.iterdir()
    file.unlink()
    kept.start()
    assert kept.records() == set()


def test_a_file_that_a_kill_left_behind_goes(kept: Kept) -> None:
    good = kept.save("A")
    (kept.path / good.name.replace(".1.bin", ".2.bin")).write_bytes(b"half")
    kept.start()
    assert (kept.records(), kept.files()) == ({"A"}, {good.name})


def test_a_folder_that_another_installation_uses_keeps_its_files(kept: Kept) -> None:
    theirs = kept.save("A")
    second = Index(memory_database())
    for _ in range(2):
        now(reconcile(second, [kept.server]))
        # also those that come later
        (kept.path / theirs.name.replace(".1.bin", ".2.bin")).write_bytes(b"half")
    assert len(kept.files()) == 2
    # it is the first one's, which sweeps as before
    kept.start()
    assert kept.files() == {theirs.name}


def test_a_shared_folder_stays_shared_while_its_disk_is_away(kept: Kept) -> None:
    theirs = kept.save("A")
    second = Index(memory_database())
    ours = Kept.__new__(Kept)
    ours.path, ours.index, ours.server = kept.path, second, kept.server
    ours.start()
    mine = ours.save("B")
    away = kept.path.with_name("away")
    kept.path.rename(away)
    kept.path.mkdir()
    ours.start()
    kept.path.rmdir()
    away.rename(kept.path)
    for _ in range(2):
        ours.start()
    assert kept.files() == {theirs.name, mine.name}


def test_a_folder_of_somebody_elses_that_comes_later_is_shared(kept: Kept, tmp_path: Path) -> None:
    kept.save("A")
    other = tmp_path / "other"
    other.mkdir()
    theirs = other / file_name("*", "f" * 32, 1)
    theirs.write_bytes(b"x")
    moved = evolve(kept.server, slot_save_path=other)
    for _ in range(3):
        kept.start(moved)
    assert theirs.exists()


def test_another_path_for_once_costs_nothing(kept: Kept, tmp_path: Path) -> None:
    file = kept.save("A")
    other = tmp_path / "other"
    other.mkdir()
    for _ in range(2):
        kept.start(evolve(kept.server, slot_save_path=other))
    kept.start()
    assert (kept.records(), kept.files()) == ({"A"}, {file.name})


def test_files_of_others_stay(kept: Kept, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.bin"
    elsewhere.write_bytes(b"x")
    link = kept.path / file_name("*", "0" * 32, 7)
    link.symlink_to(elsewhere)
    (kept.path / "mine.bin").write_bytes(b"x")
    (kept.path / f"{link.name}.bak").write_bytes(b"x")
    folder = kept.path / file_name("*", "1" * 32, 7)
    folder.mkdir()
    before = kept.files()
    kept.start()
    assert kept.files() == before
    assert elsewhere.read_bytes() == b"x"


def test_without_sweep_leftovers_stay(kept: Kept) -> None:
    leftover = kept.path / file_name("*", "0" * 32, 1)
    leftover.write_bytes(b"half")
    kept.start(evolve(kept.server, sweep=False))
    assert leftover.exists()
    kept.start()
    assert not leftover.exists()


def test_two_servers_that_share_a_folder_keep_each_others_files(kept: Kept) -> None:
    kept.save("A")
    kept.save("B", server="other")
    kept.start(kept.server, evolve(kept.server, name="other", url="http://127.0.0.1:2"))
    assert kept.records() == {"A", "B"}
    assert len(kept.files()) == 2


def test_a_disk_that_is_not_mounted_loses_nothing(kept: Kept) -> None:
    kept.save("A")
    kept.start()
    mounted = kept.path.rename(kept.path.with_name("mounted"))
    kept.path.mkdir()
    kept.start()
    assert kept.records() == {"A"}
    shutil.rmtree(kept.path)
    mounted.rename(kept.path)
    kept.start()
    assert (kept.records(), len(kept.files())) == ({"A"}, 1)


def test_a_folder_that_is_not_there_loses_nothing(kept: Kept) -> None:
    kept.save("A")
    shutil.rmtree(kept.path)
    kept.start()
    assert kept.records() == {"A"}
