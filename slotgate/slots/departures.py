"""
A model's way out of memory: what is in its slots is saved first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

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
from slotgate.llama.router import RouterControl
from slotgate.llama.tracker import Tracker
from slotgate.shield import shield
from slotgate.slots.occupancy import Occupancy
from slotgate.slots.slot import Slot


@define(eq=False)
class Departures:
    """
    Unloads models of one router.

    Invariants: nobody is let in to a model between the save of its slots and its end. One that
    ``/slots`` shows at work is not unloaded for another; somebody else's request that comes
    between that look and the unload is cut, and so is what could not be saved lost.
    """

    #: The server's, for people.
    _name: str
    _control: RouterControl
    _tracker: Tracker
    _occupancy: Occupancy
    #: What is known of a model's slots, and how they are asked.
    _slots_of: Callable[[str], Iterable[Slot]]
    _control_of: Callable[[str], Control]
    _clock: IReactorTime
    #: How long a model may take to go, and how long it may not be known whether one works.
    _patience_seconds: float
    #: Since when it is not known of a model whether it works.
    _unknown: dict[str, float] = field(factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def unknown(self, model: str) -> bool:
        """Whether it was not known of a model, when it was asked last, whether it works."""
        return model in self._unknown

    async def at_work(self, model: str) -> bool:
        """
        Whether ``/slots`` shows a request, whosever it is. Where that is not known it may.

        :raises ControlError: nobody is there, or it is not known for too long.
        """
        try:
            works = await self._control_of(model).working()
        except (NotLoaded, Unsupported):
            works = False
        except ControlError as error:
            if nobody_there(error):
                raise
            now = self._clock.seconds()
            if model not in self._unknown:
                self._unknown[model] = now
                self._log.warn(
                    "{server} {model}: whether it works is not known: {error}",
                    server=self._name,
                    model=model,
                    error=error,
                )
            if now - self._unknown[model] >= self._patience_seconds:
                raise
            return True
        self._unknown.pop(model, None)
        return works

    async def save(self, models: Iterable[str]) -> None:
        """
        Save whatever a load by the router could cost. Each save counts as a use, so every model
        could be the one that goes.
        """
        slots = [slot for model in models for slot in self._slots_of(model)]
        saved = await DeferredList([slot.save(patient=False) for slot in slots], consumeErrors=True)
        for slot, (done, result) in zip(slots, saved, strict=True):
            if not done:
                self._log.failure("{slot}: it is not saved", cast(Failure, result), slot=slot.name)

    async def make_room(self, victim: str, model: str, wanted: Callable[[], bool]) -> bool:
        """
        Save a model's slots and unload it; it counts as leaving already.

        :param model: for which other one.
        :param wanted: whether somebody still waits for that one.
        :returns: ``False``: it stays, as it works for somebody else by now, or nobody waits.
        :raises ControlError: the router does not unload it.
        """

        async def unload() -> bool:
            loaded = self._tracker.model(victim).status is Status.LOADED
            if (loaded and await self.at_work(victim)) or not wanted():
                return False
            self._log.info(
                "{server} {victim}: unloaded to make room for {model}",
                server=self._name,
                victim=victim,
                model=model,
            )
            await self._control.unload(victim)
            return True

        return await self._let_go(victim, unload)

    async def unload(self, model: str, unload: Callable[[], Awaitable[None]]) -> None:
        """
        Save a model's slots before somebody unloads it.

        :param unload: does it.
        """

        async def asked() -> bool:
            await unload()
            return True

        if model in self._occupancy.leaving:
            await unload()
            return
        self._occupancy.leaving.add(model)
        await self._let_go(model, asked)

    def stop(self) -> None:
        """Wait for no model any more that is on its way out."""
        self._stopping = True

    async def _let_go(self, model: str, unload: Callable[[], Awaitable[bool]]) -> bool:
        def over(one: Model) -> bool:
            # that nobody waits for its place any longer brings it not back
            return not one.status.running or self._stopping

        held = [(slot, Deferred[bool]()) for slot in self._slots_of(model)]
        try:
            # a cancelled DeferredList cancels what is in it and then fires as if all were well
            await shield(DeferredList([slot.vacate(gone) for slot, gone in held]))
            if not await unload():
                return False
            if not await self._tracker.until(over, model, self._patience_seconds):
                raise Unreachable(f"{model} was not unloaded in {self._patience_seconds:g} s")
            return True
        finally:
            self._occupancy.leaving.discard(model)
            self._occupancy.promised.discard(model)
            unloaded = not self._tracker.model(model).status.running
            for _, gone in held:
                gone.callback(unloaded)
            self._tracker.notify()
