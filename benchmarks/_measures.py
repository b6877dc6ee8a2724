"""
What is measured, and how: each function makes one of the benchmark's figures.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from attrs import define, field, frozen

from benchmarks._client import Caller, Target, Unexpected, ask, interleaved, load
from benchmarks._processes import RELAYED, RESIDENT, Process

DIRECT = "direct"
#: The ways a request takes, in the order of the table's columns.
WAYS = (DIRECT, RELAYED, RESIDENT)


@frozen
class Size:
    """
    How much of everything.

    :ivar exchanges: requests per way, kind and round.
    :ivar seconds: of each measurement of requests per second.
    :ivar events: of the stream whose CPU time is measured.
    :ivar waiting: requests that wait at the same time.
    """

    rounds: int
    exchanges: int
    seconds: float
    events: int
    waiting: int


FULL = Size(rounds=8, exchanges=50, seconds=0.5, events=300, waiting=800)
QUICK = Size(rounds=1, exchanges=12, seconds=0.1, events=40, waiting=60)

#: Between two requests whose time is measured, in seconds.
PAUSE_SECONDS = 0.004
#: Between two events of the stream: long enough that each is read and written alone.
SPACING_MS = 2
CONNECTIONS = (1, 32)
#: Waiting requests before the baseline of memory is taken, so that it has what is there once.
_WARM_UP = 20
#: Connections to the server that the gateway keeps open for its next look, at the most.
_KEPT = 4
_ALL_WAIT_SECONDS = 20.0


@define
class Samples:
    """Everything measured in the rounds, by way."""

    rounds: int = 0
    answers: dict[str, list[float]] = field(factory=lambda: _by_way())
    events: dict[str, list[float]] = field(factory=lambda: _by_way())
    rates: dict[int, dict[str, list[float]]] = field(
        factory=lambda: {connections: _by_way() for connections in CONNECTIONS}
    )
    #: CPU seconds of the gateway per request, by connections.
    request_cpu: dict[int, dict[str, list[float]]] = field(
        factory=lambda: {connections: _by_way() for connections in CONNECTIONS}
    )
    #: CPU seconds of the gateway per event of a stream.
    event_cpu: dict[str, list[float]] = field(factory=lambda: _by_way())
    #: CPU seconds of the benchmark's own server per event: one timer and one write.
    yardstick: list[float] = field(factory=list)
    #: Seconds that the gateway was ready and had no core, per second that it ran.
    held_up: float = 0.0
    #: Reads that the client needed per event: under 1, some came together.
    reads: list[float] = field(factory=list)


def _by_way() -> dict[str, list[float]]:
    return {way: [] for way in WAYS}


def targets(server: Process, gateway: Process) -> dict[str, Target]:
    """The three ways to the same server."""
    return {
        DIRECT: Target(server.port, DIRECT),
        RELAYED: Target(gateway.port, RELAYED),
        RESIDENT: Target(gateway.port, RESIDENT, resident=True),
    }


def warm_up(ways: Mapping[str, Target]) -> None:
    """Ask once each way, so that the session is in the slot and everything is loaded."""
    for target in ways.values():
        with Caller(Target(target.port, target.model)) as caller:
            for _ in range(20):
                caller.exchange(caller.target.request())
    time.sleep(0.1)


def measure_round(
    ways: Mapping[str, Target],
    server: Process,
    gateway: Process,
    size: Size,
    samples: Samples,
) -> None:
    """One round of everything but memory, the ways in turn."""
    stream = {"stream": True, "events": 2, "spacing_ms": SPACING_MS}
    for into, fields in ((samples.answers, {}), (samples.events, stream)):
        for way, found in interleaved(ways, size.exchanges, PAUSE_SECONDS, **fields).items():
            into[way] += found
    for connections in CONNECTIONS:
        for way, target in ways.items():
            before = gateway.cpu_seconds()
            answered, took = load(target, connections, size.seconds)
            gateway.settle()
            used = gateway.cpu_seconds() - before
            samples.rates[connections][way].append(answered / took)
            if way != DIRECT:
                samples.request_cpu[connections][way].append(used / answered)
    for way in (RELAYED, RESIDENT):
        short, _ = _stream(ways[way], gateway, 1)
        before = server.cpu_seconds()
        long, reads = _stream(ways[way], gateway, size.events)
        samples.yardstick.append((server.cpu_seconds() - before) / size.events)
        # without what the request itself costs
        samples.event_cpu[way].append((long - short) / (size.events - 1))
        samples.reads.append(reads / size.events)
    samples.rounds += 1


def _stream(target: Target, gateway: Process, events: int) -> tuple[float, int]:
    """CPU seconds of the gateway for one stream, and the reads that the client needed."""
    with Caller(target) as caller:
        before = gateway.cpu_seconds()
        exchange = caller.exchange(
            target.request(stream=True, events=events, spacing_ms=SPACING_MS)
        )
    gateway.settle()
    return gateway.cpu_seconds() - before, exchange.reads


def memory_per_waiting(server: Process, gateway: Process, model: str, count: int) -> float:
    """
    Resident memory of the gateway per waiting request, in bytes.

    :param gateway: a fresh one: memory that was used before and is free again would hide some.
    :param model: ``relayed``: they wait for the server, each with a connection to it;
        ``resident``: one of them has the slot, the others wait for it.
    :raises Unexpected: they did not wait, or were not answered in the end.
    """
    target = Target(gateway.port, model)
    _hold(server, gateway, target, _WARM_UP)
    baseline = gateway.resident_bytes()
    used = _hold(server, gateway, target, count)
    return (used - baseline) / count


def _hold(server: Process, gateway: Process, target: Target, count: int) -> int:
    """Resident memory in bytes while so many requests wait."""
    ask(server.port, "/hold")
    request = target.request(hold=True)
    files = gateway.open_files()
    callers: list[Caller] = []
    try:
        for number in range(count):
            callers.append(Caller(target))
            callers[-1].send(request)
            if number % 20 == 19:
                # no faster than they are accepted: Twisted's backlog is 50
                time.sleep(0.02)
        until = time.monotonic() + _ALL_WAIT_SECONDS
        expected = count if target.model == RELAYED else 1
        # a connection to the server that was kept from before may have ended meanwhile
        least = files + count - _KEPT
        while int(ask(server.port, "/held")) < expected or gateway.open_files() < least:
            if time.monotonic() > until:
                held, files_now = ask(server.port, "/held"), gateway.open_files() - files
                raise Unexpected(
                    f"not all of the {count} requests are waiting: the server holds {held!r}, the"
                    f" gateway has {files_now} more files open"
                )
            time.sleep(0.05)
        gateway.settle()
        used = gateway.resident_bytes()
        ask(server.port, "/release")
        for caller in callers:
            caller.answer()
    finally:
        for caller in callers:
            caller.__exit__(None, None, None)
    gateway.settle()
    return used


def percentile_95(values: Sequence[float]) -> float:
    """The value that 95 % are under."""
    return quantiles(values, n=20, method="inclusive")[-1]


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each way that has values."""
    return {way: median(values) for way, values in samples.items() if values}


def percentiles(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The 95th percentile of each way."""
    return {way: percentile_95(values) for way, values in samples.items()}
