"""
What passes to a router without a slot, and clients that go away while they wait for a model.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gateway import CHAT, Answer, Caller
from router_gateway import FakeRouterCase, RouterGatewayCase
from twisted.internet.defer import Deferred

from slotgate.testing import faults
from slotgate.testing.faults import Hang

EMBEDDINGS = "/v1/embeddings"
MAKES_ROOM = ["save alpha", "unload alpha", "load gamma"]


class PassingTests(FakeRouterCase):
    """Alpha and beta are loaded and hold what is on no disk."""

    models: ClassVar[dict[str, Any]] = {
        "alpha": {},
        "beta": {},
        "gamma": {"aliases": ("g1",)},
    }
    config = (
        RouterGatewayCase.config
        + """
        [[routes]]
        model = "third"
        server = "local"
        upstream_model = "gamma"
        [[routes]]
        model = "plain"
        server = "local"
        upstream_model = "gamma"
        cache = false
        """
    )

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        self.chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()

    async def assert_untouched(self) -> None:
        """No model came or went, nothing was saved."""
        self.assertEqual(self.steps("save", "load", "unload"), [])
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        for chat in self.chats:
            self.assert_answered(await chat.turn(), "resident")

    async def test_embeddings_of_a_model_that_is_not_loaded_make_room_with_a_save(self) -> None:
        self.router.child("gamma").plan(faults.Answer(body=b'{"data":[]}'), path=EMBEDDINGS)
        answer = await self.post(EMBEDDINGS, {"model": "gamma", "input": "hello"})
        self.assertEqual((answer.status, answer.json), (200, {"data": []}))
        self.assertEqual(self.steps(), [*MAKES_ROOM, f"{EMBEDDINGS} gamma"])
        await self.assert_none_is_lost(self.chats)

    async def test_so_do_looks_that_a_router_loads_a_model_for(self) -> None:
        answer = await self.get("/props?model=gamma")
        self.assertEqual((answer.status, answer.json["model_alias"]), (200, "gamma"))
        self.assertEqual(self.steps(), MAKES_ROOM)
        await self.assert_none_is_lost(self.chats)

    async def test_so_does_a_route_without_a_cache(self) -> None:
        answer = await self.chat_with("plain").turn()
        self.assert_answered(answer, "bypass")
        self.assertEqual(self.steps(), [*MAKES_ROOM, "chat gamma"])
        await self.at_rest("gamma")
        self.assertEqual(self.slot("gamma").state, "unknown")
        await self.assert_none_is_lost(self.chats)

    async def test_a_load_makes_room_and_is_answered_when_it_is_done(self) -> None:
        for name in ("gamma", "g1", "third", "openai/gamma"):
            self.router.unload("gamma")
            await self.until_status("gamma", "unloaded")
            await self.dirty("alpha", "beta")
            self.router.calls.clear()
            answer = await self.post("/models/load", {"model": name})
            self.assertEqual((answer.status, answer.json), (200, {"success": True}), name)
            self.assertEqual(self.router.status("gamma"), "loaded")
            self.assertEqual(self.steps(), MAKES_ROOM)
        self.assertEqual(self.told("which was not saved"), [])

    async def test_a_load_that_the_router_refuses_is_the_routers_to_refuse(self) -> None:
        for body in ({"model": "alpha"}, {"model": "nobody"}, {}, {"model": 5}):
            here = await self.post("/models/load", body)
            there = await self.post("/models/load", body, base=self.url)
            self.assertEqual((here.status, here.body), (there.status, there.body))
            self.assertGreaterEqual(here.status, 400)
        self.router.calls.clear()
        await self.assert_untouched()

    async def test_an_unload_saves_first(self) -> None:
        answer = await self.post("/models/unload", {"model": "openai/alpha"})
        self.assertEqual((answer.status, answer.json), (200, {"success": True}))
        self.assertEqual(self.steps(), ["save alpha", "unload alpha"])
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot("alpha").state, "gone")
        await self.assert_none_is_lost(self.chats)

    async def test_an_unload_waits_for_the_answer_that_runs(self) -> None:
        story = await self.held("alpha")
        unload = self.begin(self.post("/models/unload", {"model": "alpha"}))
        await self.get("/api/sessions")
        self.assertEqual(self.steps("unload"), [])
        self.assertIn(b"[DONE]", await story.finish())
        self.assertEqual((await unload).json, {"success": True})
        self.assertEqual(self.steps()[-2:], ["save alpha", "unload alpha"])

    async def test_an_unload_that_the_router_refuses(self) -> None:
        for body in ({"model": "gamma"}, {"model": "nobody"}, {}):
            here = await self.post("/models/unload", body)
            there = await self.post("/models/unload", body, base=self.url)
            self.assertEqual((here.status, here.body), (there.status, there.body))
            self.assertEqual(here.status, 400)
        self.router.calls.clear()
        await self.assert_untouched()

    async def test_what_the_router_answers_by_itself_touches_no_model(self) -> None:
        for path in ("/models", "/v1/models", "/models?model=gamma", "/health", "/props"):
            here, there = await self.get(path), await self.get(path, base=self.url)
            self.assertEqual(here.status, 200)
            self.assertEqual(here.body, there.body)
        await self.assert_untouched()

    async def test_what_says_autoload_false_touches_no_model(self) -> None:
        for path in ("/slots", "/props"):
            for said in ("false", "0", "no"):
                answer = await self.get(f"{path}?model=gamma&autoload={said}")
                self.assertEqual(answer.status, 400)
                self.assertEqual(answer.json["error"]["message"], "model is not loaded")
        await self.assert_untouched()

    async def test_the_events_pass(self) -> None:
        caller = await self.connect()
        caller.write(b"GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await caller.heard(b"\r\n\r\n")
        self.router.unload("alpha")
        await caller.heard(b'"status":"unloaded"')


class UnloadTests(FakeRouterCase):
    """Clients that unload models."""

    async def test_one_that_gives_up_on_it_cuts_nobody(self) -> None:
        held = await self.held("alpha")
        caller = await self.connect()
        caller.post("/models/unload", {"model": "alpha"})
        # it waits until the slot can be saved
        await self.pause(0.1)
        await caller.leave()
        await self.pause(0.1)
        self.assertEqual(self.router.unloads, [])
        await held.finish()
        self.assertEqual(await self.loaded(), {"alpha"})
        self.assert_answered(await self.chat_with("alpha", "later").turn(), "cold")


class LeavingTests(FakeRouterCase):
    """Clients that do not wait any longer."""

    async def ask(self, model: str, session: str = "gone") -> Caller:
        """A request on a connection of its own."""
        caller = await self.connect()
        body = {"model": model, "messages": [{"role": "user", "content": "hello " * 30}]}
        caller.post(CHAT, body, {"X-Session-ID": session})
        return caller

    async def assert_nothing_is_stuck(self) -> None:
        """Every model can still be asked."""
        for model in ("alpha", "gamma", "beta", "gamma"):
            self.assertEqual((await self.chat_with(model, f"after-{model}").turn()).status, 200)
        self.assertEqual(self.gateway._parts.backends["local"].admissions.waiting, 0)

    async def test_while_all_models_are_busy(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        caller = await self.ask("gamma")
        await self.until_waiting(1)
        await caller.leave()
        await self.until_waiting(0)
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        await self.at_rest("alpha", "beta")
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        self.assertEqual(self.steps("save", "unload"), [])
        await self.assert_nothing_is_stuck()

    async def test_one_of_two_that_wait(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        caller = await self.ask("gamma")
        await self.until_waiting(1)
        other = self.begin(self.chat_with("gamma").turn())
        await self.until_waiting(2)
        await caller.leave()
        await self.until_waiting(1)
        self.assertIn(b"[DONE]", await stories[0].finish())
        self.assert_answered(await other, "cold")
        self.assertEqual(self.steps("chat"), ["chat alpha", "chat beta", "chat gamma"])
        self.assertIn(b"[DONE]", await stories[1].finish())

    async def test_the_next_in_line_is_served_when_the_first_leaves(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        first = await self.ask("gamma")
        await self.until_waiting(1)
        # loaded, so it could be served at once, if nobody were before it
        second = self.begin(self.chat_with("alpha", "second").turn())
        await self.until_waiting(2)
        await first.leave()
        await self.until_waiting(0)
        self.assertIn(b"[DONE]", await stories[0].finish())
        self.assertEqual((await second).status, 200)
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        self.assertIn(b"[DONE]", await stories[1].finish())

    async def test_while_the_victim_is_saved(self) -> None:
        chats = await self.dirty("alpha", "beta")
        held = Hang()
        self.router.child("alpha").plan(held, action="save")
        caller = await self.ask("gamma")
        await self.router.seen(action="save", model="alpha")
        await caller.leave()
        held.release()
        await self.assert_none_is_lost(chats)
        self.assertNotIn("gamma", self.router.loads)
        await self.assert_nothing_is_stuck()

    async def test_while_the_model_loads(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.models["gamma"].load_seconds = 0.2
        caller = await self.ask("gamma")
        await self.until_status("gamma", "loading")
        await caller.leave()
        await self.until_status("gamma", "loaded")
        self.assertEqual(self.router.calls_for("gamma")[0].path, "/models/load")
        self.assertEqual(self.steps("chat"), ["chat alpha", "chat beta"])
        # it was not loaded for nobody
        self.assert_answered(await self.chat_with("gamma").turn(), "cold")
        self.assertEqual(self.router.loads.count("gamma"), 1)
        await self.assert_none_is_lost(chats)
        await self.assert_nothing_is_stuck()

    async def test_while_the_model_that_somebody_else_waits_for_loads(self) -> None:
        self.router.models["gamma"].load_seconds = 0.2
        caller = await self.ask("gamma")
        other = self.begin(self.chat_with("gamma").turn())
        await self.until_status("gamma", "loading")
        await caller.leave()
        self.assert_answered(await other, "cold")
        self.assertEqual(self.router.loads, ["gamma"])

    async def test_before_a_slot_call_is_let_in(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        caller = await self.connect()
        caller.post("/slots/0?action=erase", {"model": "gamma"})
        await self.until_waiting(1)
        await caller.leave()
        await self.until_waiting(0)
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        self.assertEqual(self.steps("erase"), [])
        await self.assert_nothing_is_stuck()

    async def test_in_the_middle_of_an_answer(self) -> None:
        (beta,) = await self.dirty("beta")
        story = await self.held("alpha")
        await story.caller.leave()
        # alpha is busy until the server has noticed; then it may go
        self.assertEqual((await self.chat_with("gamma").turn()).status, 200)
        self.assert_answered(await beta.turn(), "restored")
        await self.assert_nothing_is_stuck()


class StopTests(FakeRouterCase):
    """slotgate stops while requests wait."""

    async def test_whoever_waits_is_told_and_nothing_is_loaded(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        asked: Deferred[Answer] = self.begin(self.chat_with("gamma").turn())
        await self.until_waiting(1)
        stopped = self.gateway.stopService()
        answer = await asked
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.json["error"]["message"], "slotgate is stopping")
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        await stopped
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        self.assertEqual(sorted(self.steps("save")), ["save alpha", "save beta"])

    async def test_while_the_victim_is_saved(self) -> None:
        await self.dirty("alpha", "beta")
        held = Hang()
        self.router.child("alpha").plan(held, action="save")
        asked: Deferred[Answer] = self.begin(self.chat_with("gamma").turn())
        await self.router.seen(action="save", model="alpha")
        stopped = self.gateway.stopService()
        answer = await asked
        self.assertEqual(answer.status, 503)
        held.release()
        await stopped
        self.assertEqual(sorted(self.steps("save")), ["save alpha", "save beta"])
        self.assertEqual(self.router.loads, ["alpha", "beta"])


class QueueTests(FakeRouterCase):
    """A line that is full."""

    config = RouterGatewayCase.config.replace(
        "drain_seconds = 2", "drain_seconds = 2\n        max_queue = 1"
    )

    async def test_one_too_many_is_told_to_come_again(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        asked = self.begin(self.chat_with("gamma").turn())
        await self.until_waiting(1)
        answer = await self.chat_with("gamma", "late").turn()
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.headers["retry-after"], "5")
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        self.assertEqual((await asked).status, 200)
