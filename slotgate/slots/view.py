"""
Looking at a slot: what the server shows of it, and waiting until it shows what we wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from slotgate.llama.control import Control
from slotgate.llama.errors import ControlError, Loading, Unsupported
from slotgate.llama.wire import SlotStatus

#: The longest wait for a slot that somebody else keeps busy, in seconds.
IDLE_WAIT_SECONDS = 3600.0
#: The first pause between two looks at a busy slot; it doubles up to the server's poll_seconds.
FIRST_POLL_SECONDS = 0.02


class StillBusy(ControlError):
    """The slot did not become idle in time; no control call was sent."""


@define(eq=False)
class View:
    """Looks at one slot. Every look wakes a server that sleeps."""

    #: For people: the server and the slot.
    name: str
    _slot_id: int
    _control: Control
    _clock: IReactorTime
    _poll_seconds: float
    #: How long a request waits for a server that loads its model.
    _load_wait_seconds: float
    #: The server does not show its slots.
    blind: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def look(self) -> SlotStatus | None:
        """
        The slot now; ``None`` where the server does not show its slots.

        :raises ControlError: no answer that says anything.
        """
        try:
            return await self._control.slot(self._slot_id)
        except Unsupported as error:
            if not self.blind:
                self.blind = True
                self._log.warn(
                    "{slot}: the server does not show its slots ({error}); start it with"
                    " --slots, so that another client's use of them can be noticed",
                    slot=self.name,
                    error=error,
                )
            return None

    async def idle(self) -> SlotStatus | None:
        """
        Wait until the slot is idle.

        A control call for a busy slot is parked by the server, and only one parked call is
        released each time a request ends: another client's request behind it could wait for good.

        :raises StillBusy: it was busy for :data:`IDLE_WAIT_SECONDS`.
        :raises ControlError: no answer that says anything.
        """
        began, pause = self._clock.seconds(), FIRST_POLL_SECONDS
        while (status := await self.look()) is not None and status.busy:
            if self._clock.seconds() - began > IDLE_WAIT_SECONDS:
                raise StillBusy(f"it was busy for {IDLE_WAIT_SECONDS:g} s")
            await deferLater(self._clock, min(pause, self._poll_seconds))
            pause *= 2
        return status

    async def loaded(self, given_up: Callable[[], bool]) -> SlotStatus | None:
        """
        Wait until the server has loaded its model; it answers 503 to everything until then.

        :param given_up: whether nobody waits any longer.
        :raises Loading: it took longer than ``load_wait_seconds``, or nobody waits any longer.
        :raises ControlError: no answer that says anything.
        """
        began, told = self._clock.seconds(), False
        while True:
            try:
                return await self.look()
            except Loading as error:
                waited = self._clock.seconds() - began
                if not told:
                    told = True
                    self._log.info("{slot}: waiting: {error}", slot=self.name, error=error)
                if waited >= self._load_wait_seconds or given_up():
                    raise
            await deferLater(self._clock, self._poll_seconds)

    async def asleep(self) -> bool:
        """
        Whether the server sleeps, asked so that it goes on sleeping.

        :raises ControlError: no answer that says anything.
        """
        return (await self._control.props()).sleeping

    def lost(self) -> None:
        """Contact was lost: who answers next may be another server."""
        self.blind = False
