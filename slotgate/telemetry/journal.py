"""
What happened lately, and how much of it since our start.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable

from attrs import define, evolve, field, frozen

from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import Verdict
from slotgate.slots.steps import Action, Result, Step
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.records import Snapshot
from slotgate.telemetry.events import Served

#: So many requests are kept, and so many spans of what slots did.
MOST_REQUESTS = 200
MOST_SPANS = 1000


#: Reading fewer tokens says nothing of how fast a model reads: most of that is overhead.
LEAST_TOKENS = 64


class Kind(enum.Enum):
    """What a slot did for a while."""

    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"
    READ = "read"
    GENERATE = "generate"


@frozen
class Span:
    """What a slot did from one time to another, in seconds since the epoch."""

    kind: Kind
    address: Address
    session: SessionKey | None
    began: float
    ended: float
    tokens: int = 0
    #: Written or read.
    bytes: int = 0
    #: It did not succeed.
    failed: bool = False


@frozen
class Totals:
    """Counts since our start."""

    requests: int = 0
    #: Of sessions' requests: those that found a cache, and those that did not.
    hits: int = 0
    misses: int = 0
    tokens_read: int = 0
    tokens_reused: int = 0
    tokens_generated: int = 0
    #: What reading the reused tokens would have taken, by the measured speed of each model, in
    #: seconds; what switches took is taken off.
    seconds_saved: float = 0.0
    saves: int = 0
    restores: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    evictions: int = 0
    upstream_errors: int = 0
    rejected: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """The part of the prompts' tokens that was reused; ``None``: nothing was read yet."""
        tokens = self.tokens_read + self.tokens_reused
        return self.tokens_reused / tokens if tokens else None


@define
class _Speed:
    """How fast a model reads prompts."""

    tokens: int = 0
    milliseconds: float = 0.0

    def seconds_for(self, tokens: int) -> float:
        """How long reading so many tokens would take; 0 where that is not known."""
        return tokens * self.milliseconds / self.tokens / 1000 if self.tokens else 0.0


_HITS = frozenset({Verdict.RESIDENT, Verdict.RESTORED, Verdict.FORKED})


@define(eq=False)
class Journal:
    """
    The latest requests and spans, and totals.

    Invariant: bounded, whatever happens.
    """

    totals: Totals = field(factory=Totals, init=False)
    _requests: deque[Served] = field(factory=lambda: deque(maxlen=MOST_REQUESTS), init=False)
    _spans: deque[Span] = field(factory=lambda: deque(maxlen=MOST_SPANS), init=False)
    _speeds: dict[tuple[str, str], _Speed] = field(factory=dict, init=False)

    @property
    def requests(self) -> list[Served]:
        """The latest first."""
        return list(reversed(self._requests))

    def spans(self, since: float) -> list[Span]:
        """
        What slots did, as it ended.

        :param since: what ended before is left out.
        """
        return [span for span in self._spans if span.ended >= since]

    def tokens_per_second(self, server: str, model: str) -> float | None:
        """
        How fast a model reads prompts, as measured; ``None``: it is not known yet.

        :param model: a router's; empty where the server has one.
        """
        speed = self._speeds.get((server, model))
        if speed is None or not speed.milliseconds:
            return None
        return speed.tokens * 1000 / speed.milliseconds

    def served(self, served: Served) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self._requests.append(served)
        totals = evolve(self.totals, requests=self.totals.requests + 1)
        if served.verdict in _HITS:
            totals = evolve(totals, hits=totals.hits + 1)
        elif served.verdict is Verdict.COLD:
            totals = evolve(totals, misses=totals.misses + 1)
        usage = served.usage
        if usage is not None:
            totals = evolve(
                totals,
                tokens_read=totals.tokens_read + usage.read,
                tokens_reused=totals.tokens_reused + usage.reused,
                tokens_generated=totals.tokens_generated + (usage.generated or 0),
                seconds_saved=totals.seconds_saved + self._worth(served.address, usage),
            )
        self.totals = evolve(totals, seconds_saved=totals.seconds_saved - served.switched)
        self._spans.extend(_spans_of(served))

    def _worth(self, address: Address | None, usage: Usage) -> float:
        """
        The seconds that reading the reused tokens would have taken; how fast the others were read
        is noted.

        :param address: ``None``: what was reused is not our doing.
        """
        if address is None:
            return 0.0
        # not by what the client calls the model: it can call it anything
        speed = self._speeds.setdefault((address.server, address.model), _Speed())
        if usage.read_ms and usage.read >= LEAST_TOKENS:
            speed.tokens += usage.read
            speed.milliseconds += usage.read_ms
        return speed.seconds_for(usage.reused)

    def stepped(self, step: Step) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        if step.result is Result.SKIPPED:
            return
        ok = step.result is Result.OK
        self._spans.append(
            Span(
                kind=Kind(step.action.value),
                address=step.address,
                session=step.session,
                began=step.began,
                ended=step.began + step.seconds,
                tokens=step.tokens,
                bytes=step.bytes,
                failed=not ok,
            )
        )
        totals = self.totals
        if ok and step.action is Action.SAVE:
            self.totals = evolve(
                totals, saves=totals.saves + 1, bytes_written=totals.bytes_written + step.bytes
            )
        elif ok and step.action is Action.RESTORE:
            self.totals = evolve(
                totals, restores=totals.restores + 1, bytes_read=totals.bytes_read + step.bytes
            )

    def dropped(self, snapshot: Snapshot, fate: Fate) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        if fate is Fate.EVICTED:
            self.totals = evolve(self.totals, evictions=self.totals.evictions + 1)

    def failed(self, server: str, kind: str) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self.totals = evolve(self.totals, upstream_errors=self.totals.upstream_errors + 1)

    def rejected(self, status: int) -> None:
        """As :class:`~slotgate.telemetry.events.Listener` says."""
        self.totals = evolve(self.totals, rejected=self.totals.rejected + 1)


def _spans_of(served: Served) -> Iterable[Span]:
    """Reading and generating, as far as the answer tells them apart."""
    if served.address is None or served.first_byte is None:
        return
    sent, over = served.began + served.waited, served.began + served.seconds
    usage = served.usage
    first = served.began + served.first_byte
    if usage is not None and usage.read_ms is not None:
        # an answer that is no stream comes at once
        first = min(first, sent + usage.read_ms / 1000)
    read = usage.read if usage else 0
    generated = (usage.generated or 0) if usage else 0
    yield Span(Kind.READ, served.address, served.session, sent, first, read)
    yield Span(Kind.GENERATE, served.address, served.session, first, over, generated)
