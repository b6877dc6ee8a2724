"""
A gateway, servers written byte by byte and blocking clients, over real sockets.
"""

from __future__ import annotations

import datetime
import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from klein import Klein
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from twisted.web.iweb import IRequest

from slotgate.config import Server
from slotgate.llama.upstream import Upstream, UpstreamError
from slotgate.web.errors import answer_error
from slotgate.web.headers import request_headers
from slotgate.web.limits import limited_site
from slotgate.web.relay import Ended, relay

reactor: Any = _reactor

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 2**20


class Conversation(Protocol):
    """
    The server's end of one connection.

    :ivar requests: complete requests so far, head and body.
    :ivar gone: fires with the time at which the connection was lost.
    """

    def __init__(self, script: Callable[[Conversation], None]) -> None:
        self.script = script
        self.received = b""
        self.requests: list[tuple[bytes, bytes]] = []
        self.gone: Deferred[float] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if blank and len(rest) >= length:
            self.received = rest[length:]
            self.requests.append((head, rest[:length]))
            self.script(self)

    def connectionLost(self, reason: object = None) -> None:
        self.gone.callback(time.monotonic())

    def say(self, data: bytes) -> None:
        transport: Any = self.transport
        transport.write(data)

    def close(self) -> None:
        transport: Any = self.transport
        transport.loseConnection()


class GatewayCase(TestCase):
    timeout = 20
    stall_seconds = 60.0

    def setUp(self) -> None:
        self.conversations: list[Conversation] = []
        self.ended: list[Ended] = []
        self.arrived: Deferred[Conversation] = Deferred()

    def serve(self, script: Callable[[Conversation], None], tls: Any = None) -> int:
        """
        Start a server; ``script`` runs for each complete request.
        """

        def build(address: object) -> Conversation:
            conversation = Conversation(script)
            self.conversations.append(conversation)
            return conversation

        factory: Any = Factory()
        factory.noisy = False
        factory.buildProtocol = build
        if tls is None:
            port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        else:
            port = reactor.listenSSL(0, factory, tls, interface="127.0.0.1")
        self.addCleanup(self.stop, port)
        number: int = port.getHost().port
        return number

    async def stop(self, port: Any) -> None:
        """
        Close the port and wait until its connections are gone.
        """
        await port.stopListening()
        for conversation in self.conversations:
            conversation.close()
            if not conversation.gone.called:
                await conversation.gone

    def gateway(self, server_port: int, scheme: str = "http", ca_file: Path | None = None) -> int:
        """
        Start the gateway.
        """
        url = f"{scheme}://127.0.0.1:{server_port}"
        self.upstream = Upstream(reactor, Server(name="s", url=url, ca_file=ca_file))
        app = Klein()

        @app.route("/", branch=True)
        async def handler(request: Any) -> bytes | None:
            try:
                response = await self.upstream.request(
                    request.method,
                    request.uri,
                    request_headers(request.requestHeaders, None),
                    request.content.getvalue(),
                )
            except UpstreamError as error:
                return answer_error(request, 502, str(error))
            self.ended.append(await self.relay(request, response))
            return None

        site = limited_site(app.resource(), reactor, 8 * MIB)
        connections: set[Any] = set()
        build: Any = site.buildProtocol

        def remember(address: object) -> Any:
            protocol = build(address)
            connections.add(protocol)
            return protocol

        site.buildProtocol = remember  # type: ignore[method-assign]
        port = reactor.listenTCP(0, site, interface="127.0.0.1")

        async def stop() -> None:
            await port.stopListening()
            for protocol in connections:
                protocol._channel.transport.abortConnection()
            await self.upstream.close()
            await turn()

        self.addCleanup(stop)
        number: int = port.getHost().port
        return number

    def relay(self, request: IRequest, response: Any) -> Deferred[Ended]:
        return relay(
            request,
            response,
            clock=reactor,
            stall_seconds=self.stall_seconds,
            silence_seconds=60,
        )


async def turn() -> None:
    """
    One turn of the reactor, for connections to be closed in.
    """
    later: Deferred[None] = Deferred()
    reactor.callLater(0, later.callback, None)
    await later


def in_thread(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    return deferToThread(function, *arguments)


def post(port: int, body: bytes = b"{}") -> socket.socket:
    """
    A client that has sent its request and has not read yet.
    """
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    return client


def read_answer(port: int, method: str = "POST", body: Any = b"{}") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, "/x", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def self_signed() -> tuple[bytes, bytes]:
    """
    A key and a certificate for 127.0.0.1, both as PEM.
    """
    import ipaddress

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
