"""
One attempt at a request to a server, and the parts that the agent needs for it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IConsumer,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IClientRequest, IResponse
from zope.interface import implementer

# Not annotated in Twisted.
_Agent: Any = Agent


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class Attempt:
    """
    One attempt at a request. It stands between the agent's pool and the configured endpoint, so
    it knows whether a connection was made for it, which one, and since when it is there.

    :ivar connecting: a new connection was asked for, no kept one used.
    :ivar connection: the new connection's protocol, once there is one.
    :ivar silent: the server has said nothing for too long.

    :param silence: how long the server may say nothing, in seconds, from the moment there is a
        connection.
    """

    connecting = False
    connection: Any = None
    silent = False
    _answer: Deferred[IResponse]

    def __init__(self, reactor: Any, endpoint: IStreamClientEndpoint, silence: float) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._silence = silence
        self._timer: Any = None

    async def send(
        self,
        pool: HTTPConnectionPool,
        method: bytes,
        url: bytes,
        headers: Headers,
        producer: IBodyProducer | None,
    ) -> IResponse:
        """
        Send the request and wait for the head of the answer.
        """
        agent = _Agent.usingEndpointFactory(self._reactor, self, pool)
        # for a kept connection; a new one begins the time anew
        self._listen()
        self._answer = agent.request(method, url, headers, producer)
        try:
            return await self._answer
        finally:
            self._listen_no_more()

    @property
    def sent(self) -> bool:
        """
        Whether the server may have got the request.
        """
        return not self.connecting or self.connection is not None

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """
        The configured endpoint, whatever the URI.
        """
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Make a connection, as :class:`IStreamClientEndpoint` says.
        """
        self.connecting = True
        # the time that takes is the endpoint's to limit
        self._listen_no_more()
        made: Deferred[IProtocol] = self._endpoint.connect(protocolFactory)
        return made.addCallback(self._made)

    def _made(self, connection: IProtocol) -> IProtocol:
        self.connection = connection
        self._listen()
        return connection

    def _listen(self) -> None:
        self._timer = self._reactor.callLater(self._silence, self._give_up)

    def _listen_no_more(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _give_up(self) -> None:
        self.silent = True
        self._answer.cancel()


@implementer(IResponse)
class OwnResponse:
    """
    A response on a connection of its own: it can be aborted. Twisted lets a body's reader only
    close the connection, which over TLS waits for the server, busy with what nobody wants.
    """

    def __init__(self, response: IResponse, connection: Any) -> None:
        self._response: Any = response
        self._transport = connection.transport
        self.version: tuple[str, int, int] = response.version
        self.code: int = response.code
        self.phrase: str | bytes = response.phrase
        self.headers: Headers = response.headers
        self.length: int | object = response.length
        self.request: IClientRequest = response.request
        self.previousResponse: IResponse | None = response.previousResponse

    def deliverBody(self, protocol: IProtocol) -> None:
        """
        As :class:`IResponse` says.
        """
        self._response.deliverBody(protocol)

    def setPreviousResponse(self, response: IResponse) -> None:
        """
        As :class:`IResponse` says.
        """
        self.previousResponse = response

    def abort(self) -> None:
        """
        Close the connection at once.
        """
        self._transport.abortConnection()


@implementer(IBodyProducer)
class BytesProducer:
    """
    A request body that is in memory already: written at once.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """
        Write all of it.
        """
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """
        Nothing is left to pause.
        """

    def resumeProducing(self) -> None:
        """
        Nothing is left to resume.
        """

    def stopProducing(self) -> None:
        """
        Nothing is left to stop.
        """
