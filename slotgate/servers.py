"""
The configured servers: what is behind each address, and the slots that requests come to need.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from slotgate.config import Config, Server
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.following import Following
from slotgate.llama.inventory import Inventory
from slotgate.llama.router import RouterClient
from slotgate.llama.tracker import Tracker
from slotgate.llama.upstream import Upstream
from slotgate.reloading import Settings
from slotgate.routes import policy_of, route_for
from slotgate.sessions import Policy
from slotgate.slots.address import Address
from slotgate.slots.admission import Admissions
from slotgate.slots.backend import Backend
from slotgate.slots.memory import Memory
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.store import Blocking, Snapshots
from slotgate.telemetry.events import Telemetry

_T = TypeVar("_T")

#: How long the index or the slot folder may take before a request goes on without its cache, in
#: seconds: a disk that hangs, a network folder whose server is away.
DISK_SECONDS = 30.0


def serve(
    settings: Settings,
    reactor: Any,
    upstreams: Mapping[str, Upstream],
    secret: bytes,
    index: Index,
    telemetry: Telemetry,
) -> tuple[SlotPool, Mapping[str, Backend]]:
    """
    The slots, and the servers by their names. Nothing of it runs yet.

    :param secret: the key of this installation.
    :param telemetry: is told what is done to slots and snapshots.
    """

    def blocking(function: Callable[..., _T], *args: object) -> Deferred[_T]:
        done = deferToThreadPool(reactor, reactor.getThreadPool(), function, *args)
        return done.addTimeout(DISK_SECONDS, reactor, _disk_hangs)

    def policy(route: str) -> Policy:
        found = route_for(settings.config, route)
        return Policy() if found is None else policy_of(found[0])

    servers = {
        name: _Server(
            calls=Calls(upstreams[name], reactor, server),
            reactor=reactor,
            snapshots=_snapshots(server, index, blocking, secret, reactor, telemetry),
            memory=Memory(name, index, policy),
            max_queue=settings.config.gateway.max_queue,
            telemetry=telemetry,
        )
        for name, server in settings.config.servers.items()
    }
    pool = SlotPool(lambda address: servers[address.server].slot(address))
    return pool, {name: one.backend(settings, pool, index) for name, one in servers.items()}


def _disk_hangs(_: object, seconds: float) -> Any:
    raise OSError(errno.ETIMEDOUT, f"the disk did not answer within {seconds:g} s")


@define(eq=False)
class _Server:
    """What the slots of one server have in common."""

    calls: Calls
    reactor: Any
    snapshots: Snapshots
    memory: Memory
    max_queue: int
    telemetry: Telemetry
    tracker: Tracker = field(init=False)
    #: Whether restores help depends on the model.
    _usefulness: dict[str, Usefulness] = field(factory=dict, init=False)

    def control(self, model: str) -> LlamaClient:
        """The control calls of a model."""
        return LlamaClient(self.calls, model)

    def slot(self, address: Address) -> Slot:
        """A new slot."""
        server, model = self.calls.server, address.model
        control = self.control(model)
        if model not in self._usefulness:
            name = " ".join(filter(None, (server.name, model)))
            self._usefulness[model] = Usefulness(name, self.reactor)
        view = View(
            str(address),
            address.slot,
            control,
            self.reactor,
            server.poll_seconds,
            server.load_wait_seconds,
        )
        return Slot(
            address=address,
            control=control,
            snapshots=self.snapshots,
            view=view,
            usefulness=self._usefulness[model],
            memory=self.memory,
            clock=self.reactor,
            max_queue=self.max_queue,
            sleep_seconds=lambda: self.tracker.model(model).sleep_seconds,
            tell=self.telemetry.stepped,
        )

    def backend(self, settings: Settings, pool: SlotPool, index: Index) -> Backend:
        """What is behind the address."""
        server, reactor = self.calls.server, self.reactor
        router = RouterClient(self.calls)
        self.tracker = Tracker(
            router, reactor, server.poll_seconds, lambda model: backend.lose(model)
        )
        admissions = Admissions(
            name=server.name,
            control=router,
            tracker=self.tracker,
            slots_of=lambda model: pool.of_model(server.name, model),
            control_of=self.control,
            mode=server.router.tracker,
            limit=lambda: backend.limit,
            clock=reactor,
            poll_seconds=server.poll_seconds,
            load_wait_seconds=server.load_wait_seconds,
            max_queue=self.max_queue,
        )
        following = Following(
            server.name,
            router,
            self.tracker,
            reactor,
            server.poll_seconds,
            lambda: backend.lost(),
        )
        backend = Backend(
            server=server,
            control=router,
            tracker=self.tracker,
            admissions=admissions,
            following=following,
            control_of=self.control,
            inventory=Inventory(self.calls),
            snapshots=self.snapshots,
            pool=pool,
            index=index,
            slots=lambda: _slot_ids(settings.config, server),
        )
        self.calls.lost = backend.lost
        return backend


def _slot_ids(config: Config, server: Server) -> set[int]:
    return {
        slot_id
        for route in config.routes
        if route.server == server.name and route.cache
        for slot_id in route.slots
    }


def _snapshots(
    server: Server,
    index: Index,
    blocking: Blocking,
    secret: bytes,
    reactor: Any,
    telemetry: Telemetry,
) -> Snapshots:
    return Snapshots(
        server=server.name,
        index=index,
        folder=None if server.slot_save_path is None else Folder(server.slot_save_path),
        blocking=blocking,
        secret=secret,
        clock=reactor,
        verify=server.verify,
        min_free_bytes=int(server.min_free_gib * 1024**3),
        dropped=telemetry.dropped,
    )
