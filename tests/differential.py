"""
The same request twice: straight to a llama-server, and through slotgate to another one like it.

Two real servers with one model file, and not one server asked twice: each sees one client, so each
slot goes through the same requests in the same order, and what an answer says of the cache can be
compared too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServerOptions

#: The model's name towards clients: the path of its file would do as well.
MODEL = "tiny"

_LISTENS = re.compile(r"slotgate listens on IPv4Address\(.*port=(\d+)\)")
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

    def with_headers(self, **headers: str) -> Case:
        """The same with further headers; an underscore is a dash."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return evolve(self, headers={**self.headers, **named})


@frozen
class Answer:
    """A whole response, as it came."""

    status: int
    reason: str
    #: In the order of their names, which are in lower case.
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> object:
        """The body as JSON."""
        return json.loads(self.body)


@frozen
class Pair:
    """The two ways to ask."""

    direct: str
    gateway: str

    def both(self, case: Case) -> tuple[Answer, Answer]:
        """The direct answer, and the one through slotgate."""
        return _ask(self.direct, case), _ask(self.gateway, case)

    def erase(self) -> None:
        """Empty both slots, which held the same number of tokens."""
        erase = Case("erase", "POST", "/slots/0?action=erase")
        direct, through = self.both(erase)
        assert direct.status == through.status == 200, (direct, through)
        assert direct.body == through.body


def _ask(url: str, case: Case) -> Answer:
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        connection.putrequest(case.method, case.target, skip_accept_encoding=True)
        headers = dict(case.headers)
        if case.body is not None and "Transfer-Encoding" not in headers:
            headers = {"Content-Length": str(len(case.body)), **headers}
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(case.body)
        response = connection.getresponse()
        named = sorted((name.lower(), value) for name, value in response.getheaders())
        return Answer(response.status, response.reason, tuple(named), response.read())
    finally:
        connection.close()


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
            line = stack.enter_context(_process(folder, *options.command()))
            urls.append(json.loads(next(line))["url"])
        (folder / "slotgate.toml").write_text(_CONFIG.format(url=urls[1], slots=slots))
        for url in urls:
            while _ask(url, Case("health", "GET", "/health")).status != 200:
                pass
        command = Path(sys.executable).parent / "slotgate"
        lines = stack.enter_context(_process(folder, command, "run", "--config", "slotgate.toml"))
        port = next(found[1] for line in lines if (found := _LISTENS.search(line)))
        yield Pair(urls[0], f"http://127.0.0.1:{port}")


@contextmanager
def _process(folder: Path, *command: object) -> Iterator[Iterator[str]]:
    """A process, ended with the block, and the lines that it prints."""
    log = (folder / "log.txt").open("ab")
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        cwd=folder,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield lines
    finally:
        process.kill()
        with process:
            pass
        log.close()
