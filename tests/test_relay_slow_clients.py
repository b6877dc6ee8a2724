"""
Clients that read slowly or not at all, over real sockets.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from pathlib import Path

from relay_gateway import (
    MIB,
    GatewayCase,
    in_thread,
    post,
)

from slotgate.web._unsent import unsent
from slotgate.web.relay import Ended


def resident() -> int:
    """
    This process's resident memory in bytes.
    """
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Burst:
    """
    A server, in a thread, that sends as fast as it is allowed to.

    :ivar sent: the bytes it got rid of.
    :ivar blocked: set when the gateway has taken nothing for half a second, or everything.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0
        self.blocked = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        self.listener.settimeout(10)
        connection, _ = self.listener.accept()
        piece = memoryview(b"x" * 65536)
        with self.listener, connection:
            connection.recv(65536)
            connection.settimeout(0.5)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.size)
            while self.sent < self.size:
                try:
                    self.sent += connection.send(piece[: self.size - self.sent])
                except TimeoutError:
                    self.blocked.set()
                except OSError:
                    break
            self.blocked.set()


class SlowClientTests(GatewayCase):
    async def test_a_burst_of_300_mb_does_not_pile_up_for_a_client_that_does_not_read(self) -> None:
        burst = Burst(300 * MIB)
        port = self.gateway(burst.port)
        before = resident()
        client = await in_thread(post, port)
        await in_thread(burst.blocked.wait, 15)
        grown = resident() - before
        self.assertLess(burst.sent, 100 * MIB, "the server was not held back")
        self.assertLess(grown, 20 * MIB)
        client.close()
        await in_thread(burst.thread.join, 10)
        self.assertFalse(burst.thread.is_alive())

    async def test_a_burst_reaches_a_client_that_reads_late(self) -> None:
        burst = Burst(40 * MIB)
        port = self.gateway(burst.port)
        client = await in_thread(post, port)
        await in_thread(burst.blocked.wait, 15)

        def read_all() -> int:
            total = 0
            while total < 40 * MIB:
                total += len(client.recv(MIB))
            client.close()
            return total

        self.assertGreaterEqual(await in_thread(read_all), 40 * MIB)
        await in_thread(burst.thread.join, 10)


class StallTests(GatewayCase):
    stall_seconds = 0.6

    async def test_a_client_that_stops_reading_is_cut_after_its_time(self) -> None:
        burst = Burst(300 * MIB)
        port = self.gateway(burst.port)
        began = time.monotonic()
        client = await in_thread(post, port)
        await in_thread(burst.thread.join, 10)
        took = time.monotonic() - began
        self.assertFalse(burst.thread.is_alive())
        self.assertLess(burst.sent, 100 * MIB)
        self.assertGreaterEqual(took, 0.6)
        self.assertLess(took, 3)

        def read_all() -> int:
            total = 0
            while data := client.recv(MIB):
                total += len(data)
            return total

        with self.assertRaises(ConnectionResetError):
            await in_thread(read_all)
        client.close()
        self.assertEqual(self.ended, [Ended.CLIENT_STALLED])


class UnsentTests(GatewayCase):
    def test_what_a_peer_has_not_taken_is_counted_and_taking_it_shows(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            client.connect(listener.getsockname())
            server, _ = listener.accept()
            with server:
                self.assertEqual(unsent(server), 0)
                server.setblocking(False)
                with self.assertRaises(BlockingIOError):
                    while True:
                        server.send(b"x" * 65536)
                full = unsent(server)
                assert full is not None
                self.assertGreater(full, 0)
                client.settimeout(5)
                while unsent(server) == full:
                    client.recv(4096)
                self.assertLess(unsent(server) or 0, full)

    def test_what_is_no_socket_has_no_count(self) -> None:
        self.assertIsNone(unsent(object()))
        with tempfile.TemporaryFile() as file:
            self.assertIsNone(unsent(file))
