"""
A router without a reactor: scripted models that come and go by the rules of the real one (b11434),
and the slots of a gateway in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field
from doubles import ScriptedLlama
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from slotgate.llama.errors import (
    ControlError,
    Junk,
    KeyRefused,
    Loading,
    NotLoaded,
    ProcessLost,
    Refused,
    Unreachable,
    Unsupported,
)
from slotgate.llama.models import Change, Model, RouterProps, Status
from slotgate.llama.router import Full
from slotgate.llama.wire import Saved, SlotStatus
from slotgate.sessions import Policy
from slotgate.slots.address import Address
from slotgate.slots.memory import Memory
from slotgate.slots.slot import Slot
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.store import Snapshots


@define(eq=False, repr=False)
class ScriptedModel(ScriptedLlama):
    """The process of one model of a router, while there is one."""

    name: str = field(kw_only=True)
    router: ScriptedRouter = field(kw_only=True)

    async def _do(self, action: str) -> None:
        await super()._do(action)
        await self.router.answer(self.name)
        status = self.router.status[self.name]
        if status is Status.UNLOADED:
            raise NotLoaded("400 model is not loaded")
        if status is Status.LOADING:
            raise ProcessLost("500 proxy error: Could not establish connection", sent=False)

    async def slot(self, slot_id: int) -> SlotStatus:
        status = await super().slot(slot_id)
        if self.router.status[self.name] is Status.SLEEPING:
            self.router.wake(self.name)
        return status

    async def working(self) -> bool:
        busy = await super().working()
        self.router.journal.append(f"{'busy' if busy else 'idle'} {self.name}")
        return busy

    async def save(self, slot_id: int, file: str) -> Saved:
        self.router.journal.append(f"save {self.name} {self.content}")
        saved = await super().save(slot_id, file)
        self.router.uses(self.name)
        return saved


@define(eq=False, repr=False)
class ScriptedRouter:
    """
    A router of scripted models, and its control calls.

    A model in ``held`` stays "loading" or on its way out until :meth:`finish`, and one in
    ``broken`` stays "loading" until then, to fail. ``faults`` and ``gates`` are those of
    :class:`~doubles.ScriptedLlama`, for "router", "models", "load", "unload" and "follow"; the gate
    "told" holds back an answer of "models" that is made already.
    """

    names: tuple[str, ...] = ("alpha", "beta", "gamma", "delta")
    models_max: int = 2
    held: set[str] = field(factory=set)
    broken: set[str] = field(factory=set)
    aliases: dict[str, tuple[str, ...]] = field(factory=dict)
    faults: dict[str, list[Exception]] = field(factory=dict)
    gates: dict[str, Deferred[None]] = field(factory=dict)
    #: Called before each answer, with the model that was asked, or without one; the answer comes
    #: when the Deferred fires.
    answer: Callable[[str], Deferred[None]] = lambda _: succeed(None)
    #: What was done, in order.
    journal: list[str] = field(factory=list)
    #: Models that the router unloaded by itself.
    evicted: list[str] = field(factory=list)
    status: dict[str, Status] = field(factory=dict)
    process: dict[str, ScriptedModel] = field(factory=dict)
    exit_codes: dict[str, int] = field(factory=dict)
    ports: dict[str, int] = field(factory=dict)
    #: The models, the one used longest ago first.
    order: list[str] = field(factory=list)
    ending: set[str] = field(factory=set)
    streams: list[tuple[Deferred[None], Callable[[Change], None]]] = field(factory=list)
    _next_port: int = 40_000

    def __attrs_post_init__(self) -> None:
        for name in self.names:
            self.process[name] = ScriptedModel(name=name, router=self)
            self.status[name] = Status.UNLOADED
            self.order.append(name)

    # the control calls

    async def router(self) -> RouterProps | None:
        await self._do("router")
        return RouterProps(self.models_max, True)

    async def models(self) -> tuple[Model, ...]:
        await self._do("models")
        models = tuple(self.model(name) for name in self.names)
        await self.gates.get("told", succeed(None))
        return models

    async def load(self, model: str) -> None:
        self.journal.append(f"load {model}")
        await self._do("load")
        self.begin(model)

    async def unload(self, model: str) -> None:
        self.journal.append(f"unload {model}")
        await self._do("unload")
        if self.status[model] is Status.UNLOADED:
            return
        self.ending.add(model)
        if model not in self.held:
            self.finish(model)

    def follow(
        self, opened: Callable[[], None], changed: Callable[[Change], None]
    ) -> Deferred[None]:
        return Deferred.fromCoroutine(self._follow(opened, changed))

    async def _follow(self, opened: Callable[[], None], changed: Callable[[Change], None]) -> None:
        await self._do("follow")
        ended: Deferred[None] = Deferred()
        stream = (ended, changed)
        self.streams.append(stream)
        opened()
        try:
            await ended
        finally:
            if stream in self.streams:
                self.streams.remove(stream)

    async def _do(self, action: str) -> None:
        await self.gates.get(action, succeed(None))
        await self.answer("")
        if self.faults.get(action):
            raise self.faults[action].pop(0)

    # what happens in it

    def model(self, name: str) -> Model:
        """What ``GET /models`` says of a model now."""
        code = self.exit_codes.get(name)
        return Model(
            name,
            self.aliases.get(name, ()),
            self.status[name],
            failed=bool(code),
            exit_code=code or None,
            args=("--port", str(self.ports.get(name, 0))),
        )

    def begin(self, name: str) -> None:
        """
        Load a model for anybody.

        :raises Full: only a model that works could make room.
        """
        if name not in self.names:
            raise Unsupported("404 File Not Found")
        if self.status[name] is not Status.UNLOADED:
            return
        if self.models_max and len(self.running()) >= self.models_max:
            idle = [
                one
                for one in self.order
                if self.status[one] in (Status.LOADED, Status.SLEEPING)
                and not self.process[one].busy
            ]
            if not idle:
                raise Full("500 model limit reached, try again later")
            self.evicted.append(idle[0])
            self.finish_ending(idle[0], 0)
        self._next_port += 1
        self.ports[name] = self._next_port
        self.exit_codes.pop(name, None)
        self.uses(name)
        self.become(name, Status.LOADING)
        if name not in self.held | self.broken:
            self.finish(name)

    def running(self) -> list[str]:
        """The models that take a place."""
        return [name for name in self.names if self.status[name].running]

    def finish(self, name: str) -> None:
        """A load or an unload that was begun is done."""
        if name in self.ending:
            self.finish_ending(name, 0)
        elif self.status[name] is Status.LOADING:
            if name in self.broken:
                self.finish_ending(name, 1)
            else:
                self.become(name, Status.LOADED)

    def finish_ending(self, name: str, code: int) -> None:
        """The process of a model ended."""
        self.ending.discard(name)
        process = self.process[name]
        process.restart()
        process.busy = process.sleeping = False
        if code:
            self.exit_codes[name] = code
        self.become(name, Status.UNLOADED)

    def crash(self, name: str) -> None:
        """The process of a model was killed."""
        self.finish_ending(name, 1)

    def fall_asleep(self, name: str) -> None:
        """A model was idle for long enough."""
        self.process[name].sleeping = True
        self.process[name].restart()
        self.become(name, Status.SLEEPING)

    def wake(self, name: str) -> None:
        """Somebody needs a model that sleeps."""
        self.journal.append(f"wake {name}")
        self.become(name, Status.LOADING)
        if name not in self.held:
            self.become(name, Status.LOADED)

    def uses(self, name: str) -> None:
        """A request reaches a model."""
        self.order.remove(name)
        self.order.append(name)

    def become(self, name: str, status: Status) -> None:
        """A model's status changes, and the streams tell."""
        self.status[name] = status
        code = self.exit_codes.get(name, 0) if status is Status.UNLOADED else None
        for _, changed in list(self.streams):
            changed(Change(name, status, code))

    def done(self, *verbs: str) -> list[str]:
        """What was done of these."""
        return [line for line in self.journal if line.split()[0] in verbs]


def slot_of(
    router: ScriptedRouter, model: str, clock: Clock, kept: Snapshots, **settings: float
) -> Slot:
    """
    Slot 0 of a model.

    :param settings: ``sleep_seconds`` and ``load_wait_seconds``.
    """
    address, process = Address("local", model, 0), router.process[model]
    waits = settings.get("load_wait_seconds", 120.0)
    return Slot(
        address=address,
        control=process,
        snapshots=kept,
        view=View(str(address), 0, process, clock, 1.0, waits),
        usefulness=Usefulness(f"local {model}", clock),
        memory=Memory("local", kept.index, lambda _: Policy(64)),
        clock=clock,
        max_queue=64,
        sleep_seconds=lambda: settings.get("sleep_seconds"),
    )


def refusals() -> Iterable[ControlError]:
    """Ways in which a router does not do what it is asked."""
    yield Unreachable("nobody listens", sent=False)
    yield Refused(500, "500 it can not")
    yield Loading("503 Loading model")
    yield KeyRefused("refused key: 401 Invalid API Key")
    yield Unsupported("404 File Not Found")
    yield Junk("6 bytes that are not JSON")
