"""``GET /slotgate/health`` and ``/slotgate/ready``."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from doubles import memory_database
from gateway import CHAT, CLOCK, Answer, FakeGatewayCase, GatewayCase, now
from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from slotgate.snapshots.database import IndexAway
from slotgate.testing.faults import Answer as Says
from slotgate.testing.faults import Hang
from slotgate.web import _looks
from slotgate.web._looks import FRESH_SECONDS, WAIT_SECONDS, Look, together
from slotgate.web.checks import make_checks

T = TypeVar("T")

HEALTH = "/slotgate/health"
READY = "/slotgate/ready"


class LookTests(SynchronousTestCase):
    """One look for many."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[Deferred[str]] = []
        self.cancelled = 0

    def begin(self) -> Deferred[str]:
        self.begun.append(Deferred(self._cancel))
        return self.begun[-1]

    def _cancel(self, _: object) -> None:
        self.cancelled += 1

    def look(self, *, lasts: bool = False) -> Callable[[], Deferred[str]]:
        """Ask once more, of the same look."""
        look = Look(self.begin, self.clock, lasts)
        return lambda: Deferred.fromCoroutine(look())

    def test_everybody_gets_the_answer_of_the_one_that_runs(self) -> None:
        ask = self.look()
        waiting = [ask() for _ in range(20)]
        self.assertEqual(len(self.begun), 1)
        self.begun[0].callback("seen")
        self.assertEqual([self.successResultOf(one) for one in waiting], ["seen"] * 20)

    def test_an_answer_is_told_again_for_a_moment(self) -> None:
        ask = self.look()
        ask()
        self.begun[0].callback("first")
        self.clock.advance(FRESH_SECONDS / 2)
        self.assertEqual(self.successResultOf(ask()), "first")
        self.clock.advance(FRESH_SECONDS / 2)
        later = ask()
        self.begun[1].callback("second")
        self.assertEqual(self.successResultOf(later), "second")

    def test_nobody_waits_for_ever_and_then_it_is_stopped(self) -> None:
        ask = self.look()
        waiting = [ask(), ask()]
        self.clock.advance(WAIT_SECONDS)
        for one in waiting:
            self.failureResultOf(one, DeferredTimeout)
        self.assertEqual(self.cancelled, 1)
        ask()
        self.assertEqual(len(self.begun), 2)

    def test_a_thread_that_hangs_is_the_only_one(self) -> None:
        ask = self.look(lasts=True)
        waiting = ask()
        self.clock.advance(WAIT_SECONDS)
        self.failureResultOf(waiting, DeferredTimeout)
        for _ in range(5):
            # nobody waits for it any more
            self.failureResultOf(ask(), DeferredTimeout)
            self.clock.advance(WAIT_SECONDS)
        self.assertEqual((len(self.begun), self.cancelled), (1, 0))
        self.begun[0].callback("at last")
        self.assertEqual(self.successResultOf(ask()), "at last")

    def test_who_goes_away_does_not_stop_it_for_the_others(self) -> None:
        ask = self.look()
        goes, stays = ask(), ask()
        goes.addErrback(lambda _: None).cancel()
        self.assertEqual(self.cancelled, 0)
        self.begun[0].callback("seen")
        self.assertEqual(self.successResultOf(stays), "seen")

    def test_a_failure_is_everybodys_and_is_not_kept(self) -> None:
        ask = self.look()
        waiting = [ask(), ask()]
        self.begun[0].errback(IndexAway())
        for one in waiting:
            self.failureResultOf(one, IndexAway)
        ask()
        self.assertEqual(len(self.begun), 2)

    def test_who_comes_late_waits_no_longer_than_the_look_may_take(self) -> None:
        ask = self.look()
        ask().addErrback(lambda _: None)
        self.clock.advance(WAIT_SECONDS - 0.5)
        late = ask()
        self.clock.advance(0.5)
        self.failureResultOf(late, DeferredTimeout)
        self.assertEqual(self.cancelled, 1)

    def test_who_is_told_first_may_make_others_go_away(self) -> None:
        ask = self.look()
        first, second = ask(), ask().addErrback(lambda failure: failure.type)
        first.addErrback(lambda _: second.cancel())
        self.begun[0].errback(IndexAway())
        self.assertIs(self.successResultOf(second), CancelledError)

    def together(self) -> Deferred[list[str]]:
        """Three looks at once."""
        looks = [Look(self.begin, self.clock) for _ in range(3)]
        return Deferred.fromCoroutine(together(look() for look in looks))

    def test_several_answer_in_the_order_in_which_they_were_asked(self) -> None:
        waiting = self.together()
        for number in (2, 0, 1):
            self.begun[number].callback(f"{number}")
        self.assertEqual(self.successResultOf(waiting), ["0", "1", "2"])

    def test_the_first_failure_is_told_at_once_and_the_second_is_nobodys(self) -> None:
        for first, second in ((0, 1), (1, 0)):
            self.begun.clear()
            waiting = self.together()
            # closing a connection can fail in its own way
            self.begun[second].addErrback(lambda _: fail(ZeroDivisionError()))
            self.begun[first].errback(IndexAway())
            self.failureResultOf(waiting, IndexAway)
        waiting = self.together()
        self.begun[-1].errback(IndexAway())
        self.begun[-2].addErrback(lambda _: fail(ZeroDivisionError()))
        self.begun[-3].addErrback(lambda _: fail(ZeroDivisionError()))
        self.failureResultOf(waiting, IndexAway)
        del waiting
        self.begun.clear()
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_who_waits_for_several_and_goes_away_leaves_none_behind(self) -> None:
        self.together().addErrback(lambda _: None).cancel()
        self.assertEqual(self.cancelled, 3)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class IndexTests(SynchronousTestCase):
    """The index among the checks."""

    def problem_of(self, database: Any) -> str:
        """What is wrong with an index; ``late``: it has not answered so far."""
        clock = Clock()
        made = make_checks({}, {}, database, clock)
        waiting = Deferred.fromCoroutine(made.all())
        clock.advance(WAIT_SECONDS)
        (check,) = self.successResultOf(waiting)
        self.assertEqual(check.name, "index")
        return str(check.problem)

    def test_it_is_open(self) -> None:
        self.assertEqual(self.problem_of(memory_database()), "")

    def test_it_is_not(self) -> None:
        self.assertIn("moment ago", self.problem_of(_Database(IndexAway())))
        error = sqlite3.OperationalError("disk I/O error")
        self.assertEqual(self.problem_of(_Database(error)), "disk I/O error")

    def test_it_does_not_answer(self) -> None:
        self.assertEqual(self.problem_of(_Database(None)), "no answer within 2 s")


class _Database:
    """A database that fails, or does not answer."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def runInteraction(self, interaction: Callable[..., T], *args: object) -> Deferred[T]:
        return Deferred() if self._error is None else fail(self._error)


class HealthTests(FakeGatewayCase):
    """Where no keys are asked for."""

    def setUp(self) -> Any:
        self.patch(_looks, "FRESH_SECONDS", 0.0)
        return super().setUp()

    async def ready(self) -> tuple[int, dict[str, str]]:
        """The status, and the problem of each check that is not good."""
        answer = await self.get(READY)
        said = answer.json["checks"]
        self.assertEqual(answer.json["status"], "ready" if answer.status == 200 else "not ready")
        self.assertEqual(
            [check["name"] for check in said], ["server local", "slot folder of local", "index"]
        )
        return answer.status, {check["name"]: check["problem"] for check in said if not check["ok"]}

    async def test_the_process_lives_whatever_the_server_does(self) -> None:
        await self.llama.stop()
        answer = await self.get(HEALTH)
        self.assertEqual((answer.status, answer.json), (200, {"status": "ok"}))
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(answer.headers["cache-control"], "no-store")

    async def test_head_and_other_methods(self) -> None:
        for path in (HEALTH, READY):
            head = await self.request("HEAD", path)
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual((await self.request("POST", path)).status, 405)

    async def test_all_is_there(self) -> None:
        self.assertEqual(await self.ready(), (200, {}))

    async def test_a_server_that_is_down_and_comes_back(self) -> None:
        await self.llama.stop()
        status, problems = await self.ready()
        self.assertEqual((status, problems.keys()), (503, {"server local"}))
        self.assertIn("cannot be reached", problems["server local"])
        await self.llama.restart()
        self.assertEqual(await self.ready(), (200, {}))

    async def test_a_server_that_loads_its_model_is_not_ready_yet(self) -> None:
        self.llama.loading = True
        self.assertEqual(await self.ready(), (503, {"server local": "it loads its model"}))

    async def test_a_server_that_sleeps_is_ready_and_sleeps_on(self) -> None:
        self.llama.fall_asleep()
        self.assertEqual((await self.ready())[0], 200)
        self.assertTrue(self.llama.sleeping)
        self.assertEqual([call.path for call in self.llama.calls], ["/health"])

    async def test_something_else_at_the_address(self) -> None:
        self.llama.plan(Says(200, b"<html>", "text/html"), path="/health")
        self.assertIn("not JSON", (await self.ready())[1]["server local"])

    async def test_many_probes_at_once_are_one_for_the_server(self) -> None:
        hang = Hang()
        self.llama.plan(hang, path="/health")
        probes = gatherResults([Deferred.fromCoroutine(self.get(READY)) for _ in range(20)])
        await self.llama.seen(path="/health")
        while len(self.gateway._parts.connections.protocols) < 20:
            await self.pause(0.01)
        await self.get(HEALTH)
        hang.release()
        self.assertEqual({answer.status for answer in await probes}, {200})
        self.assertEqual([call.path for call in self.llama.calls], ["/health"])

    async def test_a_folder_that_is_gone_or_is_none(self) -> None:
        shutil.rmtree(self.slots)
        status, problems = await self.ready()
        self.assertEqual((status, problems.keys()), (503, {"slot folder of local"}))
        self.assertIn("No such file", problems["slot folder of local"])
        self.slots.write_bytes(b"")
        self.assertIn("not a folder", (await self.ready())[1]["slot folder of local"])
        self.slots.unlink()
        self.slots.mkdir()
        self.assertEqual(await self.ready(), (200, {}))

    async def test_a_folder_that_can_not_be_written(self) -> None:
        self.patch(os, "access", lambda path, mode: path != self.slots)
        problems = (await self.ready())[1]
        self.assertIn("is not writable", problems["slot folder of local"])

    async def test_what_is_known_of_the_server_does_not_change_by_a_probe(self) -> None:
        backend = self.gateway._parts.backends["local"]
        mode = backend.mode
        await self.llama.stop()
        await self.ready()
        self.assertIs(backend.mode, mode)

    async def test_while_it_stops_it_is_not_ready(self) -> None:
        caller = await self.connect()
        hang = Hang()
        self.llama.plan(hang, path=CHAT)
        turn = Deferred.fromCoroutine(self.chat("a").turn())
        await self.llama.seen(path=CHAT)
        stopped = self.gateway.stopService()
        caller.write(f"GET {READY} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await caller.heard(b"stopping")
        self.assertTrue(caller.received.startswith(b"HTTP/1.1 503 "))
        hang.release()
        await turn
        await stopped


class SilentTests(GatewayCase):
    """A server that takes connections and says nothing."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        port = CLOCK.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.start_gateway(f"http://127.0.0.1:{port.getHost().port}")

    async def test_it_is_not_ready_and_holds_up_no_probe_no_scrape_and_no_look(self) -> None:
        paths = (READY, "/slotgate/metrics", "/slotgate/status")
        began = now()
        answer, page, status = await gatherResults(
            [Deferred.fromCoroutine(self.get(path)) for path in paths]
        )
        self.assertLess(now() - began, 2 * WAIT_SECONDS)
        self.assertEqual(answer.status, 503)
        self.assertEqual(
            answer.json["checks"][0],
            {"name": "server local", "ok": False, "problem": "no answer within 2 s"},
        )
        self.assertEqual(
            answer.json["checks"][1:],
            [{"name": "slot folder of local", "ok": True}, {"name": "index", "ok": True}],
        )
        self.assertIn(b'slotgate_server_up{server="local"} 0.0', page.body)
        (server,) = status.json["servers"]
        self.assertEqual((server["reachable"], server["known"]), (False, False))
        self.assertEqual(server["problem"], "no answer within 2 s")
        self.assertEqual(status.json["disk"]["files"], 0)


class KeyTests(FakeGatewayCase):
    """Where clients have keys: anybody may probe, and learns no more than he must."""

    config = (
        FakeGatewayCase.config
        + """
        [[clients]]
        name = "me"
        key = "admin-key"
        admin = true
        [[clients]]
        name = "webui"
        key = "webui-key"
    """
    )

    async def probe(self, key: str | None) -> Answer:
        """A probe, with a key or without."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return await self.request("GET", READY, headers)

    async def test_without_a_key(self) -> None:
        self.assertEqual((await self.get(HEALTH)).status, 200)
        for key in (None, "guess", "webui-key"):
            self.assertEqual((await self.probe(key)).status, 200)

    async def test_only_an_admin_is_told_what_is_wrong(self) -> None:
        await self.llama.stop()
        for key in (None, "guess", "webui-key"):
            answer = await self.probe(key)
            self.assertEqual(answer.status, 503)
            self.assertEqual(
                answer.json["checks"][0], {"name": "server local", "ok": False}, json.dumps(key)
            )
            self.assertNotIn(b"127.0.0.1", answer.body)
        told = (await self.probe("admin-key")).json["checks"][0]
        self.assertIn(self.llama.url, told["problem"])
