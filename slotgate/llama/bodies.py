"""
The whole body of a response, of bounded size, and a response whose body is there already.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IClientRequest, IResponse
from zope.interface import implementer

from slotgate.llama.causes import cause
from slotgate.llama.upstream import cut


class BodyLost(Exception):
    """The body did not come to its end; the message says why."""


def body_of(response: IResponse, most: int) -> Deferred[bytes]:
    """
    The body of a response.

    treq's ``content`` leaves the connection open when it is cancelled, and knows no limit.

    :param most: more bytes are not taken.
    :returns: a Deferred that fires with the body, or fails with :class:`BodyLost`. Cancelled, it
        closes the connection.
    """
    body = _Body(response, most)
    response.deliverBody(body)
    return body.whole


class _Body(Protocol):
    def __init__(self, response: IResponse, most: int) -> None:
        self.whole: Deferred[bytes] = Deferred(lambda _: self._close())
        self._response = response
        self._left = most
        self._pieces: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0 and not self.whole.called:
            self.whole.errback(BodyLost("it says more than there is to say"))
            self._close()
        self._pieces.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._pieces))
        else:
            self.whole.errback(BodyLost(cause(reason.value or ResponseFailed([reason]))))

    def _close(self) -> None:
        self._pieces.clear()
        cut(self._response, self.transport)


@implementer(IResponse)
class Complete:
    """A response whose body has been read, for whoever reads it next."""

    def __init__(self, response: IResponse, body: bytes) -> None:
        self._body = body
        self.version: tuple[str, int, int] = response.version
        self.code: int = response.code
        self.phrase: str | bytes = response.phrase
        self.headers: Headers = response.headers
        self.length: int | object = len(body)
        self.request: IClientRequest = response.request
        self.previousResponse: IResponse | None = response.previousResponse

    def deliverBody(self, protocol: IProtocol) -> None:
        """
        As :class:`IResponse` says; all of it at once.
        """
        protocol.dataReceived(self._body)
        protocol.connectionLost(Failure(ResponseDone()))

    def setPreviousResponse(self, response: IResponse) -> None:
        """
        As :class:`IResponse` says.
        """
        self.previousResponse = response

    def abort(self) -> None:
        """
        There is no connection any more.
        """
