"""
Many models behind one real router: no slot is lost when one of them is unloaded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, ClassVar, cast
from unittest.mock import patch

import pytest
from gateway import CHAT, Answer, Caller
from router_gateway import ModelChat, RealRouterCase
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher

from slotgate.slots.departures import Departures

pytestmark = pytest.mark.router

ROUNDS = 5
#: Tokens of an answer that outlasts several turns and the load of a model: 1,200 tokens take a
#: tiny model about a second, and such turns nearly as long.
LONG = 4000


class RoundsTests(RealRouterCase):
    """Three models where two fit."""

    async def rounds(self) -> list[list[Answer]]:
        """Turns of three sessions, one on each model, in turn."""
        chats = [self.chat_with(model) for model in self.names]
        return [[await chat.turn() for chat in chats] for _ in range(ROUNDS)]

    def count_losses(self) -> list[str]:
        """What is said of slots that went with something in them that was not saved."""
        losses: list[str] = []

        def observe(event: Any) -> None:
            text = formatEvent(event)
            if text.endswith("which was not saved"):
                losses.append(text)

        observer = cast(ILogObserver, observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        return losses

    async def test_every_later_turn_is_restored_on_every_model(self) -> None:
        losses = self.count_losses()
        first, *later = await self.rounds()
        self.assertEqual([answer.cache for answer in first], ["cold"] * 3)
        for answers in later:
            self.assertEqual([answer.cache for answer in answers], ["restored"] * 3)
            for answer in answers:
                self.assertLess(answer.share_read, 0.1)
        self.assertEqual(losses, [])

    async def test_without_the_unload_each_switch_loses_what_nobody_saved(self) -> None:
        losses, saved = self.count_losses(), []

        # what slotgate must not do: the save makes the victim the one used last
        async def saved_only(
            self: Departures, victim: str, model: str, wanted: Callable[[], bool]
        ) -> bool:
            saved.append(victim)
            await self.save([victim])
            self._occupancy.leaving.discard(victim)
            self._occupancy.promised.discard(victim)
            return True

        with patch.object(Departures, "make_room", saved_only):
            _, second, *_ = await self.rounds()
        self.assertGreater(len(saved), ROUNDS)
        while len(losses) < len(saved):
            # the last one is told by the router after the answer that it was for
            await self.pause(0.02)
        self.assertEqual(len(losses), len(saved))
        # beta went instead of alpha, which had been saved for that
        self.assertEqual(second[1].cache, "cold")
        self.assertEqual(second[1].share_read, 1.0)


class BusyTests(RealRouterCase):
    """
    Models at work stay. The router has as few threads as llama.cpp gives it on a small machine:
    two streams and one listener take all of them, and it answers nothing else until one ends.
    """

    options: ClassVar[dict[str, Any]] = {"http_threads": 3}

    async def test_the_idle_model_makes_room_and_the_busy_one_answers_to_its_end(self) -> None:
        beta, gamma = self.chat_with("beta"), self.chat_with("gamma")
        # an answer that ends before gamma has its own would make alpha the one used longest ago
        story = await self.long_answer("alpha", "story", tokens=LONG)
        await beta.turn()
        # beta was used last, and alpha works
        self.assertEqual((await gamma.turn()).status, 200)
        self.assertNotIn(b"data: [DONE]", story.received)
        self.assertEqual(await self.loaded(), {"alpha", "gamma"})
        await story.heard(b"data: [DONE]")
        self.assertEqual(self.of_story(story)["choices"][0]["finish_reason"], "length")
        again = await beta.turn()
        self.assertEqual(again.cache, "restored")
        self.assertLess(again.share_read, 0.1)

    async def test_where_all_are_busy_the_request_waits_and_nothing_is_cut(self) -> None:
        alpha, gamma = self.chat_with("alpha"), self.chat_with("gamma")
        await alpha.turn()
        await gamma.turn()
        first = Story(self, alpha)
        second = Story(self, gamma, tokens=LONG)
        await first.begun()
        await second.begun()
        beta = Deferred.fromCoroutine(self.chat_with("beta").turn())
        await self.until_waiting(1)
        self.assertEqual(await self.loaded(), {"alpha", "gamma"})
        self.assertEqual((await beta).status, 200)
        # alpha was through first, and gave way
        self.assertTrue(first.caller.received.endswith(b"0\r\n\r\n"))
        await second.caller.heard(b"data: [DONE]")
        for story in (first, second):
            self.assertEqual(self.of_story(story.caller)["choices"][0]["finish_reason"], "length")
            again = await story.chat.turn()
            self.assertEqual(again.cache, "restored")
            self.assertLess(again.share_read, 0.1)

    async def test_a_model_that_works_for_somebody_else_is_not_unloaded(self) -> None:
        await self.chat_with("beta").turn()
        # past slotgate
        body = {"model": "alpha", "prompt": "tell", "n_predict": LONG, "ignore_eos": True}
        stranger = Deferred.fromCoroutine(self.post("/completion", body, base=self.url))
        while not (await self.get("/slots?model=alpha", self.url)).json[0]["is_processing"]:
            await self.pause(0.01)
        await self.chat_with("gamma").turn()
        self.assertFalse(stranger.called)
        self.assertEqual(await self.loaded(), {"alpha", "gamma"})
        answer = await stranger
        self.assertEqual((answer.status, answer.json["tokens_predicted"]), (200, LONG))


class Story:
    """A long answer in a conversation."""

    def __init__(self, case: RealRouterCase, chat: ModelChat, tokens: int = 1200) -> None:
        self.case, self.chat, self.tokens = case, chat, tokens
        self.caller: Caller

    async def begun(self) -> None:
        """Ask for it, and wait until it is being written."""
        self.caller = await self.case.connect()
        self.chat.messages.append({"role": "user", "content": "Tell me all."})
        body = {
            "model": self.chat.model,
            "messages": self.chat.messages,
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": True,
            "temperature": 0,
        }
        self.caller.post(CHAT, body, {"X-Session-ID": self.chat.session})
        await self.caller.heard(b"data: {")


class BehindOurBackTests(RealRouterCase):
    """Models go without slotgate's doing; snapshots are on disk after a tenth of a second."""

    idle = 0.1

    async def saved(self, session: str) -> None:
        """Wait until a session is on disk."""
        while True:
            rows = (await self.get("/api/sessions")).json["sessions"]
            if any(row["id"] == session and row["saved"] for row in rows):
                return
            await self.pause(0.05)

    async def returns(self, chat: ModelChat) -> None:
        """The next turn is answered, with the cache of the last."""
        answer = await chat.turn()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)
        self.assertGreater(min(file.stat().st_size for file in self.slots.iterdir()), 1000)

    async def gone(self) -> ModelChat:
        chat = self.chat_with("alpha")
        await chat.turn()
        await self.saved(chat.session)
        return chat

    def slot_state(self) -> str:
        (slot,) = self.gateway._parts.pool.of_model("local", "alpha")
        return slot.state

    async def test_a_process_that_is_killed(self) -> None:
        chat = await self.gone()
        pid = self.llama.child_pid("alpha")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot_state(), "gone")
        await self.returns(chat)

    async def test_a_process_that_is_killed_just_before_a_request(self) -> None:
        chat = await self.gone()
        pid = self.llama.child_pid("alpha")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await self.returns(chat)

    async def test_a_process_that_is_killed_before_its_answer(self) -> None:
        chat = await self.gone()
        body = {"model": "alpha", "prompt": "tell", "n_predict": LONG, "ignore_eos": True}
        asked = Deferred.fromCoroutine(self.post("/completion", body, {"X-Session-ID": "other"}))
        while not (await self.get("/slots?model=alpha", self.url)).json[0]["is_processing"]:
            await self.pause(0.01)
        pid = self.llama.child_pid("alpha")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        answer = await asked
        self.assertEqual((answer.status, answer.json["tokens_predicted"]), (200, LONG))
        await self.returns(chat)

    async def test_an_unload_by_hand(self) -> None:
        chat = await self.gone()
        await self.post("/models/unload", {"model": "alpha"}, base=self.url)
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot_state(), "gone")
        # polls, idle saves and the session API load nothing
        await self.get("/api/sessions/current")
        await self.post(f"/api/sessions/{chat.session}/save", {})
        await self.post("/api/sessions/clear", {})
        await self.pause(1.2)
        self.assertEqual(await self.loaded(), set())
        await self.returns(chat)

    async def test_a_request_while_an_unload_by_hand_is_under_way(self) -> None:
        chat = await self.gone()
        await self.post("/models/unload", {"model": "alpha"}, base=self.url)
        await self.returns(chat)

    async def test_an_unload_through_slotgate_saves_first(self) -> None:
        chat = self.chat_with("alpha")
        await chat.turn()
        answer = await self.post("/models/unload", {"model": "alpha"})
        self.assertEqual(answer.json, {"success": True})
        await self.until_status("alpha", "unloaded")
        await self.returns(chat)

    async def test_a_router_that_is_started_again(self) -> None:
        chat = await self.gone()
        await self.llama.restart()
        await self.returns(chat)


class SleepTests(RealRouterCase):
    """Models fall asleep after two seconds; nobody has told slotgate to save before that."""

    options: ClassVar[dict[str, Any]] = {"sleep_idle_seconds": 2}

    async def test_what_is_in_a_slot_is_saved_before_the_model_falls_asleep(self) -> None:
        chat = self.chat_with("alpha")
        await chat.turn()
        await self.until_status("alpha", "sleeping")
        (slot,) = self.gateway._parts.pool.of_model("local", "alpha")
        self.assertEqual(slot.state, "gone")
        await self.pause(1)
        self.assertEqual((await self.statuses())["alpha"], "sleeping", "something wakes it")
        answer = await chat.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)

    async def test_a_model_that_sleeps_makes_room_and_is_not_waked_for_that(self) -> None:
        chats = [self.chat_with(model) for model in self.names]
        await chats[0].turn()
        await self.until_status("alpha", "sleeping")
        await chats[1].turn()
        await chats[2].turn()
        self.assertEqual((await self.statuses())["alpha"], "unloaded")
        self.assertEqual((await chats[0].turn()).cache, "restored")


class OneAtATimeTests(RealRouterCase):
    """Six models, one of them at a time."""

    names = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
    options: ClassVar[dict[str, Any]] = {"models_max": 1}

    async def test_twenty_requests_for_six_models_are_answered_in_their_order(self) -> None:
        broken = self.folder / "model5.gguf"
        broken.write_bytes(b"GGUF is not all it takes")
        served: list[int] = []

        async def ask(number: int) -> Answer:
            model = [*self.names, "nobody"][number % 7]
            body = {"model": model, "prompt": f"number {number}", "max_tokens": 4}
            answer = await self.post("/v1/completions", body, {"X-Session-ID": f"s{number}"})
            served.append(number)
            return answer

        asked = []
        for number in range(20):
            asked.append(Deferred.fromCoroutine(ask(number)))
            # their order is that of their arrival
            await self.pause(0.02)
        answers = await gatherResults(asked)
        for number, answer in enumerate(answers):
            if number % 7 == 6:
                self.assertEqual(answer.status, 400)
                self.assertIn("'nobody' not found", answer.body.decode())
            elif number % 7 == 5:
                self.assertEqual(answer.status, 500)
                self.assertIn("failed to load", answer.json["error"]["message"])
            else:
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json["model"], self.names[number % 7])
        # an error waits for nobody
        through = [number for number in served if number % 7 < 5]
        self.assertEqual(through, sorted(through))
        self.assertEqual(self.gateway._parts.backends["local"].admissions.waiting, 0)

    async def test_many_requests_for_a_missing_model_are_one_load(self) -> None:
        events = await self.events()
        bodies = [{"model": "alpha", "prompt": f"{n}", "max_tokens": 2} for n in range(6)]
        answers = await gatherResults(
            [Deferred.fromCoroutine(self.post("/v1/completions", body)) for body in bodies]
        )
        self.assertEqual({answer.status for answer in answers}, {200})
        self.assertEqual(events.received.count(b'"status":"loaded"'), 1)
        self.assertNotIn(b'"status":"unloaded"', events.received)

    async def test_an_unknown_model_costs_nobody_a_cache(self) -> None:
        chat = self.chat_with("alpha")
        await chat.turn()
        answer = await self.chat_with("nobody").turn()
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["message"], "model 'nobody' not found")
        self.assertEqual(answer.cache, "bypass")
        self.assertEqual((await chat.turn()).cache, "resident")
        self.assertEqual(list(self.slots.iterdir()), [])
