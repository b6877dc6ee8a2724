"""
Requests to one server: what goes over the wire, on which connection, and every way to fail.
"""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate.config import Server
from slotgate.llama.upstream import (
    Abortable,
    Upstream,
    UpstreamSilent,
    UpstreamUnreachable,
    drop,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire:
    """
    The server's end of a connection that was asked for.
    """

    def __init__(self, connection: Any) -> None:
        self.host, self.port, self.factory, self.timeout, _ = connection
        # lenient: as with a socket, resuming a closed one does nothing
        self.transport: Any = StringTransport(lenient=True)

    def connect(self) -> Wire:
        self.protocol = self.factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        return self

    def refuse(self, error: Exception) -> None:
        self.factory.clientConnectionFailed(None, Failure(error))

    def answer(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def lose(self, reason: Exception | None = None) -> None:
        self.protocol.connectionLost(Failure(reason or ConnectionDone()))

    def sent(self) -> bytes:
        value: bytes = self.transport.value()
        return value


class UpstreamCase(SynchronousTestCase):
    server = Server(name="local", url="http://127.0.0.1:8080", read_timeout_seconds=30.0)

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.upstream = Upstream(self.reactor, self.server)

    def ask(
        self,
        method: bytes = b"POST",
        target: bytes = b"/completion",
        body: bytes | None = b"{}",
        headers: Headers | None = None,
    ) -> Deferred[IResponse]:
        return self.upstream.request(method, target, headers or Headers(), body)

    def get(self, target: bytes = b"/props") -> Deferred[IResponse]:
        return self.ask(b"GET", target, None)

    def wire(self, index: int = -1) -> Wire:
        return Wire(self.reactor.tcpClients[index])

    def wires(self) -> int:
        return len(self.reactor.tcpClients)

    def failure(self, asked: Deferred[IResponse], kind: type[Exception]) -> str:
        return str(self.failureResultOf(asked, kind).value)

    def cancel(self, asked: Deferred[IResponse]) -> None:
        asked.cancel()
        self.failureResultOf(asked, CancelledError)

    def tearDown(self) -> None:
        closed = self.upstream.close()
        if self.reactor.getDelayedCalls():
            raise AssertionError(f"timers left: {self.reactor.getDelayedCalls()}")
        closed.addErrback(lambda failure: None)


class RequestTests(UpstreamCase):
    def test_method_target_headers_and_body_go_out_as_they_are(self) -> None:
        headers = Headers({"Content-Type": ["application/json"], "Accept": ["a", "b"]})
        asked = self.ask(b"POST", b"/v1/x?a=%20&b", b'{"n":1}', headers)
        wire = self.wire().connect()
        head, _, body = wire.sent().partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual(lines[0], b"POST /v1/x?a=%20&b HTTP/1.1")
        self.assertEqual(
            sorted(lines[1:]),
            [
                b"Accept: a",
                b"Accept: b",
                b"Connection: close",
                b"Content-Length: 7",
                b"Content-Type: application/json",
                b"Host: 127.0.0.1:8080",
            ],
        )
        self.assertEqual(body, b'{"n":1}')
        self.assertFalse(headers.hasHeader("Host"))
        wire.answer(OK)
        self.assertEqual(self.successResultOf(asked).code, 200)

    def test_the_target_is_not_tidied_up(self) -> None:
        for target in (b"/x?y", b"/x;y", b"/a//b", b"/a/./b", b"/%2fx?http://evil/", b"/@e"):
            asked = self.ask(target=target)
            wire = self.wire().connect()
            self.assertEqual(wire.sent().split(b" ")[1], target)
            self.cancel(asked)

    def test_but_for_a_query_that_is_empty(self) -> None:
        asked = self.ask(target=b"/x?")
        self.assertEqual(self.wire().connect().sent().split(b" ")[1], b"/x")
        self.cancel(asked)

    def test_what_would_go_out_as_another_path_is_refused(self) -> None:
        # nobody has decided about /completion, if the request was for /completion;
        for target in (b"/completion;", b"/completion;?", b"/completion;?x"):
            with self.assertRaises(ValueError, msg=repr(target)):
                self.ask(target=target)

    def test_a_target_that_is_not_a_path_is_refused(self) -> None:
        for target in (
            b"",
            b"x",
            b"*",
            b"//evil/x",
            b"http://evil/x",
            b"/a b",
            b"/a\r\nX-Slotgate: 1",
            b"/a\n",
            b"/a\x00",
            b"/a\x7f",
            b"/\xc3\xa4",
            b"/v1/completions#x",
        ):
            with self.assertRaises(ValueError, msg=repr(target)):
                self.ask(target=target)

    def test_a_path_that_climbs_is_refused(self) -> None:
        for target in (b"/..", b"/a/../b", b"/a/%2e%2E/b", b"/..%2fx", b"/a/..\\b"):
            with self.assertRaises(ValueError, msg=repr(target)):
                self.ask(target=target)
        self.assertEqual(self.wires(), 0)

    def test_two_dots_elsewhere_are_no_climbing(self) -> None:
        for target in (b"/a..b", b"/x?p=../y"):
            self.cancel(self.ask(target=target))

    def test_a_client_cannot_choose_the_host(self) -> None:
        asked = self.ask(headers=Headers({"Host": ["evil"]}), target=b"/@evil:1/")
        wire = self.wire().connect()
        self.assertEqual((wire.host, wire.port), ("127.0.0.1", 8080))
        self.assertIn(b"Host: 127.0.0.1:8080\r\n", wire.sent())
        self.assertNotIn(b"Host: evil", wire.sent())
        self.cancel(asked)

    def test_an_empty_body_is_sent_as_such(self) -> None:
        for body in (None, b""):
            asked = self.ask(body=body)
            self.assertIn(b"Content-Length: 0\r\n", self.wire().connect().sent())
            self.cancel(asked)

    def test_interim_answers_are_not_the_answer(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertNoResult(asked)
        wire.answer(OK)
        self.assertEqual(self.successResultOf(asked).code, 200)


class AddressTests(UpstreamCase):
    def use(self, url: str) -> Wire:
        self.upstream = Upstream(self.reactor, attrs.evolve(self.server, url=url))
        self.asked = self.ask()
        return self.wire()

    def tearDown(self) -> None:
        self.asked.addErrback(lambda failure: None)
        self.asked.cancel()
        super().tearDown()

    def test_a_path_in_the_url_is_put_in_front(self) -> None:
        wire = self.use("http://10.0.0.1/llama/").connect()
        self.assertEqual((wire.host, wire.port, wire.timeout), ("10.0.0.1", 80, 10))
        self.assertTrue(wire.sent().startswith(b"POST /llama/completion HTTP/1.1\r\n"))
        self.assertIn(b"Host: 10.0.0.1\r\n", wire.sent())

    def test_an_ipv6_address(self) -> None:
        wire = self.use("http://[::1]:8080").connect()
        self.assertEqual((wire.host, wire.port), ("::1", 8080))
        self.assertIn(b"Host: [::1]:8080\r\n", wire.sent())

    def test_localhost_is_asked_for_at_127_0_0_1_first_and_then_at_1(self) -> None:
        first = self.use("http://localhost:8080")
        self.assertEqual(first.host, "127.0.0.1")
        first.refuse(Refused())
        second = self.wire().connect()
        self.assertEqual(second.host, "::1")
        self.assertIn(b"Host: localhost:8080\r\n", second.sent())

    def test_localhost_that_refuses_at_both(self) -> None:
        self.use("http://localhost:8080").refuse(Refused())
        self.wire().refuse(Refused())
        self.assertIn("connection refused", self.failure(self.asked, UpstreamUnreachable))

    def test_what_is_no_address_of_a_server(self) -> None:
        self.asked = Deferred()
        for url in ("ftp://h", "http://", "/x", "unix:/x"):
            with self.assertRaises(ValueError, msg=url):
                Upstream(self.reactor, attrs.evolve(self.server, url=url))

    def test_a_password_in_the_url_is_not_told(self) -> None:
        self.use("http://me:secret@127.0.0.1:8080").refuse(Refused())
        message = self.failure(self.asked, UpstreamUnreachable)
        self.assertNotIn("secret", message)
        self.assertIn("http://127.0.0.1:8080", message)


class FailureTests(UpstreamCase):
    def test_nobody_listens(self) -> None:
        asked = self.ask()
        self.wire().refuse(Refused())
        self.assertEqual(
            self.failure(asked, UpstreamUnreachable),
            "server 'local' at http://127.0.0.1:8080 cannot be reached: connection refused",
        )

    def test_nobody_takes_the_connection(self) -> None:
        asked = self.ask()
        self.wire().refuse(ConnectTimeout())
        message = self.failure(asked, UpstreamUnreachable)
        self.assertIn("does not take the connection", message)

    def test_the_connection_is_lost_before_an_answer(self) -> None:
        for reason in (ConnectionDone(), ConnectionLost()):
            asked = self.ask()
            self.wire().connect().lose(reason)
            self.assertIn("without an answer", self.failure(asked, UpstreamUnreachable))

    def test_the_connection_is_lost_within_the_head(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(b"HTTP/1.1 200 OK\r\nContent-")
        wire.lose()
        self.assertIn("before the end of its answer", self.failure(asked, UpstreamUnreachable))

    def test_junk_is_no_answer(self) -> None:
        for junk in (
            b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
            b"hello world, how are you\r\n\r\n",
            b"HTTP/1.1 two OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        ):
            asked = self.ask()
            wire = self.wire().connect()
            wire.answer(junk)
            message = self.failure(asked, UpstreamUnreachable)
            self.assertIn("no answer that is HTTP", message)
            self.assertTrue(wire.transport.disconnecting, junk)

    def test_a_silent_server_is_given_up_after_its_time(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        self.reactor.advance(29.9)
        self.assertNoResult(asked)
        self.reactor.advance(0.2)
        message = self.failure(asked, UpstreamSilent)
        self.assertIn("server 'local' at http://127.0.0.1:8080 has not answered for 30 ", message)
        self.assertTrue(wire.transport.disconnected)

    def test_a_server_that_is_silent_in_the_head_is_given_up_too(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(b"HTTP/1.1 200 OK\r\n")
        self.reactor.advance(30)
        self.failure(asked, UpstreamSilent)

    def test_the_time_to_connect_is_not_silence(self) -> None:
        asked = self.ask()
        self.reactor.advance(40)
        self.assertNoResult(asked)
        self.wire().connect().answer(OK)
        self.successResultOf(asked)

    def test_a_post_is_sent_once_and_never_again(self) -> None:
        asked = self.ask()
        self.wire().connect().lose(ConnectionLost())
        self.failure(asked, UpstreamUnreachable)
        self.assertEqual(self.wires(), 1)


class CancelTests(UpstreamCase):
    def test_while_connecting(self) -> None:
        asked = self.ask()
        self.cancel(asked)
        self.assertTrue(self.reactor.connectors[-1].stoppedConnecting)

    def test_while_the_server_is_busy(self) -> None:
        for method in (b"POST", b"GET"):
            asked = self.ask(method, body=b"{}" if method == b"POST" else None)
            wire = self.wire().connect()
            self.cancel(asked)
            self.assertTrue(wire.transport.disconnected)

    def test_within_the_head(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(b"HTTP/1.1 200 OK\r\n")
        self.cancel(asked)
        self.assertTrue(wire.transport.disconnected)

    def test_a_response_that_nobody_wants_is_dropped_with_its_connection(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(head)
        response = self.successResultOf(asked)
        self.assertIsInstance(response, Abortable)
        drop(response)
        self.assertTrue(wire.transport.disconnected)

        asked = self.get()
        wire = self.wire().connect()
        wire.answer(head)
        drop(self.successResultOf(asked))
        self.assertTrue(wire.transport.disconnecting)

    def test_dropping_a_complete_response_leaves_its_kept_connection_alone(self) -> None:
        asked = self.get()
        wire = self.wire().connect()
        wire.answer(OK)
        drop(self.successResultOf(asked))
        self.assertFalse(wire.transport.disconnecting)
        self.get().addErrback(lambda failure: None)
        self.assertEqual(self.wires(), 1)
        wire.lose()
        self.wire().refuse(Refused())


class KeptConnectionTests(UpstreamCase):
    def served(self) -> Wire:
        asked = self.get()
        wire = self.wire().connect()
        wire.answer(OK)
        self.successResultOf(asked)
        wire.transport.clear()
        return wire

    def test_gets_share_a_connection(self) -> None:
        wire = self.served()
        asked = self.get(b"/slots?x")
        self.assertEqual(self.wires(), 1)
        self.assertTrue(wire.sent().startswith(b"GET /slots?x HTTP/1.1\r\n"))
        self.assertNotIn(b"Connection: close", wire.sent())
        wire.answer(OK)
        self.successResultOf(asked)

    def test_it_is_closed_before_the_server_would_close_it(self) -> None:
        wire = self.served()
        self.reactor.advance(1.9)
        self.assertFalse(wire.transport.disconnecting)
        self.reactor.advance(0.2)
        self.assertTrue(wire.transport.disconnecting)

    def test_a_post_or_a_get_with_a_body_or_a_delete_does_not_use_it(self) -> None:
        wire = self.served()
        for method, body in ((b"POST", None), (b"GET", b"{}"), (b"DELETE", None)):
            asked = self.ask(method, body=body)
            self.assertEqual(wire.sent(), b"")
            other = self.wire().connect()
            self.assertIn(b"Connection: close\r\n", other.sent())
            self.cancel(asked)

    def test_a_get_that_meets_the_servers_closing_goes_out_again_on_a_new_connection(self) -> None:
        wire = self.served()
        asked = self.get()
        wire.lose()
        self.assertNoResult(asked)
        again = self.wire().connect()
        self.assertTrue(again.sent().startswith(b"GET /props HTTP/1.1\r\n"))
        again.answer(OK)
        self.assertEqual(self.successResultOf(asked).code, 200)

    def test_it_goes_out_again_once(self) -> None:
        wire = self.served()
        asked = self.get()
        wire.lose()
        self.wire().connect().lose()
        self.failure(asked, UpstreamUnreachable)
        self.assertEqual(self.wires(), 2)

    def test_a_get_on_a_new_connection_does_not_go_out_again(self) -> None:
        asked = self.get()
        self.wire().connect().lose()
        self.failure(asked, UpstreamUnreachable)
        self.assertEqual(self.wires(), 1)

    def test_a_get_that_got_part_of_an_answer_does_not_go_out_again(self) -> None:
        wire = self.served()
        asked = self.get()
        wire.answer(b"HTTP/1.1 200")
        wire.lose()
        self.failure(asked, UpstreamUnreachable)
        self.assertEqual(self.wires(), 1)

    def test_a_cancelled_or_silent_get_does_not_go_out_again(self) -> None:
        self.served()
        asked = self.get()
        self.cancel(asked)
        self.served()
        asked = self.get()
        self.reactor.advance(30)
        self.failure(asked, UpstreamSilent)
        self.assertEqual(self.wires(), 2)

    def test_close_closes_it(self) -> None:
        wire = self.served()
        closed = self.upstream.close()
        self.assertTrue(wire.transport.disconnecting)
        self.assertNoResult(closed)
        wire.lose()
        self.successResultOf(closed)

    def test_a_read_body_of_its_own_connection_closes_it(self) -> None:
        asked = self.ask()
        wire = self.wire().connect()
        wire.answer(OK)
        reader = Protocol()
        response: Any = self.successResultOf(asked)
        response.deliverBody(reader)
        self.assertTrue(wire.transport.disconnecting)
