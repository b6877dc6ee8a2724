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

#: How often slots are looked for that are to be saved, in seconds.
LOOK_SECONDS = 0.5


class IdleSaver(Service):
    """
    Saves what had no request for as long as its route's ``save_idle_seconds``.
    """

    _log = Logger()

    def __init__(self, slots: Iterable[Slot], clock: IReactorTime) -> None:
        self._slots = slots
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock
        self._ended: Deferred[LoopingCall] | None = None

    def startService(self) -> None:
        """Start to look."""
        super().startService()
        self._ended = self._loop.start(LOOK_SECONDS, now=False)

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
