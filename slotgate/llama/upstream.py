"""
One server's data path: requests as the client sent them, answers as the server gives them.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote_to_bytes, urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.web.client import (
    URI,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseNeverReceived,
    _HTTP11ClientFactory,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate.config import Server
from slotgate.llama._attempt import Attempt, BytesProducer, OwnResponse
from slotgate.llama.causes import REQUEST_FAILURES, cause, was_cancelled
from slotgate.llama.endpoints import endpoint_for


class _QuietFactory(_HTTP11ClientFactory):
    """
    Twisted's factory of client connections, without two log lines for each of them.

    The name is private, but to set ``noisy`` on the class itself would reach every other user of
    it in a process that embeds slotgate.
    """

    noisy = False


class _Pool(HTTPConnectionPool):
    _factory = _QuietFactory


#: An idle connection is kept this long, in seconds. It must be less than the server's own limit
#: (5 s in cpp-httplib), else requests run into the server's closing.
IDLE_SECONDS = 2

#: Idle connections that are kept.
IDLE_CONNECTIONS = 8

#: Methods that may be sent twice.
_SAFE = frozenset((b"GET", b"HEAD", b"OPTIONS"))

#: One slash, then visible ASCII without a fragment, which cpp-httplib would cut off: the server
#: must see the path that the decision about the request was made on.
_TARGET = re.compile(rb"/(?!/)[!-\"$-~]*\Z")


class UpstreamError(Exception):
    """
    A server gave no answer; the message names the server and is fit for the client.
    """


class BadTarget(ValueError):
    """
    A request-target that is not sent to a server; the message is fit for the client.
    """


class UpstreamUnreachable(UpstreamError):
    """
    No connection, or it was lost before the head of an answer had come.

    :ivar sent: whether there was a connection, so that the server may have got the request.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class UpstreamSilent(UpstreamError):
    """
    The server took the request and said nothing for ``read_timeout_seconds``.
    """


@runtime_checkable
class Abortable(Protocol):
    """
    A response whose connection can be cut at once.
    """

    def abort(self) -> None:
        """
        Close the connection, with whatever was still to be sent or received.
        """


def check_target(target: bytes) -> None:
    """
    See that a server will read a request-target as we do.

    :raises BadTarget: for a target that is no absolute path, that would go out as another one, or
        that leaves the server's path with ``..``.
    """
    if not _TARGET.match(target):
        raise BadTarget("the request target is not a path")
    # Twisted takes URLs apart and drops a parameter that is empty: "/completion;" would reach the
    # server as a path that nobody decided about. Only an empty query says the same either way
    if URI.fromBytes(b"http://server" + target).originForm != target.removesuffix(b"?"):
        raise BadTarget("the request target has an empty parameter")
    if b".." in re.split(rb"[/\\]", unquote_to_bytes(target.partition(b"?")[0])):
        raise BadTarget("the path of the request has '..' in it")


class Upstream:
    """
    Requests to one server, over the configured endpoint and no other.

    GET, HEAD and OPTIONS without a body share kept connections, and go out again on a new
    connection when a kept one turns out to be closed. Everything else has a connection of its
    own, so that it is never sent twice and cannot meet the server closing an idle connection.

    :param reactor: a reactor with TCP and time.
    :raises ValueError: for a URL that is none, or a ``ca_file`` without certificates.
    """

    def __init__(self, reactor: Any, server: Server) -> None:
        url = urlsplit(server.url)
        self._reactor = reactor
        self._endpoint = endpoint_for(reactor, url, server.ca_file)
        authority = url.netloc.rpartition("@")[2]
        self._prefix = url.path.rstrip("/").encode("ascii")
        self._host = authority.encode("idna" if not authority.isascii() else "ascii")
        self._origin = b"%s://%s" % (url.scheme.encode(), self._host)
        self._name = f"server {server.name!r} at {url.scheme}://{authority}{url.path.rstrip('/')}"
        self._silence = server.read_timeout_seconds
        self._kept: Any = _Pool(reactor, persistent=True)
        self._kept.cachedConnectionTimeout = IDLE_SECONDS
        self._kept.maxPersistentPerHost = IDLE_CONNECTIONS
        self._kept.retryAutomatically = False  # see _request
        self._own: Any = _Pool(reactor, persistent=False)

    def request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        """
        Send a request.

        :param target: the client's request-target, as it came: path and query. Twisted drops a
            query that is empty (``/a?``).
        :param headers: what :func:`slotgate.web.headers.request_headers` left; Host and
            Content-Length are set here.
        :return: a Deferred that fires with the response as soon as its head has come, or fails
            with :class:`UpstreamUnreachable` or :class:`UpstreamSilent`. When it is cancelled,
            the connection is closed at once and it fails with :class:`CancelledError`. A response
            that nobody reads must go to :func:`drop`.
        :raises BadTarget: as :func:`check_target` says.
        """
        check_target(target)
        headers = headers.copy()
        headers.setRawHeaders(b"Host", [self._host])
        return Deferred.fromCoroutine(
            self._request(method, self._prefix + target, headers, body or None)
        )

    async def _request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> IResponse:
        repeatable = method in _SAFE and body is None
        producer = None if body is None else BytesProducer(body)
        url = self._origin + target
        for pool in (self._kept, self._own) if repeatable else (self._own,):
            attempt = Attempt(self._reactor, self._endpoint, self._silence)
            try:
                response = await attempt.send(pool, method, url, headers, producer)
            except REQUEST_FAILURES as error:
                if attempt.silent:
                    raise UpstreamSilent(
                        f"{self._name} has not answered for {self._silence:g} seconds"
                    ) from None
                if was_cancelled(error):
                    raise CancelledError from None
                lost = isinstance(error, ResponseNeverReceived | RequestTransmissionFailed)
                if lost and repeatable and not attempt.connecting:
                    continue
                raise UpstreamUnreachable(
                    f"{self._name} cannot be reached: {cause(error)}",
                    sent=attempt.sent,
                ) from error
            return response if repeatable else OwnResponse(response, attempt.connection)
        raise AssertionError("a request on a connection of its own has an outcome")

    def close(self) -> Deferred[None]:
        """
        Close the kept connections; the Deferred fires when they are closed.
        """
        closed: Deferred[None] = self._kept.closeCachedConnections()
        return closed


def drop(response: IResponse) -> None:
    """
    Close the connection of a response whose body nobody will read, or nobody any longer.
    """
    if isinstance(response, Abortable):
        response.abort()
    else:
        unread: Any = response
        unread.deliverBody(_Drop())


def cut(response: IResponse, transport: Any) -> None:
    """
    Close the connection of a response whose body is being read.

    :param transport: the reader's, ``None`` before it has one.
    """
    if isinstance(response, Abortable):
        response.abort()
    elif transport is not None:
        transport.loseConnection()


class _Drop(TwistedProtocol):
    """
    Reads nothing.
    """

    def connectionMade(self) -> None:
        """
        Close the connection, unless the body was complete already.
        """
        transport: Any = self.transport
        transport.loseConnection()
