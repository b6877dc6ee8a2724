"""
The process of a command: its reactor, what it prints, its exit status.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.task import react

from slotgate.commands.failed import CommandFailed
from slotgate.commands.output import INTERRUPTED, OutputFailed, complain


def run(work: Callable[[Any], Coroutine[Any, Any, int]]) -> int:
    """
    Run a command's work in a reactor.

    :param work: takes the reactor; its result is the exit status.
    :raises OutputFailed: what it has found could not be printed.
    """
    results: list[int] = []
    unsaid: list[OutputFailed] = []

    async def main(reactor: Any) -> None:
        try:
            results.append(await work(reactor))
        except CommandFailed as error:
            results.append(failed(error))
        except OutputFailed as error:
            unsaid.append(error)

    try:
        react(main)
    except SystemExit as end:
        if unsaid:
            raise unsaid[0] from None
        if results:
            return results[0]
        # 0: a signal ended the reactor, not the work
        return end.code if isinstance(end.code, int) and end.code else INTERRUPTED


def failed(error: CommandFailed) -> int:
    """Say what went wrong; the exit status."""
    complain(f"slotgate: {error}")
    return 1
