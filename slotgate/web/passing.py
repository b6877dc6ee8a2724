"""
Requests that pass through: everything that is not a generation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import define
from twisted.web.iweb import IRequest

from slotgate.config import Server
from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.slots.choice import End, Want
from slotgate.slots.lease import QueueFull, Stopping
from slotgate.slots.pool import SlotPool
from slotgate.snapshots.names import OURS
from slotgate.web.clients import Clients
from slotgate.web.forward import Forward
from slotgate.web.rejected import Rejected
from slotgate.web.requests import body_of

#: Whoever asks whether the server lives needs no key, as with llama-server itself.
_PUBLIC = frozenset({"/health", "/v1/health"})


@define
class Passing:
    """Relays what uses no slot, as it is."""

    _settings: Settings
    _clients: Clients
    _pool: SlotPool
    _forward: Forward

    async def answer(self, request: IRequest, path: str) -> None:
        """
        Relay one request to the server of the model it names, else to the first route's.

        :raises Rejected: without a valid key.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        if path not in _PUBLIC:
            self._clients.owner(request.requestHeaders)
        body = body_of(request)
        await self._forward(request, self._server_for(_object(body) or {}), body)

    async def slot_call(self, request: IRequest, path: str) -> None:
        """
        Relay a client's own save, restore or erase, under a lease: only a lease touches a slot.

        Afterwards nobody knows what is in it, as the call leaves no mark.

        :raises Rejected: without a valid key, for a file of ours, or when the queue is full.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        owner = self._clients.owner(request.requestHeaders)
        body = body_of(request)
        fields = _object(body)
        if fields is None:
            # the server may read more in it than we do: a name of ours, for one
            raise Rejected(400, "the body of a slot call must be a JSON object, or empty")
        file = fields.get("filename")
        if isinstance(file, str) and OURS.match(file):
            raise Rejected(403, "this file is a snapshot of slotgate's")
        server = self._server_for(fields)
        slot = self._pool.named(server.name, path.removeprefix("/slots/"))
        if slot is None:
            await self._forward(request, server, body)
            return
        try:
            lease = await slot.lease(
                Want(None, owner.name if owner else None, self._clients.have_keys)
            )
        except (QueueFull, Stopping) as error:
            raise Rejected(503, f"{error or 'slotgate is stopping'}") from error
        try:
            await self._forward(request, server, body)
        finally:
            lease.release(End.TOUCHED)

    def _server_for(self, fields: Mapping[str, object]) -> Server:
        model = fields.get("model")
        config = self._settings.config
        found = route_for(config, model if isinstance(model, str) else None)
        route = config.routes[0] if found is None else found[0]
        return config.servers[route.server]


def _object(body: bytes) -> Mapping[str, object] | None:
    """The JSON object of a body, an empty one of an empty body; ``None``: it has none."""
    if not body:
        return {}
    if body.lstrip()[:1] != b"{":
        return None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
