"""
All slots of all servers, and which of them a route uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredList

from slotgate.config import Route
from slotgate.slots.slot import Slot


@frozen
class SlotPool:
    """The slots by server name and slot id."""

    _slots: Mapping[tuple[str, int], Slot]

    def for_route(self, route: Route) -> Slot | None:
        """
        The slot that a route's generations need; ``None`` where they need none.

        A route without cache still has to wait for a slot that another route's sessions use.
        """
        return self.get(route.server, route.slots[0])

    def get(self, server: str, slot_id: int) -> Slot | None:
        """A slot by its place."""
        return self._slots.get((server, slot_id))

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def stop(self) -> Deferred[None]:
        """
        Give out no more leases, end those that wait, and save what is not on disk.

        :returns: a Deferred that fires when every slot is through. Cancel it to stop waiting.
        """
        stopped = DeferredList([slot.stop() for slot in self], consumeErrors=True)
        return stopped.addCallback(lambda _: None)
