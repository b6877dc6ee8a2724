"""
Connections in memory, for :mod:`chaos_fake`: a client dies in silence, and things can happen just
before a request arrives or just after its answer was given.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field
from treq.client import HTTPClient
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectError
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.test import iosim
from twisted.web.client import Agent, ResponseDone, readBody
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer
from twisted.web.resource import IResource
from twisted.web.server import Site
from zope.interface import implementer

from slotgate.llama.causes import REQUEST_FAILURES, cause
from slotgate.llama.upstream import UpstreamUnreachable
from slotgate.snapshots.database import Direct

T = TypeVar("T")
_SERVER = IPv4Address("TCP", "127.0.0.1", 8080)
_CLIENT = IPv4Address("TCP", "127.0.0.1", 31337)


@implementer(IAgentEndpointFactory)
class Network:
    """All connections to one server."""

    def __init__(self, resource: IResource) -> None:
        # of its own, and it stands still: no idle connection is ever closed for its age
        self._clock = Clock()
        self._site = Site(resource, reactor=self._clock)
        self._agent = Agent.usingEndpointFactory(self._clock, self)
        self._pumps: dict[iosim.IOPump, None] = {}
        self._newest: iosim.IOPump | None = None

    def endpointForURI(self, uri: object) -> Network:
        return self

    def connect(self, factory: Any) -> Deferred[Any]:
        """A client connects; nothing is delivered until :meth:`deliver`."""
        server, client = self._site.buildProtocol(_CLIENT), factory.buildProtocol(_SERVER)
        pump = iosim.connect(
            server,
            iosim.FakeTransport(server, True, _SERVER, _CLIENT),
            client,
            iosim.FakeTransport(client, False, _CLIENT, _SERVER),
            clock=self._clock,
        )
        self._pumps[pump] = None
        self._newest = pump
        connected: Deferred[Any] = Deferred()
        connected.callback(client)
        return connected

    def request(self, *request: Any) -> tuple[Deferred[Any], iosim.IOPump]:
        """Send a request; its response and its connection."""
        response = self._agent.request(*request)
        assert self._newest is not None
        return response, self._newest

    def deliver(self) -> bool:
        """Carry every byte to where it goes; whether there were any."""
        moved = False
        for pump in list(self._pumps):
            if pump in self._pumps:
                moved = pump.flush() or moved
                if pump.clientIO.disconnected and pump.serverIO.disconnected:
                    self._pumps.pop(pump, None)
        return moved

    def drop_all(self) -> None:
        """The server is gone, and so are its connections."""
        for pump in self._pumps:
            drop(pump)


def drop(pump: iosim.IOPump) -> None:
    """Close a connection; both sides hear of it when bytes are next delivered."""
    pump.clientIO.stream.clear()
    pump.serverIO.stream.clear()
    pump.clientIO.disconnecting = True


@implementer(IBodyProducer)
@define(eq=False)
class Body:
    """A request's body, sent at once: treq's own way would ask the global reactor for time."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self.data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to pause."""

    def resumeProducing(self) -> None:
        """Nothing is left to produce."""

    def stopProducing(self) -> None:
        """Nothing is left to stop."""


def client(wire: Wire) -> HTTPClient:
    """A client whose requests go over a wire."""
    return HTTPClient(wire, data_to_body_producer=Body)


@define
class ServerSide:
    """What slotgate's own calls go through: the way to the server, in memory."""

    wire: Wire

    def request(
        self, method: bytes, target: bytes, headers: Any, body: bytes | None
    ) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._request(method, target, headers, body))

    async def _request(self, method: bytes, target: bytes, headers: Any, body: bytes | None) -> Any:
        producer = None if body is None else Body(body)
        try:
            return await self.wire.request(method, b"http://fake" + target, headers, producer)
        except REQUEST_FAILURES as error:
            sent = not isinstance(error, ConnectError)
            raise UpstreamUnreachable(cause(error), sent=sent) from error


@define
class Whole:
    """A response with all of its body."""

    code: int
    headers: Any
    body: bytes
    request: Any = None
    previousResponse: Any = None

    @property
    def length(self) -> int:
        return len(self.body)

    def deliverBody(self, protocol: Any) -> None:
        protocol.dataReceived(self.body)
        protocol.connectionLost(Failure(ResponseDone()))


@implementer(IAgent)
class Wire:
    """
    The way of one client to the server. Once cut, it says nothing more: neither to the client,
    whose process is gone, nor to the server, which sees closed connections.

    :param before: called with the URI and the body before a request is delivered.
    :param after: called with the URI and the status after it was answered, just before the client
        hears of it; 0 where there is no answer.
    :param head: called with the URI when the head of a response is there.
    """

    def __init__(
        self,
        network: Network,
        before: Callable[[bytes, Any], None] = lambda uri, body: None,
        after: Callable[[bytes, int], None] = lambda uri, status: None,
        head: Callable[[bytes], None] = lambda uri: None,
        down: Callable[[], bool] = lambda: False,
    ) -> None:
        self.alive = True
        self.network = network
        self._before, self._after, self._head, self._down = before, after, head, down
        self._open: dict[iosim.IOPump, None] = {}
        #: What the dead wait for: without it they would be collected, and run their last lines.
        self.kept: list[object] = []

    def never(self) -> Deferred[Any]:
        """What the dead get for an answer."""
        self.kept.append(waiting := Deferred[Any]())
        return waiting

    def cut(self) -> None:
        """The process at this end is gone."""
        self.alive = False
        for pump in self._open:
            drop(pump)

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        if self.alive:
            self._before(uri, bodyProducer)
        if not self.alive:
            return self.never()
        if self._down():
            return fail(Refused())
        answering, pump = self.network.request(method, uri, headers, bodyProducer)
        self._open[pump] = None
        told: Deferred[Any] = Deferred(lambda told: drop(pump))

        async def whole() -> Whole:
            response = await answering
            if self.alive:
                self._head(uri)
            return Whole(response.code, response.headers, await readBody(response))

        def tell(result: Any) -> None:
            self._open.pop(pump, None)
            if self.alive:
                self._after(uri, 0 if isinstance(result, Failure) else result.code)
            if not self.alive:
                self.kept.append(told)
            elif not told.called:
                told.callback(result)

        Deferred.fromCoroutine(whole()).addBoth(tell)
        return told


@implementer(IReactorTime)
@define(eq=False)
class Watch:
    """The clock of one process, which may be set. Nothing is called once the process is gone."""

    _clock: Clock
    _wire: Wire
    offset: float = 0.0

    def seconds(self) -> float:
        seconds: float = self._clock.seconds()
        return seconds + self.offset

    def callLater(
        self,
        delay: float,
        callable: Callable[..., Any],  # noqa: A002 - the name is the interface's
        *args: object,
        **kwargs: object,
    ) -> IDelayedCall:
        later: IDelayedCall = self._clock.callLater(delay, self._call, callable, args, kwargs)
        return later

    def _call(self, call: Any, args: Any, kwargs: Any) -> None:
        if self._wire.alive:
            call(*args, **kwargs)
        else:
            self._wire.kept.append((call, args, kwargs))

    def getDelayedCalls(self) -> list[IDelayedCall]:
        return []


@define(eq=False)
class Mortal:
    """The database and the blocking calls of one process: nothing is done once it is gone."""

    _wire: Wire
    connection: sqlite3.Connection
    _database: Direct = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._database = Direct(self.connection)

    def runInteraction(self, interaction: Callable[..., T], *args: object) -> Deferred[T]:
        if not self._wire.alive:
            return self._wire.never()
        return self._database.runInteraction(interaction, *args)

    def blocking(self, function: Callable[..., T], *args: object) -> Deferred[T]:
        if not self._wire.alive:
            return self._wire.never()
        done: Deferred[T] = Deferred()
        try:
            done.callback(function(*args))
        except Exception:
            done.errback(Failure())
        return done
