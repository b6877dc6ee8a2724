"""
The session API, slotgate's own restart and the models' sleep with a router behind.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gateway import CLOCK, Answer
from router_gateway import FakeRouterCase, ModelChat, RouterGatewayCase

from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.faults import Hang

API = "/api/sessions"


class SessionCase(FakeRouterCase):
    """Calls of the session API."""

    async def call(self, method: str, path: str = "") -> Answer:
        """One call of the API."""
        return await self.request(method, API + path)

    async def done(self, method: str, path: str = "") -> Any:
        """What a call that succeeds says."""
        answer = await self.call(method, path)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    async def unloaded(self, model: str) -> None:
        """Unload a model past slotgate, and wait until slotgate has heard of it."""
        self.router.unload(model)
        await self.until_status(model, "unloaded")


class ApiTests(SessionCase):
    """What the session API shows and does."""

    async def test_current_shows_the_slots_of_each_model(self) -> None:
        self.assertEqual((await self.done("GET", "/current"))["slots"], [])
        await self.dirty("alpha", "beta")
        slots = (await self.done("GET", "/current"))["slots"]
        shown = [(s["server"], s["model"], s["slot"], s["routes"], s["state"]) for s in slots]
        self.assertEqual(
            shown,
            [("local", "alpha", 0, ["*"], "dirty"), ("local", "beta", 0, ["*"], "dirty")],
        )
        self.assertEqual([s["session"]["route"] for s in slots], ["alpha", "beta"])
        await self.unloaded("alpha")
        slots = (await self.done("GET", "/current"))["slots"]
        self.assertEqual([s["state"] for s in slots], ["gone", "dirty"])
        self.assertIsNone(slots[0]["session"])

    async def test_the_list_names_the_model_as_the_route(self) -> None:
        await self.saved("alpha")
        await self.dirty("beta")
        rows = {row["id"]: row for row in (await self.done("GET"))["sessions"]}
        alpha, beta = rows["talk-alpha"], rows["talk-beta"]
        self.assertEqual((alpha["route"], alpha["resident"], alpha["saved"]), ("alpha", True, True))
        self.assertIn("/models/alpha.gguf", alpha["model"])
        self.assertEqual((beta["route"], beta["resident"], beta["saved"]), ("beta", True, False))
        await self.unloaded("alpha")
        rows = {row["id"]: row for row in (await self.done("GET"))["sessions"]}
        self.assertEqual(
            (rows["talk-alpha"]["resident"], rows["talk-alpha"]["saved"]), (False, True)
        )

    async def test_save_is_of_the_model_that_holds_the_session(self) -> None:
        await self.dirty("alpha", "beta")
        self.router.calls.clear()
        (saved,) = (await self.done("POST", "/talk-beta/save"))["saved"]
        self.assertEqual((saved["route"], saved["saved"]), ("beta", True))
        self.assertEqual(self.steps(), ["save beta"])

    async def test_one_id_on_two_models_is_told_apart_by_its_route(self) -> None:
        for model in ("alpha", "beta"):
            await self.chat_with(model, "one").turn()
        await self.at_rest("alpha", "beta")
        self.router.calls.clear()
        await self.done("POST", "/one/save?route=beta")
        self.assertEqual(self.steps(), ["save beta"])
        self.assertEqual(len((await self.done("POST", "/one/save"))["saved"]), 2)
        self.assertEqual(len((await self.done("DELETE", "/one?route=alpha"))["deleted"]), 1)
        (left,) = (await self.done("GET"))["sessions"]
        self.assertEqual(left["route"], "beta")

    async def test_clear_of_a_route_is_of_that_model(self) -> None:
        alpha, beta = await self.dirty("alpha", "beta")
        (cleared,) = (await self.done("POST", "/clear?route=alpha"))["cleared"]
        self.assertEqual((cleared["model"], cleared["session"]["id"]), ("alpha", "talk-alpha"))
        self.assertGreater(cleared["tokens"], 100)
        self.assert_answered(await alpha.turn(), "cold")
        self.assert_answered(await beta.turn(), "resident")

    async def test_clear_of_all_is_of_every_loaded_model_and_loads_none(self) -> None:
        chats = await self.dirty("alpha", "beta", "gamma")
        loads = list(self.router.loads)
        self.router.calls.clear()
        cleared = (await self.done("POST", "/clear"))["cleared"]
        self.assertEqual({one["model"] for one in cleared if one["tokens"]}, {"beta", "gamma"})
        self.assertEqual(self.router.loads, loads)
        # alpha was on disk, and nobody cleared that
        self.assert_answered(await chats[0].turn(), "restored")

    async def test_sessions_of_models_that_are_not_loaded(self) -> None:
        chat = await self.saved("alpha")
        await self.unloaded("alpha")
        loads = list(self.router.loads)
        self.assertEqual((await self.call("POST", "/talk-alpha/save")).status, 409)
        await self.done("POST", "/clear?route=alpha")
        (deleted,) = (await self.done("DELETE", "/talk-alpha"))["deleted"]
        self.assertEqual(deleted["route"], "alpha")
        self.assertEqual(list(self.slots.iterdir()), [])
        self.assertEqual((await self.done("GET"))["sessions"], [])
        self.assertEqual(self.router.loads, loads)
        self.assert_answered(await chat.turn(), "cold")

    async def test_a_route_that_no_model_is_behind(self) -> None:
        self.assertEqual((await self.call("POST", "/clear?route=nobody")).status, 404)

    async def test_a_delete_while_the_model_makes_room(self) -> None:
        chats = await self.dirty("alpha", "beta")
        held = Hang()
        self.router.child("alpha").plan(held, action="save")
        asked = self.begin(self.chat_with("gamma").turn())
        await self.router.seen(action="save", model="alpha")
        deleting = self.begin(self.done("DELETE", "/talk-alpha"))
        await self.get("/health")
        held.release()
        self.assert_answered(await asked, "cold")
        await deleting
        self.assertEqual([file.name for file in self.slots.iterdir() if "alpha" in file.name], [])
        self.assert_answered(await chats[0].turn(), "cold")

    async def test_a_session_of_a_model_that_the_router_has_no_longer(self) -> None:
        await self.saved("alpha")
        registry = self.router.registry
        await self.unloaded("alpha")
        registry.all = {name: model for name, model in registry.all.items() if name != "alpha"}
        await self.following.look()
        await self.done("DELETE", "/talk-alpha")
        self.assertEqual((await self.done("GET"))["sessions"], [])
        self.assertEqual(list(self.slots.iterdir()), [])


class OwnRestartTests(SessionCase):
    """slotgate is started again."""

    async def again(self) -> None:
        """Stop and start on the same state."""
        await self.stop_gateway()
        self.start_gateway(self.url)
        await self.followed()

    async def test_a_stop_saves_every_model_and_loads_none(self) -> None:
        await self.dirty("alpha", "beta", "gamma")
        loads = list(self.router.loads)
        self.router.calls.clear()
        await self.stop_gateway()
        self.assertEqual(sorted(self.steps()), ["save beta", "save gamma"])
        self.assertEqual(self.router.loads, loads)
        self.assertEqual(len(list(self.slots.iterdir())), 3)

    async def test_what_is_still_in_the_slots_is_resident(self) -> None:
        chats = await self.dirty("alpha", "beta")
        await self.again()
        slots = (await self.done("GET", "/current"))["slots"]
        self.assertEqual(
            {(s["model"], s["state"]) for s in slots}, {("alpha", "saved"), ("beta", "saved")}
        )
        self.router.calls.clear()
        for chat in chats:
            self.assert_answered(await chat.turn(), "resident")
        self.assertEqual(self.steps("restore", "save", "load"), [])

    async def test_what_is_still_there_is_saved_before_it_goes(self) -> None:
        chats = await self.dirty("alpha", "beta")
        await self.again()
        for chat in chats:
            await chat.turn()
        await self.at_rest("alpha", "beta")
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps("save", "unload"), ["save alpha", "unload alpha"])
        await self.assert_none_is_lost(chats)

    async def test_a_model_that_was_unloaded_meanwhile_is_not_loaded_for_a_look(self) -> None:
        alpha, beta = await self.dirty("alpha", "beta")
        await self.stop_gateway()
        self.router.unload("alpha")
        loads = list(self.router.loads)
        self.start_gateway(self.url)
        await self.followed()
        self.assertEqual(self.router.loads, loads)
        self.assert_answered(await beta.turn(), "resident")
        self.assert_answered(await alpha.turn(), "restored")

    async def test_a_model_that_was_used_meanwhile_is_not_taken_for_ours(self) -> None:
        (alpha,) = await self.dirty("alpha")
        await self.stop_gateway()
        body = {"model": "alpha", "prompt": "somebody else " * 20, "n_predict": 2}
        await self.post("/completion", body, base=self.url)
        self.start_gateway(self.url)
        await self.followed()
        self.assert_answered(await alpha.turn(), "restored")

    async def test_a_model_that_sleeps_is_not_waked_for_a_look(self) -> None:
        (alpha,) = await self.dirty("alpha")
        await self.stop_gateway()
        self.router.fall_asleep("alpha")
        self.start_gateway(self.url)
        await self.followed()
        await self.get(f"{API}/current")
        self.assertEqual(self.router.status("alpha"), "sleeping")
        self.assert_answered(await alpha.turn(), "restored")

    async def test_a_session_is_deleted_whose_slot_was_not_used_since(self) -> None:
        await self.dirty("alpha", "beta")
        await self.stop_gateway()
        self.router.unload("alpha")
        self.start_gateway(self.url)
        await self.followed()
        for session in ("talk-alpha", "talk-beta"):
            (deleted,) = (await self.done("DELETE", f"/{session}"))["deleted"]
            self.assertEqual(deleted["id"], session)
        self.assertEqual(list(self.slots.iterdir()), [])
        self.assertEqual((await self.done("GET"))["sessions"], [])

    async def test_a_session_is_deleted_before_the_router_is_there(self) -> None:
        await self.dirty("alpha")
        await self.stop_gateway()
        self.router.die()
        self.start_gateway(self.url)
        await self.recalled()
        await self.done("DELETE", "/talk-alpha")
        self.assertEqual(list(self.slots.iterdir()), [])
        await self.router.restart()
        self.assert_answered(await self.chat_with("alpha").turn(), "cold")


class SleepTests(SessionCase):
    """Alpha falls asleep after a second and a half, and nobody has told slotgate to save."""

    models: ClassVar[dict[str, Any]] = {
        "alpha": {"sleep_idle_seconds": 1.5},
        "beta": {},
        "gamma": {},
    }

    async def asleep(self) -> ModelChat:
        """A conversation with alpha, which sleeps."""
        (chat,) = await self.dirty("alpha")
        await self.until_status("alpha", "sleeping")
        self.router.calls.clear()
        return chat

    async def test_it_is_saved_before_it_sleeps_and_nothing_but_a_turn_wakes_it(self) -> None:
        chat = await self.asleep()
        self.assertEqual(self.slot("alpha").state, "gone")
        self.assertEqual(len(list(self.slots.iterdir())), 1)
        for path in (
            "/models",
            "/props",
            f"{API}/current",
            API,
            "/props?model=alpha&autoload=false",
        ):
            self.assertEqual((await self.get(path)).status, 200)
        await self.call("POST", "/talk-alpha/save")
        await self.done("POST", "/clear")
        await self.following.look()
        await self.pause(0.6)  # a look for what is idle, and polls
        self.assertEqual(self.router.status("alpha"), "sleeping")
        self.assertEqual([call.uri for call in self.router.calls if call.path == "/slots"], [])
        self.assert_answered(await chat.turn(), "restored")
        self.assertEqual(self.router.loads, ["alpha"])

    async def test_it_makes_room_without_being_waked(self) -> None:
        chat = await self.asleep()
        others = await self.dirty("beta", "gamma")
        self.assertEqual(self.router.status("alpha"), "unloaded")
        steps = self.steps("save", "unload", "load")
        self.assertEqual(steps, ["load beta", "unload alpha", "load gamma"])
        self.assertEqual(
            [
                call.model
                for call in self.router.calls
                if call.path == "/slots" and call.model == "alpha"
            ],
            [],
        )
        await self.assert_none_is_lost([chat, *others])

    async def test_a_stop_does_not_wake_it(self) -> None:
        await self.asleep()
        await self.stop_gateway()
        self.assertEqual(self.router.status("alpha"), "sleeping")
        self.assertEqual([call.uri for call in self.router.calls if "/slots" in call.path], [])


class TwoServersTests(SessionCase):
    """One slotgate in front of a router and a server with one model."""

    config = (
        RouterGatewayCase.config
        + """
        [[routes]]
        model = "tiny"
        server = "one"
        [servers.one]
        url = "{one}"
        slot_save_path = "{one_slots}"
        """
    )

    def start_gateway(self, url: str, **values: object) -> Any:
        """Start it with both."""
        more = {"one": self.single.url, "one_slots": self.one_slots}
        return super().start_gateway(url, **more, **values)

    async def start_router(self) -> None:
        """Start both."""
        await super().start_router()
        self.one_slots = self.folder / "one"
        self.one_slots.mkdir()
        self.single = FakeLlamaServer(CLOCK, self.one_slots)
        self.addCleanup(self.single.stop)
        await self.single.listen(CLOCK)

    async def switches(self, model: str) -> list[ModelChat]:
        """Two sessions take turns in a model's slot."""
        chats = [self.chat_with(model, f"{model}-{name}") for name in ("one", "two")]
        for chat in chats:
            self.assert_answered(await chat.turn(), "cold")
        return chats

    async def test_the_route_decides(self) -> None:
        for model in ("tiny", "alpha", "beta"):
            for chat in await self.switches(model):
                self.assert_answered(await chat.turn(), "restored")
        self.assertEqual([call for call in self.router.calls if call.model == "tiny"], [])
        self.assertEqual(len(list(self.one_slots.iterdir())), 2)
        self.assertEqual(len(list(self.slots.iterdir())), 4)
        slots = (await self.done("GET", "/current"))["slots"]
        self.assertEqual(
            [(slot["server"], slot.get("model"), slot["routes"]) for slot in slots],
            [("one", None, ["tiny"]), ("local", "alpha", ["*"]), ("local", "beta", ["*"])],
        )

    async def test_a_slow_save_of_the_single_one_delays_no_model_of_the_router(self) -> None:
        single, alpha = await self.switches("tiny"), await self.switches("alpha")
        held = Hang()
        self.single.plan(held, action="save")
        slow = self.begin(single[0].turn())
        await self.single.seen(action="save")
        for chat in alpha:
            self.assert_answered(await chat.turn(), "restored")
        self.assertFalse(slow.called)
        held.release()
        self.assert_answered(await slow, "restored")

    async def test_a_slow_save_of_a_model_delays_no_other_model_and_not_the_single_one(
        self,
    ) -> None:
        alpha, beta = await self.switches("alpha"), await self.switches("beta")
        single = await self.switches("tiny")
        held = Hang()
        self.router.child("alpha").plan(held, action="save")
        slow = self.begin(alpha[0].turn())
        self.router.calls.clear()
        await self.router.seen(action="save", model="alpha")
        for chat in (*beta, *single):
            self.assert_answered(await chat.turn(), "restored")
        self.assertFalse(slow.called)
        held.release()
        self.assert_answered(await slow, "restored")

    async def test_making_room_delays_no_model_that_is_loaded(self) -> None:
        alpha, beta = await self.switches("alpha"), await self.switches("beta")
        single = await self.switches("tiny")
        held = Hang()
        self.router.calls.clear()
        self.router.child("alpha").plan(held, action="save")
        slow = self.begin(self.chat_with("gamma").turn())
        await self.router.seen(action="save", model="alpha")
        for chat in (*beta, *single):
            self.assert_answered(await chat.turn(), "restored")
        self.assertFalse(slow.called)
        held.release()
        self.assert_answered(await slow, "cold")
        for chat in alpha:
            self.assert_answered(await chat.turn(), "restored")

    async def test_the_single_one_goes_on_while_the_router_is_away(self) -> None:
        chats = await self.switches("tiny")
        self.router.die()
        await self.missed()
        self.assertEqual((await self.chat_with("alpha").turn()).status, 502)
        for chat in chats:
            self.assert_answered(await chat.turn(), "restored")

    async def test_a_stop_saves_both(self) -> None:
        await self.dirty("alpha")
        await self.chat_with("tiny").turn()
        await self.stop_gateway()
        self.assertEqual(len(list(self.one_slots.iterdir())), 1)
        self.assertEqual(len(list(self.slots.iterdir())), 1)
