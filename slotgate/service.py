"""
The service: builds the parts, starts, drains, stops.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from attrs import frozen
from twisted.application.service import IService, Service
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from slotgate.config import Config
from slotgate.llama.client import LlamaClient
from slotgate.llama.upstream import Upstream
from slotgate.reloading import Settings, merged
from slotgate.slots.idle import IdleSaver
from slotgate.slots.memory import Memory
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.database import connect, opened
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.reconciling import reconcile
from slotgate.snapshots.store import Snapshots
from slotgate.state import StateFolder
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

#: What a client gets at the least to read what was written to it before we stop, in seconds.
LAST_BYTES_SECONDS = 1.0


def make_service(config: Config, reactor: Any) -> GatewayService:
    """
    The gateway as a service, for twistd or for another Twisted application.

    The state folder is taken and the index opened at once; ports are opened when the service
    starts.

    :raises StateUnusable: the state folder can not be used.
    :raises IndexUnusable: the index in it can not be used.
    """
    folder = StateFolder(config.gateway.state_dir)
    folder.open()
    database = None
    try:
        path = folder.path / "index.sqlite"
        with opened(path) as direct:
            # before anybody can save: a file that is being written has no record yet
            _at_once(reconcile(Index(direct), config.servers.values()))
        database = connect(reactor, path)
        return GatewayService(config, reactor, folder, database)
    except BaseException:
        if database is not None:
            database.close()
        folder.close()
        raise


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing, as all do whose database is on this thread."""
    failures: list[Failure] = []
    Deferred.fromCoroutine(work).addErrback(failures.append)
    for failure in failures:
        failure.raiseException()


@frozen
class _Parts:
    """What a running gateway is made of."""

    upstreams: Mapping[str, Upstream]
    pool: SlotPool
    forward: Forward
    connections: Connections


def _build(settings: Settings, reactor: Any, secret: bytes, database: ConnectionPool) -> _Parts:
    config = settings.config
    upstreams = {name: Upstream(reactor, server) for name, server in config.servers.items()}
    index = Index(database)
    pool = _slots(config, reactor, upstreams, secret, index)
    clients = Clients(settings)
    forward = Forward(upstreams, reactor, settings)
    understanding = Understanding(settings, clients)
    generations = Generations(settings, understanding, pool, forward, reactor)
    passing = Passing(settings, clients, pool, forward)
    sessions = Sessions(clients, pool, index, Finding(settings, pool, index))
    app = make_app(generations.answer, passing.slot_call, sessions.answer, passing.answer)
    max_body = int(config.gateway.max_body_mib * 1024 * 1024)
    site = limited_site(app.resource(), reactor, max_body)
    return _Parts(upstreams, pool, forward, Connections(site))


def _slots(
    config: Config,
    reactor: Any,
    upstreams: Mapping[str, Upstream],
    secret: bytes,
    index: Index,
) -> SlotPool:
    """The slots that routes with a cache use; the others belong to nobody."""

    def blocking(function: Callable[..., _T], *args: object) -> Deferred[_T]:
        threads = reactor.getThreadPool()
        return deferToThreadPool(reactor, threads, function, *args)

    slots = {}
    for server in config.servers.values():
        control = LlamaClient(upstreams[server.name], reactor, server)
        snapshots = Snapshots(
            server=server.name,
            index=index,
            folder=None if server.slot_save_path is None else Folder(server.slot_save_path),
            blocking=blocking,
            secret=secret,
            clock=reactor,
            verify=server.verify,
            min_free_bytes=int(server.min_free_gib * 1024**3),
        )
        usefulness = Usefulness(server.name)
        memory = Memory(server.name, index)
        for slot_id in {
            slot_id
            for route in config.routes
            if route.server == server.name and route.cache
            for slot_id in route.slots
        }:
            name = f"{server.name} slot {slot_id}"
            slots[server.name, slot_id] = Slot(
                name=name,
                id=slot_id,
                control=control,
                snapshots=snapshots,
                view=View(
                    name,
                    slot_id,
                    control,
                    reactor,
                    server.poll_seconds,
                    server.load_wait_seconds,
                ),
                usefulness=usefulness,
                memory=memory,
                clock=reactor,
                max_queue=config.gateway.max_queue,
            )
    return SlotPool(slots)


@implementer(IService)
class GatewayService(Service):
    """
    A running gateway.

    Its end is its own business and in this order (rule 7): no new connections, running responses
    may end, dirty slots are saved, then everything is closed.
    """

    _log = Logger()

    def __init__(
        self, config: Config, reactor: Any, folder: StateFolder, database: ConnectionPool
    ) -> None:
        self._settings = Settings(config)
        self._reactor = reactor
        self._folder = folder
        self._database = database
        self._parts = _build(self._settings, reactor, folder.secret(), database)
        self._ports: list[IListeningPort] = []
        self._idle_saver = IdleSaver(self._parts.pool, reactor)

    @property
    def addresses(self) -> list[IAddress]:
        """Where clients reach the gateway while it runs."""
        return [port.getHost() for port in self._ports]

    def privilegedStartService(self) -> None:
        """
        Open the ports, before twistd gives up its privileges.

        :raises CannotListenError: an address is taken, or can not be had.
        """
        super().privilegedStartService()
        self._open_ports()

    def startService(self) -> None:
        """
        Start to serve.

        :raises CannotListenError: an address is taken, or can not be had.
        """
        super().startService()
        self._open_ports()
        self._idle_saver.startService()
        self._parts.pool.recall()

    def _open_ports(self) -> None:
        if self._ports:
            return
        try:
            for description in self._settings.config.gateway.listen:
                self._listen(description)
        except CannotListenError:
            ports, self._ports = self._ports, []
            for port in ports:
                port.stopListening()
            raise
        for address in self.addresses:
            self._log.info("slotgate listens on {address}", address=address)

    def _listen(self, description: str) -> None:
        """
        Open one port, now: StreamServerEndpointService would only log that it can not, and the
        process stay up, deaf.
        """
        failures: list[Failure] = []
        listening = maybeDeferred(self._endpoint, description)
        listening.addCallbacks(self._ports.append, failures.append)
        for failure in failures:
            if failure.check(CannotListenError):
                failure.raiseException()
            # a folder that is not there, a socket that systemd did not pass on
            raise CannotListenError("gateway.listen", description, failure.value) from None

    def _endpoint(self, description: str) -> Deferred[IListeningPort]:
        listening: Deferred[IListeningPort] = serverFromString(self._reactor, description).listen(
            self._parts.connections
        )
        return listening

    def reload(self, read: Config) -> None:
        """
        Put into force what of a configuration can change while the gateway runs.
        """
        self._settings.config, changed, stays = merged(self._settings.config, read)
        self._log.info("read again; changed: {changed}", changed=", ".join(changed) or "nothing")
        if stays:
            self._log.warn("changed only by a restart: {stays}", stays=", ".join(stays))

    def stopService(self) -> Deferred[None]:
        """
        Drain, save, close.

        :returns: a Deferred that fires when nothing is left to do.
        """
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for port in self._ports:
            await maybeDeferred(port.stopListening)
        self._idle_saver.stopService()
        parts, drain = self._parts, self._settings.config.gateway.drain_seconds
        began = self._reactor.seconds()
        slots = parts.pool.stop()
        if not await self._within(drain, parts.forward.idle()):
            self._log.warn("responses still run after {seconds:g} s: cut", seconds=drain)
            parts.forward.abort()
        # what is being written to disk gets the time that a control call has
        saving = max(
            server.control_timeout_seconds for server in self._settings.config.servers.values()
        )
        if not await self._within(saving, slots):
            self._log.warn("slots are not saved after {seconds:g} s", seconds=saving)
        # a slow client has not read all yet of what was written to it
        left = max(drain - (self._reactor.seconds() - began), LAST_BYTES_SECONDS)
        if not await self._within(left, parts.connections.close()):
            self._log.warn("clients have not read all of their answers: cut")
            for connection in list(parts.connections.protocols):
                connection.abortConnection()
        for upstream in parts.upstreams.values():
            await upstream.close()
        self._database.close()
        self._folder.close()

    async def _within(self, seconds: float, work: Deferred[None]) -> bool:
        """Wait for something to end, and stop waiting after so many seconds."""
        try:
            await work.addTimeout(seconds, self._reactor)
        except DeferredTimeout:
            return False
        return True
