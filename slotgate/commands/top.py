"""
``slotgate top``: a gateway as it runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from slotgate.commands.client import GatewayClient
from slotgate.commands.failed import CommandFailed
from slotgate.commands.output import put_out
from slotgate.commands.picture import render
from slotgate.commands.running import failed, run
from slotgate.commands.target import Target, add_arguments, target_of
from slotgate.commands.terminal import Terminal

_PATH = "/slotgate/status"
#: Seconds for an answer.
_SECONDS = 10.0
#: Lines of a snapshot that no terminal limits.
_LINES = 60
_WIDTH = 160
#: q and Ctrl-C.
_QUIT = (b"q", b"Q", b"\x03")


def main(argv: Sequence[str]) -> int:
    """
    Run the command.

    :param argv: the arguments after ``top``.
    :returns: the exit status: 0, 1 when the gateway could not be asked at all.
    """
    given = _parser().parse_args(argv)
    try:
        target = target_of(given.url, given.config, given.key_env, os.environ)
    except CommandFailed as error:
        return failed(error)
    if given.once or not all(each and each.isatty() for each in (sys.stdin, sys.stdout)):
        return run(lambda reactor: _once(GatewayClient(target, _SECONDS, reactor)))
    return _live(target, given.interval)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate top",
        description="Watch a gateway that runs. q or Ctrl-C ends it.",
        # --key must not pass for --key-env
        allow_abbrev=False,
    )
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    parser.add_argument(
        *("--interval",),
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: 1)",
    )
    add_arguments(parser)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86400:
        raise ValueError
    return value


async def _once(client: GatewayClient) -> int:
    status = await client.call("GET", _PATH)
    width, height = _WIDTH, _LINES
    if sys.stdout and sys.stdout.isatty():
        width, height = shutil.get_terminal_size()
    put_out("".join(f"{line}\n" for line in render(status, width, height)))
    return 0


def _live(target: Target, interval: float) -> int:
    terminal = Terminal(sys.stdin, sys.stdout)

    async def work(reactor: Any) -> int:
        client = GatewayClient(target, _SECONDS, reactor)
        # before the terminal is taken: what is wrong from the start is said on the usual screen
        status = await client.call("GET", _PATH)
        terminal.open()
        watch = Watch(client, terminal, reactor, interval)
        try:
            await watch.until_quit(status)
        finally:
            terminal.close()
        return 0

    try:
        return run(work)
    finally:
        # a signal ended the reactor, and the work was never told
        terminal.close()


@define
class Watch:
    """Looks again and again, until somebody has seen enough."""

    _client: GatewayClient
    _terminal: Terminal
    _reactor: Any
    _interval: float
    _looking: Deferred[None] | None = None
    _over: bool = False

    async def until_quit(self, status: Mapping[str, Any]) -> None:
        """
        Show, and look again.

        :param status: what the first look has found.
        """
        no_more_keys = self._terminal.on_key(self._reactor, self._pressed)
        try:
            self._looking = Deferred.fromCoroutine(self._look(status))
            await self._looking
        except CancelledError:
            if not self._over:
                raise
        finally:
            no_more_keys()

    async def _look(self, status: Mapping[str, Any]) -> None:
        problem = ""
        while not self._over:
            self._terminal.show(render(status, *self._terminal.size, problem))
            await deferLater(self._reactor, self._interval)
            try:
                status, problem = await self._client.call("GET", _PATH), ""
            except CommandFailed as error:
                problem = str(error)

    def _pressed(self, typed: bytes) -> None:
        if not self._over and (not typed or any(key in typed for key in _QUIT)):
            self._over = True
            if self._looking is not None:
                self._looking.cancel()
