"""
``slotgate doctor``: its arguments, what it prints and its exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from slotgate.commands.output import OutputFailed, complain, put_out
from slotgate.config import Config, ConfigError, load_config
from slotgate.doctor.findings import Finding, exit_status, problem
from slotgate.doctor.report import Report, as_json, judge, lines_of, safe, secrets_of, verdict
from slotgate.doctor.stopping import Loose, Stopping


def main(argv: Sequence[str]) -> int:
    """
    Look at the configured servers.

    :param argv: the arguments after ``doctor``.
    :returns: 0: all is well, 1: it works and there is advice, 2: it does not work; 128 and the
        signal's number when it was interrupted.
    :raises OutputFailed: nobody could be told.
    """
    wanted = _arguments().parse_args(argv)
    try:
        config = load_config(wanted.config)
    except ConfigError as error:
        if wanted.json:
            put_out(as_json([problem("config", line) for line in error.lines], []) + "\n")
        else:
            complain(str(error))
        return 2
    # Not before: importing it installs it, and the doctor is the application here.
    from twisted.internet import reactor

    return _run(reactor, config, wanted)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate doctor",
        description="Look whether the configured llama-servers are set up so that slotgate can do"
        " its work, and say what to change. Nothing on them is different afterwards.",
        epilog="Exit status: 0 all is well, 1 it works and there is advice, 2 it does not work.",
    )
    parser.add_argument("--config", "-c", type=Path, metavar="FILE", help="the TOML file")
    parser.add_argument(
        "--measure",
        type=_tokens,
        default=0,
        metavar="TOKENS",
        help="also read a prompt of so many tokens in an idle slot of each server, and measure what"
        " a switch costs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _tokens(text: str) -> int:
    tokens = int(text)
    if not 64 <= tokens <= 1_000_000:
        raise argparse.ArgumentTypeError("must be 64 to 1000000")
    return tokens


async def examine(
    reactor: Any,
    config: Config,
    tokens: int = 0,
    tell: Callable[[str], None] = lambda _: None,
    found: Callable[[Report], None] = lambda _: None,
    loose: Loose | None = None,
) -> tuple[list[Finding], list[Report]]:
    """
    Look at slotgate itself and at every server, one after the other.

    :param tokens: measure with a prompt of so many; 0: measure nothing.
    :param tell: told what there is to wait for.
    :param found: told each report when it is complete.
    :param loose: holds what is out of place at each moment.
    """
    # not before it is needed: a mistake in the configuration is told at once
    from slotgate.doctor.gateway import of_state, runs
    from slotgate.doctor.measure import Measuring
    from slotgate.doctor.server import Looking

    loose = Loose() if loose is None else loose
    secrets = secrets_of(config)
    own = safe(Report("slotgate", (of_state(config),)), secrets)
    found(own)
    reports = []
    for server in config.servers.values():
        facts = await Looking(reactor, config, server, tell, loose).facts()
        measured = None
        if tokens:
            if not facts.slotgate_runs:
                tell(
                    f"{server.name}: measuring with a prompt of {tokens} tokens,"
                    " which can take a while"
                )
            measured = await Measuring(
                reactor, facts, tokens, lambda: runs(reactor, config), loose
            ).measurement()
        reports.append(safe(judge(facts, measured), secrets))
        found(reports[-1])
    return list(own.findings), reports


def _run(reactor: Any, config: Config, wanted: argparse.Namespace) -> int:
    status: list[int] = []
    unsaid: list[OutputFailed] = []
    loose = Loose()
    stopping = Stopping(reactor, loose, tuple(secrets_of(config)))

    def show(report: Report) -> None:
        if not wanted.json:
            put_out("\n".join(lines_of(report)) + "\n")

    async def work() -> None:
        own, reports = await examine(reactor, config, wanted.measure, complain, show, loose)
        every = [*own, *(finding for report in reports for finding in report.findings)]
        put_out((as_json(own, reports) if wanted.json else verdict(every)) + "\n")
        status.append(exit_status(every))

    def failed(failure: Failure) -> None:
        if isinstance(failure.value, OutputFailed):
            unsaid.append(failure.value)
        elif not (stopping.number and failure.check(CancelledError)):
            complain(failure.getTraceback().rstrip())

    def ended(_: object) -> None:
        stopping.over()
        reactor.stop()

    def begin() -> None:
        done = Deferred.fromCoroutine(work())
        # the reactor's own handlers are in place now, and would end it in the middle
        stopping.watch(done)
        done.addErrback(failed).addBoth(ended)

    reactor.callWhenRunning(begin)
    reactor.run()
    if stopping.number:
        return stopping.status
    if unsaid:
        raise unsaid[0]
    # none: a fault of ours
    return status[0] if status else 2
