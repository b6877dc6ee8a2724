"""
What Prometheus is told: counts and times since our start, in a registry of the gateway's own.

Labels are words of the code and names of the configuration, and models that a router knows: never
a session's id, and nothing else that a client says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slotgate.llama.wire import Usage
from slotgate.slots.choice import Verdict
from slotgate.slots.reasons import Reason
from slotgate.slots.steps import Action, Result, Step
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.records import Snapshot
from slotgate.telemetry.events import Served
from slotgate.telemetry.explanations import Finding

#: From a slot that has the cache already to a long prompt on a slow machine, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

#: So many models of one server have labels of their own; the rest is "other".
MOST_MODELS = 100

#: The ways in which a server does not answer.
KINDS = ("unreachable", "silent")

#: Why snapshots are deleted.
_DROPS = (Fate.EVICTED, Fate.OTHER_MODEL, Fate.DAMAGED, Fate.MISSING, Fate.DELETED)

_COUNTED = ("server", "route", "model")


class _Families(Collector):
    """Families of metrics, without the times at which their series began: those are noise."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Each family."""
        for family in self._families:
            # prometheus_client has a switch for that, for the whole process
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield family


class Metrics:
    """
    Counts what a :class:`~slotgate.telemetry.events.Listener` is told.

    Invariant: how many series there are does not depend on what clients say.

    :param servers: the names of the configured servers.
    :param knows: whether a server has models, and one of that id.
    """

    def __init__(self, servers: Iterable[str], knows: Callable[[str, str], bool]) -> None:
        self._knows = knows
        #: The models that have labels, by server.
        self._models: dict[str, set[str]] = {}
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "requests",
            "Requests that use a model, once they are over, by how they found their cache.",
            ("server", "route", "surface", "verdict", "end"),
        )
        self._misses = self._counter(
            "cache_misses",
            "Requests that started cold, or past the cache, by the reason.",
            ("server", "route", "verdict", "reason"),
        )
        self._findings = self._counter(
            "findings",
            "Requests that read more than their session's last one promised, by what was found.",
            ("server", "route", "finding"),
        )
        self._wait = self._histogram(
            "request_wait_seconds",
            "From the arrival of a request until it goes to the server: the queue and the switch.",
            ("server", "route"),
        )
        self._switch = self._histogram(
            "request_switch_seconds",
            "What the switch took, of a request that uses a slot.",
            ("server", "route"),
        )
        self._first_byte = self._histogram(
            "request_first_byte_seconds",
            "From the arrival of a request to the first byte of its answer.",
            ("server", "route", "verdict"),
        )
        self._duration = self._histogram(
            "request_duration_seconds",
            "From the arrival of a request to the end of its answer.",
            ("server", "route"),
        )
        self._read = self._counter(
            "prompt_tokens_read", "Tokens of prompts that the server read.", _COUNTED
        )
        self._reused = self._counter(
            "prompt_tokens_reused",
            "Tokens of prompts that were in the cache, and not read.",
            _COUNTED,
        )
        self._generated = self._counter(
            "generated_tokens", "Tokens that the server generated.", _COUNTED
        )
        self._actions = self._counter(
            "slot_actions",
            "Saves, restores and erases of slots, by how they ended.",
            ("server", "action", "result"),
        )
        self._action_seconds = self._histogram(
            "slot_action_seconds",
            "What a save, a restore or an erase of a slot took.",
            ("server", "action"),
        )
        self._action_bytes = self._counter(
            "slot_action_bytes",
            "Bytes that saves wrote and restores read.",
            ("server", "action"),
        )
        self._dropped = self._counter(
            "snapshots_dropped",
            "Snapshots that were deleted, but for those that a newer one replaced.",
            ("server", "reason"),
        )
        self._errors = self._counter(
            "upstream_errors", "Requests that a server did not answer.", ("server", "kind")
        )
        self._rejections = self._counter(
            "rejected_requests", "Requests that slotgate itself did not take.", ("status",)
        )
        for server in servers:
            self._begin(server)

    def _begin(self, server: str) -> None:
        """
        Let what is known before it happens begin at 0: a series that appears with 1 is no increase.
        """
        for action in Action:
            for result in Result:
                self._actions.labels(server, action.value, result.value)
            self._action_seconds.labels(server, action.value)
            if action is not Action.ERASE:
                self._action_bytes.labels(server, action.value)
        for fate in _DROPS:
            self._dropped.labels(server, fate.value)
        for kind in KINDS:
            self._errors.labels(server, kind)

    def families(self, more: Iterable[Metric] = ()) -> Collector:
        """
        All of it, for one of ``prometheus_client``'s encoders.

        :param more: what is told beside it.
        """
        return _Families((*self._registry.collect(), *more))

    def served(self, served: Served) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        place = (served.server, served.route)
        verdict = served.verdict.value
        self._requests.labels(*place, served.surface, verdict, served.end.value).inc()
        if served.reason is not Reason.NONE or served.verdict is Verdict.COLD:
            self._misses.labels(*place, verdict, served.reason.value).inc()
        if served.explanation.finding is not Finding.NONE:
            self._findings.labels(*place, served.explanation.finding.value).inc()
        self._wait.labels(*place).observe(served.waited)
        if served.address is not None:
            self._switch.labels(*place).observe(served.switched)
        if served.first_byte is not None:
            self._first_byte.labels(*place, verdict).observe(served.first_byte)
        self._duration.labels(*place).observe(served.seconds)
        if served.usage is not None:
            self._count(served.usage, (*place, self._model(served.server, served.model)))

    def _count(self, usage: Usage, labels: tuple[str, str, str]) -> None:
        self._read.labels(*labels).inc(usage.read)
        self._reused.labels(*labels).inc(usage.reused)
        self._generated.labels(*labels).inc(usage.generated or 0)

    def _model(self, server: str, model: str) -> str:
        """A router's model; empty where the server has one, or the name is the client's own."""
        if not self._knows(server, model):
            return ""
        known = self._models.setdefault(server, set())
        if model not in known:
            if len(known) >= MOST_MODELS:
                return "other"
            known.add(model)
        return model

    def stepped(self, step: Step) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        server, action = step.address.server, step.action.value
        self._actions.labels(server, action, step.result.value).inc()
        if step.result is not Result.SKIPPED:
            self._action_seconds.labels(server, action).observe(step.seconds)
        if step.bytes:
            self._action_bytes.labels(server, action).inc(step.bytes)

    def dropped(self, snapshot: Snapshot, fate: Fate) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self._dropped.labels(snapshot.server, fate.value).inc()

    def failed(self, server: str, kind: str) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self._errors.labels(server, kind).inc()

    def rejected(self, status: int) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self._rejections.labels(str(status)).inc()

    def _counter(self, name: str, meaning: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"slotgate_{name}", meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, labels: tuple[str, ...]) -> Histogram:
        return Histogram(
            f"slotgate_{name}", meaning, labels, registry=self._registry, buckets=BUCKETS
        )
