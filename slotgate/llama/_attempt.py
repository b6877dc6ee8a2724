"""
One attempt at a request to a server, and the parts that the agent needs for it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer, IProtocol, IProtocolFactory
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IClientRequest, IResponse
from zope.interface import implementer

# Not annotated in Twisted.
_Agent: Any = Agent


@implementer(IAgentEndpointFactory)
class Attempt:
    """
    One attempt at a request. To the agent it is the endpoint, the pool and the connection, so
    that we know which connection was used, whether it is a new one, and when it was there.

    :ivar connected: a new connection was asked for, no kept one used.
    :ivar silent: the server has said nothing for too long.
    :ivar connection: the agent's protocol, once there is one.

    :param target: what goes into the request line.
    :param silence: how long the server may say nothing, in seconds, from the moment there is a
        connection.
    """

    connected = False
    silent = False
    connection: Any = None
    _timer: Any = None
    _answer: Deferred[IResponse]

    def __init__(
        self, reactor: Any, endpoint: Any, pool: HTTPConnectionPool, target: bytes, silence: float
    ) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._pool = pool
        self._target = target
        self._silence = silence
        self.persistent = pool.persistent

    async def send(
        self, method: bytes, origin: bytes, headers: Headers, producer: IBodyProducer | None
    ) -> IResponse:
        """
        Send the request and wait for the head of the answer.

        :param origin: scheme and authority of the server; the agent sees no more of the URL.
        """
        agent = _Agent.usingEndpointFactory(self._reactor, self, pool=self)
        self._answer = agent.request(method, origin, headers, producer)
        try:
            return await self._answer
        finally:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()

    def endpointForURI(self, uri: object) -> Any:
        """
        The configured endpoint, whatever the URI.
        """
        return self

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """
        Make a connection, as :class:`IStreamClientEndpoint` says.
        """
        self.connected = True
        made: Deferred[Any] = self._endpoint.connect(factory)
        return made

    def getConnection(self, key: Any, endpoint: Any) -> Deferred[Any]:
        """
        A connection from the pool, as :class:`HTTPConnectionPool` says.
        """
        return self._pool.getConnection(key, endpoint).addCallback(self._got)

    def _got(self, connection: Any) -> Attempt:
        self.connection = connection
        self._timer = self._reactor.callLater(self._silence, self._give_up)
        return self

    def request(self, request: Any) -> Deferred[IResponse]:
        """
        Send the request over the connection, with the target's own bytes: the agent takes URLs
        apart and drops an empty query or parameter on the way.
        """
        request.uri = self._target
        sent: Deferred[IResponse] = self.connection.request(request)
        return sent

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
