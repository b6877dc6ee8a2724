"""
The control calls for the models of a router.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IResponse

from slotgate.llama.calls import Calls
from slotgate.llama.errors import ControlError, Junk, Refused, Unreachable, Unsupported
from slotgate.llama.models import (
    Change,
    Lines,
    Model,
    RouterProps,
    change_from,
    is_reload,
    models_from,
    router_from,
)
from slotgate.llama.upstream import UpstreamError, cut, drop


class Full(ControlError):
    """The router holds as many models as it may, and all of them are at work."""


class RouterControl(Protocol):
    """
    The control calls for a router's models; see
    :class:`~slotgate.llama.control.Control` for the errors.
    """

    async def router(self) -> RouterProps | None:
        """What the server is: a router, or (``None``) a server with one model."""

    async def models(self) -> tuple[Model, ...]:
        """The models, as they are now. Loads none, and wakes none."""

    async def load(self, model: str) -> None:
        """
        Begin to load a model; it is done when the status says so.

        :raises Full: only a model that works could make room.
        """

    async def unload(self, model: str) -> None:
        """Begin to unload a model, and with it its slots; a running request is cut."""

    def follow(
        self, opened: Callable[[], None], changed: Callable[[Change], None]
    ) -> Deferred[None]:
        """
        Hear of changes as they happen.

        :param opened: called when every later change will be heard of, and again when the models
            are others than before.
        :returns: a Deferred that fires with ``None`` when the server ended the stream, and fails
            with a :class:`~slotgate.llama.errors.ControlError` where there is none. Cancel it to
            hear no more.
        """


#: What a router answers when no model may be unloaded for another one (b11434).
_FULL = "model limit reached"


@define
class RouterClient:
    """The control side of a router."""

    _calls: Calls
    _log: Logger = field(factory=Logger, init=False)

    async def router(self) -> RouterProps | None:
        """As :class:`RouterControl` says."""
        return await self._calls.get("/props", router_from)

    async def models(self) -> tuple[Model, ...]:
        """As :class:`RouterControl` says."""
        return await self._calls.get("/models", models_from)

    async def load(self, model: str) -> None:
        """As :class:`RouterControl` says."""
        try:
            await self._calls.post("/models/load", {"model": model})
        except Refused as error:
            if _FULL in str(error):
                raise Full(str(error)) from error
            if error.status != 400:
                raise
            # "model is already running": somebody else was faster

    async def unload(self, model: str) -> None:
        """As :class:`RouterControl` says."""
        try:
            await self._calls.post("/models/unload", {"model": model})
        except Refused as error:
            if error.status != 400:
                raise
            # "model is not running": somebody else was faster

    def follow(
        self, opened: Callable[[], None], changed: Callable[[Change], None]
    ) -> Deferred[None]:
        """As :class:`RouterControl` says."""
        return Deferred.fromCoroutine(self._follow(opened, changed))

    async def _follow(self, opened: Callable[[], None], changed: Callable[[Change], None]) -> None:
        try:
            response = await self._calls.server_side.request(
                b"GET", b"/models/sse", self._calls.headers("text/event-stream"), None
            )
        except UpstreamError as error:
            raise Unreachable(str(error)) from error
        kinds = response.headers.getRawHeaders(b"Content-Type", [b""])
        streams = kinds[0].startswith(b"text/event-stream")
        if response.code != 200 or not streams:
            drop(response)
            if response.code in (200, 404, 501):
                raise Unsupported(f"/models/sse: {response.code}")
            raise Refused(response.code, f"/models/sse: {response.code}")
        stream = _Stream(response, opened, changed)
        response.deliverBody(stream)
        opened()
        await stream.ended


_check: type[RouterControl] = RouterClient


class _Stream(TwistedProtocol):
    """Reads events until the server or the listener has had enough."""

    def __init__(
        self,
        response: IResponse,
        opened: Callable[[], None],
        changed: Callable[[Change], None],
    ) -> None:
        self.ended: Deferred[None] = Deferred(lambda _: self._close())
        self._response = response
        self._opened = opened
        self._changed = changed
        self._lines = Lines()

    def dataReceived(self, data: bytes) -> None:
        if self.ended.called:
            return
        try:
            for event in self._lines.events(data):
                change = change_from(event)
                if change is not None:
                    self._changed(change)
                elif is_reload(event):
                    self._opened()
        except Junk as error:
            self.ended.errback(error)
            self._close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.ended.called:
            self.ended.callback(None)

    def _close(self) -> None:
        cut(self._response, cast(ITCPTransport, self.transport))
