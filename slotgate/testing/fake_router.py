"""
A fake llama-server in router mode, in this process: many models behind one address, loaded on
demand, at most so many at once, and the real one's misbehaviour when one has to go.

It behaves as b11434 does. Each model is a :class:`~slotgate.testing.FakeLlamaServer` that does not
listen (:meth:`FakeRouter.child`), with its own slots, calls and faults.

Importing this module imports Klein, which installs the default reactor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import IResource

from slotgate.testing._front_door import Call, FrontDoor
from slotgate.testing._listening import Listening
from slotgate.testing._router_child import Child
from slotgate.testing._router_events import Events
from slotgate.testing._router_model import Model
from slotgate.testing._router_models import Limits, Models
from slotgate.testing._router_routes import RouterRoutes
from slotgate.testing._router_settings import FakeModel
from slotgate.testing.faults import Fault

__all__ = ["FakeModel", "FakeRouter"]


def _settings(models: Mapping[str, FakeModel | str]) -> dict[str, FakeModel]:
    """
    The models in the order in which the router tells them.
    """
    found = {
        name: FakeModel(model_path=given) if isinstance(given, str) else given
        for name, given in models.items()
    }
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


@define(eq=False)
class FakeRouter(Limits):
    """
    A llama-server without ``-m``.

    :ivar clock: the time it lives in: a reactor, or a ``Clock`` for tests.
    :ivar models: how each model is started, by its name; a path stands for a model of that file.
    :ivar slot_save_path: the folder of slot files of all models that name none.
    :ivar models_max: how many models may have a process at once, 0: no limit.
    :ivar api_key: asked of everything but ``/health``; empty: none.
    :ivar autoload: whether a request loads its model when it does not say so.
    :ivar sse: whether it has ``/models/sse``; an older build answers 404.
    :ivar stop_seconds: how long an unloaded model that is still busy with an answer that it does
        not stream keeps its client waiting, before it is killed and its ``exit_code`` is 1. The
        real one's default is 10 (``stop-timeout``).
    :ivar loading: while True everything answers 503 ``Loading model``: it has just been started.
    :ivar died: whether it has died; :meth:`restart` brings it up again.
    :ivar calls: every request it saw, in order; ``Call.model`` is the model it names.
    :ivar events: the open ``/models/sse`` connections.
    :ivar registry: the models as they are, for the routes.
    """

    clock: IReactorTime
    models: dict[str, FakeModel] = field(converter=_settings)
    slot_save_path: Path | None = None
    models_max: int = 4
    api_key: str = ""
    autoload: bool = True
    sse: bool = True
    stop_seconds: float = 0.0
    loading: bool = False
    died: bool = field(default=False, init=False)
    calls: list[Call] = field(factory=list, init=False)
    events: Events = field(factory=Events, init=False, repr=False)
    registry: Models = field(init=False, repr=False)
    _door: FrontDoor = field(init=False)
    _listening: Listening = field(init=False)

    def __attrs_post_init__(self) -> None:
        found = {name: self._model(name, given) for name, given in self.models.items()}
        self.registry = Models(self.clock, self, self.events, found)
        for model in found.values():
            model.child.heard = partial(self.registry.heard, model)
        self._door = RouterRoutes(self).door
        self._listening = Listening(self._door)

    def _model(self, name: str, given: FakeModel) -> Model:
        child = Child(
            self.clock,
            slot_save_path=given.slot_save_path or self.slot_save_path,
            model_path=given.model_path or f"/models/{name}.gguf",
            alias=name,
            total_slots=given.total_slots,
            context=given.context,
            speed=given.speed,
            batch=given.batch,
            says=given.says,
            sleep_idle_seconds=given.sleep_idle_seconds,
        )
        return Model(name, given, child)

    # what a test does with it

    def resource(self) -> IResource:
        """
        The fake as a resource, for ``treq.testing.StubTreq`` or a site of one's own.
        """
        return self._door

    def listen(self, reactor: Any) -> Deferred[int]:
        """
        Listen on a free port of 127.0.0.1.

        :returns: fires with the port.
        """
        return Deferred.fromCoroutine(self._listening.start(reactor))

    @property
    def port(self) -> int:
        """
        The TCP port, once it listened.
        """
        return self._listening.port

    @property
    def url(self) -> str:
        """
        Its address, once it listened.
        """
        return f"http://127.0.0.1:{self.port}"

    def child(self, name: str) -> Child:
        """
        A model's server: its slots, what it was asked, the tokens it read, and faults of its own,
        which reach a client as the router's ``proxy error``.

        :raises KeyError: no such model; an alias is none.
        """
        return self.registry.all[name].child

    def status(self, name: str) -> str:
        """
        A model's status as ``/models`` tells it.
        """
        return self.registry.all[name].status

    @property
    def loads(self) -> list[str]:
        """
        The models in the order in which their processes were started.
        """
        return self.registry.loads

    @property
    def unloads(self) -> list[str]:
        """
        The models in the order in which their processes ended, however that came.
        """
        return self.registry.unloads

    @property
    def control_calls(self) -> list[Call]:
        """
        The saves, restores and erases among the calls, refused ones too.
        """
        return [c for c in self.calls if c.method == "POST" and c.path.startswith("/slots/")]

    def calls_for(self, name: str) -> list[Call]:
        """
        The calls that name a model, by its name or an alias.
        """
        names = (name, *self.models[name].aliases)
        return [call for call in self.calls if call.model in names]

    def crash(self, name: str) -> None:
        """
        Kill a model's process: what runs in it gets a proxy error.
        """
        self.registry.kill(self.registry.all[name])

    def unload(self, name: str) -> None:
        """
        Unload a model as somebody else would do by hand.
        """
        self.registry.stop(self.registry.all[name])

    def fall_asleep(self, name: str) -> None:
        """
        Let a loaded model sleep, as ``--sleep-idle-seconds`` does.
        """
        if self.registry.all[name].serving:
            self.child(name).fall_asleep()

    def drop_events(self) -> None:
        """
        Cut the open ``/models/sse`` connections.
        """
        self.events.drop()

    def plan(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str | None = None,
        action: str | None = None,
        model: str | None = None,
        times: int = 1,
    ) -> None:
        """
        Let the next matching requests meet a fault of the router's.

        :param path: without the query.
        :param action: ``save``, ``restore`` or ``erase``.
        :param model: as the request names it.
        :param times: how many requests.
        """
        self._door.plan(fault, method=method, path=path, action=action, model=model, times=times)

    def seen(
        self,
        *,
        method: str | None = None,
        path: str | None = None,
        action: str | None = None,
        model: str | None = None,
    ) -> Deferred[Call]:
        """
        Wait for a request.

        :returns: fires with the first matching call, at once when there has been one.
        """
        return self._door.seen(method=method, path=path, action=action, model=model)

    def die(self) -> None:
        """
        Die at once, with all models: listen no more, drop all connections.
        """
        self.died = True
        self._listening.drop()
        self.registry.end_all()
        self.events.drop()

    def restart(self) -> Deferred[int]:
        """
        Come up again with no model loaded, at the same port where it had listened.

        :returns: fires with the port.
        """
        return Deferred.fromCoroutine(self._restart())

    async def _restart(self) -> int:
        await self.stop()
        self.died = False
        return await self._listening.again()

    def stop(self) -> Deferred[None]:
        """
        End it in a test's cleanup.

        :returns: fires when nothing of it is left in the reactor.
        """
        self.die()
        return Deferred.fromCoroutine(self._listening.stop())
