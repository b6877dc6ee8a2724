"""The server is down, slow, talks junk, breaks off, refuses the key: what clients are told."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from gateway import CHAT, Answer, FakeGatewayCase
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.client import ResponseFailed
from zope.interface import implementer

from slotgate.testing import faults

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


class Logged:
    """The lines that slotgate logs during a test."""

    def __init__(self, case: TestCase) -> None:
        self.warnings: list[str] = []

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            if event["log_namespace"].startswith("slotgate") and event["log_level"] in (
                LogLevel.warn,
                LogLevel.error,
                LogLevel.critical,
            ):
                self.warnings.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        case.addCleanup(globalLogPublisher.removeObserver, observe)


class FaultTests(FakeGatewayCase):
    """Each fault is a clear answer to the client and one log line about the request."""

    config = FakeGatewayCase.config.replace(
        'url = "{url}"', 'url = "{url}"\n        read_timeout_seconds = 0.5'
    )

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        self.logged = Logged(self)

    def one_line(self, answer: Answer, status: int, *parts: str) -> None:
        """The client was told, in OpenAI's shape and by the server's name; so was the log."""
        self.assertEqual(answer.status, status, answer.body)
        error = answer.json["error"]
        self.assertEqual(error["code"], status)
        self.assertIn("'local'", error["message"])
        about = [line for line in self.logged.warnings if CHAT in line]
        self.assertEqual(len(about), 1, self.logged.warnings)
        for part in parts:
            self.assertIn(part, error["message"])
            self.assertIn(part, about[0])

    async def test_down(self) -> None:
        self.llama.die()
        self.one_line(await self.post(CHAT, HELLO), 502, "connection refused")

    async def test_silent(self) -> None:
        self.llama.plan(faults.Hang(), path=CHAT)
        self.one_line(await self.post(CHAT, HELLO), 504, "0.5 seconds")

    async def test_no_http(self) -> None:
        self.llama.plan(faults.NotHttp(), path=CHAT)
        self.one_line(await self.post(CHAT, HELLO), 502, "no answer that is HTTP")

    async def test_closing_before_the_answer(self) -> None:
        self.llama.plan(faults.Close(), path=CHAT)
        self.one_line(await self.post(CHAT, HELLO), 502, "closed the connection")

    async def test_closing_in_mid_stream_is_no_clean_end(self) -> None:
        self.llama.plan(faults.Close(after=200), path=CHAT)
        with self.assertRaises(ResponseFailed):
            await self.post(CHAT, {**HELLO, "stream": True})
        self.assertTrue(any("broke off" in line for line in self.logged.warnings))

    async def test_nor_is_a_server_that_drops_the_connection_or_dies(self) -> None:
        for fault in (faults.Abort(after=200), faults.Die(after=200)):
            self.llama.plan(fault, path=CHAT)
            asking = Deferred.fromCoroutine(self.post(CHAT, {**HELLO, "stream": True}))
            # the kernel may throw away what was sent before the reset
            answer = await asking.addErrback(Failure.trap, ResponseFailed)
            self.assertTrue(answer is ResponseFailed or answer.status == 502)
            if self.llama.died:
                await self.llama.restart()

    async def test_falling_silent_in_mid_stream_is_no_clean_end(self) -> None:
        self.llama.plan(faults.Hang(after=200), path=CHAT)
        with self.assertRaises(ResponseFailed):
            await self.post(CHAT, {**HELLO, "stream": True})

    async def test_junk_passes_as_it_is(self) -> None:
        self.llama.plan(faults.Answer(), path=CHAT)
        answer = await self.post(CHAT, HELLO)
        self.assertEqual((answer.status, answer.body), (200, b"{this is not JSON"))

    async def test_junk_control_answers_cost_the_cache_and_not_the_request(self) -> None:
        for fault in (
            faults.Answer(),
            faults.Answer(body=b"[]"),
            faults.Answer(body=b'{"id": 0}'),
            faults.NotHttp(),
            faults.Refuse(500),
            faults.Close(),
        ):
            self.llama.plan(fault, path="/slots", times=2)
            answer = await self.post(CHAT, HELLO, {"X-Session-ID": "A"})
            self.assertEqual(answer.status, 200, fault)

    async def test_the_servers_own_error_passes_as_it_is(self) -> None:
        answer = await self.post(CHAT, {"messages": "none"})
        direct = await self.post(CHAT, {"messages": "none"}, base=self.llama.url)
        self.assertEqual((answer.status, answer.body), (direct.status, direct.body))

    async def test_other_paths_tell_it_alike(self) -> None:
        self.llama.die()
        answer = await self.get("/v1/models")
        self.assertEqual(answer.status, 502)
        self.assertIn("connection refused", answer.json["error"]["message"])

    async def test_after_a_fault_the_next_session_gets_the_slot(self) -> None:
        for fault in (faults.Close(), faults.Abort(after=100), faults.NotHttp()):
            self.llama.plan(fault, path=CHAT)
            asking = Deferred.fromCoroutine(
                self.post(CHAT, {**HELLO, "stream": True}, {"X-Session-ID": "A"})
            )
            await asking.addErrback(Failure.trap, ResponseFailed)
            self.assertEqual((await self.post(CHAT, HELLO, {"X-Session-ID": "B"})).status, 200)


class KeyTests(FakeGatewayCase):
    """The server has a key of its own."""

    options: ClassVar = {"api_key": "sesame"}
    key = "wrong"

    async def setUp(self) -> None:  # type: ignore[override]
        self.config = FakeGatewayCase.config.replace(
            'url = "{url}"', f'url = "{{url}}"\n        api_key = "{self.key}"'
        )
        await super().setUp()
        self.logged = Logged(self)

    async def test_a_refused_key_reaches_the_client_and_the_log(self) -> None:
        answer = await self.post(CHAT, HELLO)
        self.assertEqual(answer.status, 401)
        self.assertEqual(answer.json["error"]["type"], "authentication_error")
        about = [line for line in self.logged.warnings if "key" in line]
        self.assertTrue(about, self.logged.warnings)
        self.assertNotIn("wrong", "".join(about))


class RightKeyTests(KeyTests):
    """The gateway knows it; clients do not have to."""

    key = "sesame"
    test_a_refused_key_reaches_the_client_and_the_log = None  # type: ignore[assignment]

    async def test_it_is_shown_and_the_clients_own_is_not(self) -> None:
        a, b = self.chat("A", 100), self.chat("B", 100)
        for chat in (a, b, a):
            answer = await chat.turn()
        self.assertEqual(answer.cache, "restored")
        await self.post(CHAT, HELLO, {"Authorization": "Bearer client", "X-Api-Key": "client"})
        for call in self.llama.calls:
            self.assertEqual(call.headers["authorization"], "Bearer sesame", call.uri)
            self.assertNotIn("x-api-key", call.headers)


class RequestTests(FakeGatewayCase):
    """What a client may send, and what of it reaches the server."""

    async def test_a_body_that_is_no_json_is_refused_and_not_sent(self) -> None:
        for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe{", b"[" * 100_000):
            answer = await self.request("POST", CHAT, {"X-Session-ID": "A"}, body)
            self.assertEqual(answer.status, 400, body)
            self.assertEqual(answer.json["error"]["type"], "invalid_request_error")
        self.assertEqual(self.llama.calls, [])

    async def test_the_request_is_pinned_to_the_slot_with_the_cache_on(self) -> None:
        await self.post(CHAT, {**HELLO, "id_slot": 7, "cache_prompt": False})
        (sent,) = [call for call in self.llama.calls if call.path == CHAT]
        self.assertEqual(json.loads(sent.body), {**HELLO, "id_slot": 0, "cache_prompt": True})

    async def test_headers_that_are_not_the_servers_business_stay_here(self) -> None:
        await self.post(
            CHAT,
            HELLO,
            {
                "X-Conversation-Id": "c",
                "X-Slotgate-Session": "s",
                "Connection": "keep-alive, X-Private",
                "X-Private": "1",
                "X-Kept": "yes",
                "Keep-Alive": "5",
            },
        )
        (sent,) = [call for call in self.llama.calls if call.path == CHAT]
        self.assertEqual(sent.headers["x-kept"], "yes")
        for name in ("x-conversation-id", "x-slotgate-session", "x-private", "keep-alive"):
            self.assertNotIn(name, sent.headers)

    async def test_paths_that_the_server_would_read_otherwise_are_refused(self) -> None:
        for path in ("//v1/chat/completions", "/v1/../v1/chat/completions", "/a/%2e%2e/slots"):
            caller = await self.connect()
            caller.post(path, HELLO)
            await caller.heard(b"\r\n\r\n")
            status = int(caller.received.split(b" ", 2)[1])
            self.assertIn(status, (400, 404), path)
        self.assertEqual(self.llama.calls, [])

    async def test_odd_hosts_and_methods_do_no_harm(self) -> None:
        for head in (
            b"GET /v1/models HTTP/1.1\r\nHost: \xff\xfe:99999\r\n\r\n",
            b"GET /v1/models HTTP/1.1\r\nHost: a..b\r\n\r\n",
            b"GET /v1/models HTTP/1.0\r\n\r\n",
            b"BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ):
            caller = await self.connect()
            caller.write(head)
            await caller.heard(b"\r\n\r\n")
            self.assertLess(int(caller.received.split(b" ", 2)[1]), 500, head)
            self.assertNotIn(b"text/html", caller.received)
        self.assertEqual(self.flushLoggedErrors(), [])

    async def test_a_chunked_request_body_works(self) -> None:
        caller = await self.connect()
        body = json.dumps(HELLO).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        caller.write(head.encode())
        for byte in body:
            caller.write(b"1\r\n%c\r\n" % byte)
        caller.write(b"0\r\n\r\n")
        await caller.heard(b'"timings"')
        self.assertIn(b"200 OK", caller.received)

    async def test_keep_alive_serves_one_request_after_another(self) -> None:
        caller = await self.connect()
        for number in range(5):
            caller.received = b""
            caller.post(CHAT, HELLO)
            await caller.heard(b'"timings"')
            self.assertIn(b"200 OK", caller.received, number)


class QueueTests(FakeGatewayCase):
    """The queue of a slot is bounded."""

    config = FakeGatewayCase.config.replace(
        "drain_seconds = 2", "drain_seconds = 2\n        max_queue = 1"
    )

    async def test_beyond_it_clients_are_told_when_to_come_again(self) -> None:
        hang = faults.Hang()
        self.llama.plan(hang, path=CHAT)
        first = Deferred.fromCoroutine(self.post(CHAT, HELLO))
        await self.llama.seen(path=CHAT)
        others = [Deferred.fromCoroutine(self.post(CHAT, HELLO)) for _ in range(2)]
        refused, index = await DeferredList(others, fireOnOneCallback=True)
        self.assertEqual(refused.status, 503)
        self.assertGreater(int(refused.headers["retry-after"]), 0)
        self.assertIn("wait for local slot 0", refused.json["error"]["message"])
        hang.release()
        answers = await gatherResults([first, others[1 - index]])
        self.assertEqual([answer.status for answer in answers], [200, 200])


class ManySessionsTests(FakeGatewayCase):
    """Eight sessions at once, five turns each, streaming."""

    options: ClassVar = {"context": 8192}

    async def test_every_answer_is_its_own_and_no_control_call_meets_a_busy_slot(self) -> None:
        async def play(name: str) -> None:
            chat = self.chat(name, 150)
            for turn in range(5):
                answer = await chat.turn(stream=True)
                self.assertEqual(answer.headers["x-slotgate-session"], name)
                self.assertTrue(answer.body.endswith(b"data: [DONE]\n\n"))
                chat.messages.append({"role": "assistant", "content": f"said to {name}"})
                if turn:
                    self.assertLess(answer.share_read, 0.1)

        names = [f"session{number}" for number in range(8)]
        await gatherResults([Deferred.fromCoroutine(play(name)) for name in names])
        generations = [call for call in self.llama.calls if call.path == CHAT]
        for control in self.llama.control_calls:
            for call in generations:
                self.assertTrue(
                    control.at >= (call.answered_at or 0) or call.at >= (control.answered_at or 0),
                    "a control call while a generation ran",
                )


class ClientKeyTests(FakeGatewayCase):
    """Clients with keys."""

    config = (
        FakeGatewayCase.config
        + """
        [[clients]]
        name = "ann"
        key = "ann-key"
        [[clients]]
        name = "bob"
        key = "bob-key"
    """
    )

    async def test_without_a_key_nothing_is_relayed(self) -> None:
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"X-Api-Key": "ann-key "[:-2]}):
            for path in (CHAT, "/v1/embeddings", "/slots/0?action=erase"):
                answer = await self.post(path, HELLO, headers)
                self.assertEqual(answer.status, 401, path)
                self.assertEqual(answer.json["error"]["type"], "authentication_error")
        self.assertEqual(self.llama.calls, [])
        self.assertEqual((await self.get("/health")).status, 200)

    async def test_the_same_id_under_two_keys_is_two_sessions(self) -> None:
        ann, bob = {"Authorization": "Bearer ann-key"}, {"X-Api-Key": "bob-key"}
        long = {"messages": [{"role": "user", "content": "secret " * 100}], "max_tokens": 4}
        for headers in (ann, bob, ann):
            answer = await self.post(CHAT, long, {**headers, "X-Session-ID": "same"})
        self.assertEqual(answer.cache, "restored")
        self.assertEqual(len({call.body for call in self.llama.control_calls} - {b"{}"}), 2)
        # bob's request read all of its prompt, though ann's was the same
        self.assertEqual(self.actions(), ["erase", "save", "erase", "save", "restore"])
