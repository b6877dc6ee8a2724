"""
The relay over real sockets: bytes, connections and failures.
"""

from __future__ import annotations

import http.client
import random
import socket
from collections.abc import Iterator

from relay_gateway import (
    MIB,
    STREAM,
    Conversation,
    GatewayCase,
    in_thread,
    ok,
    reactor,
    read_answer,
)

from slotgate.web.relay import Ended


class BytesTests(GatewayCase):
    async def test_a_stream_of_2000_chunks_arrives_byte_for_byte(self) -> None:
        dice = random.Random(7)
        pieces = [dice.randbytes(dice.choice((1, 7, 160, 3000))) for _ in range(2000)]
        wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

        def script(conversation: Conversation) -> None:
            conversation.say(STREAM)
            cuts: Iterator[int] = iter(sorted(dice.sample(range(len(wire)), 3000)))

            def more(start: int) -> None:
                end = next(cuts, None)
                conversation.say(wire[start:end])
                if end is not None:
                    reactor.callLater(0, more, end)

            more(0)

        port = self.gateway(self.serve(script))
        status, body = await in_thread(read_answer, port)
        self.assertEqual(status, 200)
        self.assertEqual(body, b"".join(pieces))
        self.assertEqual(self.ended, [Ended.COMPLETE])

    async def test_a_chunked_request_body_arrives_whole(self) -> None:
        port = self.gateway(self.serve(lambda one: one.say(ok(one.requests[-1][1]))))
        pieces = [b"a" * 70_000, b"b", b"c" * 200_000]
        status, body = await in_thread(read_answer, port, "POST", iter(pieces))
        self.assertEqual((status, body), (200, b"".join(pieces)))

    async def test_a_large_request_body_arrives_whole(self) -> None:
        port = self.gateway(self.serve(lambda one: one.say(ok(b"%d" % len(one.requests[-1][1])))))
        status, body = await in_thread(read_answer, port, "POST", b"x" * 5 * MIB)
        self.assertEqual((status, body), (200, b"%d" % (5 * MIB)))

    async def test_a_too_large_body_is_answered_though_the_client_sends_it_all(self) -> None:
        port = self.gateway(self.serve(lambda one: one.say(ok(b""))))
        status, body = await in_thread(read_answer, port, "POST", b"x" * 20 * MIB)
        self.assertEqual(status, 413)
        self.assertIn(b"limit of 8388608 bytes", body)
        self.assertEqual(self.conversations, [])


class ConnectionTests(GatewayCase):
    async def test_a_thousand_requests_on_one_client_connection(self) -> None:
        port = self.gateway(self.serve(lambda one: one.say(ok(one.requests[-1][1] or b"got"))))

        def ask() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.connect()
            own = connection.sock
            good = 0
            for number in range(500):
                for method, body in (("POST", b"%d" % number), ("GET", None)):
                    connection.request(method, "/x", body)
                    answer = connection.getresponse()
                    good += answer.status == 200 and answer.read() == (body or b"got")
            good -= 1000 * (connection.sock is not own)
            connection.close()
            return good

        self.assertEqual(await in_thread(ask), 1000)
        gets = [one for one in self.conversations if one.requests[0][0].startswith(b"GET")]
        self.assertEqual(len(self.conversations) - len(gets), 500)
        self.assertEqual(len(gets), 1)

    async def test_a_post_is_never_sent_twice(self) -> None:
        port = self.gateway(self.serve(lambda one: one.close()))
        for _ in range(20):
            status, body = await in_thread(read_answer, port)
            self.assertEqual(status, 502)
            self.assertIn(b"server 's' at http://127.0.0.1", body)
        self.assertEqual(sum(len(one.requests) for one in self.conversations), 20)

    async def test_gets_survive_a_server_that_closes_at_the_moment_of_reuse(self) -> None:
        def script(conversation: Conversation) -> None:
            if len(conversation.requests) == 1:
                conversation.say(ok(b"fine"))
            else:
                conversation.close()

        port = self.gateway(self.serve(script))
        for _ in range(50):
            self.assertEqual(await in_thread(read_answer, port, "GET", None), (200, b"fine"))
        self.assertGreater(sum(len(one.requests) for one in self.conversations), 50)

    async def test_posts_survive_a_server_that_closes_at_the_moment_of_reuse(self) -> None:
        def script(conversation: Conversation) -> None:
            if len(conversation.requests) == 1:
                conversation.say(ok(b"fine"))
            else:
                conversation.close()

        port = self.gateway(self.serve(script))
        for _ in range(50):
            self.assertEqual(await in_thread(read_answer, port), (200, b"fine"))

    async def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            number = free.getsockname()[1]
        status, body = await in_thread(read_answer, self.gateway(number))
        self.assertEqual(status, 502)
        self.assertIn(b"connection refused", body)

    async def test_an_answer_that_breaks_off_is_no_end_to_the_client(self) -> None:
        def script(conversation: Conversation) -> None:
            conversation.say(STREAM + b"2\r\nab\r\n")
            conversation.close()

        port = self.gateway(self.serve(script))
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            await in_thread(read_answer, port)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.ended, [Ended.UPSTREAM_FAILED])
