"""
The whole body of a response, of bounded size.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IResponse

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
            self.whole.errback(BodyLost("it says more than a control call has to say"))
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
