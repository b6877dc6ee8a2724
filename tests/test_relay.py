"""
The relay between a server and a client, both in memory: a Klein application as the gateway's is,
Twisted's own HTTP on both sides, bytes at both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IRequest, IResponse

from slotgate.config import Server
from slotgate.llama.upstream import Upstream
from slotgate.web import relay as relay_module
from slotgate.web.headers import request_headers
from slotgate.web.limits import limited_site
from slotgate.web.relay import Ended, relay

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
STALL = 60.0
SILENCE = 300.0


class ClientTransport(StringTransport):
    """
    A client's connection that is aborted as a socket is: one turn of the reactor later.
    """

    protocol: Any

    def __init__(self, reactor: Any) -> None:
        super().__init__(lenient=True)
        self.reactor = reactor
        self.aborted = False
        self.after_abort = b""

    def abortConnection(self) -> None:
        if not self.aborted:
            self.aborted = True
            self.reactor.callLater(0, self.lose, ConnectionAborted())

    def lose(self, reason: Exception) -> None:
        producer: Any = self.producer
        if producer is not None:  # as FileDescriptor.connectionLost does
            producer.stopProducing()
        self.protocol.connectionLost(Failure(reason))

    def write(self, data: bytes) -> None:
        if self.aborted:
            self.after_abort += data
        super().write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))


class RelayCase(SynchronousTestCase):
    options: dict[str, Any]

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.upstream = Upstream(self.reactor, Server(name="s", url="http://127.0.0.1:8080"))
        self.options = {}
        self.outcomes: list[Any] = []
        app = Klein()

        @app.route("/", branch=True)
        async def handler(request: IRequest) -> None:
            try:
                response = await self.ask_server(request)
                self.outcomes.append(await self.relay(request, response))
            except CancelledError:
                self.outcomes.append(CancelledError)
                raise

        self.site = limited_site(app.resource(), self.reactor, 10**6)

    def ask_server(self, request: Any) -> Deferred[IResponse]:
        headers = request_headers(request.requestHeaders, None)
        body = request.content.getvalue()
        return self.upstream.request(request.method, request.uri, headers, body)

    def relay(self, request: IRequest, response: IResponse) -> Deferred[Ended]:
        return relay(
            request,
            response,
            clock=self.reactor,
            stall_seconds=STALL,
            silence_seconds=SILENCE,
            **self.options,
        )

    def connect_client(self) -> ClientTransport:
        protocol: Any = self.site.buildProtocol(None)
        transport = ClientTransport(self.reactor)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        return transport

    def connect_server(self) -> Any:
        factory = self.reactor.tcpClients[-1][2]
        self.server_transport: Any = StringTransport(lenient=True)
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(self.server_transport)
        self.server_says = protocol.dataReceived
        self.server_leaves = lambda reason=None: protocol.connectionLost(
            Failure(reason or ConnectionDone())
        )

    def exchange(
        self, method: bytes = b"POST", version: bytes = b"HTTP/1.1", more: bytes = b""
    ) -> ClientTransport:
        """
        A client that has asked, and a server that has the request.
        """
        client = self.connect_client()
        self.ask(client, method, version, more)
        return client

    def ask(
        self,
        client: ClientTransport,
        method: bytes = b"POST",
        version: bytes = b"HTTP/1.1",
        more: bytes = b"",
    ) -> None:
        client.protocol.dataReceived(method + b" /x " + version + b"\r\nHost: h\r\n\r\n" + more)
        self.connect_server()

    def sent(self, client: ClientTransport) -> bytes:
        value: bytes = client.value()
        return value

    def tearDown(self) -> None:
        self.reactor.advance(0)
        left = [call for call in self.reactor.getDelayedCalls() if "tick" in str(call)]
        self.assertEqual(left, [], "a relay has left its timer")


class AnswerTests(RelayCase):
    def test_the_head_goes_out_before_there_is_a_body(self) -> None:
        client = self.exchange()
        self.server_says(STREAM)
        self.assertTrue(self.sent(client).startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertIn(b"Transfer-Encoding: chunked\r\n", self.sent(client))
        self.assertTrue(self.sent(client).endswith(b"\r\n\r\n"))
        self.server_says(b"0\r\n\r\n")

    def test_each_piece_goes_out_when_it_comes_and_the_end_is_clean(self) -> None:
        client = self.exchange()
        self.server_says(STREAM)
        client.clear()
        self.server_says(b"5\r\nda")
        self.assertEqual(self.sent(client), b"2\r\nda\r\n")
        self.server_says(b"ta!\r\n")
        self.assertEqual(self.sent(client), b"2\r\nda\r\n3\r\nta!\r\n")
        self.server_says(b"0\r\n\r\n")
        self.assertTrue(self.sent(client).endswith(b"3\r\nta!\r\n0\r\n\r\n"))
        self.assertEqual(self.outcomes, [Ended.COMPLETE])

    def test_status_reason_and_headers_are_the_servers(self) -> None:
        self.options["added"] = {"X-Slotgate-Cache": "cold"}
        client = self.exchange()
        self.server_says(
            b"HTTP/1.1 418 I'm a teapot\r\nServer: llama.cpp\r\nSet-Cookie: a=1\r\n"
            b"Set-Cookie: b=2\r\nX-Slotgate-Cache: resident\r\nConnection: close\r\n"
            b"Keep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nno"
        )
        head, _, body = self.sent(client).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual(lines[0], b"HTTP/1.1 418 I'm a teapot")
        for line in (
            b"Server: llama.cpp",
            b"Set-Cookie: a=1",
            b"Set-Cookie: b=2",
            b"X-Slotgate-Cache: cold",
            b"Content-Length: 2",
        ):
            self.assertEqual(lines.count(line), 1, line)
        for gone in (b"Keep-Alive", b"Connection", b"resident", b"slotgate\r\n", b"text/html"):
            self.assertNotIn(gone, head)
        self.assertEqual(body, b"no")

    def test_a_server_without_a_name_gets_ours(self) -> None:
        client = self.exchange()
        self.server_says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"Server: slotgate\r\n", self.sent(client))
        self.assertIn(b"Content-Length: 0\r\n", self.sent(client))

    def test_answers_without_a_body(self) -> None:
        for head in (b"204 No Content\r\n", b'304 Not Modified\r\nETag: "x"\r\n'):
            client = self.exchange()
            self.server_says(b"HTTP/1.1 " + head + b"\r\n")
            self.assertNotIn(b"Content-Length", self.sent(client))
            self.assertNotIn(b"chunked", self.sent(client))
            self.assertTrue(self.sent(client).endswith(b"\r\n\r\n"))
        self.assertEqual(self.outcomes, [Ended.COMPLETE] * 2)

    def test_head_is_answered_with_the_length_and_no_body(self) -> None:
        client = self.exchange(b"HEAD")
        self.server_says(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        self.assertIn(b"Content-Length: 1234\r\n", self.sent(client))
        self.assertTrue(self.sent(client).endswith(b"\r\n\r\n"))
        self.assertEqual(self.outcomes, [Ended.COMPLETE])

    def test_a_client_of_http_1_0_gets_bare_bytes_and_a_closed_connection(self) -> None:
        client = self.exchange(version=b"HTTP/1.0")
        self.server_says(STREAM + b"2\r\nab\r\n0\r\n\r\n")
        self.assertTrue(self.sent(client).endswith(b"\r\n\r\nab"))
        self.assertTrue(client.disconnecting)
        self.assertFalse(client.aborted)

    def test_a_body_that_ends_with_the_connection(self) -> None:
        client = self.exchange()
        self.server_says(b"HTTP/1.0 200 OK\r\n\r\nab")
        self.server_leaves()
        self.assertTrue(self.sent(client).endswith(b"2\r\nab\r\n0\r\n\r\n"))
        self.assertEqual(self.outcomes, [Ended.COMPLETE])

    def test_the_clients_connection_serves_the_next_request(self) -> None:
        client = self.exchange()
        self.server_says(STREAM + b"0\r\n\r\n")
        self.ask(client)
        self.server_says(STREAM + b"0\r\n\r\n")
        self.assertEqual(self.sent(client).count(b"HTTP/1.1 200 OK"), 2)
        self.assertEqual(self.outcomes, [Ended.COMPLETE] * 2)

    def test_an_observer_sees_every_piece(self) -> None:
        seen: list[bytes] = []
        self.options["observe"] = seen.append
        self.exchange()
        self.server_says(STREAM + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        self.assertEqual(seen, [b"ab", b"c"])

    def test_an_observer_that_fails_is_logged_once_and_harms_nobody(self) -> None:
        def observe(data: bytes) -> None:
            raise ZeroDivisionError

        self.options["observe"] = observe
        client = self.exchange()
        self.server_says(STREAM + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        self.assertTrue(self.sent(client).endswith(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class BackPressureTests(RelayCase):
    def streaming(self, *, more: bytes = b"") -> ClientTransport:
        client = self.exchange()
        self.server_says(STREAM + more)
        return client

    def pause(self, client: Any) -> None:
        client.producer.pauseProducing()

    def resume(self, client: Any) -> None:
        client.producer.resumeProducing()

    def test_a_full_client_pauses_the_server(self) -> None:
        client = self.streaming()
        self.assertEqual(self.server_transport.producerState, "producing")
        self.pause(client)
        self.assertEqual(self.server_transport.producerState, "paused")
        self.resume(client)
        self.assertEqual(self.server_transport.producerState, "producing")
        self.server_says(b"0\r\n\r\n")
        self.assertEqual(self.outcomes, [Ended.COMPLETE])

    def test_pieces_that_come_after_a_pause_are_not_lost(self) -> None:
        client = self.streaming()
        self.pause(client)
        self.server_says(b"2\r\nab\r\n0\r\n\r\n")
        self.assertTrue(self.sent(client).endswith(b"2\r\nab\r\n0\r\n\r\n"))
        self.assertEqual(self.outcomes, [Ended.COMPLETE])

    def test_every_pause_counts(self) -> None:
        # Twisted resumes the server's transport after it has handed over the first pieces.
        client = self.streaming()
        self.pause(client)
        self.server_transport.resumeProducing()
        self.pause(client)
        self.assertEqual(self.server_transport.producerState, "paused")
        self.resume(client)
        self.server_says(b"0\r\n\r\n")

    def test_a_client_that_takes_nothing_for_its_time_is_cut(self) -> None:
        client = self.streaming()
        self.reactor.pump([1.0] * 100)  # not paused: a quiet server is no stalled client
        self.pause(client)
        self.reactor.pump([1.0] * 59)
        self.assertFalse(client.aborted)
        self.reactor.pump([1.0] * 9)
        self.assertTrue(client.aborted)
        self.assertTrue(self.server_transport.disconnected)
        self.assertEqual(self.outcomes, [Ended.CLIENT_STALLED])
        self.assertEqual(client.after_abort, b"")

    def test_a_client_that_takes_a_little_at_a_time_is_not_cut(self) -> None:
        waiting = [10**6]
        self.patch(relay_module, "unsent", lambda transport: waiting[0])
        client = self.streaming()
        self.pause(client)
        for _ in range(6):
            self.reactor.pump([1.0] * 50)
            waiting[0] -= 1
        self.assertFalse(client.aborted)
        self.reactor.pump([1.0] * 75)
        self.assertTrue(client.aborted)
        self.assertEqual(self.outcomes, [Ended.CLIENT_STALLED])

    def test_a_client_that_resumes_starts_afresh(self) -> None:
        client = self.streaming()
        for _ in range(3):
            self.pause(client)
            self.reactor.pump([1.0] * 59)
            self.resume(client)
        self.assertFalse(client.aborted)
        self.server_says(b"0\r\n\r\n")

    def test_a_server_that_falls_silent_has_failed(self) -> None:
        client = self.streaming()
        self.reactor.pump([1.0] * 299)
        self.server_says(b"1\r\nx\r\n")
        self.reactor.pump([1.0] * 299)
        self.assertFalse(client.aborted)
        self.reactor.pump([1.0] * 9)
        self.assertTrue(client.aborted)
        self.assertTrue(self.server_transport.disconnected)
        self.assertEqual(self.outcomes, [Ended.UPSTREAM_FAILED])

    def test_the_server_is_not_blamed_for_the_clients_pause(self) -> None:
        client = self.streaming()
        for _ in range(10):
            self.pause(client)
            self.reactor.pump([1.0] * 50)
            self.resume(client)
        self.reactor.pump([1.0] * 299)
        self.assertFalse(client.aborted)
        self.server_says(b"0\r\n\r\n")


class BrokenAnswerTests(RelayCase):
    """
    What breaks after the head never looks like an end, and leaves nothing in the log but a line
    (an error logged by Twisted or Klein would fail these tests).
    """

    def assert_cut(self, client: ClientTransport) -> None:
        self.assertTrue(client.aborted)
        self.assertNotIn(b"\r\n0\r\n\r\n", self.sent(client))
        self.assertEqual(self.outcomes, [], "told before the client's connection was lost")
        self.reactor.advance(0)
        self.assertEqual(self.outcomes, [Ended.UPSTREAM_FAILED])
        self.assertEqual(client.after_abort, b"")
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_a_connection_lost_between_two_chunks(self) -> None:
        for reason in (ConnectionDone(), ConnectionLost()):
            self.outcomes.clear()
            client = self.exchange()
            self.server_says(STREAM + b"2\r\nab\r\n")
            self.server_leaves(reason)
            self.assert_cut(client)

    def test_a_connection_lost_before_the_body(self) -> None:
        client = self.exchange()
        self.server_says(STREAM)
        self.server_leaves()
        self.assert_cut(client)

    def test_a_body_shorter_than_announced(self) -> None:
        client = self.exchange()
        self.server_says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        self.server_leaves()
        self.assert_cut(client)

    def test_chunks_that_are_none(self) -> None:
        client = self.exchange()
        self.server_says(STREAM + b"zz\r\nab\r\n")
        self.assert_cut(client)

    def test_a_request_behind_the_broken_one_is_not_begun(self) -> None:
        client = self.exchange(more=b"GET /behind HTTP/1.1\r\nHost: h\r\n\r\n")
        self.server_says(STREAM)
        self.server_leaves()
        self.assert_cut(client)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_what_the_server_says_after_the_end_is_not_heard(self) -> None:
        self.options["observe"] = self.outcomes.append
        client = self.exchange()
        self.server_says(STREAM)
        self.reactor.pump([1.0] * 340)
        self.assertEqual(self.outcomes, [Ended.UPSTREAM_FAILED])
        before = self.sent(client)
        self.server_says(b"2\r\nab\r\n")
        self.assertEqual(self.sent(client), before)
        self.assertEqual(self.outcomes, [Ended.UPSTREAM_FAILED])


class ClientGoneTests(RelayCase):
    def test_before_the_first_byte(self) -> None:
        client = self.exchange()
        client.lose(ConnectionDone())
        self.assertTrue(self.server_transport.disconnected)
        self.assertEqual(self.outcomes, [CancelledError])

    def test_in_mid_stream(self) -> None:
        for method in (b"POST", b"GET"):
            self.outcomes.clear()
            client = self.exchange(method)
            self.server_says(STREAM + b"2\r\nab\r\n")
            client.lose(ConnectionDone())
            self.assertTrue(self.server_transport.disconnecting)
            self.assertEqual(self.outcomes, [CancelledError])
            self.server_says(b"2\r\nab\r\n")
            self.server_leaves()
            self.assertEqual(self.flushLoggedErrors(), [])

    def test_while_it_was_paused(self) -> None:
        client: Any = self.exchange()
        self.server_says(STREAM + b"2\r\nab\r\n")
        client.producer.pauseProducing()
        client.lose(ConnectionLost())
        self.assertTrue(self.server_transport.disconnected)
        self.assertEqual(self.outcomes, [CancelledError])


class UnownedRelayTests(RelayCase):
    """
    A relay on a Deferred that the request does not own, as one that holds a slot is.
    """

    def setUp(self) -> None:
        super().setUp()
        self.relaying: Deferred[None] = Deferred()
        self.before_relay: Callable[[], None] = lambda: None
        relay_it = self.relay

        def unowned(request: IRequest, response: IResponse) -> Deferred[Ended]:
            self.before_relay()
            self.relaying = relay_it(request, response).addBoth(self.outcomes.append)
            return Deferred()

        self.relay = unowned  # type: ignore[method-assign]

    def test_it_is_told_that_the_client_has_gone(self) -> None:
        client = self.exchange()
        self.server_says(STREAM)
        client.lose(ConnectionDone())
        self.assertTrue(self.server_transport.disconnected)
        self.assertCountEqual(self.outcomes, [Ended.CLIENT_GONE, CancelledError])

    def test_it_is_told_why_it_was_aborted(self) -> None:
        self.exchange()
        self.server_says(STREAM)
        self.server_leaves()
        self.reactor.advance(0)
        self.assertCountEqual(self.outcomes, [Ended.UPSTREAM_FAILED, CancelledError])

    def test_when_it_is_cancelled_both_sides_are_cut(self) -> None:
        client = self.exchange()
        self.server_says(STREAM)
        self.relaying.cancel()
        self.assertTrue(self.server_transport.disconnected)
        self.assertTrue(client.aborted)

    def test_a_client_that_went_before_the_relay_began(self) -> None:
        client = self.exchange()
        self.before_relay = lambda: client.lose(ConnectionDone())
        self.server_says(STREAM)
        self.assertTrue(self.server_transport.disconnected)
        self.assertIn(Ended.CLIENT_GONE, self.outcomes)
