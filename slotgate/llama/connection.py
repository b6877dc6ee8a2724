"""
The way to a server: its endpoint, whatever URL is asked for.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool, _HTTP11ClientFactory
from twisted.web.iweb import IAgent, IAgentEndpointFactory
from zope.interface import implementer

from slotgate.config import Server
from slotgate.web._endpoints import endpoint_for

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


def control_agent(reactor: Any, server: Server) -> IAgent:
    """
    An agent for the control calls of one server.
    """
    pool = HTTPConnectionPool(reactor)
    pool.cachedConnectionTimeout = _KEEP_SECONDS
    pool._factory = QuietFactory
    endpoint = endpoint_for(reactor, urlsplit(server.url), server.ca_file)
    agent: IAgent = Agent.usingEndpointFactory(reactor, _Pinned(endpoint), pool)
    return agent
