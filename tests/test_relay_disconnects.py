"""
A client that goes away over real sockets: the server learns it at once.
"""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from relay_gateway import (
    STREAM,
    Conversation,
    GatewayCase,
    in_thread,
    post,
    read_answer,
    self_signed,
    turn,
)
from twisted.internet.ssl import PrivateCertificate


class ClientGoneTests(GatewayCase):
    """
    The server learns at once that nobody waits any more.
    """

    async def leave(self, client: socket.socket, conversation: Conversation) -> None:
        left = time.monotonic()
        client.close()
        self.assertLess(await conversation.gone - left, 0.2)

    async def test_before_the_first_byte(self) -> None:
        port = self.gateway(self.serve(self.arrived_at))
        client = await in_thread(post, port)
        await self.leave(client, await self.arrived)

    async def test_in_mid_stream(self) -> None:
        port = self.gateway(self.serve(self.arrived_at))
        client = await in_thread(post, port)
        conversation = await self.arrived
        conversation.say(STREAM + b"2\r\nab\r\n")
        await in_thread(client.recv, 1000)
        await self.leave(client, conversation)

    async def test_in_mid_stream_over_tls(self) -> None:
        # A closed TLS connection waits for the server's goodbye; a busy server says none.
        port = self.tls_gateway()
        client = await in_thread(post, port)
        conversation = await self.arrived
        conversation.say(STREAM + b"2\r\nab\r\n")
        await in_thread(client.recv, 1000)
        transport: Any = conversation.transport
        transport.pauseProducing()
        left = time.monotonic()
        client.close()
        while not conversation.gone.called:
            conversation.say(b"2\r\nab\r\n")
            await turn()
        self.assertLess(time.monotonic() - left, 1.0)

    async def test_a_client_that_has_pipelined_more_than_is_read(self) -> None:
        # Its connection is not read any more; writing to it tells that it is gone.
        port = self.gateway(self.serve(self.arrived_at))
        client = await in_thread(post, port)
        conversation = await self.arrived
        conversation.say(STREAM + b"2\r\nab\r\n")
        await in_thread(client.recv, 1000)
        await in_thread(client.sendall, b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        client.close()
        while not conversation.gone.called:
            conversation.say(b"2\r\nab\r\n")
            await turn()

    def arrived_at(self, conversation: Conversation) -> None:
        self.arrived.callback(conversation)

    def tls_gateway(self) -> int:
        key, pem = self_signed()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ca_file = Path(folder.name) / "ca.pem"
        ca_file.write_bytes(b"some text before\n" + pem)
        options = PrivateCertificate.loadPEM(key + pem).options()
        return self.gateway(self.serve(self.arrived_at, options), "https", ca_file)

    async def test_a_certificate_that_is_not_trusted_is_told_so(self) -> None:
        self.tls_gateway()
        other = self.gateway(self.serve(self.arrived_at, self.other_certificate()), "https")
        status, body = await in_thread(read_answer, other)
        self.assertEqual(status, 502)
        self.assertIn(b"TLS failed, certificate verify failed", body)

    def other_certificate(self) -> Any:
        key, pem = self_signed()
        return PrivateCertificate.loadPEM(key + pem).options()
