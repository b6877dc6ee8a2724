"""
What is seen of the servers, their disks and the snapshots, for everything that tells of now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from slotgate.slots.backend import Backend
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.snapshots.records import Use
from slotgate.web._looks import both, together
from slotgate.web.checks import Check, Checks


@frozen
class ServerSeen:
    """A server, its slots and its disk."""

    backend: Backend
    #: Whether it answers.
    health: Check
    slots: Sequence[Slot]
    #: Requests that wait for a slot or a model.
    waiting: int
    #: What is free on the disk of its folder; ``None``: that is not seen.
    free_bytes: int | None
    #: What is left free there.
    reserved_bytes: int


@frozen
class Seen:
    """All servers."""

    servers: Sequence[ServerSeen]
    #: What the snapshots take; ``None``: the index does not say.
    uses: Sequence[Use] | None


@frozen
class Seeing:
    """Looks at all servers at once; what does not answer in time is told as not seen."""

    _pool: SlotPool
    _backends: Mapping[str, Backend]
    _checks: Checks

    async def now(self) -> Seen:
        """What is seen now, after :data:`~slotgate.web._looks.WAIT_SECONDS` at the latest."""
        looks = together(self._server(backend) for backend in self._backends.values())
        servers, uses = await both(looks, self._checks.uses())
        return Seen(servers, uses)

    async def _server(self, backend: Backend) -> ServerSeen:
        name = backend.server.name
        health, free = await both(self._checks.server(name), self._checks.free_bytes(name))
        slots = [slot for slot in self._pool if slot.server == name]
        return ServerSeen(
            backend=backend,
            health=health,
            slots=slots,
            waiting=backend.admissions.waiting + sum(slot.waiting for slot in slots),
            free_bytes=free,
            reserved_bytes=int(backend.server.min_free_gib * 1024**3),
        )
