"""
All slots of all servers, and which of them a route uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.config import Route
from slotgate.slots.slot import Slot

_log = Logger()


def _log_failure(failure: Failure) -> None:
    _log.failure("what a slot holds is not known", failure)


@frozen
class SlotPool:
    """The slots by server name and slot id."""

    _slots: Mapping[tuple[str, int], Slot]

    def for_route(self, route: Route) -> Slot | None:
        """
        The slot that a route's generations need; ``None`` where they need none.

        A route without cache still has to wait for a slot that another route's sessions use.
        """
        return self._slots.get((route.server, route.slots[0]))

    def named(self, server: str, name: str) -> Slot | None:
        """
        The slot that a client names in a path; ``None`` when the server has none of ours.

        llama-server does not check the number: ``0abc`` is 0, and 7 and -1 wrap around to a slot
        that exists. So every name that is not one of ours may mean one of ours.
        """
        ours = [slot for (owner, _), slot in self._slots.items() if owner == server]
        return next((slot for slot in ours if str(slot.id) == name), ours[0] if ours else None)

    def recall(self) -> None:
        """See what the slots still hold of what the slotgate before us left in them."""
        for slot in self:
            slot.recall().addErrback(_log_failure)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def stop(self) -> Deferred[None]:
        """
        Give out no more leases, end those that wait, and save what is not on disk.

        :returns: a Deferred that fires when every slot is through. Cancel it to stop waiting.
        """
        stopped = DeferredList([slot.stop() for slot in self], consumeErrors=True)
        return stopped.addCallback(lambda _: None)
