"""
What a router has loaded, and in which order it was used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from slotgate.llama.errors import ControlError, nobody_there
from slotgate.llama.models import Change, Model, Status
from slotgate.llama.router import RouterControl

#: The first pause before looking again for what was just set going, where no events tell; it
#: doubles up to the server's poll_seconds.
FIRST_POLL_SECONDS = 0.05


@define(eq=False)
class Tracker:
    """
    The models of one router, as events, looks and our own requests tell of them.

    Invariant: a look never overwrites what was told after it was asked for, nor what a later look
    has said.
    """

    _control: RouterControl
    _clock: IReactorTime
    _poll_seconds: float
    #: Called with a model whose slots have gone: unloaded, asleep, or another process by now.
    _gone: Callable[[str], None]
    #: Events are heard as they happen.
    live: bool = field(default=False, init=False)
    _models: dict[str, Model] = field(factory=dict, init=False)
    #: The ids of names: aliases, and the ids themselves.
    _ids: dict[str, str] = field(factory=dict, init=False)
    #: The process of each running model, where a look has told it.
    _processes: dict[str, str] = field(factory=dict, init=False)
    #: When each model was used last, as a count of uses.
    _used: dict[str, int] = field(factory=dict, init=False)
    _uses: int = field(default=0, init=False)
    #: Counts what was told; and the count at which each model's status was told last.
    _told: int = field(default=0, init=False)
    _told_of: dict[str, int] = field(factory=dict, init=False)
    #: Counts the looks; and the latest one that was answered.
    _asked: int = field(default=0, init=False)
    _answered: int = field(default=0, init=False)
    #: How often the slots of each model have gone.
    _ends: Counter[str] = field(factory=Counter, init=False)
    #: How many calls to load each model are on their way.
    _calling: Counter[str] = field(factory=Counter, init=False)
    _waiting: list[Deferred[bool]] = field(factory=list, init=False)

    def id_of(self, name: str) -> str | None:
        """The model of a name or an alias; ``None``: the router knows none."""
        return self._ids.get(name)

    def names(self) -> set[str]:
        """The names that the router knows: ids and aliases."""
        return set(self._ids)

    def model(self, model: str) -> Model:
        """What is known of a model."""
        return self._models.get(model) or Model(model)

    def ends(self, model: str) -> int:
        """How often its slots have gone, as far as is known: two times tell two processes."""
        return self._ends[model]

    def __iter__(self) -> Iterator[Model]:
        """All models."""
        return iter(self._models.values())

    def running(self) -> list[str]:
        """The models that take a place, the one used longest ago first."""
        running = [model.id for model in self._models.values() if model.status.running]
        return sorted(running, key=lambda model: self._used.get(model, 0))

    def use(self, model: str) -> None:
        """A request uses the model now."""
        self._uses += 1
        self._used[model] = self._uses

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """
        The router is being told to load a model. What a look says that was asked for before it
        has been told so is out of date; events are not.
        """
        before = self.model(model)
        if not before.status.running:
            self.told(Change(model, Status.LOADING))
        told = self._told_of.get(model, 0)
        self._calling[model] += 1
        try:
            yield
        except ControlError:
            if self._told_of.get(model, 0) == told and not before.status.running:
                # it is not, as far as anybody has told
                self.told(Change(model, before.status, before.exit_code))
            raise
        finally:
            self._calling[model] -= 1
            self._told += 1
            self._told_of[model] = self._told

    def told(self, change: Change) -> None:
        """What an event says."""
        self._told += 1
        self._told_of[change.model] = self._told
        if change.status is not Status.LOADED:
            self._processes.pop(change.model, None)
        known = evolve(
            self.model(change.model),
            status=change.status,
            exit_code=change.exit_code,
            failed=bool(change.exit_code),
        )
        if self._set(known):
            self.notify()

    async def look(self) -> None:
        """
        Ask the router.

        :raises ControlError: it does not say.
        """
        self._asked += 1
        number, asked = self._asked, self._told
        models = await self._control.models()
        if number < self._answered:
            return
        self._answered = number

        changed = False

        def newer(model: str) -> bool:
            return bool(self._calling[model]) or self._told_of.get(model, 0) > asked

        for model in models:
            if newer(model.id):
                known = self.model(model.id)
                model = evolve(
                    model, status=known.status, failed=known.failed, exit_code=known.exit_code
                )
            elif model.status.running:
                before = self._processes.get(model.id)
                self._processes[model.id] = model.process
                if before not in (None, model.process):
                    self._end(model.id)
            else:
                self._processes.pop(model.id, None)
            changed |= self._set(model)
        names = {model.id for model in models}
        for name in [name for name in self._models if name not in names and not newer(name)]:
            self._processes.pop(name, None)
            changed |= self._set(Model(name))
            del self._models[name]
        # an alias that is another model's id is that model
        self._ids = {alias: model.id for model in models for alias in model.aliases}
        self._ids |= {name: name for name in names}
        if changed:
            # not before all of it is known: whoever waits may act at once
            self.notify()

    def _set(self, model: Model) -> bool:
        """
        :returns: whether its status is another one than before.
        """
        before = self.model(model.id)
        self._models[model.id] = model
        if model.status is before.status:
            return False
        if before.status is Status.LOADED:
            self._end(model.id)
        if not before.status.running:
            self.use(model.id)
        return True

    def _end(self, model: str) -> None:
        self._ends[model] += 1
        self._gone(model)

    def notify(self) -> None:
        """Let those who wait for a change look again."""
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(True)

    def change(self, seconds: float) -> Deferred[bool]:
        """
        Wait for the next change.

        :returns: a Deferred that fires with ``True``, or with ``False`` after so many seconds.
        """
        waiting: Deferred[bool] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting.addTimeout(seconds, self._clock, onTimeoutCancel=lambda *_: False)

    async def until(self, reached: Callable[[Model], bool], model: str, seconds: float) -> bool:
        """
        Wait for a model to be what it should be.

        :param seconds: for how long at most.
        :returns: whether it is.
        :raises ControlError: nobody is there any more.
        """
        began = self._clock.seconds()
        pause = self._poll_seconds if self.live else min(FIRST_POLL_SECONDS, self._poll_seconds)
        while not reached(self.model(model)):
            if self._clock.seconds() - began >= seconds:
                return False
            if not await self.change(pause):
                try:
                    await self.look()
                except ControlError as error:
                    if nobody_there(error):
                        raise
                pause = min(2 * pause, self._poll_seconds)
        return True
