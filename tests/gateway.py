"""
A gateway in this process in front of a llama-server, and clients that talk to it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import treq
from attrs import frozen
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate._config.loading import parse_config
from slotgate.service import GatewayService, make_service
from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions

CLOCK: Any = reactor
CHAT = "/v1/chat/completions"


@frozen
class Answer:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def cache(self) -> str:
        """X-Slotgate-Cache."""
        return self.headers["x-slotgate-cache"]

    @property
    def timings(self) -> dict[str, int]:
        """llama-server's timings, also those at the end of a stream."""
        if self.headers["content-type"].startswith("text/event-stream"):
            events = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: {")]
            last = json.loads(events[-1])
        else:
            last = self.json
        timings: dict[str, int] = last["timings"]
        return timings

    @property
    def share_read(self) -> float:
        """Which part of the prompt was read, 0 to 1."""
        return self.timings["prompt_n"] / (self.timings["prompt_n"] + self.timings["cache_n"])

    @property
    def text(self) -> str:
        """What the model said in a chat."""
        content: str = self.json["choices"][0]["message"]["content"]
        return content


@frozen
class Chat:
    """A conversation of one session, that grows with every turn."""

    client: GatewayCase
    session: str
    messages: list[dict[str, str]]

    async def turn(self, said: str = "And then?", **fields: object) -> Answer:
        """Say something, and keep what the model answers."""
        self.messages.append({"role": "user", "content": said})
        body = {"messages": self.messages, "max_tokens": 8, "temperature": 0, **fields}
        answer = await self.client.post(CHAT, body, {"X-Session-ID": self.session})
        if answer.status == 200 and not fields.get("stream"):
            self.messages.append({"role": "assistant", "content": answer.text})
        return answer


class Caller(Protocol):
    """A client's connection, byte by byte."""

    def __init__(self) -> None:
        self.received = b""
        self.gone: Deferred[None] = Deferred()
        self._waiting: list[tuple[bytes, Deferred[None]]] = []

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> None:
        """Write a request with JSON."""
        data = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += [f"Content-Length: {len(data)}", "", ""]
        self.write("\r\n".join(lines).encode() + data)

    def write(self, data: bytes) -> None:
        """Write bytes."""
        cast(ITCPTransport, self.transport).write(data)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        for waiting in list(self._waiting):
            if waiting[0] in self.received:
                self._waiting.remove(waiting)
                waiting[1].callback(None)

    def heard(self, part: bytes) -> Deferred[None]:
        """Fire when this was received."""
        if part in self.received:
            return succeed(None)
        self._waiting.append((part, Deferred()))
        return self._waiting[-1][1]

    def leave(self) -> Deferred[None]:
        """Close the connection; fires when it is closed."""
        cast(ITCPTransport, self.transport).loseConnection()
        return self.gone

    def connectionLost(self, reason: object = None) -> None:
        if not self.gone.called:
            self.gone.callback(None)


def long_text(name: str, words: int = 200) -> str:
    """A text of its own for each name, about seven tokens a word for the tiny models."""
    return " ".join(f"{name}{number:05d}" for number in range(words))


class GatewayCase(TestCase):
    """
    A gateway in front of ``self.upstream``; the subclass starts the upstream.
    """

    timeout = 25
    #: TOML for the gateway, with {url}, {state} and {slots} filled in.
    config = """
        [gateway]
        listen = ["tcp:0:interface=127.0.0.1"]
        state_dir = "{state}"
        drain_seconds = 2
        [servers.local]
        url = "{url}"
        slot_save_path = "{slots}"
        [[routes]]
        model = "*"
        server = "local"
    """

    def new_folder(self) -> Path:
        """A folder that goes with the test."""
        folder = tempfile.TemporaryDirectory(prefix="slotgate-test-")
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def setUp(self) -> None:
        self.folder = self.new_folder()
        self.slots = self.folder / "slots"
        self.slots.mkdir()
        pool = HTTPConnectionPool(reactor, persistent=False)
        self.http = HTTPClient(Agent(reactor, pool=pool))

    def start_gateway(self, url: str, **values: object) -> GatewayService:
        """Start a gateway; it stops with the test."""
        text = self.config.format(
            **{"url": url, "state": self.folder / "state", "slots": self.slots, **values}
        )
        self.gateway = make_service(parse_config(text, {}, self.folder), reactor)
        self.gateway.startService()
        self.addCleanup(self.stop_gateway)
        self.base = f"http://127.0.0.1:{self.gateway.addresses[0].port}"  # type: ignore[attr-defined]
        return self.gateway

    async def recalled(self) -> None:
        """
        Wait until it is known what the server is, and the slots know what was left in them:
        meanwhile they are leased.
        """
        for backend in self.gateway._parts.backends.values():
            await backend.known()
        for slot in self.gateway._parts.pool:
            await slot.recall()

    async def stop_gateway(self) -> None:
        """Stop the gateway, once."""
        if self.gateway.running:
            await self.gateway.stopService()

    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        base: str | None = None,
    ) -> Answer:
        """Send a request to the gateway, or to another base address."""
        response = await self.http.request(
            method,
            (base or self.base) + path,
            headers=Headers({name: [value] for name, value in (headers or {}).items()}),
            data=data,
            allow_redirects=False,
        )
        return await whole(response)

    async def post(
        self,
        path: str,
        body: object,
        headers: Mapping[str, str] | None = None,
        base: str | None = None,
    ) -> Answer:
        """Send JSON."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        return await self.request("POST", path, sent, json.dumps(body).encode(), base)

    async def get(self, path: str, base: str | None = None) -> Answer:
        """Get a resource."""
        return await self.request("GET", path, base=base)

    def chat(self, session: str, words: int = 200) -> Chat:
        """A new conversation, which begins with a long text."""
        return Chat(self, session, [{"role": "system", "content": long_text(session, words)}])

    async def connect(self) -> Caller:
        """A connection to the gateway whose bytes the test writes itself."""
        port = int(self.base.rpartition(":")[2])
        endpoint = TCP4ClientEndpoint(CLOCK, "127.0.0.1", port)
        caller: Caller = await connectProtocol(endpoint, Caller())
        self.addCleanup(caller.leave)
        return caller

    async def pause(self, seconds: float) -> None:
        """Let the reactor run."""
        await deferLater(CLOCK, seconds)


async def whole(response: IResponse) -> Answer:
    """A response with all of its body."""
    headers = {
        name.decode().lower(): values[-1].decode("latin-1")
        for name, values in response.headers.getAllRawHeaders()
    }
    return Answer(response.code, headers, await treq.content(response))


class RealGatewayCase(GatewayCase):
    """A gateway in front of a real llama-server with a tiny dense model."""

    #: Options of the server.
    options: ClassVar[dict[str, Any]] = {}

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        model = self.folder / "tiny.gguf"
        write_tiny_model(model)
        values = {"slot_save_path": f"{self.slots}/", "context": 8192, "threads": 1}
        options = RealServerOptions(model=model, **{**values, **self.options})
        self.llama = RealServer(reactor, options)
        self.addCleanup(self.llama.stop)
        await self.llama.start()
        self.start_gateway(self.llama.url)
        await self.recalled()

    async def slot(self) -> dict[str, Any]:
        """The server's slot as it shows it."""
        slot: dict[str, Any] = (await self.get("/slots", self.llama.url)).json[0]
        return slot


class FakeGatewayCase(GatewayCase):
    """A gateway in front of a fake llama-server, for what a real one can not be asked to do."""

    #: Settings of the fake.
    options: ClassVar[dict[str, Any]] = {}

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.llama = FakeLlamaServer(CLOCK, self.slots, **self.options)
        self.addCleanup(self.llama.stop)
        await self.llama.listen(CLOCK)
        self.start_gateway(self.llama.url)
        await self.recalled()
        # what slotgate asks at its start is not what a test is about
        self.llama.calls.clear()

    def actions(self) -> list[str]:
        """The control calls so far, by their action."""
        return [call.query["action"] for call in self.llama.control_calls]


def now() -> float:
    """Seconds, for durations."""
    seconds: float = CLOCK.seconds()
    return seconds
