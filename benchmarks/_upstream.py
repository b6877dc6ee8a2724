"""
The server of the benchmark: just enough llama-server to be asked, and faster than the gateway.

It is a process of its own: ``python -m benchmarks._upstream`` prints its port and serves until its
standard input ends. Answers, events and ``/slots`` have the bytes of a real llama-server (b11549).
What a request makes it do is said in the request's body:

``stream``
    Answer with this many events, if ``events`` says so one every ``spacing_ms``.
``hold``
    Say nothing until somebody has asked for ``/release``. ``/hold`` brings it back, and
    ``/held`` counts the requests that are waiting.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable

from attrs import define, field

#: Where it listens, twice on one port: slotgate takes an address for one server, and here it is
#: to know two, one with a slot and one without.
HOSTS = ("127.0.0.1", "127.0.0.2")

#: What every answer says of tokens. They agree with :data:`TOKENS`, so that the gateway finds in
#: ``/slots`` what its request left.
_TIMINGS = (
    b'"timings":{"cache_n":23,"prompt_n":1,"prompt_ms":0.36,"prompt_per_token_ms":0.36,'
    b'"prompt_per_second":2777.777777777778,"predicted_n":2,"predicted_ms":0.286,'
    b'"predicted_per_token_ms":0.286,"predicted_per_second":3496.503496503497}'
)
TOKENS = 25

ANSWER = (
    b'{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":'
    b'"cc"}}],"created":1796067967,"model":"tiny","system_fingerprint":"b11549","object":'
    b'"chat.completion","usage":{"completion_tokens":2,"prompt_tokens":24,"total_tokens":26,'
    b'"prompt_tokens_details":{"cached_tokens":23}},"id":"chatcmpl-S2JUWhmUG0FsVpseShmeNn2SwyarY2P2'
    b'",' + _TIMINGS + b"}"
)
_EVENT_END = (
    b'}],"created":1796067967,"id":"chatcmpl-Qo6oJ8zHYnG0D3PXPso2n2Bo8prQcG0c","model":"tiny",'
    b'"system_fingerprint":"b11549","object":"chat.completion.chunk"'
)
EVENT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" word"}'
    + _EVENT_END
    + b"}\n\n"
)
LAST_EVENTS = (
    b'data: {"choices":[{"finish_reason":"length","index":0,"delta":{}'
    + _EVENT_END
    + b","
    + _TIMINGS
    + b"}\n\ndata: [DONE]\n\n"
)
_SLOTS = (
    b'[{"id":0,"n_ctx":4096,"speculative":false,"is_processing":%s,"id_task":%d,"n_prompt_tokens":'
    b'%d,"n_prompt_tokens_processed":0,"n_prompt_tokens_cache":0,"params":{"seed":4294967295,'
    b'"temperature":0.800000011920929,"dynatemp_range":0.0,"dynatemp_exponent":1.0,"top_k":40,'
    b'"top_p":0.949999988079071,"min_p":0.05000000074505806,"top_n_sigma":-1.0,"xtc_probability":'
    b'0.0,"xtc_threshold":0.10000000149011612,"typical_p":1.0,"repeat_last_n":64,"repeat_penalty":'
    b'1.0,"presence_penalty":0.0,"frequency_penalty":0.0,"dry_multiplier":0.0,"dry_base":1.75,'
    b'"dry_allowed_length":2,"dry_penalty_last_n":64,"mirostat":0,"mirostat_tau":5.0,"mirostat_eta"'
    b':0.10000000149011612,"adaptive_target":-1.0,"adaptive_decay":0.8999999761581421,"max_tokens":'
    b'2,"n_predict":2,"n_keep":0,"n_discard":0,"ignore_eos":false,"stream":true,"n_probs":0,'
    b'"min_keep":0,"chat_format":"peg-native","reasoning_format":"deepseek","reasoning_in_content":'
    b'false,"generation_prompt":"assistant: ","samplers":["penalties","dry","top_n_sigma","top_k",'
    b'"typ_p","top_p","min_p","xtc","temperature"],"speculative.types":"none","timings_per_token":'
    b'false,"post_sampling_probs":false,"backend_sampling":false,"lora":[]},"next_token":[{'
    b'"has_next_token":false,"has_new_line":false,"n_remain":-1,"n_decoded":0}]}]'
)
_HEAD = (
    b"HTTP/1.1 %s\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n"
    b"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n%s\r\n"
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n"
    b"X-Accel-Buffering: no\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n%s"
    b"\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:\s*close", re.IGNORECASE)


_PROPS = (
    b'{"total_slots":1,"model_alias":"benchmark","model_path":"/models/benchmark.gguf",'
    b'"build_info":"b11549-0000000","is_sleeping":false}'
)


@define
class Model:
    """What the server knows: the one slot, and who waits."""

    task: int = 0
    busy: int = 0
    holding: bool = True
    held: list[Callable[[], None]] = field(factory=list)

    def slots(self) -> bytes:
        """The body of ``/slots``."""
        busy = b"true" if self.busy else b"false"
        return _SLOTS % (busy, self.task, TOKENS if self.task else 0)

    def release(self) -> None:
        """Answer what is held, and hold nothing more."""
        self.holding = False
        held, self.held = self.held, []
        for answer in held:
            answer()


class Connection(asyncio.Protocol):
    """One client's connection: requests one after the other, as many as it likes."""

    _transport: asyncio.Transport

    def __init__(self, model: Model, loop: asyncio.AbstractEventLoop) -> None:
        self._model = model
        self._loop = loop
        self._received = b""
        self._closing = False
        self._pinned = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer when the request is complete. Nobody sends the next one before its answer."""
        self._received = received = self._received + data
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = received[:head_end]
        length = _LENGTH.search(head)
        body_end = head_end + 4 + (int(length.group(1)) if length else 0)
        if len(received) < body_end:
            return
        self._received = b""
        self._closing = _CLOSE.search(head) is not None
        self._answer(head.split(b" ", 2)[1], received[head_end + 4 : body_end])

    def _answer(self, path: bytes, body: bytes) -> None:
        model = self._model
        if path == b"/slots":
            self._send(model.slots())
        elif path == b"/props":
            # a server that does not say what it is would be asked again for each request
            self._send(_PROPS)
        elif path == b"/held":
            self._send(b"%d" % len(model.held))
        elif path == b"/hold":
            model.holding = True
            self._send(b"{}")
        elif path == b"/release":
            model.release()
            self._send(b"{}")
        elif path.startswith(b"/slots/"):
            self._send(b'{"error":{"code":501,"message":"no slot files"}}', b"501 Not Implemented")
        else:
            self._generate(body)

    def _generate(self, body: bytes) -> None:
        fields = json.loads(body)
        # only the gateway pins to the slot; what comes around it leaves its sessions alone
        self._pinned = "id_slot" in fields
        if self._pinned:
            self._model.task += 1
            self._model.busy += 1
        if fields.get("hold") and self._model.holding:
            self._model.held.append(self._whole)
        elif fields.get("stream"):
            self._begin_stream(fields.get("events", 1), fields.get("spacing_ms", 0) / 1000)
        else:
            self._whole()

    def _whole(self) -> None:
        self._end()
        self._send(ANSWER)

    def _begin_stream(self, events: int, spacing: float) -> None:
        first = _STREAM_HEAD % self._last_header() + _chunk(EVENT)
        self._transport.write(first)
        self._next_event(events - 1, spacing, self._loop.time() + spacing)

    def _next_event(self, left: int, spacing: float, due: float) -> None:
        if left <= 0:
            self._end()
            self._transport.write(_chunk(LAST_EVENTS) + b"0\r\n\r\n")
            if self._closing:
                self._transport.close()
            return

        def send() -> None:
            self._transport.write(_chunk(EVENT))
            # after the one before and not after its time: one that came late comes alone too
            self._next_event(left - 1, spacing, self._loop.time() + spacing)

        self._loop.call_at(due, send)

    def _end(self) -> None:
        if self._pinned:
            self._model.busy -= 1

    def _send(self, body: bytes, status: bytes = b"200 OK") -> None:
        self._transport.write(_HEAD % (status, len(body), self._last_header()) + body)
        if self._closing:
            self._transport.close()

    def _last_header(self) -> bytes:
        return b"Connection: close\r\n" if self._closing else b"Keep-Alive: timeout=5, max=100\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve() -> None:
    """Serve on a free port until standard input ends."""
    loop = asyncio.get_running_loop()
    model = Model()
    port = 0
    for host in HOSTS:
        server = await loop.create_server(lambda: Connection(model, loop), host, port, backlog=1024)
        port = server.sockets[0].getsockname()[1]
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
