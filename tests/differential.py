"""
The same request twice: straight to a llama-server, and through slotgate to another one like it.

Two real servers with one model file, and not one server asked twice: each sees one client, so both
slots go through the same requests in the same order, and what an answer says of the cache can be
compared too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServerOptions

#: The model's name towards clients.
MODEL = "tiny"

#: Headers of answers that are not compared, and why.
NOT_COMPARED = {
    "date": "a clock",
    "connection": "about one connection (RFC 9110, 7.6.1)",
    "keep-alive": "about one connection",
    "content-length": "must be right, but the digits of a time can be more or fewer",
    "access-control-allow-*": "slotgate says which pages may read its answers",
    "process-start-time-unix": "a clock: when the server started, with /metrics",
    "x-slotgate-*": "slotgate's",
}

#: What is evened out in bodies before they are compared, and why.
EVENED_OUT = {
    "a word that stands for an image in a prompt": rb"(?<=<__media_)[A-Za-z0-9]{32}(?=__>)",
    "random ids": rb'(?<=")(?:chatcmpl-|resp_|rs_|msg_|fc_|call_)?[A-Za-z0-9]{32}(?=")',
    "when it was asked": rb'(?<="created":)\d+|(?<="created_at":)\d+|(?<="completed_at":)\d+',
    "how long it took": (
        rb'(?<="prompt_ms":)[^,}]+|(?<="prompt_per_token_ms":)[^,}]+|'
        rb'(?<="prompt_per_second":)[^,}]+|(?<="predicted_ms":)[^,}]+|'
        rb'(?<="predicted_per_token_ms":)[^,}]+|(?<="predicted_per_second":)[^,}]+|'
        rb'(?<="time_ms":)[^,}]+'
    ),
    "a count of all tasks, slotgate's looks too": rb'(?<="id_task":)\d+',
}
_EVENED_OUT = [re.compile(pattern) for pattern in EVENED_OUT.values()]

_LISTENS = re.compile(r"slotgate listens on http://\S+:(\d+)(?=\D)")
_CONFIG = """
[gateway]
listen = ["tcp:0:interface=127.0.0.1"]
state_dir = "state"
[servers.local]
url = "{url}"
slot_save_path = "{slots}"
"""


@frozen
class Case:
    """A request."""

    name: str
    method: str
    #: Path and query, as they stand in the request line.
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(factory=dict)

    def with_headers(self, headers: Mapping[str, str]) -> Case:
        """The same with further headers."""
        return evolve(self, headers={**self.headers, **headers})


@frozen
class Answer:
    """A whole response, as it came."""

    status: int
    reason: str
    #: Names are in lower case.
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """An error's text, in OpenAI's or Anthropic's shape."""
        message: str = self.json["error"]["message"]
        return message

    @property
    def compared(self) -> tuple[object, ...]:
        """What must be the same."""
        body = self.body
        for pattern in _EVENED_OUT:
            body = pattern.sub(b"#", body)
        headers = {
            name: value
            for name, value in self.headers.items()
            if not any(fnmatchcase(name, pattern) for pattern in NOT_COMPARED)
        }
        return self.status, self.reason, headers, body


@frozen
class Pair:
    """The two ways to ask."""

    direct: str
    gateway: str

    def both(self, case: Case) -> tuple[Answer, Answer]:
        """The direct answer, and the one through slotgate."""
        return ask(self.direct, case), ask(self.gateway, case)

    def erase(self) -> tuple[Answer, Answer]:
        """Empty both slots; the answers say how many tokens they had."""
        return self.both(Case("erase", "POST", "/slots/0?action=erase"))


def ask(url: str, case: Case) -> Answer:
    """Send a request just as it is written, on a connection of its own."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        connection.putrequest(
            case.method, case.target, skip_host="Host" in case.headers, skip_accept_encoding=True
        )
        if case.body is not None and "Transfer-Encoding" not in case.headers:
            connection.putheader("Content-Length", str(len(case.body)))
        for name, value in case.headers.items():
            connection.putheader(name, value)
        connection.endheaders(case.body)
        response = connection.getresponse()
        pairs = [(name.lower(), value) for name, value in response.getheaders()]
        headers = dict(pairs)
        assert len(headers) == len(pairs), pairs
        body = response.read()
    finally:
        connection.close()
    if case.method != "HEAD":
        assert headers.get("content-length", str(len(body))) == str(len(body))
    return Answer(response.status, response.reason, headers, body)


@contextmanager
def running(folder: Path) -> Iterator[Pair]:
    """Two servers and a gateway, as processes, for the time of a block."""
    model = folder / "tiny.gguf"
    write_tiny_model(model)
    with ExitStack() as stack:
        urls = []
        for name in ("direct", "behind"):
            slots = folder / name
            slots.mkdir()
            options = RealServerOptions(
                model, slot_save_path=slots, alias=MODEL, context=2048, threads=1
            )
            line = stack.enter_context(_lines(folder, "{", *options.command()))
            urls.append(json.loads(line)["url"])
        for url in urls:
            while ask(url, Case("health", "GET", "/health")).status != 200:
                time.sleep(0.02)
        (folder / "slotgate.toml").write_text(_CONFIG.format(url=urls[1], slots=slots))
        command = (Path(sys.executable).parent / "slotgate", "run", "--config", "slotgate.toml")
        listens = _LISTENS.search(stack.enter_context(_lines(folder, "slotgate listens", *command)))
        assert listens
        yield Pair(urls[0], f"http://127.0.0.1:{listens[1]}")


@contextmanager
def _lines(folder: Path, awaited: str, *command: object) -> Iterator[str]:
    """
    A process, ended with the block.

    :param awaited: is in the line it prints that the block is given.
    """
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        text=True,
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    try:
        line = next(line for line in lines if awaited in line)
        # a full pipe would stop it
        Thread(target=deque, args=(lines, 0), daemon=True).start()
        yield line
    finally:
        process.kill()
        process.wait()
