"""
Request bodies are held in memory and only up to a size.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from slotgate.web import limits
from slotgate.web.limits import limited_site

MAX = 1000


class Echo(Resource):
    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def render_POST(self, request: Any) -> bytes:
        self.seen.append(request)
        self.body = request.content
        self.args = request.args
        return b"%d bytes" % len(request.content.read())

    def render_GET(self, request: Any) -> bytes:
        self.seen.append(request)
        return b""


def post(*, length: int | None, more: bytes = b"") -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"POST /v1/x HTTP/1.1\r\nHost: h\r\n" + framing + b"\r\n" + more + b"\r\n"


class LimitsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.echo = Echo()
        site = limited_site(self.echo, self.reactor, MAX)
        site.doStart()
        self.addCleanup(site.doStop)
        self.transport: Any = StringTransport()
        protocol: Any = site.buildProtocol(None)
        self.protocol = protocol
        protocol.makeConnection(self.transport)
        self.receive = protocol.dataReceived

    def sent(self) -> bytes:
        value: bytes = self.transport.value()
        return value

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def assert_refused(self) -> None:
        head, _, body = self.sent().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 413 "), head)
        self.assertIn(b"Connection: close", head)
        self.assertIn(b"Content-Length: %d" % len(body), head)
        error = json.loads(body)["error"]
        self.assertEqual((error["code"], error["type"]), (413, "invalid_request_error"))
        self.assertEqual(self.echo.seen, [])

    def test_a_body_of_exactly_the_limit_is_taken(self) -> None:
        self.receive(post(length=MAX) + b"x" * MAX)
        self.assertTrue(self.sent().endswith(b"1000 bytes"))

    def test_a_declared_length_over_the_limit_is_refused_before_any_of_the_body(self) -> None:
        self.receive(post(length=MAX + 1))
        self.assert_refused()
        self.assertFalse(self.transport.disconnecting)

    def test_the_rest_of_a_refused_body_is_discarded_and_then_the_connection_closes(self) -> None:
        self.receive(post(length=2 * MAX))
        self.receive(b"x" * MAX)
        self.assertFalse(self.transport.disconnecting)
        self.receive(b"x" * MAX)
        self.assertTrue(self.transport.disconnecting)
        self.assertFalse(self.transport.disconnected)
        self.assert_refused()
        self.lose()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_a_client_that_goes_on_sending_slowly_is_cut(self) -> None:
        self.receive(post(length=2 * MAX))
        for _ in range(4):
            self.reactor.advance(limits.LINGER_SECONDS / 4 - 0.01)
            self.receive(b"x")
        self.assertFalse(self.transport.disconnected)
        self.reactor.advance(0.1)
        self.assertTrue(self.transport.disconnected)

    def test_a_client_that_goes_on_sending_much_is_cut(self) -> None:
        self.patch(limits, "LINGER_BYTES", 5 * MAX)
        self.receive(post(length=100 * MAX))
        self.receive(b"x" * 5 * MAX)
        self.assertFalse(self.transport.disconnected)
        self.receive(b"x")
        self.assertTrue(self.transport.disconnected)

    def test_a_chunked_body_is_refused_when_it_passes_the_limit(self) -> None:
        self.receive(post(length=None))
        self.receive(b"3e8\r\n" + b"x" * MAX + b"\r\n")
        self.assertEqual(self.sent(), b"")
        self.receive(b"1\r\nx\r\n")
        self.assert_refused()
        self.receive(b"5\r\nxxxxx\r\n0\r\n\r\n")
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.sent().count(b"HTTP/1.1"), 1)

    def test_a_chunked_body_under_the_limit_is_taken(self) -> None:
        self.receive(post(length=None) + b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        self.assertTrue(self.sent().endswith(b"6 bytes"))

    def test_a_client_that_asks_first_is_not_told_to_send_too_much(self) -> None:
        self.receive(post(length=MAX + 1, more=b"Expect: 100-continue\r\n"))
        self.assertNotIn(b"100 Continue", self.sent())
        self.assert_refused()

    def test_a_client_that_asks_first_is_told_to_send_what_is_not_too_much(self) -> None:
        self.receive(post(length=3, more=b"Expect: 100-continue\r\n"))
        self.assertEqual(self.sent(), b"HTTP/1.1 100 Continue\r\n\r\n")

    def test_nothing_that_follows_a_refused_request_is_answered(self) -> None:
        self.receive(post(length=None) + b"3e9\r\n" + b"x" * (MAX + 1) + b"\r\n0\r\n\r\n")
        self.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assert_refused()

    def test_bodies_are_kept_in_memory_also_large_and_chunked_ones(self) -> None:
        self.protocol.site.max_body = 10**6
        self.receive(post(length=200_000) + b"x" * 200_000)
        self.assertIsInstance(self.echo.body, BytesIO)
        self.receive(post(length=None) + b"1\r\nx\r\n0\r\n\r\n")
        self.assertIsInstance(self.echo.body, BytesIO)

    def test_forms_are_not_parsed(self) -> None:
        form = b"Content-Type: application/x-www-form-urlencoded\r\n"
        self.receive(post(length=3, more=form) + b"a=b")
        self.assertEqual(self.echo.args, {})
        self.assertTrue(self.sent().endswith(b"3 bytes"))

    def test_responses_carry_our_name_and_no_made_up_content_type(self) -> None:
        self.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertIn(b"Server: slotgate\r\n", self.sent())
        self.assertNotIn(b"TwistedWeb", self.sent())
        self.assertNotIn(b"Content-Type", self.sent())

    def test_a_connection_serves_many_requests_and_idles_for_a_minute(self) -> None:
        for _ in range(3):
            self.receive(post(length=1) + b"x")
        self.assertEqual(len(self.echo.seen), 3)
        self.reactor.advance(59)
        self.assertFalse(self.transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(self.transport.disconnecting)

    def test_served_requests_leave_no_line_in_the_log(self) -> None:
        events: list[Any] = []
        publisher: Any = globalLogPublisher
        publisher.addObserver(events.append)
        self.addCleanup(publisher.removeObserver, events.append)
        self.receive(post(length=1) + b"x")
        self.assertEqual(events, [])
