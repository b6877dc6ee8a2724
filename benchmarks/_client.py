"""
The clients of the benchmark: raw sockets and keep-alive, as little of their own time as possible.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from attrs import define, field, frozen

from benchmarks import _upstream

TIMEOUT_SECONDS = 30.0
_RESIDENT = b"x-slotgate-cache: resident\r\n"


class Unexpected(Exception):
    """An answer that is not the one the benchmark measures."""


@frozen
class Target:
    """
    Where requests go and what they are to find.

    :ivar model: the model named in the requests: it chooses the route.
    :ivar resident: the answer must say that the session was in the slot.
    """

    port: int
    model: str
    resident: bool = False

    def request(self, **fields: object) -> bytes:
        """A chat request's bytes, with the headers that a usual client sends."""
        body = json.dumps(
            {
                "model": self.model,
                "messages": [
                    {"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": "What is the capital of France?"},
                ],
                "max_tokens": 2,
                **fields,
            }
        ).encode()
        return (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"User-Agent: benchmark/1\r\nAccept: application/json\r\n"
            b"Accept-Encoding: gzip, deflate\r\nContent-Type: application/json\r\n"
            b"X-Session-ID: 0123456789abcdef0123456789abcdef\r\nContent-Length: %d\r\n\r\n%s"
            % (self.port, len(body), body)
        )


@frozen
class Exchange:
    """
    One answer.

    :ivar first_byte: seconds from the request to the first byte of the answer's body.
    :ivar reads: how many reads the answer took.
    """

    first_byte: float
    reads: int


@define(eq=False)
class Caller:
    """One keep-alive connection to a target."""

    target: Target
    _socket: socket.socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", self.target.port), timeout=TIMEOUT_SECONDS
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For the selector."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Send a request without waiting for the answer."""
        self._socket.sendall(request)

    def read(self) -> bytes:
        """
        What has come.

        :raises Unexpected: the connection was closed.
        """
        if data := self._socket.recv(1 << 16):
            return data
        raise Unexpected("the connection was closed")

    def exchange(self, request: bytes) -> Exchange:
        """Send a request and read its whole answer."""
        began = time.perf_counter()
        self._socket.sendall(request)
        return self.answer(began)

    def answer(self, began: float = 0.0) -> Exchange:
        """
        Read a whole answer.

        :raises Unexpected: it is not the one that is measured.
        """
        received, reads, first_byte = b"", 0, 0.0
        while True:
            received += self.read()
            reads += 1
            if not first_byte:
                _, found, body = received.partition(b"\r\n\r\n")
                if found and body:
                    first_byte = time.perf_counter() - began
            if is_complete(received):
                check(received, self.target)
                return Exchange(first_byte, reads)


def is_complete(received: bytes) -> bool:
    """Whether this is a whole answer; both kinds are known by their last bytes."""
    return received.endswith((b"0\r\n\r\n", _upstream.ANSWER))


def check(received: bytes, target: Target) -> None:
    """
    :raises Unexpected: not a success, or not with the session in the slot.
    """
    head, _, _ = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise Unexpected(f"not a success: {received[:400]!r}")
    if target.resident and _RESIDENT not in head.lower() + b"\r\n":
        raise Unexpected(f"the session was not in the slot: {head!r}")


def load(target: Target, connections: int, seconds: float) -> tuple[int, float]:
    """
    Each connection sends its next request right after an answer.

    :return: how many were answered, and in how many seconds.
    """
    request = target.request()
    callers = [Caller(target) for _ in range(connections)]
    answered = 0
    with selectors.DefaultSelector() as selector:
        received: dict[Caller, bytes] = {}
        for caller in callers:
            selector.register(caller, selectors.EVENT_READ, caller)
            received[caller] = b""
        began = time.perf_counter()
        for caller in callers:
            caller.send(request)
        running = connections
        ended = began + seconds
        while running:
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise Unexpected(f"no answer for {TIMEOUT_SECONDS:g} s")
            for key, _ in ready:
                caller = key.data
                received[caller] += caller.read()
                if not is_complete(received[caller]):
                    continue
                check(received[caller], target)
                received[caller] = b""
                answered += 1
                if time.perf_counter() < ended:
                    caller.send(request)
                else:
                    running -= 1
        took = time.perf_counter() - began
    for caller in callers:
        caller.__exit__(None, None, None)
    return answered, took


def ask(port: int, path: str) -> str:
    """Ask the benchmark's server for one of its own paths; the body."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    return received.partition(b"\r\n\r\n")[2].decode()


def interleaved(
    targets: Mapping[str, Target], count: int, pause: float, **fields: object
) -> dict[str, Sequence[float]]:
    """
    Seconds to the first byte of the body, of one request to each target in turn.

    :param pause: seconds between requests. The gateway looks at the slot once an answer has
        ended; a person's next request does not come before that is over.
    """
    found: dict[str, list[float]] = {name: [] for name in targets}
    callers = {name: Caller(target) for name, target in targets.items()}
    try:
        for _ in range(count):
            for name, caller in callers.items():
                request = caller.target.request(**fields)
                time.sleep(pause)
                found[name].append(caller.exchange(request).first_byte)
    finally:
        for caller in callers.values():
            caller.__exit__(None, None, None)
    return dict(found)
