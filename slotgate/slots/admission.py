"""
Letting requests in to the models of a router, and making room for those that are not loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Literal

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.control import Control
from slotgate.llama.errors import (
    ControlError,
    NotLoaded,
    Unreachable,
    Unsupported,
    nobody_there,
)
from slotgate.llama.models import Model, Status
from slotgate.llama.router import Full, RouterControl
from slotgate.llama.tracker import Tracker
from slotgate.slots.lease import QueueFull, Stopping
from slotgate.slots.slot import Slot
from slotgate.slots.victims import candidates, has_room


class ModelFailed(Exception):
    """The router could not load the model; the message is for the client."""


class _NotWanted(Exception):
    """Everybody who waited for the model has left."""


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
    let_in: Deferred[None] = field(factory=Deferred, init=False)


@define(eq=False)
class _Arrival:
    """A model on its way into memory."""

    model: str
    #: Fires when its place is certain, or it will have none.
    placed: Deferred[None] = field(factory=Deferred, init=False)
    waiting: list[Deferred[None]] = field(factory=list, init=False)

    def place(self) -> None:
        """Its place is certain: whoever waits behind it may be looked at."""
        if not self.placed.called:
            self.placed.callback(None)


@define(eq=False)
class Admissions:
    """
    The requests in and before the models of one router.

    Invariants: a model with an admission is not unloaded by us, and neither is one at work for
    somebody else, as far as ``/slots`` shows. A model is unloaded only after its slots were saved,
    and nobody is let in to it in between. Requests are let in in the order in which they came: a
    request whose model is loaded passes those before it only while the model of the first of them
    is just being unloaded.
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
    _guests: Counter[str] = field(factory=Counter, init=False)
    _queue: list[_Waiter] = field(factory=list, init=False)
    _arrivals: dict[str, _Arrival] = field(factory=dict, init=False)
    #: Models that are being unloaded for others.
    _leaving: set[str] = field(factory=set, init=False)
    _working: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    @property
    def waiting(self) -> int:
        """How many requests wait until there is room for their model."""
        return len(self._queue)

    def enter(self, model: str) -> Deferred[Admission]:
        """
        Wait until a model is loaded; where it is not, room is made and it is loaded.

        Where the router does not do as it should, the Deferred fires all the same: the request
        goes on and meets the router itself.

        :param model: an id of the router's.
        :returns: a Deferred that fires with the admission; fails with :class:`ModelFailed`,
            :class:`~slotgate.slots.lease.QueueFull` or :class:`~slotgate.slots.lease.Stopping`.
            Cancel it to wait no more.
        """
        return Deferred.fromCoroutine(self._enter(model))

    async def _enter(self, model: str) -> Admission:
        if self._stopping:
            raise Stopping
        if self._queue or not self._open(model):
            await self._wait(model)
        self._guests[model] += 1
        self._tracker.use(model)
        admission = Admission(model, partial(self._leave, model))
        arrival = self._arrivals.get(model)
        if arrival is not None:
            arrived: Deferred[None] = Deferred(arrival.waiting.remove)
            arrival.waiting.append(arrived)
            try:
                await arrived
            except BaseException:
                # CancelledError too: the client went away
                admission.release()
                raise
        admission.ends = self._tracker.ends(model)
        return admission

    def _open(self, model: str) -> bool:
        """Whether a request for the model needs no room and waits for nobody."""
        if model in self._arrivals:
            return True
        loaded = self._tracker.model(model).status is Status.LOADED
        return loaded and model not in self._leaving

    def _leave(self, model: str) -> None:
        self._guests[model] -= 1
        if not self._guests[model]:
            del self._guests[model]
        self._tracker.wake()

    async def _wait(self, model: str) -> None:
        if sum(waiter.model == model for waiter in self._queue) >= self._max_queue:
            raise QueueFull(f"{self._max_queue} requests wait for {self._name} {model}")
        waiter = _Waiter(model)
        self._queue.append(waiter)
        if self._working:
            self._tracker.wake()
        else:
            self._working = True
            Deferred.fromCoroutine(self._serve()).addErrback(self._surprised)
        try:
            await waiter.let_in
        finally:
            if waiter in self._queue:
                self._queue.remove(waiter)
                self._tracker.wake()

    def _surprised(self, failure: Failure) -> None:
        self._log.failure("{server}: letting requests in failed", failure, server=self._name)

    # the queue

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
        if first.model in self._leaving:
            for waiter in [one for one in self._queue if self._open(one.model)]:
                self._let_in(waiter)
            await self._tracker.change(self._poll_seconds)
            return
        if not self._open(first.model):
            await self._arrive(first.model)
        if first in self._queue:
            self._let_in(first)

    def _let_in(self, waiter: _Waiter) -> None:
        self._queue.remove(waiter)
        waiter.let_in.callback(None)

    def _arrive(self, model: str) -> Deferred[None]:
        """Have a model loaded; fires when those behind may be looked at."""
        arrival = self._arrivals[model] = _Arrival(model)
        Deferred.fromCoroutine(self._bring(arrival)).addErrback(self._surprised)
        return arrival.placed

    # a model on its way into memory

    async def _bring(self, arrival: _Arrival) -> None:
        """Load a model, and let its requests go. Never cancelled."""
        failed: Exception | None = None
        try:
            status = self._tracker.model(arrival.model).status
            if status is Status.SLEEPING:
                self._wake(arrival.model)
            elif not status.running:
                await self._load(arrival)
            arrival.place()
            await self._loaded(arrival.model)
        except ModelFailed as error:
            failed = error
        except _NotWanted:
            pass
        except ControlError as error:
            self._log.warn(
                "{server} {model}: not loaded by slotgate: {error}",
                server=self._name,
                model=arrival.model,
                error=error,
            )
            with suppress(ControlError):
                # what it is now that was believed to be loading
                await self._tracker.look()
        finally:
            # while it still counts as arriving, so that whoever is let in now hears of the end
            arrival.place()
            del self._arrivals[arrival.model]
            self._end(arrival.waiting, Stopping() if self._stopping else failed)
            self._tracker.wake()

    @staticmethod
    def _end(waiting: list[Deferred[None]], failed: Exception | None) -> None:
        while waiting:
            arrived = waiting.pop(0)
            if failed is None:
                arrived.callback(None)
            else:
                arrived.errback(failed)

    async def _load(self, arrival: _Arrival) -> None:
        model = arrival.model
        while True:
            victim = await self._room(arrival)
            arrival.place()
            if victim is not None and not await self._send_away(victim, model):
                continue
            if not self._wanted(arrival):
                raise _NotWanted
            try:
                with self._tracker.loading(model):
                    await self._control.load(model)
                return
            except Full:
                if self._mode == "off":
                    raise
                # others use it too, or it may hold fewer models than we were told
                await self._look()
                await self._tracker.change(self._poll_seconds)

    def _wake(self, model: str) -> None:
        # a look does it; how long it takes to read the model again is for the status to tell
        woken = Deferred.fromCoroutine(self._control_of(model).working())
        woken.addErrback(lambda failure: failure.trap(ControlError) and None)

    def _wanted(self, arrival: _Arrival) -> bool:
        if self._stopping:
            return False
        queued = any(waiter.model == arrival.model for waiter in self._queue)
        return queued or bool(arrival.waiting)

    async def _room(self, arrival: _Arrival) -> str | None:
        """
        Wait until there is room for a model, or for one that gives way.

        :returns: the model to unload for it, in which nobody is let in any longer.
        """
        looked = False
        while self._wanted(arrival):
            if self._mode == "off" or self._has_room(arrival):
                return None
            if self._candidates() and not looked:
                # others may have loaded and unloaded
                looked = True
                await self._look()
                continue
            idle = await self._idle()
            if idle and self._mode == "observe":
                await self._save_all(idle)
                return None
            if idle:
                self._leaving.add(idle[0])
                return idle[0]
            await self._tracker.change(self._poll_seconds)
            looked = False
        raise _NotWanted

    def _has_room(self, arrival: _Arrival) -> bool:
        others = [model for model in self._arrivals if model != arrival.model]
        return has_room(self._tracker.running(), others, self._leaving, self._limit())

    def _candidates(self) -> list[Model]:
        running = [self._tracker.model(model) for model in self._tracker.running()]
        return candidates(running, self._guests, self._arrivals, self._leaving)

    async def _idle(self) -> list[str]:
        """
        Models that may give way, the one used longest ago first; only the first where one is
        enough.
        """
        idle: list[str] = []
        for model in self._candidates():
            if model.status is Status.SLEEPING or not await self._at_work(model.id):
                idle.append(model.id)
                if self._mode == "enforce":
                    break
        # somebody may have come meanwhile
        still = {model.id for model in self._candidates()}
        return [model for model in idle if model in still]

    async def _at_work(self, model: str) -> bool:
        """Whether ``/slots`` shows a request, whosever it is."""
        try:
            return await self._control_of(model).working()
        except (NotLoaded, Unsupported):
            return False
        except ControlError as error:
            if nobody_there(error):
                raise
            self._log.warn(
                "{server} {model}: whether it works is not known: {error}",
                server=self._name,
                model=model,
                error=error,
            )
            return True

    async def _save_all(self, models: Iterable[str]) -> None:
        """
        Save whatever a load could cost. Each save counts as a use, so every model could be the
        one that the router unloads.
        """
        slots = [slot for model in models for slot in self._slots_of(model)]
        await DeferredList([slot.save(patient=False) for slot in slots], consumeErrors=True)

    async def _send_away(self, victim: str, model: str) -> bool:
        """
        Save a model's slots and unload it.

        :param model: for which other one.
        :returns: ``False``: somebody else uses it by now, and it stays.
        :raises ControlError: the router does not unload it.
        """

        def gone_or_stopping(one: Model) -> bool:
            return not one.status.running or self._stopping

        held = [(slot, Deferred[bool]()) for slot in self._slots_of(victim)]
        try:
            await DeferredList([slot.vacate(gone) for slot, gone in held])
            loaded = self._tracker.model(victim).status is Status.LOADED
            if loaded and await self._at_work(victim):
                return False
            self._log.info(
                "{server} {victim}: unloaded to make room for {model}",
                server=self._name,
                victim=victim,
                model=model,
            )
            await self._control.unload(victim)
            if not await self._tracker.until(gone_or_stopping, victim, self._load_wait_seconds):
                raise Unreachable(f"{victim} was not unloaded in {self._load_wait_seconds:g} s")
            return True
        finally:
            self._leaving.discard(victim)
            unloaded = not self._tracker.model(victim).status.running
            for _, gone in held:
                gone.callback(unloaded)
            self._tracker.wake()

    async def _loaded(self, model: str) -> None:
        """
        Wait until a model is loaded.

        :raises ModelFailed: it will not be.
        """

        def decided(one: Model) -> bool:
            return one.status in (Status.LOADED, Status.UNLOADED) or self._stopping

        if not await self._tracker.until(decided, model, self._load_wait_seconds):
            self._log.warn(
                "{server} {model}: not loaded after {seconds:g} s; its requests go on",
                server=self._name,
                model=model,
                seconds=self._load_wait_seconds,
            )
            return
        now = self._tracker.model(model)
        if now.status is Status.UNLOADED:
            code = "" if now.exit_code is None else f" (exit code {now.exit_code})"
            raise ModelFailed(f"model {model!r} failed to load{code}")

    async def _look(self) -> None:
        """
        :raises ControlError: nobody is there any more.
        """
        try:
            await self._tracker.look()
        except ControlError as error:
            if nobody_there(error):
                raise
            self._log.debug("{server}: {error}", server=self._name, error=error)

    def stop(self) -> None:
        """Let nobody in any more, and end the waits."""
        self._stopping = True
        queue, self._queue = self._queue, []
        for waiter in queue:
            waiter.let_in.errback(Stopping())
        for arrival in list(self._arrivals.values()):
            self._end(arrival.waiting, Stopping())
        self._tracker.wake()
