"""
All slots of all servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.slots.address import Address
from slotgate.slots.slot import Slot

_log = Logger()


def log_failure(failure: Failure) -> None:
    """End what nobody waits for."""
    _log.failure("what a slot holds is not known", failure)


@define(eq=False)
class SlotPool:
    """
    The slots by their address, made when they are first asked for.

    Invariant: there is one :class:`Slot` for each address, so one lock for each slot.
    """

    _make: Callable[[Address], Slot]
    _slots: dict[Address, Slot] = field(factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)

    @property
    def stopping(self) -> bool:
        """Whether no lease is given out any more."""
        return self._stopping

    def at(self, address: Address) -> Slot:
        """The slot of an address."""
        slot = self._slots.get(address)
        if slot is None:
            slot = self._slots[address] = self._make(address)
            if self._stopping:
                slot.stop().addErrback(log_failure)
        return slot

    def of_model(self, server: str, model: str) -> list[Slot]:
        """The slots of a model that were used so far."""
        return [
            slot
            for address, slot in self._slots.items()
            if (address.server, address.model) == (server, model)
        ]

    def drop(self, server: str, gone: Callable[[str], bool]) -> None:
        """
        Forget slots that there can not be: the server turned out to be something else.

        :param gone: of which models; an empty name: of a server with one model.
        """
        for address in list(self._slots):
            if address.server == server and gone(address.model):
                del self._slots[address]

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def stop(self) -> Deferred[None]:
        """
        Give out no more leases, end those that wait, and save what is not on disk.

        :returns: a Deferred that fires when every slot is through. Cancel it to stop waiting.
        """
        self._stopping = True
        stopped = DeferredList([slot.stop() for slot in self], consumeErrors=True)
        return stopped.addCallback(lambda _: None)
