"""
One request to a server and its answer back to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime, ITCPTransport
from twisted.web.http import Request
from twisted.web.iweb import IRequest, IResponse

from slotgate.config import Server
from slotgate.llama.bodies import BodyLost, Complete, body_of
from slotgate.llama.calls import is_lost
from slotgate.llama.upstream import (
    Upstream,
    UpstreamError,
    UpstreamSilent,
    UpstreamUnreachable,
)
from slotgate.reloading import Settings
from slotgate.surfaces.translation import Translation
from slotgate.telemetry.events import Telemetry
from slotgate.web.headers import request_headers
from slotgate.web.relay import Ended, relay

#: Answers that are translated are in memory for that.
MOST_BYTES = 256 * 1024 * 1024

#: An error is some words.
_MOST_ERROR_BYTES = 1024 * 1024


class ModelLost(Exception):
    """
    A router lost the model before anything was written to the client.

    :ivar sent: whether the model may have got the request.
    """

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


@define(eq=False)
class Forward:
    """The way to the configured servers, and what is on it."""

    _upstreams: Mapping[str, Upstream]
    _clock: IReactorTime
    _settings: Settings
    _telemetry: Telemetry
    _running: set[IRequest] = field(factory=set, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)

    async def __call__(
        self,
        request: IRequest,
        server: Server,
        body: bytes,
        added: Mapping[str, str] | None = None,
        observe: Callable[[bytes], None] | None = None,
        begun: Callable[[bool], None] | None = None,
        *,
        target: bytes | None = None,
        resend: bool = False,
        translation: Translation | None = None,
    ) -> tuple[Ended, int]:
        """
        Relay a request and its response.

        :param added: headers for the response.
        :param observe: is called with each piece of the response's body.
        :param begun: is called when the answer begins, with whether it is a stream.
        :param target: what the server is asked for, where that is not what the client asked for.
        :param resend: the request may be sent another time.
        :param translation: what the client's surface makes of the answer.
        :returns: how it ended, and the status the server answered with.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        :raises ModelLost: a router lost the model's process, and the request may be sent again.
        """
        self._running.add(request)
        try:
            response = await self._upstreams[server.name].request(
                request.method,
                request.uri if target is None else target,
                request_headers(request.requestHeaders, server.api_key),
                body or None,
            )
            if resend and response.code in (400, 500):
                response = await self._unless_lost(response, server)
            streams = _is_stream(response)
            if begun is not None:
                begun(streams)
            rewriting = None
            if translation is not None:
                rewriting = translation.rewriting(response.code, streams)
                if rewriting is None and translation.takes_whole(response.code, streams):
                    await self._translate(request, response, server, added, observe, translation)
                    return Ended.COMPLETE, response.code
            ended = await relay(
                request,
                response,
                clock=self._clock,
                stall_seconds=self._settings.config.gateway.stall_seconds,
                silence_seconds=server.read_timeout_seconds,
                observe=observe,
                added=added,
                rewriting=rewriting,
            )
        except UpstreamError as error:
            kind = "silent" if isinstance(error, UpstreamSilent) else "unreachable"
            self._telemetry.failed(server.name, kind)
            raise
        finally:
            self._running.discard(request)
            if not self._running:
                waiting, self._waiting = self._waiting, []
                for deferred in waiting:
                    deferred.callback(None)
        return ended, response.code

    async def _translate(
        self,
        request: IRequest,
        response: IResponse,
        server: Server,
        added: Mapping[str, str] | None,
        observe: Callable[[bytes], None] | None,
        translation: Translation,
    ) -> None:
        """
        Answer with what a whole response becomes.

        :raises UpstreamError: it has no end.
        """
        body = await self._whole(response, server, MOST_BYTES)
        if observe is not None:
            observe(body)
        translated = translation.whole(response.code, body)
        answer: Any = request
        answer.setResponseCode(translated.status)
        for name, value in (added or {}).items():
            answer.setHeader(name, value)
        answer.setHeader(b"Content-Type", translated.content_type.encode())
        answer.setHeader(b"Content-Length", b"%d" % len(translated.body))
        answer.write(translated.body)

    async def _whole(self, response: IResponse, server: Server, most: int) -> bytes:
        """
        :raises UpstreamError: it has no end.
        """
        reading = body_of(response, most)
        reading.addTimeout(server.read_timeout_seconds, self._clock)
        try:
            return await reading
        except BodyLost as error:
            why = f"the server's answer broke off: {error}"
            raise UpstreamUnreachable(why, sent=True) from error
        except DeferredTimeout:
            raise UpstreamSilent("the server's answer has no end") from None

    async def _unless_lost(self, response: IResponse, server: Server) -> IResponse:
        """
        The same response, unless it says that a router lost the model's process.

        :raises ModelLost: it says so.
        :raises UpstreamError: it has no end.
        """
        body = await self._whole(response, server, _MOST_ERROR_BYTES)
        if is_lost(response.code, body):
            raise ModelLost(sent=True)
        return Complete(response, body)

    def idle(self) -> Deferred[None]:
        """
        A Deferred that fires when nothing is being relayed.
        """
        if not self._running:
            return succeed(None)
        self._waiting.append(Deferred(self._waiting.remove))
        return self._waiting[-1]

    def abort(self) -> None:
        """
        Cut the connections of the clients that are still being answered.
        """
        for request in list(self._running):
            transport = cast(Request, request).transport
            if transport is not None:
                cast(ITCPTransport, transport).abortConnection()


def _is_stream(response: IResponse) -> bool:
    kinds = response.headers.getRawHeaders(b"Content-Type", ())
    return any(kind.startswith(b"text/event-stream") for kind in kinds)
