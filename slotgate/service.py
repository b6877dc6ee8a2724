"""
The service: builds the parts, starts, drains, stops.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.building import build
from slotgate.config import Config
from slotgate.conversations import Conversation
from slotgate.listening import url_of
from slotgate.reloading import Settings, merged
from slotgate.servers import DISK_SECONDS
from slotgate.slots.idle import IdleSaver
from slotgate.snapshots.database import connect, opened
from slotgate.snapshots.index import Index
from slotgate.snapshots.reconciling import reconcile
from slotgate.state import StateFolder

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
            index = Index(direct)
            _at_once(reconcile(index, config.servers.values()))
            known = _at_once(index.conversations())
        database = connect(reactor, path)
        return GatewayService(config, reactor, folder, database, known)
    except BaseException:
        if database is not None:
            database.close()
        folder.close()
        raise


def _at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that waits for nothing, as all do whose database is on this thread."""
    results: list[_T] = []
    failures: list[Failure] = []
    Deferred.fromCoroutine(work).addCallbacks(results.append, failures.append)
    for failure in failures:
        failure.raiseException()
    return results[0]


class GatewayService(Service):
    """
    A running gateway.

    Its end is its own business and in this order (rule 7): no new connections, running responses
    may end, dirty slots are saved, then everything is closed.
    """

    _log = Logger()

    def __init__(
        self,
        config: Config,
        reactor: Any,
        folder: StateFolder,
        database: ConnectionPool,
        known: Iterable[Conversation],
    ) -> None:
        """
        :param known: the conversations of before, the one used longest ago first.
        """
        self._settings = Settings(config)
        self._reactor = reactor
        self._folder = folder
        self._database = database
        self._parts = build(self._settings, reactor, folder.secret(), database, known)
        self._ports: list[IListeningPort] = []
        self._stopped: Deferred[None] | None = None
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
        Start to serve, once: what a stop has closed is not opened again.

        :raises CannotListenError: an address is taken, or can not be had.
        """
        if self._stopped is not None:
            raise RuntimeError("a stopped gateway is not started again: make another service")
        super().startService()
        self._open_ports()
        self._idle_saver.startService()
        for backend in self._parts.backends.values():
            backend.start()

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
        listen = self._settings.config.gateway.listen
        for description, address in zip(listen, self.addresses, strict=False):
            self._log.info("slotgate listens on {address}", address=url_of(address, description))

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
        if self._stopped is None:
            self._stopped = Deferred.fromCoroutine(self._stop())
        waiting: Deferred[None] = Deferred()
        self._stopped.chainDeferred(waiting)
        return waiting

    async def _stop(self) -> None:
        try:
            await self._drain()
        finally:
            for upstream in self._parts.upstreams.values():
                await upstream.close()
            await self._within(DISK_SECONDS, self._parts.settled())
            self._database.close()
            self._folder.close()

    async def _drain(self) -> None:
        for port in self._ports:
            await maybeDeferred(port.stopListening)
        self._idle_saver.stopService()
        parts, config = self._parts, self._settings.config
        # nobody waits for those who only look
        parts.watching.stop()
        began, drain = self._reactor.seconds(), config.gateway.drain_seconds
        for backend in parts.backends.values():
            backend.stop()
        slots = parts.pool.stop()
        if not await self._within(drain, parts.forward.idle()):
            self._log.warn("responses still run after {seconds:g} s: cut", seconds=drain)
            parts.forward.abort()
        # what is being written to disk gets the time that a control call has
        saving = max(server.control_timeout_seconds for server in config.servers.values())
        if not await self._within(saving, slots):
            self._log.warn("slots are not saved after {seconds:g} s", seconds=saving)
        # a slow client has not read all yet of what was written to it
        left = max(drain - (self._reactor.seconds() - began), LAST_BYTES_SECONDS)
        if not await self._within(left, parts.connections.close()):
            self._log.warn("clients have not read all of their answers: cut")
            parts.connections.abort()

    async def _within(self, seconds: float, work: Deferred[None]) -> bool:
        """Wait for something to end, and stop waiting after so many seconds."""
        try:
            await work.addTimeout(seconds, self._reactor)
        except DeferredTimeout:
            return False
        return True
