"""
The parts of a gateway, put together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define, frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from slotgate.config import Config, Server
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.following import Following
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
from slotgate.snapshots.database import IndexAway, Transactions
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.store import Blocking, Snapshots
from slotgate.web._session_finding import Finding
from slotgate.web.app import make_app
from slotgate.web.asked import Understanding
from slotgate.web.clients import Clients
from slotgate.web.connections import Connections
from slotgate.web.forward import Forward
from slotgate.web.generations import Generations
from slotgate.web.limits import limited_site
from slotgate.web.passing import Passing
from slotgate.web.sessions import Sessions

_T = TypeVar("_T")

#: How long the index or the slot folder may take before a request goes on without its cache, in
#: seconds: a disk that hangs, a network folder whose server is away.
DISK_SECONDS = 30.0

#: How long the index is left alone after it did not answer, in seconds.
AWAY_SECONDS = 10.0


@frozen
class Parts:
    """What a running gateway is made of."""

    upstreams: Mapping[str, Upstream]
    pool: SlotPool
    backends: Mapping[str, Backend]
    forward: Forward
    connections: Connections


@define
class _Bounded:
    """
    A database whose users do not wait for it for ever, and none of them again right after one
    has waited in vain.
    """

    _database: Transactions
    _reactor: Any
    _away_until: float = 0.0

    def runInteraction(self, interaction: Callable[..., _T], *args: object) -> Deferred[_T]:
        """As :class:`Transactions` says."""
        if self._reactor.seconds() < self._away_until:
            return fail(IndexAway())
        done = self._database.runInteraction(interaction, *args)
        return done.addTimeout(DISK_SECONDS, self._reactor).addErrback(self._away)

    def _away(self, failure: Failure) -> Failure:
        if failure.check(sqlite3.OperationalError, DeferredTimeout):
            self._away_until = self._reactor.seconds() + AWAY_SECONDS
        return failure


def build(settings: Settings, reactor: Any, secret: bytes, database: Transactions) -> Parts:
    """
    Put a gateway together. Nothing of it runs yet.

    :param secret: the key of this installation.
    :param database: the index.
    """
    config = settings.config
    upstreams = {name: Upstream(reactor, server) for name, server in config.servers.items()}
    calls = {
        name: Calls(upstreams[name], reactor, server) for name, server in config.servers.items()
    }
    index = Index(_Bounded(database, reactor))
    backends: dict[str, Backend] = {}
    pool = SlotPool(_slot_maker(settings, reactor, calls, secret, index, backends))
    for name, server_calls in calls.items():
        backends[name] = _backend(settings, reactor, server_calls, pool, index)
        server_calls.lost = backends[name].lost
    clients = Clients(settings)
    forward = Forward(upstreams, reactor, settings)
    understanding = Understanding(settings, clients, backends)
    generations = Generations(settings, understanding, pool, backends, forward, reactor)
    passing = Passing(settings, clients, pool, backends, forward)
    sessions = Sessions(clients, pool, index, Finding(settings, pool, backends, index))
    app = make_app(generations.answer, passing.slot_call, sessions.answer, passing.answer)
    max_body = int(config.gateway.max_body_mib * 1024 * 1024)
    site = limited_site(app.resource(), reactor, max_body)
    return Parts(upstreams, pool, backends, forward, Connections(site))


def _backend(
    settings: Settings, reactor: Any, calls: Calls, pool: SlotPool, index: Index
) -> Backend:
    server = calls.server
    router = RouterClient(calls)

    def slots() -> set[int]:
        return _slot_ids(settings.config, server)

    tracker = Tracker(router, reactor, server.poll_seconds, lambda model: backend.lose(model))
    admissions = Admissions(
        name=server.name,
        control=router,
        tracker=tracker,
        slots_of=lambda model: pool.of_model(server.name, model),
        control_of=lambda model: LlamaClient(calls, model),
        mode=server.router.tracker,
        limit=lambda: backend.limit,
        clock=reactor,
        poll_seconds=server.poll_seconds,
        load_wait_seconds=server.load_wait_seconds,
        max_queue=settings.config.gateway.max_queue,
    )
    following = Following(server.name, router, tracker, reactor, server.poll_seconds)
    backend = Backend(server, router, tracker, admissions, following, pool, index, slots)
    return backend


def _slot_maker(
    settings: Settings,
    reactor: Any,
    calls: Mapping[str, Calls],
    secret: bytes,
    index: Index,
    backends: Mapping[str, Backend],
) -> Callable[[Address], Slot]:
    """What makes the slots that requests come to need."""

    def blocking(function: Callable[..., _T], *args: object) -> Deferred[_T]:
        done = deferToThreadPool(reactor, reactor.getThreadPool(), function, *args)
        return done.addTimeout(DISK_SECONDS, reactor)

    def policy(route: str) -> Policy:
        found = route_for(settings.config, route)
        return Policy() if found is None else policy_of(found[0])

    servers = settings.config.servers
    snapshots = {
        name: _snapshots(server, index, blocking, secret, reactor)
        for name, server in servers.items()
    }
    memories = {name: Memory(name, index, policy) for name in servers}
    # whether restores help depends on the model
    usefulness: dict[tuple[str, str], Usefulness] = {}

    def make(address: Address) -> Slot:
        server = servers[address.server]
        control = LlamaClient(calls[server.name], address.model)
        model = address.server, address.model
        if model not in usefulness:
            usefulness[model] = Usefulness(" ".join(filter(None, model)), reactor)
        view = View(
            str(address),
            address.slot,
            control,
            reactor,
            server.poll_seconds,
            server.load_wait_seconds,
        )
        return Slot(
            address=address,
            control=control,
            snapshots=snapshots[server.name],
            view=view,
            usefulness=usefulness[model],
            memory=memories[server.name],
            clock=reactor,
            max_queue=settings.config.gateway.max_queue,
            sleep_seconds=lambda: backends[server.name].tracker.model(address.model).sleep_seconds,
        )

    return make


def _slot_ids(config: Config, server: Server) -> set[int]:
    return {
        slot_id
        for route in config.routes
        if route.server == server.name and route.cache
        for slot_id in route.slots
    }


def _snapshots(
    server: Server, index: Index, blocking: Blocking, secret: bytes, reactor: Any
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
    )
