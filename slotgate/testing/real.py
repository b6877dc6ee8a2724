"""
A real llama-server for tests and demos: the one of the ``xllamacpp`` wheel, in its own process.

With a tiny model (:mod:`slotgate.testing.models`) it listens after a third of a second, so whole
suites can run against it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import treq
from attrs import evolve, frozen
from treq.client import HTTPClient
from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import Agent

_TAIL = 40
"""
Lines of llama.cpp's log kept for an error message.
"""


class ServerDidNotStart(Exception):
    """
    The llama-server ended, or did not listen in time; the message ends with its last log lines.
    """


class Startable(Protocol):
    """
    Options of something that :class:`RealServer` can start.
    """

    @property
    def port(self) -> int:
        """
        The TCP port, 0 for a free one.
        """

    def at(self, port: int) -> Startable:
        """
        The same at a port.
        """

    def command(self) -> list[str]:
        """
        A command that tells on stdout, in one JSON line, that it listens, and ends with its stdin.

        The line's ``url`` is the address, ``pid`` the server's process where that is another one.
        """

    def environment(self) -> dict[str, str]:
        """
        All of its environment variables.
        """


def environment() -> dict[str, str]:
    """
    Our own variables, without the debugger that llama.cpp else starts to print where it aborted.
    """
    return {**os.environ, "GGML_NO_BACKTRACE": "1"}


@frozen
class RealServerOptions:
    """
    How to start the server; names and units are those of llama-server's options.

    :ivar model: the GGUF file.
    :ivar slot_save_path: the folder of slot files; it must exist. Empty: no slot files, 501.
    :ivar context: tokens, shared by all slots.
    :ivar parallel: slots.
    :ivar cache_ram: MiB of prompt cache that the server keeps in memory by itself.
    :ivar batch: tokens read in one go: a busy slot is noticed free only after one. 0: llama.cpp's.
    :ivar sleep_idle_seconds: idle seconds until the model is unloaded, -1: never.
    :ivar alias: the model's name towards clients, by default its path.
    :ivar threads: 0: llama.cpp's choice.
    :ivar swa_full: keep all of a sliding-window model's cache.
    :ivar slots_endpoint: whether ``GET /slots`` answers (else 501).
    """

    model: str | Path
    slot_save_path: str | Path = ""
    port: int = 0
    context: int = 4096
    parallel: int = 1
    cache_ram: int = 0
    batch: int = 0
    sleep_idle_seconds: int = -1
    api_key: str = ""
    alias: str = ""
    threads: int = 0
    swa_full: bool = False
    slots_endpoint: bool = True

    def command(self) -> list[str]:
        """
        The command line: this Python, and the script beside this module, which needs no slotgate.
        """
        values: dict[str, object] = {
            "model": self.model,
            "slot-save-path": self.slot_save_path,
            "port": self.port,
            "ctx": self.context,
            "parallel": self.parallel,
            "cache-ram": self.cache_ram,
            "batch": self.batch,
            "sleep-idle-seconds": self.sleep_idle_seconds,
            "api-key": self.api_key,
            "alias": self.alias,
            "threads": self.threads,
        }
        flags = ["--swa-full"] * self.swa_full + ["--no-slots"] * (not self.slots_endpoint)
        script = Path(__file__).with_name("_xllama.py")
        return [
            sys.executable,
            "-P",  # or the modules beside the script would shadow others
            str(script),
            *(f"--{name}={value}" for name, value in values.items()),
            *flags,
        ]

    def environment(self) -> dict[str, str]:
        """
        See :func:`environment`.
        """
        return environment()

    def at(self, port: int) -> RealServerOptions:
        """
        The same at a port.
        """
        return evolve(self, port=port)


class _Process(ProcessProtocol):
    """
    One run of the server.

    :ivar listening: fires with the address once the process has told it, fails if it ends before.
    :ivar pid: the server's where it is not this one's but a child's, and known.
    """

    transport: IProcessTransport
    pid: int | None = None

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.listening: Deferred[str] = Deferred()
        self.running = True
        self._progress = progress
        self._log: deque[str] = deque(maxlen=_TAIL)
        self._partial = {1: b"", 2: b""}
        self._waiting: list[Deferred[None]] = []

    def outReceived(self, data: bytes) -> None:
        for line in self._lines(1, data):
            if not self.listening.called:
                told = json.loads(line)
                self.pid = told.get("pid")
                self.listening.callback(told["url"])

    def errReceived(self, data: bytes) -> None:
        for line in self._lines(2, data):
            self._log.append(line)
            if self._progress is not None:
                self._progress(line)

    def _lines(self, descriptor: int, data: bytes) -> list[str]:
        *whole, self._partial[descriptor] = (self._partial[descriptor] + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def processEnded(self, reason: Failure) -> None:
        self.running = False
        if not self.listening.called:
            self.listening.errback(self.failure(reason.getErrorMessage()))
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)

    def ended(self) -> Deferred[None]:
        """
        Fire once the process is gone and its pipes are read to the end.
        """
        if not self.running:
            return succeed(None)
        deferred: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(deferred)
        return deferred

    def failure(self, why: str) -> ServerDidNotStart:
        return ServerDidNotStart("\n".join([f"llama-server did not start: {why}", *self._log]))

    def kill(self) -> Deferred[None]:
        if self.running:
            # gone already, but its pipes are still open: processEnded follows
            with suppress(ProcessExitedAlready, ProcessLookupError):
                if self.pid is not None and self.transport.pid is not None:
                    os.kill(self.pid, signal.SIGKILL)
                else:
                    self.transport.signalProcess("KILL")
        return self.ended()


class RealServer:
    """
    A llama-server process that can be started, stopped, killed and started again at its address.

    It ends with the process that started it, even if that one is killed.

    :ivar url: ``http://127.0.0.1:<port>``, empty before the first start.
    """

    def __init__(
        self,
        reactor: Any,
        options: Startable,
        *,
        start_seconds: float = 60.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """
        :param reactor: one that can spawn processes, connect over TCP and tell the time.
        :param start_seconds: how long :meth:`start` waits.
        :param progress: called with each line of llama.cpp's log, for a model that loads slowly.
        """
        self.url = ""
        self._reactor = reactor
        self._options = options
        self._start_seconds = start_seconds
        self._progress = progress
        self._process: _Process | None = None

    @property
    def port(self) -> int:
        """
        The TCP port, 0 before the first start when the options name none.
        """
        return self._options.port

    @property
    def pid(self) -> int | None:
        """
        The process, None when none runs.
        """
        if self._process is None or self._process.transport.pid is None:
            return None
        return self._process.pid or self._process.transport.pid

    @property
    def running(self) -> bool:
        """
        Whether the process lives.
        """
        return self._process is not None and self._process.running

    def start(self) -> Deferred[None]:
        """
        Start the process.

        :returns: fires when the server listens and its ``/health`` is good; fails with
            :class:`ServerDidNotStart` when the process ends before that or takes too long.
        """
        if self.running:
            raise RuntimeError("this llama-server runs already")
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        process = _Process(self._progress)
        command = self._options.command()
        self._reactor.spawnProcess(
            process, command[0], command, env=self._options.environment(), path=None
        )
        self._process = process
        try:
            await Deferred.fromCoroutine(self._listening(process)).addTimeout(
                self._start_seconds, self._reactor
            )
        except DeferredTimeout:
            await process.kill()
            raise process.failure(f"not ready after {self._start_seconds} s") from None
        except BaseException:
            await process.kill()
            raise

    async def _listening(self, process: _Process) -> None:
        url = await process.listening
        client = HTTPClient(Agent(self._reactor))
        while True:
            response = await client.get(f"{url}/health")
            await treq.content(response)
            if response.code == 200:
                break
            await deferLater(self._reactor, 0.05)
        self.url = url
        self._options = self._options.at(int(url.rpartition(":")[2]))

    def kill(self) -> Deferred[None]:
        """
        End the process without a chance to finish anything (SIGKILL).

        :returns: fires when it has ended.
        """
        return self._process.kill() if self._process else succeed(None)

    def stop(self) -> Deferred[None]:
        """
        Close the process's stdin, at which it ends.

        :returns: fires when it has ended.
        """
        if self._process is None or not self._process.running:
            return succeed(None)
        self._process.transport.closeStdin()
        return self._process.ended()

    def ended(self) -> Deferred[None]:
        """
        Fire when the process has ended, by whatever cause; at once when none runs.
        """
        return self._process.ended() if self._process else succeed(None)

    def restart(self) -> Deferred[None]:
        """
        Kill what runs and start again at the same port, with empty slots.
        """
        return Deferred.fromCoroutine(self._restart())

    async def _restart(self) -> None:
        await self.kill()
        await self._start()
