"""
Saving slots that nobody uses for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.slots.slot import Slot

#: The looks at the clock between two saves, at the least and at the most, in seconds.
SHORTEST, LONGEST = 0.1, 1.0


class IdleSaver(Service):
    """
    Saves what had no request for as long as its route's ``save_idle_seconds``.

    :param shortest: the shortest ``save_idle_seconds`` of all routes; 0: none has one.
    """

    _log = Logger()

    def __init__(self, slots: Iterable[Slot], clock: IReactorTime, shortest: float) -> None:
        self._slots = slots
        self._seconds = min(max(shortest / 4, SHORTEST), LONGEST) if shortest else 0.0
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock
        self._ended: Deferred[LoopingCall] | None = None

    def startService(self) -> None:
        """Start to look."""
        super().startService()
        if self._seconds:
            self._ended = self._loop.start(self._seconds, now=False)

    def stopService(self) -> Deferred[None] | None:
        """
        Look no more.

        :returns: a Deferred that fires when what is being saved now is saved.
        """
        super().stopService()
        if self._ended is None:
            return None
        ended, self._ended = self._ended, None
        self._loop.stop()
        return ended.addCallback(lambda _: None)

    def _look(self) -> Deferred[None]:
        # a LoopingCall dies of its first error, so nothing may come out of here
        saving = [slot.save_if_idle() for slot in self._slots]
        begun = [deferred for deferred in saving if deferred is not None]
        for deferred in begun:
            deferred.addErrback(self._failed)
        return DeferredList(begun).addCallback(lambda _: None)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("an idle save failed", failure)
