"""
Ctrl-C, SIGTERM and a closed terminal: what was begun is brought to an end, nothing is left behind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from slotgate.shield import shield

_T = TypeVar("_T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: How long the end may take, in seconds; then it is as after a second signal.
END_SECONDS = 120.0
#: After so many seconds the person at the terminal is told what there is to wait for.
SILENT_SECONDS = 1.0

_WAITING = b"slotgate doctor: putting things back; once more ends it at once\n"


@define
class Loose:
    """What would be left as it should not be if the process ended now: sentences."""

    _sentences: dict[str, str] = field(factory=dict)

    def tie(self, what: str, sentence: str) -> None:
        """Something is out of place; the sentence says how to put it right."""
        self._sentences[what] = sentence

    def untie(self, what: str) -> None:
        """It is in its place again, or gone."""
        self._sentences.pop(what, None)

    @contextmanager
    def file(self, name: str) -> Iterator[None]:
        """A file of ours, for as long as nobody has looked after it."""
        self.tie(name, f"{name} may be in the folder of slot files, and can be deleted")
        yield
        # not where it was left by an exception
        self.untie(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._sentences.values()))


async def whole(work: Coroutine[Any, Any, _T]) -> _T:
    """
    Do something that is not to be left in the middle: a control call is carried out by the server
    whether somebody waits for it or not.

    :raises CancelledError: it was cancelled meanwhile, and has ended since.
    """
    doing: Deferred[_T] = Deferred.fromCoroutine(work)
    try:
        return await shield(doing)
    except CancelledError:
        await doing
        raise


@define
class Stopping:
    """
    The signals of a process that has something to put back.

    :ivar number: the first signal that came; 0: none did.
    """

    reactor: Any
    loose: Loose
    #: Keys that nobody may see.
    hidden: tuple[str, ...] = ()
    number: int = field(default=0, init=False)
    _work: Deferred[None] | None = field(default=None, init=False)
    _timers: list[IDelayedCall] = field(factory=list, init=False)

    def watch(self, work: Deferred[None]) -> None:
        """Cancel this work at the first signal; end the process at the second."""
        self._work = work
        for number in SIGNALS:
            # nohup, or a shell's background job
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._signalled)

    @property
    def status(self) -> int:
        """The exit status, as shells have it."""
        return 128 + self.number

    def over(self) -> None:
        """The work has ended."""
        timers, self._timers = self._timers, []
        for timer in timers:
            if timer.active():
                timer.cancel()
        if self.number:
            self._say()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            self._end_now()
        self.number = number
        # a handler runs between any two instructions: the work is the reactor's
        self.reactor.callFromThread(self._stop)

    def _stop(self) -> None:
        if self._work is None or self._work.called:
            return
        self._timers = [
            self.reactor.callLater(SILENT_SECONDS, _write, _WAITING),
            self.reactor.callLater(END_SECONDS, self._end_now),
        ]
        self._work.cancel()

    def _end_now(self) -> None:
        self._say()
        os._exit(self.status)

    def _say(self) -> None:
        left = "; ".join(self.loose)
        for key in self.hidden:
            left = left.replace(key, "***")
        name = signal.Signals(self.number).name
        text = f"slotgate doctor: ended by {name}; {left or 'all is as it was'}\n"
        _write(text.encode(errors="backslashreplace"))


def _write(line: bytes) -> None:
    # past Python's buffers, which the signal can have found in any state; a terminal that was
    # closed takes nothing
    with suppress(OSError):
        os.write(2, line)
