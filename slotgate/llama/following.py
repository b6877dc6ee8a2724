"""
Keeping a tracker up to date: the router's events, and looks where there are none.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.errors import ControlError, Junk, Unsupported, nobody_there
from slotgate.llama.router import RouterControl
from slotgate.llama.tracker import Tracker

#: The longest pause before events are asked for again, and the pause between two looks while
#: they are heard: they tell everything, unless a connection died without a sign.
LONGEST_PAUSE_SECONDS = 30.0


class Following(Service):
    """Follows the models of one router while it runs."""

    _log = Logger()

    def __init__(
        self,
        name: str,
        control: RouterControl,
        tracker: Tracker,
        clock: IReactorTime,
        poll_seconds: float,
        lost: Callable[[], None],
    ) -> None:
        """
        :param name: the server's, for people.
        :param lost: called when what answers may be something else than before.
        """
        self._lost = lost
        self._name = name
        self._control = control
        self._tracker = tracker
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._loops: list[Deferred[None]] = []
        self._stream: Deferred[None] | None = None
        self._told = False
        #: When the models were looked at last.
        self._looked = 0.0

    def startService(self) -> None:
        """Begin to follow."""
        super().startService()
        for loop in (self._events(), self._looks()):
            self._loops.append(Deferred.fromCoroutine(loop).addErrback(self._ended))

    def stopService(self) -> None:
        """Follow no more."""
        super().stopService()
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        self._tracker.live = False

    async def _events(self) -> None:
        pause = self._poll_seconds
        while True:
            try:
                self._stream = self._control.follow(self._opened, self._tracker.told)
                await self._stream
            except CancelledError:
                if not self.running:
                    raise
            except Unsupported as error:
                pause = LONGEST_PAUSE_SECONDS
                self._no_events(error)
            except ControlError as error:
                self._log.debug("{server}: no events: {error}", server=self._name, error=error)
            except Exception:
                self._log.failure("{server}: its events failed", server=self._name)
            if self._tracker.live:
                # somebody else may listen there by now
                self._lost()
                self._tracker.live = False
                pause = self._poll_seconds
            await deferLater(self._clock, pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _no_events(self, error: Unsupported) -> None:
        if not self._told:
            self._told = True
            self._log.info(
                "{server}: no events ({error}); its models are looked at every {seconds:g} s",
                server=self._name,
                error=error,
                seconds=self._poll_seconds,
            )

    def _opened(self) -> None:
        self._tracker.live = True
        # what happened before that is not told
        Deferred.fromCoroutine(self._look()).addErrback(self._ended)

    async def _looks(self) -> None:
        pause = self._poll_seconds
        while True:
            await deferLater(self._clock, pause)
            if self._tracker.live and self._clock.seconds() < self._looked + LONGEST_PAUSE_SECONDS:
                continue
            reached = await self._look()
            pause = self._poll_seconds if reached else min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _look(self) -> bool:
        self._looked = self._clock.seconds()
        try:
            await self._tracker.look()
        except ControlError as error:
            self._log.debug("{server}: {error}", server=self._name, error=error)
            if isinstance(error, Junk):
                self._lost()
            if nobody_there(error) and self._tracker.live and self._stream is not None:
                # a connection can die without a sign. One that answers late is only busy, and an
                # event stream is what tells most then
                self._stream.cancel()
            return False
        except CancelledError:
            if not self.running:
                raise
            return False
        except Exception:
            # a loop that ends would leave us with what is known now
            self._log.failure("{server}: a look at its models failed", server=self._name)
            return False
        return True

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("{server}: its models are not followed", failure, server=self._name)
