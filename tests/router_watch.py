"""
Listening to a router's ``/models/sse``.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure


class Watch(Protocol):
    """
    Somebody who listens to ``/models/sse``.

    :ivar text: all that came.
    :ivar ended: fires when the router ends it.
    """

    def __init__(self) -> None:
        self.text = b""
        self.ended: Deferred[None] = Deferred()
        self._more: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.text += data
        more, self._more = self._more, Deferred()
        more.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.ended.called:
            self.ended.callback(None)

    def events(self) -> list[dict[str, Any]]:
        """
        What it was told, in order.
        """
        *whole, _ = self.text.split(b"\n\n")
        return [json.loads(event.removeprefix(b"data: ")) for event in whole]

    def statuses(self, model: str = "") -> list[str]:
        """
        Those of a model, or ``<model> <status>`` of all, each once where it comes more in a row.
        """
        told = [
            event["data"]["status"] if model else f"{event['model']} {event['data']['status']}"
            for event in self.events()
            if model in ("", event["model"])
        ]
        return told[:1] + [new for old, new in pairwise(told) if old != new]

    async def until(self, model: str, status: str) -> dict[str, Any]:
        """
        Wait until the newest event of a model is this status, and give that event.
        """
        while True:
            mine = [event for event in self.events() if event["model"] == model]
            if mine and mine[-1]["data"]["status"] == status:
                return mine[-1]
            await self._more
