"""
The process of a command: its reactor, what it prints, its exit status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.task import react

from slotgate.commands.failed import CommandFailed
from slotgate.plain import tolerant

#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


def run(work: Callable[[Any], Coroutine[Any, Any, int]]) -> int:
    """
    Run a command's work in a reactor.

    :param work: takes the reactor; its result is the exit status.
    """
    results: list[int] = []

    async def main(reactor: Any) -> None:
        try:
            results.append(await work(reactor))
        except CommandFailed as error:
            results.append(failed(error))

    try:
        react(main)
    except SystemExit as end:
        if results:
            return results[0]
        # 0: a signal ended the reactor, not the work
        return end.code if isinstance(end.code, int) and end.code else INTERRUPTED


def failed(error: CommandFailed) -> int:
    """Say what went wrong; the exit status."""
    print(f"slotgate: {error}", file=sys.stderr)
    return 1


def put_out(text: str) -> None:
    """Print a text whole, however little the terminal can show, and whoever reads it."""
    tolerant(sys.stdout)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
