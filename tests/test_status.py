"""``GET /slotgate/status``: what goes on, and why each request read what it read."""

from __future__ import annotations

import os
import sqlite3
from threading import Event
from typing import Any, ClassVar, cast
from unittest.mock import Mock

from gateway import CHAT, Chat, FakeGatewayCase, GatewayCase, RealGatewayCase, now
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher

from slotgate.prompts.history import PromptHistory
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.index import Index
from slotgate.testing.faults import Refuse
from slotgate.web import _looks
from slotgate.web._looks import WAIT_SECONDS

_KEYS = """
        [[clients]]
        name = "me"
        key = "admin-key"
        admin = true
        [[clients]]
        name = "webui"
        key = "webui-key"
"""


class Watching(GatewayCase):
    """Looks at what was told of requests."""

    async def status(self) -> dict[str, Any]:
        """What goes on now."""
        found: dict[str, Any] = (await self.get("/slotgate/status")).json
        return found

    async def told(self, count: int) -> list[dict[str, Any]]:
        """The requests, the oldest first, once so many are over: that is told after the answer."""
        while len(requests := (await self.status())["requests"]) < count:
            await self.pause(0.01)
        return list(reversed(requests))

    def lines(self, field: str) -> list[str]:
        """The lines of the log from now on whose events have a field."""
        found: list[str] = []

        def observe(event: Any) -> None:
            if field in event:
                found.append(formatEvent(event))

        observer = cast(ILogObserver, observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        return found


class StatusTests(FakeGatewayCase, Watching):
    """Everything is there, and the server is asked whether it lives and nothing else."""

    async def test_a_gateway_that_has_done_nothing(self) -> None:
        status = await self.status()
        self.assertEqual(status["totals"]["requests"], 0)
        self.assertIsNone(status["totals"]["hit_ratio"])
        (slot,) = status["slots"]
        self.assertEqual((slot["state"], slot["session"], slot["waiting"]), ("unknown", None, 0))
        (server,) = status["servers"]
        self.assertEqual((server["mode"], server["known"]), ("single", True))
        self.assertEqual((server["reachable"], server["problem"]), (True, None))
        self.assertIsNone(server["tokens_per_second"])
        self.assertEqual(status["disk"]["files"], 0)
        self.assertEqual([call.path for call in self.llama.calls], ["/health"])

    async def test_a_look_wakes_nothing_and_many_are_one_for_the_server(self) -> None:
        self.llama.fall_asleep()
        for _ in range(5):
            (server,) = (await self.status())["servers"]
            self.assertTrue(server["reachable"])
        self.assertTrue(self.llama.sleeping)
        self.assertEqual([call.path for call in self.llama.calls], ["/health"])

    async def test_a_server_that_was_there_and_is_not(self) -> None:
        self.patch(_looks, "FRESH_SECONDS", 0.0)
        self.assertTrue((await self.status())["servers"][0]["reachable"])
        await self.llama.stop()
        (server,) = (await self.status())["servers"]
        self.assertFalse(server["reachable"])
        self.assertIn("cannot be reached", server["problem"])
        self.assertEqual((server["mode"], server["known"]), ("single", True))
        await self.llama.restart()
        self.llama.loading = True
        (server,) = (await self.status())["servers"]
        self.assertEqual((server["reachable"], server["problem"]), (False, "it loads its model"))

    async def test_a_disk_that_hangs_costs_a_look_two_seconds_once_and_a_chat_nothing(self) -> None:
        stuck, going_on = [], Event()
        seen = os.statvfs

        def hang(path: Any) -> Any:
            stuck.append(path)
            going_on.wait(60)
            return seen(path)

        self.addCleanup(going_on.set)
        self.patch(os, "statvfs", hang)
        began = now()
        for status in await gatherResults(
            [Deferred.fromCoroutine(self.status()) for _ in range(15)]
        ):
            self.assertIsNone(status["disk"]["free_bytes"])
            self.assertIsNone(status["disk"]["servers"][0]["free_bytes"])
            self.assertEqual(status["disk"]["files"], 0)
        for _ in range(5):
            self.assertIsNone((await self.status())["disk"]["free_bytes"])
        self.assertLess(now() - began, 2 * WAIT_SECONDS)
        self.assertEqual(stuck, [self.slots])
        self.assertEqual((await self.chat("A", 30).turn()).status, 200)
        going_on.set()
        while (await self.status())["disk"]["free_bytes"] is None:
            await self.pause(0.01)

    async def test_what_requests_did(self) -> None:
        a, b = self.chat("A", 30), self.chat("B", 30)
        for chat in (a, b, a):
            await chat.turn()
        requests = await self.told(3)
        found = [(one["session"], one["cache"], one["reason"]) for one in requests]
        self.assertEqual(
            found,
            [
                ("A", "cold", "new session"),
                ("B", "cold", "new session"),
                ("A", "restored", ""),
            ],
        )
        status = await self.status()
        totals = status["totals"]
        self.assertEqual((totals["saves"], totals["restores"]), (2, 1))
        self.assertEqual(totals["tokens_read"], sum(one["read"] for one in requests))
        self.assertEqual(totals["tokens_reused"], sum(one["reused"] for one in requests))
        kinds = [span["kind"] for span in status["spans"]]
        self.assertEqual(kinds.count("save"), 2)
        self.assertEqual(kinds.count("restore"), 1)
        self.assertEqual(kinds.count("generate"), 3)
        self.assertEqual(status["disk"]["files"], 2)
        sizes = sum(file.stat().st_size for file in self.slots.iterdir())
        self.assertEqual(status["disk"]["bytes"], sizes)

    async def test_an_index_that_does_not_answer_is_no_reason_to_fail(self) -> None:
        for error in (IndexAway(), sqlite3.OperationalError("database is locked")):
            self.patch(_looks, "FRESH_SECONDS", 0.0)
            self.patch(Index, "uses", Mock(side_effect=error))
            status = await self.status()
            self.assertIsNone(status["disk"]["files"])
            self.assertEqual(len(status["slots"]), 1)

    async def test_only_a_look(self) -> None:
        answer = await self.post("/slotgate/status", {})
        self.assertEqual((answer.status, answer.headers["allow"]), (405, "GET, HEAD"))

    async def test_what_is_not_there_is_not_asked_of_the_server(self) -> None:
        for path in ("/slotgate/nothing", "/slotgate/status/x", "/slotgate//"):
            self.assertEqual((await self.get(path)).status, 404, path)
        self.assertEqual(self.llama.calls, [])

    async def test_each_request_is_one_line(self) -> None:
        lines, chat = self.lines("explanation"), self.chat("A", 30)
        for _ in range(2):
            await chat.turn()
        await self.told(2)
        first, second = lines
        self.assertIn("A (header:x-session-id) on *: cold (new session), complete;", first)
        self.assertIn("A (header:x-session-id) on *: resident, complete;", second)
        self.assertIn("4 messages, the last prompt had 2", second)

    async def test_a_refused_request_is_told_and_is_not_the_last_prompt(self) -> None:
        chat = self.chat("A", 30)
        await chat.turn()
        self.llama.plan(Refuse(400), path=CHAT)
        other = Chat(self, "A", [{"role": "user", "content": "otherwise"}])
        self.assertEqual((await other.turn()).status, 400)
        await chat.turn()
        _, refused, after = await self.told(3)
        self.assertEqual((refused["end"], refused["read"]), ("refused", None))
        self.assertIn(
            "4 messages, the last prompt had 2: the first 2 are the same", after["prompt"]
        )

    async def test_what_slotgate_does_not_take_is_counted(self) -> None:
        answer = await self.request("POST", CHAT, data=b"no JSON")
        self.assertEqual(answer.status, 400)
        self.assertEqual(await self.rejected(), 1)
        page = (await self.get("/slotgate/metrics")).body.decode()
        self.assertIn('slotgate_rejected_requests_total{status="400"} 1.0', page)

    async def test_a_body_that_is_too_large_is_counted_too(self) -> None:
        answer = await self.request("POST", CHAT, data=b" " * (65 * 1024 * 1024))
        self.assertEqual(answer.status, 413)
        self.assertEqual((await self.status())["totals"]["rejected"], 1)

    async def test_a_list_that_can_not_be_had_is_a_503(self) -> None:
        self.patch(Index, "count", Mock(side_effect=IndexAway("database is locked")))
        answer = await self.get("/api/sessions")
        self.assertEqual(answer.status, 503)
        self.assertIn("database is locked", answer.json["error"]["message"])

    async def rejected(self) -> int:
        """How many requests slotgate did not take."""
        count: int = (await self.status())["totals"]["rejected"]
        return count

    async def test_what_a_person_with_a_browser_does_is_not(self) -> None:
        for method, path, status in (
            ("GET", "/slotgate/nothing", 404),
            ("GET", "/slotgate%2Fnothing", 404),
            ("DELETE", "/slotgate/", 405),
            ("POST", "/slotgate/status", 405),
        ):
            self.assertEqual((await self.request(method, path)).status, status, path)
        self.assertEqual(await self.rejected(), 0)

    async def test_what_keeps_sessions_from_being_saved_stands_out(self) -> None:
        self.llama.plan(Refuse(501, "no --slot-save-path"), action="save")
        for name in "ABC":
            await self.chat(name, 30).turn()
        (server,) = (await self.status())["servers"]
        said = {"text": "it saves no slots: start it with --slot-save-path", "warn": True}
        self.assertIn(said, server["found"])
        page = (await self.get("/slotgate/metrics")).body.decode()
        for result, count in (("refused", 1), ("skipped", 1)):
            sample = f'action="save",result="{result}",server="local"}} {count}.0'
            self.assertIn(sample, page)

    async def test_an_upstream_error_is_counted(self) -> None:
        await self.llama.stop()
        answer = await self.chat("A", 30).turn()
        self.assertEqual(answer.status, 502)
        self.assertEqual((await self.status())["totals"]["upstream_errors"], 1)


class RouteTests(FakeGatewayCase, Watching):
    """Routes without a cache are named once."""

    config = (
        FakeGatewayCase.config
        + """
        [[routes]]
        model = "plain"
        server = "local"
        cache = false
"""
    )

    async def test_the_reason_is_told_once_and_each_request_in_the_list(self) -> None:
        told = self.lines("meaning")
        for _ in range(3):
            body = {"model": "plain", "messages": [{"role": "user", "content": "hello"}]}
            self.assertEqual((await self.post(CHAT, body)).status, 200)
        requests = await self.told(3)
        for request in requests:
            self.assertEqual(
                (request["cache"], request["reason"], request["sentence"]),
                ("bypass", "route without cache", "cache = false on its route"),
            )
        self.assertEqual(
            told,
            [
                "requests of route plain are relayed without a cache: route without cache,"
                " cache = false on its route"
            ],
        )


class KeyTests(FakeGatewayCase, Watching):
    """With keys it is for admins."""

    config = FakeGatewayCase.config + _KEYS

    async def test_who_may_look(self) -> None:
        statuses = {}
        for key in ("", "webui-key", "admin-key"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            answer = await self.request("GET", "/slotgate/status", headers)
            statuses[key] = answer.status
        self.assertEqual(statuses, {"": 401, "webui-key": 403, "admin-key": 200})

    async def test_a_page_that_asks_for_a_key_or_an_icon_is_no_request_of_a_client(self) -> None:
        for path in ("/slotgate/status", "/slotgate/metrics", "/favicon.ico", "/v1/models"):
            self.assertEqual((await self.get(path)).status, 401, path)
        answer = await self.request(
            "GET", "/slotgate/status", {"Authorization": "Bearer admin-key"}
        )
        # the one for the models
        self.assertEqual(answer.json["totals"]["rejected"], 1)


class VerdictTests(RealGatewayCase, Watching):
    """The verdicts of a real server's requests."""

    options: ClassVar[dict[str, Any]] = {}

    async def test_how_fast_it_reads_whatever_clients_call_its_model(self) -> None:
        chat = self.chat("A")
        await chat.turn(model="made-up-1")
        await chat.turn(model="made-up-2")
        one, two = await self.told(2)
        self.assertEqual((one["model"], two["model"]), ("made-up-1", "made-up-2"))
        status = await self.status()
        (server,) = status["servers"]
        self.assertGreater(server["tokens_per_second"], 0)
        self.assertEqual(server["models"], [])

    async def test_a_message_that_changed_in_the_middle(self) -> None:
        chat = self.chat("A")
        for _ in range(3):
            await chat.turn()
        chat.messages[0]["content"] = "B" + chat.messages[0]["content"]
        await chat.turn()
        last = (await self.told(4))[-1]
        self.assertEqual(last["finding"], "prompt differs at message 1")
        self.assertIn("the system message changed", last["prompt"])
        self.assertGreater(last["read"], last["reused"])

    async def test_a_server_that_was_restarted(self) -> None:
        chat = self.chat("A")
        await chat.turn()
        await self.post("/api/sessions/A/save", {})
        await self.llama.restart()
        answer = await chat.turn()
        self.assertEqual(answer.cache, "restored")
        last = (await self.told(2))[-1]
        self.assertEqual(last["finding"], "server restarted")

    async def test_another_client_that_came_past_us(self) -> None:
        chat = self.chat("A")
        await chat.turn()
        await self.post(
            "/completion", {"prompt": "stranger " * 50, "n_predict": 1}, base=self.llama.url
        )
        await chat.turn()
        last = (await self.told(2))[-1]
        self.assertEqual((last["cache"], last["reason"]), ("cold", "no snapshot"))
        self.assertEqual(last["finding"], "used by another client")

    async def test_an_older_snapshot_is_no_proof_against_the_model(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        await a.turn()
        await b.turn()
        a.messages[0]["content"] = "changed " + a.messages[0]["content"]
        await a.turn()
        self.slots.rename(self.folder / "away")
        await b.turn()
        (self.folder / "away").rename(self.slots)
        # the same prompt as before, and what is restored is from before that
        a.messages[-2:] = []
        self.assertEqual((await a.turn()).cache, "restored")
        last = (await self.told(5))[-1]
        self.assertIn("the same prompt again", last["prompt"])
        self.assertGreater(last["read"], last["reused"])
        self.assertNotIn("sliding window", last["finding"])

    async def test_a_side_request(self) -> None:
        chat = self.chat("A")
        await chat.turn()
        title = [{"role": "user", "content": "A title for this chat, please."}]
        await Chat(self, "A", title).turn()
        last = (await self.told(2))[-1]
        self.assertEqual((last["cache"], last["reason"]), ("bypass", "side request"))
        self.assertIn("beside", last["sentence"])


class FaultTests(FakeGatewayCase, Watching):
    """What can not be told costs the request nothing."""

    async def test_a_fault_in_the_comparison(self) -> None:
        self.patch(PromptHistory, "note", Mock(side_effect=ZeroDivisionError))
        chat = self.chat("A", 30)
        self.assertEqual((await chat.turn()).status, 200)
        self.assertEqual((await chat.turn()).cache, "resident")
        while len(failed := self.flushLoggedErrors(ZeroDivisionError)) < 1:
            await self.pause(0.01)
        self.assertTrue(failed)
