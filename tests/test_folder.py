"""The folder of slot files, and the names in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.snapshots.files import Folder, FolderAway
from slotgate.snapshots.names import OURS, file_name, route_tag

NAME = file_name("qwen", "0" * 32, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / NAME).write_bytes(b"0123456789")
    return Folder(tmp_path)


def test_a_file_of_the_right_size_is_fine(folder: Folder) -> None:
    assert folder.problem(NAME, 10) == ""


@pytest.mark.parametrize("size", [9, 11, 0])
def test_another_size_is_a_problem(folder: Folder, size: int) -> None:
    assert folder.problem(NAME, size) == f"10 bytes instead of {size}"


def test_a_file_that_is_gone_is_a_problem(folder: Folder) -> None:
    folder.remove(NAME)
    assert folder.problem(NAME, 10) == "No such file or directory"


def test_a_folder_that_is_gone_says_nothing_about_its_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "nowhere")
    with pytest.raises(FolderAway):
        folder.problem(NAME, 10)
    folder.remove(NAME)


def test_what_is_no_regular_file_is_a_problem(folder: Folder) -> None:
    link = file_name("link", "0" * 32, 1)
    (folder.path / link).symlink_to(folder.path / NAME)
    assert folder.problem(link, 10) == "not a regular file"
    pipe = file_name("pipe", "0" * 32, 1)
    os.mkfifo(folder.path / pipe)
    assert folder.problem(pipe, 0) == "not a regular file"


def test_removing_a_link_leaves_what_it_points_at(folder: Folder) -> None:
    link = file_name("link", "0" * 32, 1)
    (folder.path / link).symlink_to(folder.path / NAME)
    folder.remove(link)
    assert [path.name for path in folder.path.iterdir()] == [NAME]


def test_removing_what_is_gone_is_fine(folder: Folder) -> None:
    folder.remove(NAME)
    folder.remove(NAME)
    assert list(folder.path.iterdir()) == []


def test_what_can_not_be_removed_says_so(folder: Folder) -> None:
    name = file_name("folder", "0" * 32, 1)
    (folder.path / name).mkdir()
    with pytest.raises(OSError, match=r"directory|permitted"):
        folder.remove(name)


@pytest.mark.parametrize(
    "name", ["model.gguf", f"../{NAME}", f"x/{NAME}", f"{NAME}\n", "", ".", f"{NAME}.bak"]
)
def test_other_files_are_never_removed(folder: Folder, name: str) -> None:
    with pytest.raises(ValueError, match="not a snapshot's name"):
        folder.remove(name)
    assert folder.problem(NAME, 10) == ""


@given(st.text(), st.integers(0, 10**18 - 1))
def test_each_route_gives_a_name_that_is_ours_and_no_path(route: str, generation: int) -> None:
    name = file_name(route, "0123456789abcdef" * 2, generation)
    found = OURS.match(name)
    assert found is not None
    assert found["tag"] == route_tag(route)
    assert found["session"] == "0123456789abcdef" * 2
    assert int(found["generation"]) == generation
    assert Path(name).name == name
    assert len(name) < 120


def test_the_route_can_be_read_in_the_name() -> None:
    assert route_tag("qwen3-8b").startswith("qwen3-8b-")
    assert route_tag("org/model:q4").startswith("org_model_q4-")


def test_routes_that_read_the_same_are_told_apart() -> None:
    routes = ["a/b", "a:b", "a_b", "x" * 40, "x" * 41, "", "_"]
    assert len({route_tag(route) for route in routes}) == len(routes)


def test_a_routes_prefix_is_no_other_routes() -> None:
    short, long = f"{route_tag('a')}_", f"{route_tag('a-b')}_"
    assert not file_name("a-b", "0" * 32, 1).startswith(short)
    assert not file_name("a", "0" * 32, 1).startswith(long)
