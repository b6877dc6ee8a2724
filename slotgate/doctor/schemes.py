"""
Whether a server speaks HTTP with TLS where its URL says without, or the other way round.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import CertificateOptions
from twisted.web.client import Agent
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from slotgate.config import Server
from slotgate.llama.causes import REQUEST_FAILURES, was_cancelled
from slotgate.llama.endpoints import endpoint_for
from slotgate.llama.upstream import drop

#: How long an answer is waited for, in seconds.
SECONDS = 3.0


async def other_url(reactor: Any, server: Server) -> str:
    """
    The server's URL with the other scheme, if somebody answers that with HTTP; empty: nobody does.

    No key goes there, and no certificate is checked: only that there is HTTP is of interest.
    """
    url = urlsplit(server.url)
    https = url.scheme == "https"
    port = url.port or (443 if https else 80)
    netloc = url.netloc if url.port else f"{url.netloc}:{port}"
    endpoint = endpoint_for(reactor, url._replace(scheme="http", netloc=netloc), None)
    if not https:
        endpoint = wrapClientTLS(CertificateOptions(verify=False), endpoint)
    agent = Agent.usingEndpointFactory(reactor, _Always(endpoint))
    began = reactor.seconds()
    asking: Deferred[Any] = agent.request(b"GET", b"http://localhost/health")
    asking.addTimeout(SECONDS, reactor)
    try:
        response = await asking
    except (*REQUEST_FAILURES, DeferredTimeout) as error:
        if was_cancelled(error) and reactor.seconds() - began < SECONDS:
            raise CancelledError from None
        return ""
    drop(response)
    if https and response.code == 400:
        # how some servers tell those who come to their TLS port without TLS
        return ""
    return url._replace(scheme="http" if https else "https", netloc=netloc).geturl()


@implementer(IAgentEndpointFactory)
@define
class _Always:
    """The same endpoint for every URL."""

    endpoint: IStreamClientEndpoint

    def endpointForURI(self, uri: object) -> IStreamClientEndpoint:
        """The endpoint."""
        return self.endpoint
