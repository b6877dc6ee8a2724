"""
A resource on a real loopback port, whose connections can all be dropped at once.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.resource import IResource
from twisted.web.server import Site


class _Connections(WrappingFactory):
    """
    Knows the connections of a site.
    """

    noisy = False

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._none_left: Deferred[None] | None = None

    def unregisterProtocol(self, protocol: ProtocolWrapper) -> None:
        super().unregisterProtocol(protocol)
        if not self.protocols and self._none_left is not None:
            done, self._none_left = self._none_left, None
            done.callback(None)

    def drop(self) -> None:
        for protocol in list(self.protocols):
            protocol.abortConnection()

    async def dropped(self) -> None:
        self.drop()
        if self.protocols:
            self._none_left = Deferred()
            await self._none_left


class Listening:
    """
    Listens, drops everything, and listens again at the same port.
    """

    def __init__(self, resource: IResource) -> None:
        self.port = 0
        self._resource = resource
        self._reactor: Any = None
        self._listening: IListeningPort | None = None
        self._connections: _Connections | None = None
        self._stopped: Deferred[None] | None = None

    async def start(self, reactor: Any) -> int:
        self._reactor = reactor
        return await self.again()

    async def again(self) -> int:
        if self._reactor is None:  # used as a resource only
            return 0
        # an idle connection is closed after 5 s, as the real one's HTTP library does
        site = Site(self._resource, timeout=5, reactor=self._reactor)
        site.noisy = False
        self._connections = _Connections(site)
        listening = self._reactor.listenTCP(self.port, self._connections, interface="127.0.0.1")
        self._listening = listening
        self.port = listening.getHost().port
        return self.port

    def drop(self) -> None:
        """
        Accept nothing more and drop every connection, now.
        """
        if self._listening is not None:
            listening, self._listening = self._listening, None
            stopped = listening.stopListening()
            self._stopped = stopped if isinstance(stopped, Deferred) else None
        if self._connections is not None:
            self._connections.drop()

    async def stop(self) -> None:
        """
        The same, and wait until nothing of it is left in the reactor.
        """
        self.drop()
        if self._stopped is not None:
            stopped, self._stopped = self._stopped, None
            await stopped
        if self._connections is not None:
            await self._connections.dropped()
