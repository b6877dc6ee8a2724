"""
The way to a server: its endpoint, whatever URL is asked for.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool, _HTTP11ClientFactory
from twisted.web.iweb import IAgent, IAgentEndpointFactory
from zope.interface import implementer

from slotgate.config import Server
from slotgate.llama.endpoints import endpoint_for

#: Shorter than the 5 s after which cpp-httplib closes an idle connection.
_KEEP_SECONDS = 2


class QuietFactory(_HTTP11ClientFactory):
    """
    Twisted's factory of client connections, without two log lines for each.

    The name is private, and setting ``noisy`` on the class would reach every other user of it in
    a process that embeds slotgate.
    """

    noisy = False


@implementer(IAgentEndpointFactory)
@frozen
class _Pinned:
    _endpoint: IStreamClientEndpoint

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._endpoint


@frozen
class ControlConnection:
    """The connections for the control calls of one server."""

    agent: IAgent
    _pool: HTTPConnectionPool

    def close(self) -> Deferred[None]:
        """
        Close what is idle; the Deferred fires when it is closed.
        """
        closed: Deferred[None] = self._pool.closeCachedConnections()
        return closed


def control_connection(reactor: Any, server: Server) -> ControlConnection:
    """
    The way to a server for control calls: few, and short enough to keep a connection for.
    """
    pool = HTTPConnectionPool(reactor)
    pool.cachedConnectionTimeout = _KEEP_SECONDS
    pool._factory = QuietFactory
    endpoint = endpoint_for(reactor, urlsplit(server.url), server.ca_file)
    return ControlConnection(Agent.usingEndpointFactory(reactor, _Pinned(endpoint), pool), pool)
