"""
An answer of a model's server that goes through the router's proxy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.web.http import Request

from slotgate.testing._reply import JSON, Reply
from slotgate.testing.faults import Fault

READ = "Failed to read connection"
CONNECT = "Could not establish connection"


class Origin(Protocol):
    """
    Where the answer comes from.
    """

    def ended(self) -> Deferred[None]:
        """
        Wait until the process that was asked is gone.
        """


class ProxiedReply(Reply):
    """
    Tells a client that the model's server has gone as the router does: 500 and a text, or the text
    after what was sent, as if that were the end (b11434).

    :ivar landed: fires when the router is done with the request: it is answered, or its client has
        gone away and something could not be sent. What has not begun to answer goes on without it.
    """

    def __init__(
        self,
        request: Request,
        fault: Fault | None,
        die: Callable[[], None],
        origin: Origin,
        router_died: Callable[[], bool],
        *,
        behind: bool,
    ) -> None:
        """
        :param behind: whether the fault is that of the model's server, so that the router answers.
        """
        super().__init__(request, fault, die)
        self.landed: Deferred[None] = Deferred()
        self._begun = False
        self._origin = origin
        self._router_died = router_died
        self._behind = behind
        request.notifyFinish().addCallbacks(lambda _: self._land(), lambda _: self._left())

    def _land(self) -> None:
        if not self.landed.called:
            self.landed.callback(None)

    def _left(self) -> None:
        if self._begun:
            self._land()

    async def begin(self, status: int, content_type: str, length: int | None = None) -> None:
        await super().begin(status, content_type)  # the proxy passes no length on
        if self.gone:
            self._land()
        if not self._silent():
            self._proxy_headers()

    def _proxy_headers(self) -> None:
        self._begun = True
        self._request.setHeader("Connection", "close")
        self._request.setHeader("X-Accel-Buffering", "no")

    async def vanish(self) -> None:
        await self._origin.ended()
        if self._router_died():
            await super().vanish()
        else:
            self.proxy_error(READ)

    def cut(self) -> None:
        """
        The process is gone; what a fault holds back would not learn it otherwise.
        """
        if self._held is not None:
            self.proxy_error(READ)

    def proxy_error(self, what: str) -> None:
        """
        The router's own word for a connection to the model's server that failed.
        """
        if self._silent():
            return
        if not self._begun:
            self._request.setResponseCode(500)
            self._request.setHeader("Server", "llama.cpp")
            self._request.setHeader("Content-Type", JSON)
            self._proxy_headers()
        self._over = True
        self._request.write(f"proxy error: {what}".encode())
        self._request.finish()

    # a fault of the model's server reaches the client as an error of the proxy

    def raw(self, data: bytes) -> None:
        if self._behind:
            self.proxy_error(READ)
        else:
            super().raw(data)

    def close(self) -> None:
        if self._behind:
            self.proxy_error(READ)
        else:
            super().close()

    def abort(self) -> None:
        if self._behind and not self._router_died():
            self.proxy_error(READ)
        else:
            super().abort()

    def die(self) -> None:
        if self._behind:
            self._die()
            self.proxy_error(READ)
        else:
            super().die()
