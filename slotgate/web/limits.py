"""
The HTTP server's side of the gateway: request bodies in memory, and only up to a size; what
browsers send for other pages is answered here too, before anybody looks at the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import NO_CONTENT
from twisted.web.http_headers import Headers
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from slotgate.surfaces.errors import error_body
from slotgate.web.errors import answer_error
from slotgate.web.origins import Origins, add_headers
from slotgate.web.rejected import Rejected
from slotgate.web.requests import is_looked_at, path_of

#: Idle connections, and those in the middle of a request, are closed after this, in seconds.
IDLE_SECONDS = 60

#: After a refusal, how much longer and how much more of the body is taken, so that a client that
#: reads only after it has sent everything finds the answer and not a reset connection.
LINGER_SECONDS = 5.0
LINGER_BYTES = 64 * 2**20

_log = Logger()


class LimitedRequest(Request):
    """
    A request whose body is kept in memory, and refused with 413 when it is larger than its
    site's ``max_body``: at once when the length is declared, else as soon as the limit is passed.
    """

    defaultContentType = None
    channel: Any
    transport: Any
    _refused = False
    _discarded = 0
    _linger: Any = None

    def gotLength(self, length: int | None) -> None:
        """
        The head is complete.

        :param length: the declared length of the body; ``None``: it comes in chunks.
        """
        self.content = self._body = BytesIO()
        self._max_body: int = self.channel.site.max_body
        # Twisted says it only once the body is complete, which a refused one never is.
        self.uri = getattr(self.channel, "_path", b"")
        if length is not None and length > self._max_body:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """
        A piece of the body.
        """
        if self._refused:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abortConnection()
            return
        if self._body.tell() + len(data) > self._max_body:
            self._refuse()
        else:
            self._body.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """
        The request is complete.
        """
        if self._refused:
            self.channel.loseConnection()
        else:
            super().requestReceived(command, path, version)

    def getRequestHostname(self) -> bytes:
        """
        No host: no answer depends on it, and Klein's router fails at some that clients send.
        """
        return b"slotgate"

    def render(self, resrc: IResource) -> None:
        """
        Answer it, in our name: Twisted has just put its own into the response.
        """
        self.responseHeaders.setRawHeaders(b"Server", [b"slotgate"])
        origins: Origins | None = self.channel.site.origins
        if origins is None or not self._answered(origins):
            super().render(resrc)

    def write(self, data: bytes) -> None:
        """
        Write a piece of the answer; with the first one go its headers.
        """
        if not self.startedWriting:
            # last of all, so that nothing of a server's answer takes their place
            add_headers(self.responseHeaders, self._cors())
        super().write(data)

    def connectionLost(self, reason: Failure) -> None:
        """
        The client's connection is lost.
        """
        if self._linger is not None and self._linger.active():
            self._linger.cancel()
        super().connectionLost(reason)

    def _answered(self, origins: Origins) -> bool:
        """Whether this was answered as what a browser sends for another page."""
        path = path_of(self)
        try:
            origins.check_host(self.host, self.requestHeaders)
            origins.check_origin(self.method, path, self.requestHeaders)
            told = origins.preflight(self.method, path, self.requestHeaders)
        except Rejected as error:
            self._count(error.status)
            _log.info("refused {client}: {error}", client=_shown(self.client), error=error.message)
            self.write(answer_error(self, error.status, error.message, error.headers))
            self.finish()
            return True
        if told is None:
            return False
        self.setResponseCode(NO_CONTENT)
        add_headers(self.responseHeaders, told)
        self.finish()
        return True

    def _cors(self) -> Mapping[str, str]:
        # no channel: the client has gone, and what is written goes nowhere
        origins: Origins | None = None if self.channel is None else self.channel.site.origins
        return {} if origins is None else origins.cors(path_of(self), self.requestHeaders)

    def _count(self, status: int) -> None:
        if not is_looked_at(path_of(self)):
            self.channel.site.rejected(status)

    def _refuse(self) -> None:
        self._refused = True
        self._count(413)
        self.content = self._body = BytesIO()
        # Without it Twisted would ask for the body with a 100 right after this answer.
        self.requestHeaders.removeHeader(b"Expect")
        self.channel.persistent = False
        message = f"the request body is larger than the limit of {self._max_body} bytes"
        body = error_body(413, message, path_of(self))
        headers = Headers(
            {
                b"Server": [b"slotgate"],
                b"Content-Type": [b"application/json; charset=utf-8"],
                b"Content-Length": [b"%d" % len(body)],
                b"Connection": [b"close"],
            }
        )
        add_headers(headers, self._cors())
        # Twisted writes an answer only to a request it has all of; nothing was written before.
        lines = [
            b"%b: %b\r\n" % (name, value)
            for name, values in headers.getAllRawHeaders()
            for value in values
        ]
        head = b"HTTP/1.1 413 Request Entity Too Large\r\n"
        self.channel.writeSequence((head, *lines, b"\r\n", body))
        reactor = self.channel.site.reactor
        self._linger = reactor.callLater(LINGER_SECONDS, self.transport.abortConnection)
        _log.info(
            "refused a request body of more than {max_body} bytes from {client}",
            max_body=self._max_body,
            client=_shown(self.client),
        )


def _shown(client: object) -> str:
    """Where a client is, for people."""
    host, port = getattr(client, "host", ""), getattr(client, "port", "")
    return f"{host} port {port}" if host else "a client of a Unix socket"


def _nobody(status: int) -> None:
    """Told where nobody counts."""


class _LimitedSite(Site):
    """
    A site without Twisted's access log, and without the timer that ticks for it.
    """

    max_body: int
    origins: Origins | None
    rejected: Callable[[int], None]
    noisy = False

    def startFactory(self) -> None:
        """
        Open no log.
        """

    def log(self, request: object) -> None:
        """
        Log nothing: the line about a request is written where its session is known.
        """


def limited_site(
    resource: IResource,
    reactor: IReactorTime,
    max_body: int,
    origins: Origins | None = None,
    rejected: Callable[[int], None] = _nobody,
) -> Site:
    """
    The factory of client connections.

    :param max_body: the largest request body, in bytes.
    :param origins: which hosts may be asked for, and which pages may read; ``None``: any host,
        and no page.
    :param rejected: is told of each request that is refused here, with the status of the answer.
    """
    site = _LimitedSite(
        resource,
        requestFactory=LimitedRequest,
        timeout=IDLE_SECONDS,
        reactor=reactor,
        parsePOSTFormSubmission=False,
    )
    site.max_body = max_body
    site.origins = origins
    site.rejected = rejected
    return site
