"""
What a command prints, whoever reads it, and its exit status when nobody can.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from slotgate.plain import printable, tolerant

#: The exit status when the reader went away, as shells have it for SIGPIPE: ``… | head -1``.
READER_GONE = 141
#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


class OutputFailed(Exception):
    """
    stdout takes nothing; the message says why, and is empty where nobody needs to know.

    :ivar status: the exit status.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def put_out(text: str) -> None:
    """
    Print a text whole, however little the terminal can show.

    :raises OutputFailed: it could not be printed.
    """
    # Python has no stream where the shell closed it
    if sys.stdout is None:
        raise OutputFailed("stdout is closed")
    try:
        tolerant(sys.stdout)
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputFailed("", READER_GONE) from None
    except OSError as error:
        raise OutputFailed(f"stdout: {error.strerror or error}") from None


def complain(text: str, end: str = "\n") -> None:
    """Print a line to stderr, if there is one; nobody can be told that there is none."""
    if sys.stderr is not None:
        with suppress(OSError):
            tolerant(sys.stderr)
            print(text, end=end, file=sys.stderr, flush=True)


def told(work: Callable[[], int]) -> int:
    """
    Do a command's work; whatever becomes of what it prints, there is an exit status and no more
    than one line about that.

    :returns: the work's, 1 when its output could not be written, or :data:`READER_GONE`.
    """
    try:
        try:
            status = work()
        except SystemExit:
            # argparse has printed its help
            _flush()
            raise
        _flush()
        return status
    except KeyboardInterrupt:
        # before there was a reactor
        complain("")
        return INTERRUPTED
    except OutputFailed as error:
        _give_up()
        if str(error):
            complain(f"slotgate: {printable(str(error))}")
        return error.status


def _flush() -> None:
    if sys.stdout is not None:
        put_out("")


def _give_up() -> None:
    """Let the interpreter's own flush at its end find nothing wrong."""
    # there is none, or it is no file
    with suppress(AttributeError, OSError, ValueError):
        number = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
