"""
Which of a router's models have requests, are on their way into memory, or out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed

from slotgate.llama.models import Model, Status
from slotgate.llama.tracker import Tracker
from slotgate.slots.victims import candidates, has_room


@define(eq=False)
class Arrival:
    """A model on its way into memory, and the requests that wait for it."""

    model: str
    #: Fires when those behind in the queue may be looked at: its place is certain, or there will
    #: be none.
    placed: Deferred[None] = field(factory=Deferred, init=False)
    #: One of the router's places is kept for it, or is being made.
    has_place: bool = field(default=False, init=False)
    waiting: list[Deferred[None]] = field(factory=list, init=False)
    #: How it ended: what gives each who waits an error of its own; ``None``: it has not.
    _end: Callable[[], Exception | None] | None = field(default=None, init=False)

    def arrived(self) -> Deferred[None]:
        """
        Wait for the end of it.

        :returns: a Deferred that fires when the model is there, as far as that could be brought
            about, or fails with why nobody is let in. Cancel it to wait no more.
        """
        if self._end is not None:
            return _outcome(self._end())
        waiting: Deferred[None] = Deferred(self.waiting.remove)
        self.waiting.append(waiting)
        return waiting

    def end(self, why: Callable[[], Exception | None]) -> None:
        """
        Let those go who wait.

        :param why: makes the error for one of them, if they are to get one.
        """
        self._end = why
        self.place()
        while self.waiting:
            waiting, error = self.waiting.pop(0), why()
            if error is None:
                waiting.callback(None)
            else:
                waiting.errback(error)

    def place(self) -> None:
        """Let those behind be looked at."""
        if not self.placed.called:
            self.placed.callback(None)


def _outcome(error: Exception | None) -> Deferred[None]:
    return succeed(None) if error is None else fail(error)


@define(eq=False)
class Occupancy:
    """
    The state of one router's models that is ours: admissions, arrivals, and those that leave.

    Invariant: an arrival takes a place only while one is kept for it, so that no two can wait for
    each other's.
    """

    _tracker: Tracker
    #: How many requests have an admission to each model.
    guests: Counter[str] = field(factory=Counter, init=False)
    arrivals: dict[str, Arrival] = field(factory=dict, init=False)
    #: Models that are being unloaded; nobody is let in to them.
    leaving: set[str] = field(factory=set, init=False)
    #: Those of them whose place one that arrives will take; it keeps it already.
    promised: set[str] = field(factory=set, init=False)

    def enter(self, model: str) -> None:
        """One more request uses the model."""
        self.guests[model] += 1
        self._tracker.use(model)

    def leave(self, model: str) -> None:
        """One request less does."""
        self.guests[model] -= 1
        if not self.guests[model]:
            del self.guests[model]
        self._tracker.notify()

    def open(self, model: str) -> bool:
        """Whether a request for the model needs no room and waits for nobody."""
        if model in self.arrivals:
            return True
        loaded = self._tracker.model(model).status is Status.LOADED
        return loaded and model not in self.leaving

    def has_room(self, model: str, limit: int) -> bool:
        """
        Whether a model that arrives may be loaded.

        :param limit: how many may be; 0: any number.
        """
        others = [one for one in self._tracker.running() if one != model]
        arriving = [one.model for one in self.arrivals.values() if one.has_place]
        return has_room(others, [one for one in arriving if one != model], self.promised, limit)

    def candidates(self) -> list[Model]:
        """The models that may make room, the one used longest ago first."""
        running = [self._tracker.model(model) for model in self._tracker.running()]
        return candidates(running, self.guests, self.arrivals, self.leaving)
