"""
The way back: a server's answer to the client that asked, byte for byte, no faster than the client
reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import NO_BODY_CODES, PotentialDataLoss
from twisted.web.iweb import UNKNOWN_LENGTH, IRequest, IResponse
from zope.interface import implementer

from slotgate.llama.causes import cause
from slotgate.llama.upstream import cut, drop
from slotgate.surfaces.translation import Rewriting
from slotgate.web._unsent import unsent
from slotgate.web.headers import response_headers

_log = Logger()


class Ended(Enum):
    """
    How a relayed answer ended.
    """

    #: All of it was handed to the client's connection.
    COMPLETE = "complete"
    #: The server broke off or fell silent; the client's connection was aborted.
    UPSTREAM_FAILED = "upstream failed"
    #: The client closed its connection; the server's was closed at once.
    CLIENT_GONE = "client gone"
    #: The client did not read; both connections were aborted.
    CLIENT_STALLED = "client stalled"


def relay(
    request: IRequest,
    response: IResponse,
    *,
    clock: IReactorTime,
    stall_seconds: float,
    silence_seconds: float,
    observe: Callable[[bytes], None] | None = None,
    added: Mapping[str, str] | None = None,
    rewriting: Rewriting | None = None,
) -> Deferred[Ended]:
    """
    Send a server's response to the client. The head goes out at once.

    The Deferred fires when there is nothing left to do. :meth:`IRequest.finish` is not called:
    after ``COMPLETE`` the caller ends the request (Klein does when the handler returns), after
    the others the connection is gone already and Klein writes nothing more. When it is cancelled,
    as Klein does for a client that has gone, both connections are closed at once and it fails
    with :class:`CancelledError`; a relay that was just being aborted still fires with its reason.
    To end a relay from outside, abort the client's connection and let that cancel it: a cancelled
    handler whose client is still there is answered by Klein.

    An answer without length or chunks ends where the server closes its connection, so for that
    one a broken connection cannot be told from the end.

    :param stall_seconds: a client that takes none of the waiting bytes for this long is cut.
    :param silence_seconds: a server that sends nothing for this long has failed; time in which
        the client does not read is not counted.
    :param observe: is called with each piece of the body after it was written. What it raises is
        logged once and then it is left alone.
    :param added: headers to set in the response.
    :param rewriting: makes the client's answer of the server's. It has words for a server that
        broke off, so that the client's answer then ends as it should.
    """
    client: Any = request
    if getattr(client, "channel", None) is None:
        drop(response)
        return succeed(Ended.CLIENT_GONE)
    _write_head(client, response, added or {}, rewriting)
    pump = _Pump(client, response, clock, stall_seconds, silence_seconds, observe, rewriting)
    client.registerProducer(pump, True)
    client.notifyFinish().addErrback(pump.client_lost)
    cast(Any, response).deliverBody(pump)
    return pump.ended


def _write_head(
    request: Any, response: IResponse, added: Mapping[str, str], rewriting: Rewriting | None
) -> None:
    request.setResponseCode(response.code, response.phrase or None)
    headers = request.responseHeaders
    for name, values in response_headers(response.headers).getAllRawHeaders():
        headers.setRawHeaders(name, list(values))
    for text, value in added.items():
        headers.setRawHeaders(text, [value])
    # Twisted keeps the length apart from the headers, except in the answer to HEAD.
    if rewriting is not None:
        headers.setRawHeaders("Content-Type", [rewriting.content_type])
        headers.removeHeader("Content-Length")
    has_body = request.method != b"HEAD" and response.code not in NO_BODY_CODES
    if has_body and rewriting is None and response.length is not UNKNOWN_LENGTH:
        headers.setRawHeaders(b"Content-Length", [b"%d" % response.length])
    request.write(b"")


@implementer(IPushProducer)
class _Pump(Protocol):
    """
    Reads the response's body and writes it to the request; the request pauses it.

    It is running until ``_outcome`` is set, and from then on writes and reads nothing. After an
    abort the Deferred waits for the client's connection to be really lost, one turn of the
    reactor later: Klein ends a request whose handler has returned, and to a connection that is
    not lost yet that would be a clean end, with pipelined requests started behind it.
    """

    _outcome: Ended | None = None
    #: Since when the client has taken nothing; None while it keeps up.
    _stalled: float | None = None
    _unsent: int | None = None

    def __init__(
        self,
        request: Any,
        response: IResponse,
        clock: IReactorTime,
        stall_seconds: float,
        silence_seconds: float,
        observe: Callable[[bytes], None] | None,
        rewriting: Rewriting | None,
    ) -> None:
        self.ended: Deferred[Ended] = Deferred(self._cancelled)
        self._request = request
        self._response = response
        self._seconds = clock.seconds
        self._stall_seconds = stall_seconds
        self._silence_seconds = silence_seconds
        self._observe = observe
        self._rewriting = rewriting
        self._heard = clock.seconds()
        # One timer for both limits, touched by no piece of the body: it looks at the time of the
        # last one. A limit is noticed at most a quarter late.
        self._clock = clock
        self._period = min(stall_seconds, silence_seconds) / 8
        self._timer = clock.callLater(self._period, self._tick)

    # The server's side.

    def dataReceived(self, data: bytes) -> None:
        """
        A piece of the body. Some still come after a pause.
        """
        if self._outcome is not None:
            return
        self._heard = self._seconds()
        written = data if self._rewriting is None else self._rewriting.feed(data)
        if written:
            self._request.write(written)
        if self._observe is not None:
            try:
                self._observe(data)
            except Exception:
                self._observe = None
                _log.failure("the observer of a relayed answer failed")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        The end of the body, or of the server.
        """
        if self._outcome is not None:
            return
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self._finish(Ended.COMPLETE)
        else:
            self._fail(cause(reason.value or ConnectionLost()))

    def _fail(self, why: str) -> None:
        _log.warn(
            "the server's answer to {path!r} broke off after {sent} bytes: {why}",
            path=self._request.path,
            sent=self._request.sentLength,
            why=why,
        )
        if self._rewriting is None:
            self._abort(Ended.UPSTREAM_FAILED)
        else:
            self._finish(Ended.UPSTREAM_FAILED, why)
            cut(self._response, self.transport)

    def _finish(self, outcome: Ended, why: str = "") -> None:
        self._stop(outcome)
        if self._rewriting is not None and (last := self._rewriting.end(why)):
            self._request.write(last)
        self._request.unregisterProducer()
        self.ended.callback(outcome)

    # The client's side.

    def pauseProducing(self) -> None:
        """
        The client's connection is full. Called for every piece written while it is.
        """
        if self._stalled is None:
            self._stalled = self._seconds()
        if self.transport is not None:
            # Every time: Twisted resumes the transport once after the first pieces.
            cast(Any, self.transport).pauseProducing()

    def resumeProducing(self) -> None:
        """
        The client's connection has taken all of it.
        """
        self._stalled = self._unsent = None
        self._heard = self._seconds()
        if self.transport is not None:
            cast(Any, self.transport).resumeProducing()

    def stopProducing(self) -> None:
        """
        The client's connection is being lost; :meth:`client_lost` follows.
        """
        if self._outcome is None:
            self._stop(Ended.CLIENT_GONE)
            cut(self._response, self.transport)

    def client_lost(self, reason: Failure) -> None:
        """
        The client's connection is lost.
        """
        self.stopProducing()
        if not self.ended.called:
            self.ended.callback(self._outcome or Ended.CLIENT_GONE)

    # Both.

    def _tick(self) -> None:
        now = self._seconds()
        if self._stalled is not None:
            left = unsent(self._request.transport)
            if left != self._unsent:
                self._unsent = left
                self._stalled = now
            elif now - self._stalled >= self._stall_seconds:
                _log.warn(
                    "a client has not read for {seconds:g} seconds, cut",
                    seconds=now - self._stalled,
                )
                self._abort(Ended.CLIENT_STALLED)
                return
        elif now - self._heard >= self._silence_seconds:
            self._fail(f"silent for {now - self._heard:g} seconds")
            return
        self._timer = self._clock.callLater(self._period, self._tick)

    def _cancelled(self, ended: Deferred[Ended]) -> None:
        if self._outcome is None:
            self._abort(Ended.CLIENT_GONE)
        elif self._outcome is not Ended.CLIENT_GONE:
            ended.callback(self._outcome)

    def _abort(self, outcome: Ended) -> None:
        self._stop(outcome)
        if self._request.channel is not None:
            self._request.unregisterProducer()
            self._request.transport.abortConnection()
        cut(self._response, self.transport)

    def _stop(self, outcome: Ended) -> None:
        self._outcome = outcome
        self._observe = None
        if self._timer.active():
            self._timer.cancel()
