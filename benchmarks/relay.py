"""
What slotgate adds to a request: time, CPU and memory, beside the same requests sent directly.

Run it from the checkout: ``python -m benchmarks.relay``, or with ``--quick`` to see whether it
works. It needs Linux, and two idle cores for figures that mean something. How each figure is
made is in ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from attrs import frozen

import twisted
from benchmarks import _measures as measures
from benchmarks._measures import DIRECT, FULL, QUICK, WAYS, Samples, Size
from benchmarks._processes import RELAYED, RESIDENT, Places, gateway, pin, places, upstream

AIM_ADDED_MS = 1.5
AIM_CHUNK_US = 60.0
AIM_WAITING_KB = 40.0

#: Above this the machine is too busy: times say more about it than about the gateway.
HELD_UP = 0.05
#: No round begins later than this after the first, in seconds: a busy machine gets fewer.
ROUNDS_SECONDS = 50.0

_COLUMNS = "{:<46}{:>12}{:>12}{:>12}{:>10}{:>9}"


@frozen
class Row:
    """
    One line of the table.

    :ivar values: by way.
    :ivar added: whether the difference to the direct way means something.
    """

    name: str
    unit: str
    values: Mapping[str, float]
    added: bool = False

    def __str__(self) -> str:
        shown = [f"{self.values[way]:.2f}" if way in self.values else "-" for way in WAYS]
        direct, through = self.values.get(DIRECT), self.values.get(RESIDENT)
        difference = ratio = "-"
        if direct is not None and through is not None:
            ratio = f"x{through / direct:.3f}"
            if self.added:
                difference = f"{through - direct:+.2f}"
        return _COLUMNS.format(f"{self.name}, {self.unit}", *shown, difference, ratio).rstrip()


@frozen
class Aim:
    """A figure and what it is to stay under."""

    name: str
    unit: str
    value: float
    limit: float

    def __str__(self) -> str:
        verdict = "OK" if self.value < self.limit else "MISSED"
        return f"{self.name}: {self.value:.2f} {self.unit} (aim: under {self.limit:g}) {verdict}"


def _scaled(values: Mapping[str, float], factor: float) -> dict[str, float]:
    return {way: value * factor for way, value in values.items()}


def _rows(samples: Samples, memory: Mapping[str, float]) -> Iterator[Row]:
    for name, found in (
        ("time to first byte, short answer", samples.answers),
        ("time to first byte, stream", samples.events),
    ):
        yield Row(f"{name}, median", "ms", _scaled(measures.medians(found), 1e3), added=True)
        yield Row(f"{name}, p95", "ms", _scaled(measures.percentiles(found), 1e3), added=True)
    for connections, rates in samples.rates.items():
        yield Row(_with(connections, "requests"), "1/s", measures.medians(rates))
    for connections, used in samples.request_cpu.items():
        yield Row(_with(connections, "CPU per request"), "us", _scaled(measures.medians(used), 1e6))
    yield Row("CPU per streamed chunk", "us", _scaled(measures.medians(samples.event_cpu), 1e6))
    yield Row("memory per waiting request", "kB", _scaled(memory, 1e-3))


def _with(connections: int, what: str) -> str:
    return f"{what}, {connections} connection{'s' if connections > 1 else ''}"


def _aims(rows: Sequence[Row]) -> Iterator[Aim]:
    for row in rows:
        if row.added and row.name.endswith("median"):
            added = row.values[RESIDENT] - row.values[DIRECT]
            yield Aim(f"added {row.name}", row.unit, added, AIM_ADDED_MS)
    chunk, memory = rows[-2], rows[-1]
    yield Aim(chunk.name, chunk.unit, chunk.values[RESIDENT], AIM_CHUNK_US)
    for way, wait in ((RELAYED, "for the server"), (RESIDENT, "for the slot")):
        yield Aim(f"{memory.name}, {wait}", memory.unit, memory.values[way], AIM_WAITING_KB)


def _measured(size: Size, where: Places) -> tuple[Samples, dict[str, float]]:
    samples, memory = Samples(), {}
    with (
        tempfile.TemporaryDirectory(prefix="slotgate-benchmark-") as temporary,
        upstream(where.others) as server,
    ):
        for model in (RELAYED, RESIDENT):
            with gateway(Path(temporary, f"memory-{model}"), server.port, where.gateway) as fresh:
                memory[model] = measures.memory_per_waiting(server, fresh, model, size.waiting)
        with gateway(Path(temporary, "rounds"), server.port, where.gateway) as through:
            ways = measures.targets(server, through)
            measures.warm_up(ways)
            ran, waited = through.core_seconds()
            enough = time.monotonic() + ROUNDS_SECONDS
            while samples.rounds < size.rounds and time.monotonic() < enough:
                measures.measure_round(ways, server, through, size, samples)
            ran_then, waited_then = through.core_seconds()
            samples.held_up = (waited_then - waited) / (ran_then - ran)
    return samples, memory


def main(argv: Sequence[str] | None = None) -> int:
    """
    Measure, and print what came out. An aim that is missed is no failure.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see whether it works; no figures")
    size = QUICK if parser.parse_args(argv).quick else FULL
    # else the processes that were started here would outlive it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    where, began, load = places(), time.monotonic(), os.getloadavg()[0]
    pin(0, where.others)
    samples, memory = _measured(size, where)
    rows = list(_rows(samples, memory))
    print(
        f"Python {platform.python_version()}, Twisted {twisted.__version__}, "
        f"{os.cpu_count()} cores, load {load:.2f} at the start; {where}"
    )
    print(
        f"{samples.rounds} of {size.rounds} rounds, in each {size.exchanges} exchanges of a kind; "
        f"streams of {size.events} events, at least {min(samples.reads):.2f} reads per event; "
        f"{size.waiting} waiting requests; {time.monotonic() - began:.0f} s"
    )
    print(
        f"other programs held the gateway up for {samples.held_up:.0%} of the time it ran"
        + ("; take no figure from this run" if samples.held_up > HELD_UP else "")
    )
    print(
        f"the benchmark's own server used {median(samples.yardstick) * 1e6:.0f} us of CPU for each "
        "event, one timer and one write"
    )
    print()
    print(_COLUMNS.format("", *WAYS, "added", "ratio"))
    for row in rows:
        print(row)
    print()
    for aim in _aims(rows):
        print(aim)
    return 0


if __name__ == "__main__":
    sys.exit(main())
