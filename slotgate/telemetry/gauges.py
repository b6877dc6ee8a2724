"""
What Prometheus is told of now: made when it is asked for. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric


@frozen
class ServerNow:
    """A server, its slots and its disk."""

    name: str
    #: It answers.
    up: bool
    #: Requests that wait for a slot or a model.
    waiting: int
    #: How many slots are in each state.
    slots: Mapping[str, int]
    #: How many models a router has in each status; empty: it is none.
    models: Mapping[str, int]
    #: ``None``: not seen.
    free_bytes: int | None
    #: What is left free.
    reserved_bytes: int


@frozen
class Kept:
    """The snapshots of one route of the configuration on one server."""

    server: str
    route: str
    files: int
    bytes: int


@frozen
class Now:
    """Everything that is told of now."""

    version: str
    servers: Sequence[ServerNow]
    #: ``None``: the index did not answer in time.
    kept: Sequence[Kept] | None


def gauges(now: Now) -> Iterator[Metric]:
    """The families of what is now."""
    yield InfoMetricFamily(
        "slotgate_build", "The version of slotgate.", value={"version": now.version}
    )
    index = GaugeMetricFamily("slotgate_index_up", "Whether the index answers (1) or not (0).")
    index.add_metric((), 0 if now.kept is None else 1)
    yield index
    yield _by_server(
        "server_up",
        "Whether the server answers GET /health (1) or not (0); 0 too while it loads its model.",
        {one.name: int(one.up) for one in now.servers},
    )
    yield _by_server(
        "waiting_requests",
        "Requests that wait for a slot or for a model.",
        {one.name: one.waiting for one in now.servers},
    )
    yield _by_word(
        "slots", "Slots by their state.", "state", {one.name: one.slots for one in now.servers}
    )
    yield _by_word(
        "models",
        "Models of a router by their status.",
        "status",
        {one.name: one.models for one in now.servers},
    )
    yield _by_server(
        "disk_free_bytes",
        "What is free on the disk of the slot folder.",
        {one.name: one.free_bytes for one in now.servers if one.free_bytes is not None},
    )
    yield _by_server(
        "disk_reserved_bytes",
        "What slotgate leaves free on that disk: min_free_gib.",
        {one.name: one.reserved_bytes for one in now.servers},
    )
    places = ("server", "route")
    files = GaugeMetricFamily("slotgate_snapshots", "Snapshots there are.", labels=places)
    size = GaugeMetricFamily("slotgate_snapshots_bytes", "What they take.", labels=places)
    for kept in now.kept or ():
        files.add_metric((kept.server, kept.route), kept.files)
        size.add_metric((kept.server, kept.route), kept.bytes)
    yield from (files, size)


def _by_server(name: str, meaning: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"slotgate_{name}", meaning, labels=("server",))
    for server, value in values.items():
        family.add_metric((server,), value)
    return family


def _by_word(
    name: str, meaning: str, label: str, values: Mapping[str, Mapping[str, int]]
) -> Metric:
    family = GaugeMetricFamily(f"slotgate_{name}", meaning, labels=("server", label))
    for server, counts in values.items():
        for word, count in counts.items():
            family.add_metric((server, word), count)
    return family
