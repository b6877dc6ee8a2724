"""
What is asked of a router besides generations, and what becomes of a request whose model goes away.
"""

from __future__ import annotations

import json
from typing import ClassVar

from gateway import CHAT, CLOCK, Answer
from router_gateway import FakeRouterCase
from twisted.internet.defer import Deferred, gatherResults

from slotgate.testing import faults
from slotgate.testing.faults import Die

LOST = b"proxy error: Failed to read connection"
EMBEDDINGS = "/v1/embeddings"


class SlotCallTests(FakeRouterCase):
    """Calls of slotgate's own."""

    idle: ClassVar[float] = 0.05

    async def test_each_names_its_model_and_loads_none(self) -> None:
        for _ in range(2):
            for model in ("alpha", "beta", "gamma"):
                for session in ("first", "second"):
                    await self.chat_with(model, f"{session}-{model}").turn()
        await self.post("/api/sessions/first-gamma/save", {})
        await self.post("/api/sessions/clear", {})
        await self.stop_gateway()
        seen = set()
        for call in self.router.calls:
            if call.path.startswith("/slots/"):
                self.assertIn(call.model, ("alpha", "beta", "gamma"))
                self.assertEqual(call.json()["model"], call.model)
                self.assertEqual(call.query["autoload"], "false")
                seen.add(f"{call.model} {call.action}")
            elif call.path == "/slots" or (call.path == "/props" and call.query):
                self.assertIn(call.model, ("alpha", "beta", "gamma"))
                self.assertEqual(call.query["autoload"], "false")
                seen.add(f"{call.model} {call.path}")
        for model in ("alpha", "beta", "gamma"):
            for asked in ("save", "restore", "/slots", "/props"):
                self.assertIn(f"{model} {asked}", seen)
        self.assertIn("gamma erase", seen)

    async def test_no_look_save_call_of_the_session_api_or_stop_loads_a_model(self) -> None:
        chats = [await self.saved("alpha"), await self.saved("beta")]
        await self.dirty("alpha")
        for model in ("alpha", "beta"):
            self.router.unload(model)
        await self.until_status("beta", "unloaded")
        loads = list(self.router.loads)
        for chat in chats:
            await self.post(f"/api/sessions/{chat.session}/save", {})
        await self.get("/api/sessions")
        await self.get("/api/sessions/current")
        await self.post("/api/sessions/clear", {})
        await self.post("/api/sessions/clear?route=alpha", {})
        await self.request("DELETE", f"/api/sessions/{chats[0].session}")
        for path in (
            "/models",
            "/v1/models",
            "/props",
            "/health",
            "/slots",
            "/slots?model=alpha&autoload=false",
        ):
            await self.get(path)
        await self.pause(1.1)  # two looks for what is idle, and polls
        await self.stop_gateway()
        self.assertEqual(self.router.loads, loads)
        self.assertEqual(self.router.status("alpha"), "unloaded")


class LossTests(FakeRouterCase):
    """A model's process ends while it works on a request."""

    def chats(self, path: str = CHAT) -> int:
        """How many requests the router got."""
        return sum(call.path == path for call in self.router.calls)

    async def test_before_any_byte_the_client_gets_its_answer_from_the_next_process(self) -> None:
        for stream in (False, True):
            chat = await self.saved("alpha", f"stream-{stream}")
            self.router.calls.clear()
            self.router.child("alpha").plan(Die(), path=CHAT)
            self.assert_answered(await chat.turn(stream=stream), "restored")
            self.assertEqual(self.chats(), 2)
        self.assertEqual(self.router.loads, ["alpha"] * 3)

    async def test_twice_in_a_row_the_client_gets_the_routers_error(self) -> None:
        chat = await self.saved("alpha")
        self.router.calls.clear()
        self.router.child("alpha").plan(Die(), path=CHAT, times=2)
        answer = await chat.turn()
        self.assertEqual((answer.status, answer.body), (500, LOST))
        self.assertEqual(self.chats(), 2)
        # nothing is stuck after that, and nothing is lost
        chat.messages.pop()
        self.assert_answered(await chat.turn(), "restored")

    async def test_in_mid_stream_it_is_not_sent_again_and_every_byte_is_passed_on(self) -> None:
        chat = await self.saved("alpha")
        self.router.calls.clear()
        self.router.child("alpha").plan(
            Die(after=700),
            path=CHAT,
        )
        answer = await chat.turn(stream=True)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.cache, "resident")
        self.assertIn(b"data: {", answer.body)
        self.assertTrue(answer.body.endswith(LOST), answer.body[-60:])
        self.assertEqual(len(answer.body) - len(LOST), 700)
        self.assertEqual(self.chats(), 1)
        chat.messages.pop()
        self.assert_answered(await chat.turn(), "restored")

    async def test_in_mid_body_it_is_not_sent_again(self) -> None:
        chat = await self.saved("alpha")
        self.router.calls.clear()
        self.router.child("alpha").plan(Die(after=50), path=CHAT)
        answer = await chat.turn(stream=True)
        self.assertEqual((answer.status, len(answer.body)), (200, 50 + len(LOST)))
        self.assertEqual(self.chats(), 1)

    async def test_other_errors_of_the_model_are_passed_on_once(self) -> None:
        chat = await self.saved("alpha")
        self.router.calls.clear()
        self.router.child("alpha").plan(faults.Refuse(500, "out of memory"), path=CHAT)
        answer = await chat.turn()
        self.assertEqual((answer.status, answer.json["error"]["message"]), (500, "out of memory"))
        self.assertEqual(self.chats(), 1)

    async def test_a_process_that_ended_unnoticed_before_the_request(self) -> None:
        chat = await self.saved("alpha")
        self.router.sse = False
        self.router.drop_events()
        self.router.unload("alpha")
        self.assert_answered(await chat.turn(), "restored")

    async def test_a_process_that_ends_between_the_look_and_the_request(self) -> None:
        chat, other = self.chat_with("alpha", "one"), self.chat_with("alpha", "two")
        for one in (chat, other, chat):
            await one.turn()
        self.router.child("alpha").plan(Die(), action="restore")
        self.assert_answered(await other.turn(), "restored")

    async def test_a_process_that_ends_at_a_save_costs_that_turn_and_no_more(self) -> None:
        chat, other = self.chat_with("alpha", "one"), self.chat_with("alpha", "two")
        await chat.turn()
        self.router.child("alpha").plan(Die(), action="save")
        self.assert_answered(await other.turn(), "cold")
        self.assertEqual(
            [file.name for file in self.slots.iterdir() if file.stat().st_size < 100], []
        )
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await other.turn(), "restored")

    async def test_an_error_of_the_proxy_without_a_loss_does_not_take_long(self) -> None:
        chat = await self.saved("alpha")
        self.router.child("alpha").plan(faults.Abort(), path=CHAT)
        answer = await self.begin(chat.turn()).addTimeout(5, CLOCK)
        self.assertEqual(answer.status, 200, answer.body)

    async def test_embeddings_and_the_like_are_sent_again_too(self) -> None:
        alpha = self.router.child("alpha")
        alpha.plan(faults.Hang(), path=EMBEDDINGS)
        alpha.plan(faults.Answer(body=b'{"data":[]}'), path=EMBEDDINGS)
        body = {"model": "alpha", "input": "hello"}
        asked = self.begin(self.post(EMBEDDINGS, body))
        await alpha.seen(path=EMBEDDINGS)
        self.router.crash("alpha")
        answer = await asked
        self.assertEqual((answer.status, answer.json), (200, {"data": []}))
        self.assertEqual(self.chats(EMBEDDINGS), 2)
        alpha.plan(faults.Die(), path="/tokenize", times=2)
        answer = await self.post("/tokenize", {"model": "alpha", "content": "hello"})
        self.assertEqual((answer.status, answer.body), (500, LOST))
        self.assertEqual(self.chats("/tokenize"), 2)

    async def test_requests_of_many_clients_all_come_back(self) -> None:
        chats = [await self.saved("alpha", f"talk{number}") for number in range(4)]
        self.router.child("alpha").plan(Die(), path=CHAT)
        answers = await gatherResults([self.begin(chat.turn()) for chat in chats])
        self.assertEqual([answer.status for answer in answers], [200] * 4)
        self.assertEqual({answer.cache for answer in answers}, {"restored"})


class ClientsSlotCallTests(FakeRouterCase):
    """Clients save, restore and erase slots by themselves."""

    def act(self, action: str, model: str, query: str = "", **fields: object) -> Deferred[Answer]:
        """A client's call for slot 0."""
        body = {"model": model, "filename": "mine.bin", **fields}
        return self.begin(self.post(f"/slots/0?action={action}{query}", body))

    async def test_it_waits_for_the_lease_of_its_model_and_of_no_other(self) -> None:
        await self.saved("beta")
        story = await self.held("alpha")
        self.router.calls.clear()
        own, other = self.act("save", "alpha"), self.act("save", "beta")
        self.assertEqual((await other).json["filename"], "mine.bin")
        self.assertEqual(self.steps("save"), ["save beta"])
        self.assertFalse(own.called)
        self.assertIn(b"[DONE]", await story.finish())
        self.assertGreater((await own).json["n_saved"], 100)
        # what the answer left in the slot is saved before a client does with it what it likes
        self.assertEqual(self.steps("save"), ["save beta", "save alpha", "save alpha"])

    async def test_afterwards_nobody_knows_what_is_in_that_slot(self) -> None:
        alpha, beta = await self.dirty("alpha", "beta")
        self.assertEqual((await self.act("erase", "alpha")).status, 200)
        await self.at_rest("alpha")
        self.assertEqual((self.slot("alpha").state, self.slot("beta").state), ("unknown", "dirty"))
        self.assert_answered(await beta.turn(), "resident")
        # it was saved before
        self.assert_answered(await alpha.turn(), "restored")

    async def test_a_model_that_is_not_loaded_gets_room_first(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        self.assertEqual((await self.act("save", "gamma")).status, 200)
        steps = ["save alpha", "unload alpha", "load gamma", "save gamma"]
        self.assertEqual(self.steps(), steps)
        await self.assert_none_is_lost(chats)

    async def test_autoload_false_loads_nothing(self) -> None:
        answer = await self.act("save", "gamma", "&autoload=false")
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["message"], "model is not loaded")
        self.assertEqual(self.router.loads, [])

    async def test_without_a_model_or_with_an_unknown_one_the_router_refuses(self) -> None:
        await self.dirty("alpha")
        for fields in ({}, {"model": "nobody"}):
            body = {"filename": "mine.bin", **fields}
            here = await self.post("/slots/0?action=save", body)
            there = await self.post("/slots/0?action=save", body, base=self.url)
            self.assertEqual((here.status, here.body), (there.status, there.body))
            self.assertEqual(here.status, 400)
        self.assertEqual(self.slot("alpha").state, "dirty")

    async def test_files_of_ours_are_not_for_clients(self) -> None:
        await self.saved("alpha")
        (file,) = self.slots.iterdir()
        answer = await self.act("restore", "alpha", filename=file.name)
        self.assertEqual(answer.status, 403)
        self.assertIn("snapshot", json.loads(answer.body)["error"]["message"])

    async def test_it_is_sent_once_even_where_the_process_was_lost(self) -> None:
        await self.saved("alpha")
        self.router.child("alpha").plan(Die(), action="save")
        answer = await self.act("save", "alpha")
        self.assertEqual(answer.status, 500)
        self.assertEqual(answer.body, LOST)
        self.assertEqual((await self.act("erase", "alpha")).status, 200)
