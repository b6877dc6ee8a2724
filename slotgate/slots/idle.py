"""
Saving slots that nobody uses for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.application.service import Service
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

    def startService(self) -> None:
        """Start to look."""
        super().startService()
        self._loop.start(LOOK_SECONDS, now=False).addErrback(self._failed)

    def stopService(self) -> None:
        """Look no more. What is being saved now holds its slot's lock until it is saved."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def _look(self) -> None:
        # does not wait, so that one slot can not hold up the others
        for slot in self._slots:
            try:
                saving = slot.save_if_idle()
            except Exception:
                # a LoopingCall dies of its first error
                self._log.failure("an idle save failed")
                continue
            if saving is not None:
                saving.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("an idle save failed", failure)
