"""
The benchmark's processes: started, placed, measured from outside, and ended whatever happens.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr

from attrs import frozen

START_SECONDS = 30.0
STOP_SECONDS = 10.0

#: The gateway's name for a route with a session in the slot, and for one that only relays.
RESIDENT, RELAYED = "resident", "relayed"

_CONFIG = """
[gateway]
listen = ["tcp:0:interface=127.0.0.1"]
state_dir = "state"
max_queue = 10000

[servers.pinned]
url = "http://127.0.0.1:{port}"
[servers.plain]
url = "http://127.0.0.2:{port}"

[[routes]]
model = "resident"
server = "pinned"
[[routes]]
model = "relayed"
server = "plain"
cache = false
"""
_LISTENS = re.compile(r"slotgate listens on http://\S+:(\d+)(?=\D)")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class DidNotStart(Exception):
    """A process of the benchmark ended, or did not get ready in time."""


@frozen
class Places:
    """
    Which cores the processes run on.

    :ivar gateway: the gateway's own; empty: wherever the kernel puts it.
    :ivar others: the client's and the server's.
    """

    gateway: frozenset[int]
    others: frozenset[int]

    def __str__(self) -> str:
        if not self.gateway:
            return "nothing pinned: there is one core"
        return (
            f"gateway alone on core {_numbers(self.gateway)}, "
            f"client and server together on {_numbers(self.others)}"
        )


def places() -> Places:
    """One core for the gateway and one for the rest, where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return Places(frozenset(), frozenset())
    return Places(frozenset(cores[:1]), frozenset(cores[1:2]))


def _numbers(cores: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(cores)))


def pin(pid: int, cores: frozenset[int]) -> None:
    """Let a process run on these cores only; 0 is this one."""
    if cores:
        os.sched_setaffinity(pid, cores)


@frozen
class Process:
    """A running process, seen from outside. Linux only."""

    pid: int
    #: Where it listens.
    port: int

    def cpu_seconds(self) -> float:
        """CPU time that it has used, user and system, to the nanosecond."""
        # as glibc's clock_getcpuclockid makes it; /proc counts in steps of 10 ms
        return time.clock_gettime((~self.pid << 3) | 2)

    def core_seconds(self) -> tuple[float, float]:
        """
        How long its main thread has run on a core, and how long it was ready and did not.
        """
        ran, waited, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        return int(ran) / 1e9, int(waited) / 1e9

    def resident_bytes(self) -> int:
        """Its resident memory (RSS)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def settle(self) -> None:
        """Wait until it has nothing to do."""
        used = self.cpu_seconds()
        while True:
            time.sleep(0.05)
            before, used = used, self.cpu_seconds()
            if used - before < 0.001:
                return


@contextmanager
def upstream(cores: frozenset[int]) -> Iterator[Process]:
    """The benchmark's server."""
    command = [sys.executable, "-m", "benchmarks._upstream"]
    with _ended(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as process:
        assert process.stdout is not None
        pin(process.pid, cores)
        port = process.stdout.readline().strip()
        if not port:
            raise DidNotStart("the benchmark's server did not start")
        yield Process(process.pid, int(port))


@contextmanager
def gateway(folder: Path, upstream_port: int, cores: frozenset[int]) -> Iterator[Process]:
    """
    slotgate in front of the server, as ``slotgate run`` starts it, its log in a file.

    :param folder: for its configuration, state and log; made here.
    """
    folder.mkdir()
    config, log = folder / "slotgate.toml", folder / "log"
    config.write_text(_CONFIG.format(port=upstream_port))
    command = [sys.executable, "-m", "slotgate.cli", "run", "--config", str(config)]
    with (
        log.open("wb") as output,
        _ended(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)) as process,
    ):
        pin(process.pid, cores)
        yield Process(process.pid, _port_in(log, process))


def _port_in(log: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + START_SECONDS
    while not (found := _LISTENS.search(log.read_text())):
        if process.poll() is not None or time.monotonic() > until:
            raise DidNotStart(f"slotgate did not start:\n{log.read_text()}")
        time.sleep(0.02)
    return int(found.group(1))


@contextmanager
def _ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if process.stdout is not None:
            process.stdout.close()
