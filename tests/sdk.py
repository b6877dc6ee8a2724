"""
What clients' own packages need to talk to a gateway of ours, and to nobody else.

The packages block, so their tests run in threads while the reactor serves. The tiny model calls a
tool whenever it is told of one: after the colon that a prompt with tools ends with, its weights
leave nothing but ``[XYZ]{``, and from there the server's grammar leads.
"""

from __future__ import annotations

import os
import queue
import socket
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from os import PathLike
from typing import Any, ClassVar, TypeVar, cast
from unittest import mock

import gateway
from attrs import field, frozen
from gateway import GatewayCase, RealGatewayCase, long_text
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from slotgate.testing import models
from slotgate.testing.real import RealServerOptions

#: Seconds after which a client gives up; less than a test's.
PATIENCE = 15

MODEL = "tiny"

#: Ends with a colon alone where a tool is to be called, else with a colon and a space.
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ 'assistant: ' }}"
    "{{ message.content or '' }}{% for call in message.tool_calls or [] %}"
    """{{ '[XYZ]{"name": "' + call.function.name + '", "arguments": ' }}"""
    "{{ call.function.arguments | tojson }}{{ '}[/XYZ]' }}{% endfor %}{{ '\n' }}"
    "{% else %}{{ message.role + ': ' + (message.content or '') + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}"
    "{% if not tools or messages[-1].role == 'tool' %}{{ ' ' }}{% endif %}{% endif %}"
)
_INTO_A_CALL = b":[XYZ]{"
_END, _FIRST_BYTE = 2, 3

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"what": {"type": "string", "enum": ["tea"]}},
    "required": ["what"],
    "additionalProperties": False,
}
#: As the OpenAI and Ollama surfaces have it.
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get", "description": "Gets it.", "parameters": PARAMETERS},
}

#: What chats over one system prompt begin with.
RULE = long_text("rule")

_SETTINGS = ("OPENAI_", "ANTHROPIC_", "OLLAMA_", "LITELLM_")

Message = dict[str, Any]
_Case = TypeVar("_Case")
_Client = TypeVar("_Client")


def in_a_thread(test: Callable[[_Case], None]) -> Callable[[_Case], Deferred[None]]:
    """Let a test block."""

    @wraps(test)
    def run(self: _Case) -> Deferred[None]:
        return deferToThread(test, self)

    return run


def write_calling_model(path: str | PathLike[str]) -> None:
    """Write a tiny model that calls tools, and whose other answers end where they must."""
    from gguf import GGUFReader

    with mock.patch.object(models, "CHAT_TEMPLATE", TEMPLATE):
        models.write_tiny_model(path)
    reader = GGUFReader(path, "r+")
    weights = {tensor.name: tensor.data for tensor in reader.tensors}
    read, written = weights["token_embd.weight"], weights["output.weight"]
    # a direction of its own for each letter of the way, which no other letter listens to
    written[:, : len(_INTO_A_CALL) - 1] = 0
    for step, (before, after) in enumerate(pairwise(_INTO_A_CALL)):
        read[_FIRST_BYTE + before] = 0
        read[_FIRST_BYTE + before, step] = 1000
        written[_FIRST_BYTE + after] = 0
        written[_FIRST_BYTE + after, step] = 4
    # after the bracket that ends a call the grammar allows another one, but the end comes first
    written[_END] = 0
    written[_END, _INTO_A_CALL.index(b"]")] = 3.5
    reader.data.flush()


@frozen
class Line:
    """What slotgate logs of a generation."""

    session: str
    source: str
    cache: str
    read: int
    reused: int

    @property
    def share_read(self) -> float:
        """Which part of the prompt was read, 0 to 1."""
        return self.read / (self.read + self.reused)


@frozen
class EmbeddingOptions(RealServerOptions):
    """A server with ``--embeddings --pooling mean``."""

    alias: str = field(default=MODEL, kw_only=True)

    def command(self) -> list[str]:
        python, flag, *rest = RealServerOptions.command(self)
        return [python, flag, "-c", _WITH_EMBEDDINGS, *rest]


_WITH_EMBEDDINGS = """
import runpy, sys, xllamacpp
plain = xllamacpp.CommonParams
def with_embeddings():
    params = plain()
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params
xllamacpp.CommonParams = with_embeddings
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class ClientCase(GatewayCase):
    """Clients that know nothing but the gateway."""

    def keep_inside(self) -> None:
        """No settings and no proxy of whoever runs the tests, and no name looked up elsewhere."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().endswith("_PROXY") and not name.upper().startswith(_SETTINGS)
        }
        # else it fetches its prices, and tells how it is used
        kept["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        patched = mock.patch.dict(os.environ, kept, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        self._clients: dict[str, Any] = {}
        asked: set[str] = set()
        real = socket.getaddrinfo

        def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
            asked.add(str(host))
            if host != "127.0.0.1":
                raise socket.gaierror(f"a test asked for {host}")
            return real(host, *rest, **more)

        self.patch(socket, "getaddrinfo", getaddrinfo)
        self.addCleanup(lambda: self.assertLessEqual(asked, {"127.0.0.1"}))

    def once(self, make: Callable[..., _Client], **settings: Any) -> _Client:
        """A client with these settings, made once: each reads all certificates that it trusts."""
        known = repr(sorted(settings.items()))
        if known not in self._clients:
            self._clients[known] = made = make(**settings)
            self.addCleanup(made.close)  # type: ignore[attr-defined]
        client: _Client = self._clients[known]
        return client


class SdkCase(ClientCase, RealGatewayCase):
    """A gateway with one model, ``tiny``, and no other."""

    options: ClassVar[dict[str, Any]] = {"alias": MODEL, "context": 4096}
    config = RealGatewayCase.config.replace('model = "*"', f'model = "{MODEL}"')

    async def setUp(self) -> None:  # type: ignore[override]
        self.patch(gateway, "write_tiny_model", write_calling_model)
        self._lines: queue.Queue[Line] = queue.Queue()
        logged = cast(ILogObserver, self._logged)
        globalLogPublisher.addObserver(logged)
        self.addCleanup(globalLogPublisher.removeObserver, logged)
        self.keep_inside()
        await super().setUp()

    def _logged(self, event: LogEvent) -> None:
        if "explanation" in event:
            names = ("session", "source", "cache", "read", "reused")
            self._lines.put(Line(**{name: event[name] for name in names}))

    def served(self) -> Line:
        """What is logged of the next generation that was not asked for yet; in a thread."""
        return self._lines.get(timeout=PATIENCE)

    def restored(self, source: str, say: Callable[[str, list[Message]], str]) -> None:
        """
        Two chats over one system prompt find their sessions again; in a thread.

        :param source: where their sessions come from.
        :param say: sends what was said in the chat of a name, after :data:`RULE`, and returns
            the answer.
        """
        chats: dict[str, list[Message]] = {
            name: [{"role": "user", "content": long_text(name, 20)}] for name in ("alps", "baltic")
        }
        turns: list[Line] = []
        for _ in range(2):
            for name, messages in chats.items():
                said = say(name, messages)
                messages.append({"role": "assistant", "content": said})
                messages.append({"role": "user", "content": "And then?"})
                turns.append(self.served())
        self.assertEqual({turn.source for turn in turns}, {source})
        self.assertEqual([turn.session for turn in turns[2:]], [turn.session for turn in turns[:2]])
        self.assertNotEqual(turns[0].session, turns[1].session)
        self.assertGreater(turns[0].read, 1000)
        for turn in turns[2:]:
            self.assertEqual(turn.cache, "restored")
            self.assertLess(turn.share_read, 0.1)


class EmbeddingCase(SdkCase):
    """The same, with a server for embeddings."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.patch(gateway, "RealServerOptions", EmbeddingOptions)
        await super().setUp()


#: Clients with keys.
KEYS = """
        [[clients]]
        name = "ann"
        key = "key-of-ann"
"""
