"""
The ``slotgate`` command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slotgate import __version__
from slotgate.commands.output import complain, put_out, told
from slotgate.config import ConfigError, load_config


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command; the exit status.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    return told(lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    if arguments and arguments[0] in _OWN_ARGUMENTS:
        return _OWN_ARGUMENTS[arguments[0]](arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        config = load_config(options.config)
    except ConfigError as error:
        complain(str(error))
        return 1
    if options.command == "check":
        from slotgate._config.describe import describe

        last = "the servers were not asked: slotgate doctor does that"
        put_out("".join(f"{line}\n" for line in (*describe(config), last)))
        return 0
    return _run(options.config, options.log_format)


# Each is imported when it is wanted: a command that only looks has no reason to load a gateway.


def _demo(arguments: Sequence[str]) -> int:
    from slotgate.demo import main

    return main(arguments)


def _doctor(arguments: Sequence[str]) -> int:
    from slotgate.doctor.command import main

    return main(arguments)


def _sessions(arguments: Sequence[str]) -> int:
    from slotgate.commands.sessions import main

    return main(arguments)


def _top(arguments: Sequence[str]) -> int:
    from slotgate.commands.top import main

    return main(arguments)


#: Commands that read their arguments themselves.
_OWN_ARGUMENTS: dict[str, Callable[[Sequence[str]], int]] = {
    "demo": _demo,
    "doctor": _doctor,
    "sessions": _sessions,
    "top": _top,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate", description="Unlimited llama.cpp slots that survive restarts."
    )
    parser.add_argument("--version", action="version", version=f"slotgate {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, meaning in (
        ("run", "run the gateway in the foreground (as twistd -n slotgate, without a pid file)"),
        ("check", "say what a configuration means, or what is wrong with it"),
    ):
        command = commands.add_parser(name, help=meaning, description=meaning)
        command.add_argument("--config", "-c", type=Path, metavar="FILE", help="the TOML file")
        if name == "run":
            command.add_argument(
                "--log-format",
                choices=("text", "json"),
                help="lines for people, or one JSON object a line, whatever the file says",
            )
    for name, meaning in (
        ("doctor", "ask the servers, and say what to change for slotgate to work well with them"),
        ("sessions", "list, show, save and delete the sessions of a gateway that runs"),
        ("top", "watch a gateway that runs"),
        ("demo", "see it at work: a real llama-server, three sessions, one slot"),
    ):
        commands.add_parser(name, help=meaning)
    return parser


def _run(config: Path | None, log_format: str | None) -> int:
    from twisted.internet.error import CannotListenError
    from twisted.scripts.twistd import run

    given = [] if config is None else ["--config", str(config)]
    given += [] if log_format is None else ["--log-format", log_format]
    sys.argv[1:] = ["--nodaemon", "--pidfile=", "slotgate", *given]
    try:
        run()
    except CannotListenError as error:
        # by now the other stderr is the log
        told = str(error).rstrip(".")
        print(f"slotgate: {told}. Is Ollama running? See gateway.listen", file=sys.__stderr__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
