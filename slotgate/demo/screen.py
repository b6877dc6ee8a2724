"""
The demo's lines on the terminal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall


class Screen:
    """
    Writes lines as they come, and dots while one waits.
    """

    def __init__(self, clock: IReactorTime, to: TextIO) -> None:
        self._clock = clock
        self._to = to

    def line(self, text: str = "") -> None:
        """
        Write a line at once, also into a pipe.
        """
        self._write(f"{text}\n")

    @asynccontextmanager
    async def waiting(self, text: str) -> AsyncIterator[None]:
        """
        Show that something goes on, a dot a second, and at its end how long it took.
        """
        started = self._clock.seconds()
        self._write(f"{text} ")
        dots = LoopingCall(self._write, ".")
        dots.clock = self._clock
        dots.start(1.0)
        end = " stopped"
        try:
            yield
            end = f" {self._clock.seconds() - started:.1f} s"
        finally:
            if dots.running:
                dots.stop()
            self.line(end)

    def _write(self, text: str) -> None:
        self._to.write(text)
        self._to.flush()
