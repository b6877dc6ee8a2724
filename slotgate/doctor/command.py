"""
``slotgate doctor``: its arguments, what it prints and its exit status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from slotgate.config import Config, ConfigError, load_config
from slotgate.doctor.findings import Finding, exit_status, problem
from slotgate.doctor.report import Report, as_json, judge, lines_of, safe, secrets_of, verdict


def main(argv: Sequence[str]) -> int:
    """
    Look at the configured servers.

    :param argv: the arguments after ``doctor``.
    :returns: 0: all is well, 1: it works and there is advice, 2: it does not work.
    """
    wanted = _arguments().parse_args(argv)
    try:
        config = load_config(wanted.config)
    except ConfigError as error:
        if wanted.json:
            print(as_json([problem("config", line) for line in error.lines], []))
        else:
            print(error, file=sys.stderr)
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
) -> tuple[list[Finding], list[Report]]:
    """
    Look at slotgate itself and at every server, one after the other.

    :param tokens: measure with a prompt of so many; 0: measure nothing.
    :param tell: told what there is to wait for.
    :param found: told each report when it is complete.
    """
    # not before it is needed: a mistake in the configuration is told at once
    from slotgate.doctor.gateway import of_state, runs
    from slotgate.doctor.measure import Measuring
    from slotgate.doctor.server import Looking

    secrets = secrets_of(config)
    own = safe(Report("slotgate", (of_state(config),)), secrets)
    found(own)
    reports = []
    for server in config.servers.values():
        facts = await Looking(reactor, config, server, tell).facts()
        measured = None
        if tokens:
            if not facts.slotgate_runs:
                tell(
                    f"{server.name}: measuring with a prompt of {tokens} tokens,"
                    " which can take a while"
                )
            measured = await Measuring(
                reactor, facts, tokens, lambda: runs(reactor, config)
            ).measurement()
        reports.append(safe(judge(facts, measured), secrets))
        found(reports[-1])
    return list(own.findings), reports


def _run(reactor: Any, config: Config, wanted: argparse.Namespace) -> int:
    status: list[int] = []

    def show(report: Report) -> None:
        if not wanted.json:
            print("\n".join(lines_of(report)), flush=True)

    async def work() -> None:
        own, reports = await examine(
            reactor, config, wanted.measure, lambda text: print(text, file=sys.stderr), show
        )
        every = [*own, *(finding for report in reports for finding in report.findings)]
        print(as_json(own, reports) if wanted.json else verdict(every))
        status.append(exit_status(every))

    def failed(failure: Failure) -> None:
        failure.printTraceback(file=sys.stderr)

    def begin() -> None:
        done = Deferred.fromCoroutine(work())
        done.addErrback(failed).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    # interrupted, or a fault of ours
    return status[0] if status else 2
