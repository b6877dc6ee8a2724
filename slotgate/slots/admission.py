"""
Letting requests in to the models of a router.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Literal

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.control import Control
from slotgate.llama.router import RouterControl
from slotgate.llama.tracker import Tracker
from slotgate.slots.arrivals import Arrivals
from slotgate.slots.departures import Departures
from slotgate.slots.lease import QueueFull, Stopping
from slotgate.slots.occupancy import Arrival, Occupancy
from slotgate.slots.slot import Slot


@define(eq=False)
class Admission:
    """The right to send a request to a loaded model: as long as it is held, the model stays."""

    model: str
    _give_back: Callable[[], None]
    #: How often the model had gone when the request was let in.
    ends: int = 0
    _released: bool = field(default=False, init=False)

    def release(self) -> None:
        """Give it back. A released admission stays released."""
        if not self._released:
            self._released = True
            self._give_back()


@define(eq=False)
class _Waiter:
    """A request that waits to be let in."""

    model: str
    let_in: Deferred[Arrival | None] = field(factory=Deferred, init=False)


@define(eq=False)
class Admissions:
    """
    The requests in and before the models of one router.

    Invariants: a model with an admission is not unloaded to make room. Requests are let in in the
    order in which they came: a request whose model is loaded passes those before it only while
    the model of the first of them is just being unloaded.
    """

    #: The server's, for people.
    _name: str
    _control: RouterControl
    _tracker: Tracker
    #: What is known of a model's slots, and how they are asked.
    _slots_of: Callable[[str], Iterable[Slot]]
    _control_of: Callable[[str], Control]
    _mode: Literal["enforce", "observe", "off"]
    #: How many models may be loaded, as far as is known now; 0: no limit.
    _limit: Callable[[], int]
    _clock: IReactorTime
    _poll_seconds: float
    _load_wait_seconds: float
    _max_queue: int
    _occupancy: Occupancy = field(init=False)
    _departures: Departures = field(init=False)
    _arrivals: Arrivals = field(init=False)
    _queue: list[_Waiter] = field(factory=list, init=False)
    _working: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def __attrs_post_init__(self) -> None:
        self._occupancy = Occupancy(self._tracker)
        self._departures = Departures(
            name=self._name,
            control=self._control,
            tracker=self._tracker,
            occupancy=self._occupancy,
            slots_of=self._slots_of,
            control_of=self._control_of,
            clock=self._clock,
            patience_seconds=self._load_wait_seconds,
        )
        self._arrivals = Arrivals(
            name=self._name,
            control=self._control,
            tracker=self._tracker,
            occupancy=self._occupancy,
            departures=self._departures,
            control_of=self._control_of,
            mode=self._mode,
            limit=self._limit,
            queued=self._queued,
            clock=self._clock,
            poll_seconds=self._poll_seconds,
            load_wait_seconds=self._load_wait_seconds,
        )

    @property
    def waiting(self) -> int:
        """How many requests wait until there is room for their model."""
        return len(self._queue)

    def present(self, model: str) -> bool:
        """Whether a model has a process that is to stay, awake or not."""
        return self._tracker.model(model).status.running and model not in self._occupancy.leaving

    def enter(self, model: str) -> Deferred[Admission]:
        """
        Wait until a model is loaded; where it is not, room is made and it is loaded.

        Where the router does not do as it should, the Deferred fires all the same: the request
        goes on and meets the router itself.

        :param model: an id of the router's.
        :returns: a Deferred that fires with the admission; fails with
            :class:`~slotgate.slots.arrivals.ModelFailed`,
            :class:`~slotgate.slots.lease.QueueFull` or :class:`~slotgate.slots.lease.Stopping`.
            Cancel it to wait no more.
        """
        return Deferred.fromCoroutine(self._enter(model))

    async def _enter(self, model: str) -> Admission:
        if self._stopping:
            raise Stopping
        arrival = self._occupancy.arrivals.get(model)
        waiting = sum(waiter.model == model for waiter in self._queue)
        if waiting + (len(arrival.waiting) if arrival else 0) >= self._max_queue:
            raise QueueFull(f"{self._max_queue} requests wait for {self._name} {model}")
        if self._queue or not self._occupancy.open(model):
            arrival = await self._wait(model)
        self._occupancy.enter(model)
        admission = Admission(model, partial(self._occupancy.leave, model))
        if arrival is not None:
            try:
                await arrival.arrived()
            except BaseException:
                # CancelledError too: the client went away
                admission.release()
                raise
        admission.ends = self._tracker.ends(model)
        return admission

    async def unload(self, model: str, unload: Callable[[], Awaitable[None]]) -> None:
        """
        Save a model's slots before somebody unloads it, and let nobody in until it has gone.

        :param unload: does it.
        """
        await self._departures.unload(model, unload)

    def stop(self) -> None:
        """Let nobody in any more, and end the waits."""
        self._stopping = True
        queue, self._queue = self._queue, []
        for waiter in queue:
            waiter.let_in.errback(Stopping())
        self._departures.stop()
        self._arrivals.stop()
        self._tracker.notify()

    # the queue

    def _queued(self, model: str) -> bool:
        return any(waiter.model == model for waiter in self._queue)

    async def _wait(self, model: str) -> Arrival | None:
        """
        Wait to be let in.

        :returns: the arrival of the model, where it is on its way or has just ended.
        """
        waiter = _Waiter(model)
        self._queue.append(waiter)
        if self._working:
            self._tracker.notify()
        else:
            self._working = True
            Deferred.fromCoroutine(self._serve()).addErrback(self._surprised)
        try:
            return await waiter.let_in
        finally:
            if waiter in self._queue:
                self._queue.remove(waiter)
                self._tracker.notify()

    def _surprised(self, failure: Failure) -> None:
        self._log.failure("{server}: letting requests in failed", failure, server=self._name)

    async def _serve(self) -> None:
        """Let in whoever waits, one after the other. Never cancelled."""
        try:
            while self._queue:
                await self._serve_first(self._queue[0])
        finally:
            self._working = False
            # a fault of ours: they go on without us
            for waiter in list(self._queue):
                self._let_in(waiter)

    async def _serve_first(self, first: _Waiter) -> None:
        if first.model in self._occupancy.leaving:
            for waiter in [one for one in self._queue if self._occupancy.open(one.model)]:
                self._let_in(waiter)
            await self._tracker.change(self._poll_seconds)
            return
        arrival = None
        if not self._occupancy.open(first.model):
            arrival = self._arrivals.begin(first.model)
            await arrival.placed
        if first in self._queue:
            self._let_in(first, arrival)

    def _let_in(self, waiter: _Waiter, arrival: Arrival | None = None) -> None:
        self._queue.remove(waiter)
        waiter.let_in.callback(arrival or self._occupancy.arrivals.get(waiter.model))
