"""
The clients' connections, closed in an orderly way when the gateway stops.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory


class Connections(WrappingFactory):
    """
    Knows the connections of a site, those included that only wait for their last bytes to be
    read, or for another request.
    """

    noisy = False

    def __init__(self, site: Any) -> None:
        super().__init__(site)
        self._closed: Deferred[None] | None = None

    def close(self) -> Deferred[None]:
        """
        Close every connection once what was written to it has been taken.

        :returns: a Deferred that fires when none is left. Cancel it to wait no longer.
        """
        if not self.protocols:
            return succeed(None)
        self._closed = Deferred()
        for connection in list(self.protocols):
            connection.loseConnection()
        return self._closed

    def abort(self) -> None:
        """Cut what is left."""
        for connection in list(self.protocols):
            connection.abortConnection()

    def unregisterProtocol(self, p: ProtocolWrapper) -> None:
        """A connection is gone."""
        super().unregisterProtocol(p)
        closed = self._closed
        if closed is not None and not self.protocols and not closed.called:
            closed.callback(None)
