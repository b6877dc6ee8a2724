"""
The ``slotgate`` command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from slotgate import __version__
from slotgate.config import ConfigError, load_config


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command; the exit status.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["demo"]:
        from slotgate.demo import main as demo

        return demo(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        config = load_config(options.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if options.command == "check":
        from slotgate._config.describe import describe

        print("\n".join(describe(config)))
        return 0
    return _run(options.config)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate", description="Unlimited llama.cpp slots that survive restarts."
    )
    parser.add_argument("--version", action="version", version=f"slotgate {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, meaning in (
        ("run", "run the gateway in the foreground (as twistd -n slotgate, without a pid file)"),
        ("check", "say what a configuration means, or what is wrong with it"),
    ):
        command = commands.add_parser(name, help=meaning, description=meaning)
        command.add_argument("--config", "-c", type=Path, metavar="FILE", help="the TOML file")
    commands.add_parser(
        "demo", help="see it at work: a real llama-server, three sessions, one slot"
    )
    return parser


def _run(config: Path | None) -> int:
    from twisted.internet.error import CannotListenError
    from twisted.scripts.twistd import run

    given = [] if config is None else ["--config", str(config)]
    sys.argv[1:] = ["--nodaemon", "--pidfile=", "slotgate", *given]
    try:
        run()
    except CannotListenError as error:
        # by now the other stderr is the log
        print(f"slotgate: {error}. Is Ollama running? See gateway.listen", file=sys.__stderr__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
