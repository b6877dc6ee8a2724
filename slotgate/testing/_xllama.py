"""
The llama-server inside the ``xllamacpp`` wheel, as a process that ends with whoever started it.

It tells that it listens by one JSON line on stdout, ``{"url": …, "port": …}``; llama.cpp's own log
goes to stderr. It ends when its stdin closes, so that it cannot outlive its starter, however that
one dies.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from typing import Any
from urllib.parse import urlsplit


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """
    Read the command line: names and units are those of llama-server's own options.
    """
    parser = argparse.ArgumentParser(prog="slotgate.testing._xllama", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens, shared by all slots")
    parser.add_argument("--parallel", type=int, default=1, help="slots")
    parser.add_argument("--slot-save-path", default="", help="folder of slot files, must exist")
    parser.add_argument("--cache-ram", type=int, default=0, help="MiB of prompt cache in memory")
    parser.add_argument("--batch", type=int, default=0, help="tokens read in one go, 0: default")
    parser.add_argument("--sleep-idle-seconds", type=int, default=-1, help="-1: never")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--alias", default="", help="the model's name, else its path")
    parser.add_argument("--threads", type=int, default=0, help="0: llama.cpp's choice")
    parser.add_argument("--swa-full", action="store_true")
    parser.add_argument("--no-slots", action="store_true", help="answer 501 on GET /slots")
    return parser.parse_args(arguments)


def parameters(wanted: argparse.Namespace) -> Any:
    """
    Translate the command line into xllamacpp's ``CommonParams``.
    """
    from xllamacpp import CommonParams

    params = CommonParams()
    params.model.path = wanted.model
    params.hostnames = ["127.0.0.1"]
    params.port = wanted.port
    params.n_ctx = wanted.ctx
    params.n_parallel = wanted.parallel
    params.cache_ram_mib = wanted.cache_ram
    params.sleep_idle_seconds = wanted.sleep_idle_seconds
    params.swa_full = wanted.swa_full
    params.endpoint_slots = not wanted.no_slots
    params.endpoint_props = True
    params.endpoint_metrics = True
    if wanted.slot_save_path:
        # llama-server appends the file's name as it is
        params.slot_save_path = os.path.join(wanted.slot_save_path, "")
    if wanted.batch:
        params.n_batch = params.n_ubatch = wanted.batch
    if wanted.api_key:
        params.api_keys = [wanted.api_key]
    if wanted.alias:
        params.model_alias = {wanted.alias}
    if wanted.threads:
        params.cpuparams.n_threads = wanted.threads
        params.cpuparams_batch.n_threads = wanted.threads
    return params


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """
    Serve until stdin closes.
    """
    wanted = parse_arguments()
    # Ctrl-C in a terminal reaches the whole group: who started us decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever else writes to stdout goes to stderr, so that the one line stays one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    watcher = threading.Thread(target=_end_with_stdin, name="end-with-stdin", daemon=True)
    watcher.start()

    from xllamacpp import Server

    try:
        server = Server(parameters(wanted))
    except RuntimeError as refused:
        sys.exit(f"llama-server did not start: {refused}")
    url = server.listening_address
    print(json.dumps({"url": url, "port": urlsplit(url).port}), file=answers, flush=True)
    watcher.join()


if __name__ == "__main__":
    main()
