"""
One answer of the fake server on its way to the client, with the fault planned for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.http import Request

from slotgate.testing._answers import Asked, LlamaError, Surface, encode
from slotgate.testing._engine import Progress
from slotgate.testing.faults import Fault

JSON = "application/json; charset=utf-8"


class Reply:
    """
    Writes an answer, byte by byte where a fault wants to strike in between.

    :ivar gone: whether the client has gone away.
    """

    def __init__(self, request: Request, fault: Fault | None, die: Callable[[], None]) -> None:
        self.gone = False
        self.fault = fault
        self._request = request
        self._die = die
        self._sent = 0
        self._over = False
        self._closing = False
        self._held: Deferred[None] | None = None
        request.notifyFinish().addErrback(self._lost)

    def _lost(self, reason: Failure) -> None:
        self.gone = True
        if self._held is not None:
            held, self._held = self._held, None
            held.callback(None)

    # what the server says

    async def json(self, value: object, status: int = 200) -> None:
        await self.answer(status, JSON, encode(value))

    async def answer(self, status: int, content_type: str, body: bytes) -> None:
        await self.begin(status, content_type, len(body))
        await self.write(body)

    async def begin(self, status: int, content_type: str, length: int | None = None) -> None:
        fault = self.fault
        if fault is not None and fault.after is None:
            self.fault = None
            await fault.strike(self)
        if self._silent():
            return
        self._request.setResponseCode(status)
        self._request.setHeader("Server", "llama.cpp")
        self._request.setHeader("Keep-Alive", "timeout=5, max=100")
        self._request.setHeader("Content-Type", content_type)
        if length is not None:
            self._request.setHeader("Content-Length", str(length))

    def flush_headers(self) -> None:
        if not self._silent():
            self._request.write(b"")

    async def write(self, data: bytes) -> None:
        fault = self.fault
        if fault is not None and fault.after is not None and not self._silent():
            allowed = fault.after - self._sent
            if len(data) >= allowed:
                self.fault = None
                self.flush_headers()
                self._send(data[:allowed])
                data = data[allowed:]
                await fault.strike(self)
        self._send(data)

    def _send(self, data: bytes) -> None:
        if data and not self._silent():
            self._sent += len(data)
            self._request.write(data)

    def _silent(self) -> bool:
        return self._over or self.gone

    async def error(self, error: LlamaError) -> None:
        await self.answer(error.status, JSON, error.body())

    async def vanish(self) -> None:
        """
        The server is gone: so is the connection.
        """
        if not self.gone:
            self.abort()
        await self.settled()

    async def settled(self) -> None:
        """
        Go no further on a connection that is closed or closing: nothing may be written to it. Klein
        cancels what waits here.
        """
        if self._closing or self.gone:
            await Deferred[None]()

    def finish(self) -> None:
        """
        The answer is complete.
        """
        if not self._silent():
            self._request.finish()

    # what a fault does, see faults.Wire

    def end(self) -> None:
        self._over = True
        self._request.responseHeaders.removeHeader("Content-Length")
        self._request.finish()

    def raw(self, data: bytes) -> None:
        self._over = self._closing = True
        self._transport().write(data)
        self._transport().loseConnection()

    def close(self) -> None:
        self._over = self._closing = True
        self._transport().loseConnection()

    def abort(self) -> None:
        self._over = self._closing = True
        self._transport().abortConnection()

    def die(self) -> None:
        self._over = self._closing = True
        self._die()

    async def hold(self, released: Deferred[None]) -> None:
        if self.gone:
            return
        self._held = held = Deferred[None]()

        def go_on(result: None) -> None:
            if not held.called:
                self._held = None
                held.callback(None)

        released.addCallback(go_on)
        await held

    def _transport(self) -> Any:
        return self._request.channel.transport


class Teller:
    """
    Tells a client how its job goes, in one piece or as events.
    """

    def __init__(self, reply: Reply, surface: Surface, asked: Asked, stream: bool) -> None:
        self._reply = reply
        self._surface = surface
        self._asked = asked
        self._stream = stream

    @property
    def gone(self) -> bool:
        return self._reply.gone

    async def begun(self) -> None:
        # the headers of a stream come before its prompt is read
        if self._stream:
            await self._reply.begin(200, "text/event-stream")
            self._reply.flush_headers()

    async def started(self, progress: Progress) -> None:
        if self._stream:
            await self._events(self._surface.opening(self._asked, progress))

    async def wrote(self, progress: Progress, text: str) -> None:
        if self._stream:
            await self._events(self._surface.token(self._asked, progress, text))

    async def finished(self, progress: Progress) -> None:
        if self._stream:
            await self._events(self._surface.closing(self._asked, progress))
        else:
            await self._reply.json(self._surface.whole(self._asked, progress))

    async def _events(self, events: Iterable[bytes]) -> None:
        for data in events:
            await self._reply.write(data)
