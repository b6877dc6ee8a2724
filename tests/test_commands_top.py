"""``slotgate top``: the picture, and the terminal it is shown on."""

from __future__ import annotations

import json
import os
import pty
import struct
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from gateway import CLOCK, GatewayCase
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import Site
from zope.interface import implementer

from slotgate.commands.picture import render
from slotgate.commands.tables import ago, duration, size, table
from slotgate.plain import cells, cut

STATUS: dict[str, Any] = {
    "time": 1_800_000_000.0,
    "servers": [
        {"name": "local", "url": "http://127.0.0.1:8080", "mode": "router", "reachable": True,
         "models": [{"id": "gemma", "status": "loaded"}, {"id": "qwen", "status": "sleeping"}]},
        {"name": "far", "url": "http://10.0.0.2:8080", "mode": "unknown", "reachable": False},
    ],
    "slots": [
        {"server": "local", "model": "gemma", "slot": 0, "state": "leased", "session": "tax/2026",
         "tokens": 12345, "saved": False, "waiting": 2},
        {"server": "local", "model": "qwen", "slot": 0, "state": "gone", "session": None,
         "tokens": None, "saved": None, "waiting": 0},
    ],
    "totals": {"requests": 40, "tokens_read": 1000, "tokens_reused": 9000, "seconds_saved": 754.0,
               "saves": 7, "restores": 5, "bytes_written": 3 * 2**30, "bytes_read": 2 * 2**20,
               "hit_ratio": 0.9},
    "disk": {"files": 6, "bytes": 2**30, "limit_bytes": 20 * 2**30, "free_bytes": 100 * 2**30},
    "requests": [
        {"time": 1_800_000_000.0 - n, "session": f"s{n}", "route": "*", "surface": "openai",
         "cache": "restored", "reason": "", "sentence": f"sentence {n} " + "x" * 200,
         "read": 12, "reused": 3400, "generated": 80, "waited": 0.25, "seconds": 4.5}
        for n in range(50)
    ],
}  # fmt: skip
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*STATUS, *STATUS["slots"][0], *STATUS["requests"][0], "models"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


class TestPicture:
    """What is shown, in a terminal of any size."""

    def test_it_says_what_goes_on(self) -> None:
        lines = render(STATUS, 160, 40)
        text = "\n".join(lines)
        assert "40 requests · 1,000 tokens read, 9,000 reused (90%) · 13 min saved" in lines[0]
        assert "disk: 6 files, 1.0 GiB of 20.0 GiB · 100.0 GiB free" in lines[1]
        assert "7 saves, 3.0 GiB written · 5 restores, 2.0 MiB read" in lines[1]
        assert "local: http://127.0.0.1:8080 router · gemma loaded, qwen sleeping" in lines
        assert "far: http://10.0.0.2:8080 NOT REACHABLE" in lines
        (leased,) = [line.split() for line in lines if "leased" in line]
        assert leased == ["0", "gemma", "leased", "tax/2026", "12,345", "no", "2"]
        assert "s0" in text
        assert "sentence 0" in text

    def test_the_newest_requests_fill_what_is_left(self) -> None:
        lines = render(STATUS, 120, 30)
        assert len(lines) == 30
        shown = [line.split()[1] for line in lines if "restored" in line]
        assert shown == [f"s{n}" for n in range(len(shown))]
        assert len(shown) > 15

    def test_many_slots_leave_room_for_requests(self) -> None:
        slots = [{**STATUS["slots"][0], "slot": n} for n in range(100)]
        lines = render({**STATUS, "slots": slots}, 120, 30)
        assert len(lines) == 30
        assert any(line.startswith("… ") and line.endswith(" more slots") for line in lines)
        assert sum("restored" in line for line in lines) >= 4

    def test_slots_of_several_servers_are_told_apart(self) -> None:
        slots = [{"server": name, "slot": 0} for name in ("a", "b")]
        text = "\n".join(render({"slots": slots}, 80, 24))
        assert "a/0" in text
        assert "b/0" in text

    def test_a_problem_stands_on_top(self) -> None:
        lines = render(STATUS, 80, 24, "nothing listens\n there")
        assert lines[0] == "! nothing listens\\n there"
        assert len(lines) == 24

    def test_nothing_known_is_no_fault(self) -> None:
        assert render({}, 80, 24)[0].startswith("slotgate")

    @given(JUNK, st.integers(1, 200), st.integers(1, 60))
    def test_it_fits_and_is_printable_whatever_comes(
        self, status: Any, width: int, height: int
    ) -> None:
        for one in (status if isinstance(status, dict) else {}, {**STATUS, "slots": status}):
            lines = render(one, width, height)
            assert len(lines) <= height
            assert all(line.isprintable() and cells(line) <= width for line in lines)

    @pytest.mark.parametrize("width", [20, 40, 80, 200])
    @pytest.mark.parametrize("height", [1, 2, 5, 10, 24, 80])
    def test_any_size(self, width: int, height: int) -> None:
        lines = render(STATUS, width, height)
        assert 1 <= len(lines) <= height
        assert all(cells(line) <= width for line in lines)


class TestTables:
    """Columns, sizes and times."""

    def test_wide_characters_take_two_columns(self) -> None:
        lines = table(("A", "B"), [("世界", "1"), ("ab", "2")], width=None)
        assert lines == ["A     B", "世界  1", "ab    2"]
        assert cut("世界世界", 5) == "世界…"

    def test_columns_that_may_give_way_do(self) -> None:
        lines = table(("ID", "N"), [("x" * 50, "12")], width=20, right=("N",), yielding=("ID",))
        assert lines == ["ID" + " " * 17 + "N", "x" * 15 + "…" + "  12"]

    def test_sizes(self) -> None:
        told = [size(n) for n in (0, 1023, 1024, 1536 * 1024, 2**40, 2**60, None, "x", True)]
        assert told == ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "1.0 TiB", "1048576.0 TiB", *"---"]

    def test_durations_and_times(self) -> None:
        told = [duration(n) for n in (0.04, 9.94, 59, 90, 7200, 864000, None, float("nan"))]
        assert told == ["0.0 s", "9.9 s", "59 s", "2 min", "2 h", "10 d", "-", "-"]
        at = "2027-01-15T08:00:00Z"
        assert [ago(at, 1_800_000_000 + n) for n in (-5, 0, 3, 120)] == [
            "now", "now", "3 s ago", "2 min ago",
        ]  # fmt: skip
        assert [ago(text, 0) for text in (None, "", "x", 5)] == ["-"] * 4


class Status(Resource):
    """``/slotgate/status``, and nothing else."""

    isLeaf = True
    broken = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def render(self, request: Any) -> bytes:
        self.asked.append(request.uri)
        request.setHeader(b"Server", b"slotgate")
        request.setResponseCode(503 if self.broken else 200)
        return json.dumps({"error": {"message": "away"}} if self.broken else STATUS).encode()


@implementer(IReadDescriptor)
class Screen(ProcessProtocol):
    """A terminal that a program runs on."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.shown = b""
        self.ended: Deferred[int] = Deferred()
        self._waiting: list[tuple[bytes, int, Deferred[None]]] = []

    def fileno(self) -> int:
        return self._leader

    def logPrefix(self) -> str:
        return "screen"

    def doRead(self) -> None:
        try:
            self.shown += os.read(self._leader, 65536)
        except BlockingIOError:
            return
        except OSError:
            CLOCK.removeReader(self)
        for waiting in list(self._waiting):
            words, after, deferred = waiting
            if words in self.shown[after:]:
                self._waiting.remove(waiting)
                deferred.callback(None)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def shows(self, words: bytes, after: int = 0) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        self._waiting.append((words, after, waiting))
        return waiting

    def type(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def processEnded(self, reason: Failure) -> None:
        ended: Any = reason.value
        self.ended.callback(-ended.signal if ended.signal else ended.exitCode or 0)


class TerminalTests(GatewayCase):
    """A real terminal, and the command as a process on it."""

    def setUp(self) -> None:
        super().setUp()
        self.status = Status()
        port = CLOCK.listenTCP(0, Site(self.status), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}"
        leader, self.terminal = pty.openpty()
        os.set_blocking(leader, False)
        self.addCleanup(os.close, leader)
        self.addCleanup(os.close, self.terminal)
        ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
        self.before = termios.tcgetattr(self.terminal)
        self.screen = Screen(leader)
        CLOCK.addReader(self.screen)
        self.addCleanup(CLOCK.removeReader, self.screen)

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "slotgate.cli", "top", "--url", self.url, *options]
        files = dict.fromkeys(range(3), self.terminal)
        # what runs the tests may have a width of its own there, which wins over the terminal's
        sizes = ("COLUMNS", "LINES")
        environ = {name: value for name, value in os.environ.items() if name not in sizes}
        CLOCK.spawnProcess(self.screen, command[0], command, env=environ, childFDs=files)

    async def restored(self, status: int) -> None:
        """It has ended, and the terminal is as it was."""
        self.assertEqual(await self.screen.ended, status)
        self.assertEqual(termios.tcgetattr(self.terminal), self.before)
        await self.pause(0)
        self.screen.doRead()
        self.assertIn(b"\x1b[?25h\x1b[?1049l", self.screen.shown)
        self.assertNotIn(b"Traceback", self.screen.shown)

    async def test_it_looks_again_until_q(self) -> None:
        self.start("--interval", "0.1")
        await self.screen.shows(b"40 requests")
        self.assertTrue(self.screen.shown.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H"))
        self.assertFalse(termios.tcgetattr(self.terminal)[3] & (termios.ECHO | termios.ICANON))
        await self.screen.shows(b"40 requests", len(self.screen.shown))
        self.assertEqual(set(self.status.asked), {b"/slotgate/status"})
        self.screen.type(b"q")
        await self.restored(0)

    async def test_ctrl_c(self) -> None:
        self.start()
        await self.screen.shows(b"40 requests")
        self.screen.type(b"\x03")
        await self.restored(0)

    async def test_a_signal(self) -> None:
        self.start()
        await self.screen.shows(b"40 requests")
        transport: Any = self.screen.transport
        transport.signalProcess("TERM")
        await self.restored(130)

    async def test_a_gateway_that_is_away_for_a_while_is_shown_as_it_was(self) -> None:
        self.start("--interval", "0.1")
        await self.screen.shows(b"40 requests")
        self.status.broken = True
        await self.screen.shows(b"! away (503)")
        self.status.broken = False
        before = len(self.screen.shown)
        await self.screen.shows(b"\x1b[Hslotgate ", before)
        self.screen.type(b"q")
        await self.restored(0)

    async def test_one_that_can_not_be_asked_at_all_leaves_the_terminal_alone(self) -> None:
        self.status.broken = True
        self.start()
        await self.screen.shows(b"slotgate: away (503)")
        self.assertEqual(await self.screen.ended, 1)
        self.assertNotIn(b"\x1b", self.screen.shown)

    async def test_once(self) -> None:
        self.start("--once")
        await self.screen.shows(b"restored")
        self.assertEqual(await self.screen.ended, 0)
        self.assertNotIn(b"\x1b", self.screen.shown)
        lines = self.screen.shown.decode().splitlines()
        self.assertEqual(max(map(cells, lines)), 60)
        self.assertLessEqual(len(lines), 12)


def test_the_command_is_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "terminal.md").read_text(encoding="utf-8")
    for word in ("--once", "--interval", "--url", "--key-env", "--config", "--yes", "--json"):
        assert word in page
