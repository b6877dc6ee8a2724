"""
A terminal taken over for a while: a screen of its own, keys as they are pressed.
"""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from slotgate.commands.output import OutputFailed
from slotgate.plain import tolerant

#: The exit status when the terminal went away, as shells have it for SIGHUP.
HUNG_UP = 129

# xterm's control sequences: the other screen, and the cursor
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


@implementer(IReadDescriptor)
class _Keys:
    """What is typed, for the reactor to read."""

    def __init__(self, number: int, pressed: Callable[[bytes], None]) -> None:
        self._number = number
        self._pressed = pressed

    def fileno(self) -> int:
        """The terminal."""
        return self._number

    def doRead(self) -> None:
        """Something was typed; nothing: the terminal is gone."""
        try:
            typed = os.read(self._number, 1024)
        except OSError:
            typed = b""
        self._pressed(typed)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def logPrefix(self) -> str:
        """For the log."""
        return "terminal"


class Terminal:
    """
    The terminal that a program was started from.

    Whoever opens it closes it, whatever happens between: without that the person's shell shows
    nothing that is typed.
    """

    def __init__(self, keys: TextIO, screen: TextIO) -> None:
        self._number = keys.fileno()
        self._screen = screen
        tolerant(screen)
        self._before: list[Any] | None = None

    def open(self) -> None:
        """Take it over."""
        self._before = termios.tcgetattr(self._number)
        tty.setcbreak(self._number)
        mode = termios.tcgetattr(self._number)
        # Ctrl-C is a key as others are: the end of the program is in order then
        mode[3] &= ~termios.ISIG
        termios.tcsetattr(self._number, termios.TCSADRAIN, mode)
        self._write(_ENTER)

    def close(self) -> None:
        """Leave it as it was, once; a terminal that is gone needs nothing."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(OutputFailed):
            self._write(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._number, termios.TCSADRAIN, before)

    def on_key(self, reactor: Any, pressed: Callable[[bytes], None]) -> Callable[[], None]:
        """
        Call with what is typed, with nothing once the terminal is gone.

        :returns: what ends that.
        """
        keys = _Keys(self._number, pressed)
        reactor.addReader(keys)
        return lambda: reactor.removeReader(keys)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, now."""
        try:
            width, height = os.get_terminal_size(self._screen.fileno())
        except OSError:
            return 80, 24
        # 0: a terminal that does not know
        return width or 80, height or 24

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines and nothing else; they must fit."""
        text = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in lines).removesuffix("\r\n")
        self._write(f"{_HOME}{text}{_REST_OF_SCREEN}")

    def _write(self, text: str) -> None:
        try:
            self._screen.write(text)
            self._screen.flush()
        except OSError as error:
            # it was closed; nobody is there to be told
            raise OutputFailed("", HUNG_UP) from error
