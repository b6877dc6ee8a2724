"""
A model's way into memory: a place for it, the load, and what becomes of those who wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.control import Control
from slotgate.llama.errors import ControlError, nobody_there
from slotgate.llama.models import Model, Status
from slotgate.llama.router import Full, RouterControl
from slotgate.llama.tracker import Tracker
from slotgate.slots.departures import Departures
from slotgate.slots.lease import Stopping
from slotgate.slots.occupancy import Arrival, Occupancy

#: A model that could not be loaded twice in a row costs no other one its place again for so many
#: seconds: clients repeat what fails. Once can be a stroke of bad luck, or somebody's unload.
FAILED_SECONDS = 10.0


class ModelFailed(Exception):
    """The router could not load the model; the message is for the client."""


class _NotWanted(Exception):
    """Everybody who waited for the model has left."""


@define(eq=False)
class Arrivals:
    """Brings the models of one router into memory. Nothing of it is ever cancelled."""

    #: The server's, for people.
    _name: str
    _control: RouterControl
    _tracker: Tracker
    _occupancy: Occupancy
    _departures: Departures
    _control_of: Callable[[str], Control]
    _mode: Literal["enforce", "observe", "off"]
    #: How many models may be loaded, as far as is known now; 0: no limit.
    _limit: Callable[[], int]
    #: Whether somebody in the queue waits for a model.
    _queued: Callable[[str], bool]
    _clock: IReactorTime
    _poll_seconds: float
    _load_wait_seconds: float
    #: The models that could not be loaded: how often in a row, when, and why.
    _failures: dict[str, tuple[int, float, str]] = field(factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def begin(self, model: str) -> Arrival:
        """Have a model loaded."""
        arrival = self._occupancy.arrivals[model] = Arrival(model)
        Deferred.fromCoroutine(self._bring(arrival)).addErrback(self._surprised)
        return arrival

    def stop(self) -> None:
        """Load nothing any more, and send away those who wait."""
        self._stopping = True
        for arrival in list(self._occupancy.arrivals.values()):
            arrival.end(Stopping)

    def _surprised(self, failure: Failure) -> None:
        self._log.failure("{server}: a model's load failed", failure, server=self._name)

    async def _bring(self, arrival: Arrival) -> None:
        """Load a model, and let its requests go."""
        why = ""
        try:
            status = self._tracker.model(arrival.model).status
            if status is Status.SLEEPING:
                self._wake(arrival.model)
            elif not status.running:
                await self._load(arrival)
            arrival.place()
            await self._loaded(arrival.model)
        except ModelFailed as error:
            why = str(error)
        except _NotWanted:
            pass
        except ControlError as error:
            self._log.warn(
                "{server} {model}: not loaded by slotgate: {error}",
                server=self._name,
                model=arrival.model,
                error=error,
            )
        finally:
            del self._occupancy.arrivals[arrival.model]
            if self._stopping:
                arrival.end(Stopping)
            else:
                arrival.end(lambda: ModelFailed(why) if why else None)
            self._tracker.notify()

    def _wanted(self, arrival: Arrival) -> bool:
        waited_for = self._queued(arrival.model) or bool(arrival.waiting)
        return waited_for and not self._stopping

    async def _load(self, arrival: Arrival) -> None:
        model = arrival.model
        while True:
            arrival.has_place = False
            victim = await self._room(arrival)
            arrival.place()
            if victim is not None and not await self._departures.make_room(
                victim, model, lambda: self._wanted(arrival)
            ):
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
                arrival.has_place = False
                await self._look()
                await self._tracker.change(self._poll_seconds)

    async def _room(self, arrival: Arrival) -> str | None:
        """
        Wait for a place for a model.

        :returns: the model to unload for it, if one has to be; it counts as leaving.
        :raises ModelFailed: it has just failed to load, and another one would have to give way.
        """
        looked = False
        while self._wanted(arrival):
            if self._mode == "off" or self._occupancy.has_room(arrival.model, self._limit()):
                arrival.has_place = True
                return None
            self._check_failures(arrival.model)
            if self._occupancy.candidates() and not looked:
                # others may have loaded and unloaded
                looked = True
                await self._look()
                continue
            idle = await self._idle()
            if idle:
                arrival.has_place = True
                if self._mode == "observe":
                    await self._save(idle)
                    return None
                self._occupancy.leaving.add(idle[0])
                self._occupancy.promised.add(idle[0])
                return idle[0]
            await self._tracker.change(self._poll_seconds)
            looked = False
        raise _NotWanted

    async def _save(self, models: list[str]) -> None:
        """Save every model that the router may unload, also those that become idle meanwhile."""
        saved: set[str] = set()
        while models:
            await self._departures.save(models)
            saved.update(models)
            models = [model for model in await self._idle() if model not in saved]

    def _check_failures(self, model: str) -> None:
        times, when, why = self._failures.get(model, (0, 0.0, ""))
        if times > 1 and self._clock.seconds() - when < FAILED_SECONDS:
            raise ModelFailed(why)

    async def _idle(self) -> list[str]:
        """
        Models that may give way, the one used longest ago first; only the first where one is
        enough.
        """
        idle: list[str] = []
        found = self._occupancy.candidates()
        # one that does not answer holds up those who wait, so it is asked last
        for model in sorted(found, key=lambda one: self._departures.unknown(one.id)):
            sleeps = model.status is Status.SLEEPING
            if sleeps or not await self._departures.at_work(model.id):
                idle.append(model.id)
                if self._mode == "enforce":
                    break
        # somebody may have come meanwhile
        still = {model.id for model in self._occupancy.candidates()}
        return [model for model in idle if model in still]

    def _wake(self, model: str) -> None:
        # a look does it; how long it takes to read the model again is for the status to tell
        woken = Deferred.fromCoroutine(self._control_of(model).working())
        woken.addErrback(lambda failure: failure.trap(ControlError) and None)

    async def _loaded(self, model: str) -> None:
        """
        Wait until a model is loaded, or requests for it must go on without that.

        :raises ModelFailed: it could not be.
        """

        def decided(one: Model) -> bool:
            return one.status in (Status.LOADED, Status.UNLOADED) or self._stopping

        while await self._tracker.until(decided, model, self._load_wait_seconds):
            if self._tracker.model(model).status is not Status.UNLOADED or self._stopping:
                self._failures.pop(model, None)
                return
            # events of an earlier end can come late; a look is of now
            await self._look()
            now = self._tracker.model(model)
            if now.status is not Status.UNLOADED:
                continue
            if now.failed:
                code = "" if now.exit_code is None else f" (exit code {now.exit_code})"
                why = f"model {model!r} failed to load{code}"
                times = self._failures.get(model, (0, 0.0, ""))[0] + 1
                self._failures[model] = times, self._clock.seconds(), why
                self._log.warn(
                    "{server}: {why}; llama-server's log says more", server=self._name, why=why
                )
                raise ModelFailed(why)
            # it was loaded, and somebody else's request has unloaded it again
            return
        self._log.warn(
            "{server} {model}: not loaded after {seconds:g} s; its requests go on",
            server=self._name,
            model=model,
            seconds=self._load_wait_seconds,
        )

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
