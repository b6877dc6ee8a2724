"""
Real processes: ``twistd`` and ``slotgate`` as an operator starts them, each in a folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Literal, cast

from gateway import CLOCK, GatewayCase
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions

#: Where this environment's commands are.
BIN = Path(sys.executable).parent
LISTENS = r"slotgate listens on http://\S+:(\d+)(?=\D)"
Signal = Literal["TERM", "INT", "KILL", "HUP"]


class Program(ProcessProtocol):
    """
    A program that runs, and what it prints.

    :ivar exited: fires with the exit status, negative for a signal, when the process has ended.
    :ivar gone: fires when everything it started has ended too: a pipe that nothing ever writes to
        is open in all of them.
    """

    transport: IProcessTransport

    def __init__(self, *command: object) -> None:
        self.command = [str(part) for part in command]
        self.output = ""
        self.errors = ""
        self.exited: Deferred[int] = Deferred()
        self.gone: Deferred[None] = Deferred()
        self._waiting: list[tuple[re.Pattern[str], int, Deferred[str]]] = []

    def start(self, folder: Path) -> None:
        """Start it in a folder, which is its home too."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")
        }
        environment |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "xdg")}
        CLOCK.spawnProcess(
            self,
            self.command[0],
            self.command,
            env=environment,
            path=str(folder),
            childFDs={0: "w", 1: "r", 2: "r", 3: "r"},
        )

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        text = data.decode()
        if childFD == 1:
            self.output += text
        else:
            self.errors += text
        for waiting in list(self._waiting):
            pattern, after, deferred = waiting
            if found := pattern.search(self.output, after):
                self._waiting.remove(waiting)
                deferred.callback(found[pattern.groups])

    def says(self, pattern: str, after: int = 0) -> Deferred[str]:
        """
        Fire with the pattern's last group once it was printed to stdout.

        :param after: do not look at so many characters.
        """
        compiled = re.compile(pattern)
        if found := compiled.search(self.output, after):
            return succeed(found[compiled.groups])
        if self.gone.called:
            return fail(self._without(compiled))
        waiting: Deferred[str] = Deferred()
        self._waiting.append((compiled, after, waiting))
        return waiting

    def _without(self, pattern: re.Pattern[str]) -> AssertionError:
        return AssertionError(f"{self.command} ended without {pattern.pattern!r}: {self.printed}")

    @property
    def printed(self) -> str:
        """All that it printed."""
        return self.output + self.errors

    @property
    def pid(self) -> int:
        """The process."""
        return cast(int, self.transport.pid)

    def send(self, name: Signal) -> None:
        """Send a signal."""
        self.transport.signalProcess(name)

    def processExited(self, reason: Failure) -> None:
        ended: Any = reason.value
        status = 0 if reason.check(ProcessDone) else ended.exitCode
        self.exited.callback(-ended.signal if status is None else status)

    def processEnded(self, reason: Failure) -> None:
        waiting, self._waiting = self._waiting, []
        for pattern, _, deferred in waiting:
            deferred.errback(self._without(pattern))
        self.gone.callback(None)

    def kill(self) -> Deferred[None]:
        """End it, however it is."""
        with contextlib.suppress(ProcessExitedAlready):
            self.send("KILL")
        return self.gone


class ProcessCase(GatewayCase):
    """
    Gateways in processes of their own, in front of ``self.llama`` or of anything else.
    """

    config = """
        [gateway]
        listen = ["tcp:{port}:interface=127.0.0.1"]
        state_dir = "{state}"
        drain_seconds = 5
        [servers.local]
        url = "{url}"
        slot_save_path = "{slots}"
        {server}
        [[routes]]
        model = "*"
        server = "local"
        {more}
    """

    def write_config(self, url: str = "http://127.0.0.1:9", **values: object) -> Path:
        """Write slotgate.toml."""
        file = self.folder / "slotgate.toml"
        defaults = {"port": 0, "state": "state", "slots": "slots", "server": "", "more": ""}
        file.write_text(self.config.format(**{**defaults, "url": url, **values}))
        return file

    def run_program(self, *command: object) -> Program:
        """Start a program; it ends with the test."""
        program = Program(*command)
        program.start(self.folder)
        self.addCleanup(program.kill)
        return program

    async def ended(self, *command: object) -> tuple[int, Program]:
        """Run a program that ends by itself, with all that it started; its exit status."""
        program = self.run_program(*command)
        status = await program.exited
        await program.gone
        return status, program

    async def start_twistd(self, *options: object) -> Program:
        """``twistd -n slotgate`` with the written configuration, once it listens."""
        return await self.serving(
            BIN / "twistd", "-n", *options, "slotgate", "--config", "slotgate.toml"
        )

    async def serving(self, *command: object) -> Program:
        """A program that serves, once it listens; the client's requests go to it."""
        program = self.run_program(*command)
        self.reach(await program.says(LISTENS))
        return program

    def reach(self, port: str | int) -> None:
        """Send the client's requests to this port."""
        self.base = f"http://127.0.0.1:{port}"

    async def start_llama(self, **options: Any) -> RealServer:
        """A real llama-server with a tiny model and one slot."""
        model = self.folder / "tiny.gguf"
        write_tiny_model(model)
        llama = RealServer(
            CLOCK,
            RealServerOptions(
                model=model, slot_save_path=f"{self.slots}/", context=8192, threads=1, **options
            ),
        )
        self.addCleanup(llama.stop)
        await llama.start()
        return llama


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in RAM."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def end_daemon(pid: int) -> None:
    """Kill a process that is not our child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
