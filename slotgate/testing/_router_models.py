"""
The fake router's models: which are loaded, who waits for one, and which one has to go.

The order of things is that of ``server_lru_sched`` and ``server_models`` in b11434's
``server-models.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from slotgate.testing._answers import LlamaError
from slotgate.testing._engine import ServerGone
from slotgate.testing._router_child import Happening
from slotgate.testing._router_events import Events
from slotgate.testing._router_model import Model
from slotgate.testing._router_queue import Queue, Waiter
from slotgate.testing._router_reply import ProxiedReply
from slotgate.testing._routes import model_info

_KILLED = 1
_FIRST_PORT = 49152


class Limits:
    """
    What a test may change at any time.

    :ivar models_max: how many models may have a process, 0: no limit.
    :ivar stop_seconds: see ``FakeRouter``.
    """

    models_max: int
    stop_seconds: float


@define(eq=False)
class Models:
    """
    Loads and unloads.

    :ivar all: by name.
    :ivar loads: names in the order in which their processes were started.
    :ivar unloads: names in the order in which they ended, for whatever reason.
    """

    clock: IReactorTime
    limits: Limits
    events: Events
    all: Mapping[str, Model]
    loads: list[str] = field(factory=list)
    unloads: list[str] = field(factory=list)
    _queue: Queue[Model] = field(factory=Queue)
    _uses: int = 0
    _stepping: bool = False

    def find(self, name: str) -> Model | None:
        """
        A model by its name or an alias.
        """
        by_alias = (m for m in self.all.values() if name in m.settings.aliases)
        return self.all.get(name) or next(by_alias, None)

    # requests

    def ready(self, model: Model) -> Deferred[None]:
        """
        Wait until a model can be asked, and have it loaded if need be.

        :returns: fires when it is up; fails with ``LlamaError`` when its process ended while it
            was loading. Cancelling it gives the place in the queue up.
        """
        if model.serving:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda _: self._left(model, waiter))
        waiter = Waiter(waiting, queued=model.status == "unloaded" or model.stopping)
        self._queue.add(model, waiter)
        self._step()
        return waiting

    def _left(self, model: Model, waiter: Waiter) -> None:
        self._queue.drop(model, waiter)
        self._step()

    def take_off(self, model: Model, reply: ProxiedReply, *, use: bool) -> None:
        """
        A request goes to a model.

        :param use: whether the model counts as used by it.
        """
        if use:
            self._use(model)
        model.flights.add(reply)

    def landed(self, model: Model, reply: ProxiedReply) -> None:
        """
        A request is answered, or cannot be.
        """
        model.flights.discard(reply)
        if not model.flights:
            self._step()

    def _use(self, model: Model) -> None:
        self._uses += 1
        model.used = self._uses

    # who has to go, who comes

    def _step(self) -> None:
        # whoever is served may be done before this returns: a loop, no recursion
        if self._stepping:
            return
        with self._in_one_go():
            while self._evict() or self._claim():
                pass

    @contextmanager
    def _in_one_go(self) -> Iterator[None]:
        stepping, self._stepping = self._stepping, True
        try:
            yield
        finally:
            self._stepping = stepping

    def _evict(self) -> bool:
        if self.limits.models_max <= 0:
            return False
        stopping = sum(model.stopping for model in self.all.values())
        free = self.limits.models_max - self._running() + stopping
        if free >= self._queue.needed():
            return False
        victim = self._victim()
        if victim is None:
            return False
        self.stop(victim)
        return True

    def _claim(self) -> bool:
        model = self._queue.first()
        if model is None or model.running or not self._room():
            return False
        self._queue.claim(model)
        self._start(model)
        return True

    def _victim(self) -> Model | None:
        idle: Iterable[Model] = (
            model
            for model in self.all.values()
            if model.serving and not model.flights and not self._queue.wants(model)
        )
        return min(idle, key=lambda model: model.used, default=None)

    def _running(self) -> int:
        return sum(model.running for model in self.all.values())

    def _room(self) -> bool:
        return self.limits.models_max <= 0 or self._running() < self.limits.models_max

    async def load(self, model: Model) -> None:
        """
        Load a model that nobody asked a request of, and return once that has begun.

        :raises LlamaError: all models are busy; it does not wait for one.
        """
        if not self._room() and (victim := self._victim()) is not None:
            self.stop(victim)
            await victim.ended()
        if model.running:
            return
        if not self._room():
            raise LlamaError(500, "model limit reached, try again later", "server_error")
        self._start(model)

    # a process

    def _start(self, model: Model) -> None:
        model.status = "loading"
        model.port = model.port or _FIRST_PORT + len(self.loads)
        self._use(model)
        self.loads.append(model.name)
        model.child.begin()
        self.events.tell(model.name, "model_status", {"status": "loading"})
        self.events.progress(model.name, 0.0)
        if model.settings.load_seconds > 0:
            model.timer = self.clock.callLater(model.settings.load_seconds, self._came, model)
        else:
            self._came(model)

    def _came(self, model: Model) -> None:
        if model.settings.broken:
            self._ended(model, _KILLED)
            return
        model.status, model.exit_code = "loaded", 0
        model.child.ready()
        self.events.progress(model.name, 1.0)
        loaded = {"status": "loaded", "info": model_info(model.child)}
        self.events.tell(model.name, "status_change", loaded)
        # still in the queue while its waiters take it, so that it is not chosen to go again
        with self._in_one_go():
            for waiter in self._queue.waiters(model):
                if not waiter.deferred.called:
                    waiter.deferred.callback(None)
        self._queue.settle(model)
        self._step()

    def stop(self, model: Model) -> None:
        """
        End a model's process.

        One that loads is killed. One that is busy works no more but stays, its clients without an
        answer, until it is killed after ``stop_seconds``.
        """
        if model.stopping or not model.running:
            return
        if model.status == "loading":
            self._ended(model, _KILLED)
            return
        model.stopping = True
        busy = bool(model.flights or model.child.at_work)
        with self._in_one_go():
            model.child.end()
        seconds = self.limits.stop_seconds if busy else model.settings.unload_seconds
        code = _KILLED if busy else 0
        if seconds > 0:
            model.timer = self.clock.callLater(seconds, self._ended, model, code)
        else:
            self._ended(model, code)

    def kill(self, model: Model) -> None:
        """
        A model's process is killed, or crashes.
        """
        if model.running:
            self._ended(model, _KILLED)

    def _ended(self, model: Model, code: int) -> None:
        model.cancel_timer()
        loading = model.status == "loading"
        model.status, model.stopping, model.exit_code = "unloaded", False, code
        self.unloads.append(model.name)
        gone = {"status": "unloaded", "exit_code": code}
        self.events.tell(model.name, "status_change", gone)
        with self._in_one_go():
            model.child.end()
            flights, model.flights = model.flights, set()
            for reply in flights:
                reply.cut()
            model.tell_end()
            if loading:
                failed = f"model name={model.name} failed to load"
                for waiter in self._queue.served(model):
                    if not waiter.deferred.called:
                        waiter.deferred.errback(LlamaError(500, failed, "server_error"))
        self._step()

    def heard(self, model: Model, happening: Happening) -> None:
        """
        What a model's process tells of itself.
        """
        match happening:
            case "dead":
                self.kill(model)
            case "sleeping":
                model.status = "sleeping"
                self.events.tell(model.name, "status_change", {"status": "sleeping"})
            case "woken":
                model.status = "loaded"
                self.events.progress(model.name, 0.0)
                self.events.progress(model.name, 1.0)
                self.events.tell(model.name, "status_change", {"status": "loaded"})

    def end_all(self) -> None:
        """
        The router itself is gone: nothing is told, whoever waits fails.
        """
        with self._in_one_go():
            for model in self.all.values():
                model.cancel_timer()
                model.status, model.stopping, model.exit_code = "unloaded", False, 0
                model.child.end()
                model.tell_end()
                model.flights.clear()
                for waiter in self._queue.served(model):
                    if not waiter.deferred.called:
                        waiter.deferred.errback(ServerGone())
