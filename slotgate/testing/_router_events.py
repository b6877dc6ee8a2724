"""
``GET /models/sse``: what becomes of the router's models, as it happens.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredQueue

from slotgate.testing._answers import event
from slotgate.testing._reply import Reply

STAGE = {"stages": ["text_model"], "current": "text_model"}


@define(eq=False)
class Events:
    """
    The open connections; whoever is not connected misses what happens.
    """

    _open: dict[Reply, DeferredQueue[bytes]] = field(factory=dict)

    def tell(self, model: str, name: str, data: dict[str, Any]) -> None:
        """
        Send an event to everybody.

        :param name: ``status_change`` or ``model_status``.
        """
        told = event({"model": model, "event": name, "data": data})
        for queue in list(self._open.values()):
            queue.put(told)

    def progress(self, model: str, value: float) -> None:
        """
        How far a model is loaded, from 0.0 to 1.0.
        """
        data = {"status": "loading", "progress": {**STAGE, "value": value}}
        self.tell(model, "status_change", data)

    def send(self, reply: Reply) -> Deferred[None]:
        """
        Serve a connection for as long as it lives; cancelled when its client goes.
        """
        return Deferred.fromCoroutine(self._send(reply))

    async def _send(self, reply: Reply) -> None:
        queue: DeferredQueue[bytes] = DeferredQueue()
        self._open[reply] = queue
        try:
            await reply.begin(200, "text/event-stream")
            reply.flush_headers()
            while True:
                await reply.write(await queue.get())
        finally:
            self._open.pop(reply, None)

    def drop(self) -> None:
        """
        Cut all connections.
        """
        replies, self._open = list(self._open), {}
        for reply in replies:
            if not reply.gone:
                reply.abort()
