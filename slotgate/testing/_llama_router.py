"""
A llama-server in router mode, as a process that ends with whoever started it.

It tells that it listens by one JSON line on stdout, ``{"url": …, "port": …, "pid": …}``, where the
last one is llama-server's own process; llama.cpp's log goes to stderr. When our stdin closes, the
router and the servers of its models are killed, so that they cannot outlive their starter, however
that one dies.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_LISTENS = re.compile(rb"listening on (http://\S+:(\d+))")
_PR_SET_PDEATHSIG = 1


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(prog="slotgate.testing._llama_router", description=__doc__)
    parser.add_argument("--preset", required=True, help="the text of the --models-preset file")
    parser.add_argument("command", nargs="+", help="llama-server and its other options")
    return parser.parse_args(arguments)


def _begin() -> None:
    """
    In the new process: be killed if we are, where the system knows how (Linux).
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(command: list[str], preset: str, folder: Path) -> subprocess.Popen[bytes]:
    """
    Start the router in a process group of its own, which its models' servers join.

    :param folder: for the preset, and as a home for downloads: else the router would offer the
        models that it finds in the user's.
    """
    file = folder / "models.ini"
    file.write_text(preset, encoding="utf-8")
    return subprocess.Popen(  # noqa: S603
        [*command, "--models-preset", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "LLAMA_CACHE": str(folder)},
        start_new_session=True,
        preexec_fn=_begin,
    )


def _end(router: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(router.pid, signal.SIGKILL)


def _end_with_stdin(router: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _end(router)


def _follow(router: subprocess.Popen[bytes]) -> None:
    """
    Pass the log on, and tell once that the router listens.
    """
    told = False
    for line in router.stderr or ():
        with suppress(OSError):  # nobody reads it any more
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
        if not told and (found := _LISTENS.search(line)):
            told = True
            url, port = found[1].decode(), int(found[2])
            print(json.dumps({"url": url, "port": port, "pid": router.pid}), flush=True)


def main() -> None:
    """
    Run the router until it ends or our stdin closes.
    """
    wanted = parse_arguments()
    # Ctrl-C in a terminal reaches the whole group: who started us decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with TemporaryDirectory(prefix="slotgate-router-") as folder:
        router = _start(wanted.command, wanted.preset, Path(folder))
        threading.Thread(target=_end_with_stdin, args=[router], daemon=True).start()
        _follow(router)
        _end(router)  # a model's server that has not noticed yet
        code = router.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
