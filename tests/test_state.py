"""The state folder: one owner, and a secret that stays."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slotgate.state import SECRET_BYTES, StateFolder, StateUnusable


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "new" / "state")
    folder.open()
    return folder


def one_line(error: pytest.ExceptionInfo[StateUnusable]) -> str:
    line = str(error.value)
    assert "\n" not in line
    return line


def test_the_folder_is_made_and_is_nobody_elses_to_read(folder: StateFolder) -> None:
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_second_owner_is_refused_until_the_first_one_lets_go(folder: StateFolder) -> None:
    second = StateFolder(folder.path)
    with pytest.raises(StateUnusable) as error:
        second.open()
    assert one_line(error) == f"state_dir {folder.path}: another slotgate uses it"
    folder.close()
    second.open()


def test_a_refused_owner_takes_nothing_from_the_first(folder: StateFolder) -> None:
    for _ in range(2):
        second = StateFolder(folder.path)
        with pytest.raises(StateUnusable):
            second.open()
        second.close()


def test_closing_twice_is_closing(folder: StateFolder) -> None:
    folder.close()
    folder.close()


def test_the_owner_may_be_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from slotgate.state import StateFolder;"
        "StateFolder(Path(sys.argv[1])).open(); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert killed.returncode == -9
    assert (tmp_path / "lock").exists()
    StateFolder(tmp_path).open()


@pytest.mark.parametrize("taken", ["state", "state/lock"])
def test_what_stands_in_the_way_is_named_in_one_line(tmp_path: Path, taken: str) -> None:
    way = tmp_path / taken
    if taken == "state":
        way.write_text("a file")
    else:
        way.mkdir(parents=True)
    with pytest.raises(StateUnusable) as error:
        StateFolder(tmp_path / "state").open()
    assert one_line(error).startswith(f"state_dir {tmp_path / 'state'}: ")


def test_a_folder_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnusable) as error:
        StateFolder(tmp_path / "file" / "state").open()
    assert one_line(error).endswith(": Not a directory")


def test_the_secret_stays_the_same(folder: StateFolder) -> None:
    secret = folder.secret()
    assert len(secret) == SECRET_BYTES
    folder.close()
    again = StateFolder(folder.path)
    again.open()
    assert again.secret() == secret


def test_each_installation_has_its_own_secret(folder: StateFolder, tmp_path: Path) -> None:
    other = StateFolder(tmp_path / "other")
    other.open()
    assert other.secret() != folder.secret()


def test_only_the_owner_can_read_the_secret(folder: StateFolder) -> None:
    folder.secret()
    assert stat.S_IMODE((folder.path / "secret.key").stat().st_mode) == 0o600


def test_half_a_secret_of_a_killed_process_is_never_used(folder: StateFolder) -> None:
    # longer than a secret, so that a rest of it would show
    (folder.path / "secret.new").write_bytes(b"half" * SECRET_BYTES)
    assert len(folder.secret()) == SECRET_BYTES
    assert not (folder.path / "secret.new").exists()


def test_a_damaged_secret_is_one_line_that_says_what_to_do(folder: StateFolder) -> None:
    (folder.path / "secret.key").write_bytes(b"short")
    with pytest.raises(StateUnusable) as error:
        folder.secret()
    assert one_line(error).startswith(f"{folder.path / 'secret.key'}: damaged; remove it")


def test_a_secret_that_can_not_be_read_is_one_line(folder: StateFolder) -> None:
    (folder.path / "secret.key").mkdir()
    with pytest.raises(StateUnusable) as error:
        folder.secret()
    assert one_line(error) == f"{folder.path / 'secret.key'}: Is a directory"
