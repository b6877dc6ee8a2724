"""
How room is made for a model, by the tracker's mode and the numbers of models; and routers that
tell less, do less or ask for a key.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gateway import CHAT
from router_gateway import FakeRouterCase, RouterGatewayCase

from slotgate.testing.faults import Refuse

NAMES = ("alpha", "beta", "gamma")


class EnforceTests(FakeRouterCase):
    """The default: slotgate saves the model used longest ago, and unloads it."""

    async def test_the_model_used_longest_ago_is_saved_unloaded_and_then_replaced(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        chats += await self.dirty("gamma")
        self.assertEqual(self.steps(), ["save alpha", "unload alpha", "load gamma", "chat gamma"])
        await self.assert_none_is_lost(chats)

    async def test_a_turn_is_a_use(self) -> None:
        alpha, _ = await self.dirty("alpha", "beta")
        self.assert_answered(await alpha.turn(), "resident")
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps("save", "unload"), ["save beta", "unload beta"])

    async def test_saves_and_looks_are_no_uses(self) -> None:
        alpha, _ = await self.dirty("alpha", "beta")
        await self.post(f"/api/sessions/{alpha.session}/save", {})
        await self.get("/slots?model=alpha&autoload=false")
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps("unload"), ["unload alpha"])

    async def test_a_use_past_slotgate_does_not_cost_a_cache(self) -> None:
        chats = await self.dirty("alpha", "beta")
        # the router would unload beta now
        await self.post("/tokenize", {"model": "alpha", "content": "hello"}, base=self.url)
        await self.dirty("gamma")
        await self.assert_none_is_lost(chats)

    async def test_many_requests_for_a_missing_model_are_one_load(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        talks = [self.chat_with("gamma", f"talk{number}") for number in range(5)]
        for asked in [self.begin(talk.turn()) for talk in talks]:
            self.assertEqual((await asked).status, 200)
        self.assertEqual(self.steps("load", "unload"), ["unload alpha", "load gamma"])
        await self.assert_none_is_lost(chats)

    async def test_a_model_that_fails_to_load_is_an_error_and_holds_nobody_up(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.models["gamma"].broken = True
        answer = await self.chat_with("gamma").turn()
        self.assertEqual(answer.status, 500)
        self.assertIn("failed to load", answer.json["error"]["message"])
        await self.assert_none_is_lost(chats)
        self.router.models["gamma"].broken = False
        # it costs no other model its place so soon after that
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        self.assert_answered(await self.chat_with("gamma").turn(), "cold")

    async def test_where_all_are_busy_requests_wait_and_come_in_their_order(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        served: list[str] = []

        async def ask(session: str) -> None:
            answer = await self.chat_with("gamma", session).turn()
            self.assertEqual(answer.status, 200, answer.body)
            served.append(session)

        asked = []
        for number in range(3):
            asked.append(self.begin(ask(f"s{number}")))
            await self.until_waiting(number + 1)
        self.assertEqual(self.steps("load", "unload", "save"), ["load alpha", "load beta"])
        self.router.calls.clear()
        self.assertIn(b"[DONE]", await stories[1].finish())
        for one in asked:
            await one
        self.assertEqual(served, ["s0", "s1", "s2"])
        self.assertEqual(self.steps("load", "unload"), ["unload beta", "load gamma"])
        self.assertEqual(self.steps()[0], "save beta")
        self.assertIn(b"[DONE]", await stories[0].finish())


class ObserveTests(FakeRouterCase):
    """The router chooses, and whatever it could choose is saved before."""

    tracker = "observe"

    async def test_all_that_could_go_are_saved_first_and_the_router_chooses(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        chats += await self.dirty("gamma")
        *saves, load, chat = self.steps()
        self.assertEqual(sorted(saves), ["save alpha", "save beta"])
        self.assertEqual((load, chat), ("load gamma", "chat gamma"))
        self.assertEqual(len(self.router.unloads), 1)
        await self.assert_none_is_lost(chats)

    async def test_nothing_is_lost_in_rounds_and_nothing_is_unloaded_by_us(self) -> None:
        chats = await self.dirty(*NAMES)
        for _ in range(3):
            await self.assert_none_is_lost(chats)
        self.assertEqual(self.steps("unload"), [])

    async def test_what_is_saved_already_is_not_saved_again(self) -> None:
        chats = [await self.saved("alpha"), await self.saved("beta")]
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps("save"), [])
        await self.assert_none_is_lost(chats)

    async def test_the_model_at_work_is_not_touched(self) -> None:
        (beta,) = await self.dirty("beta")
        story = await self.held("alpha")
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps(), ["save beta", "load gamma", "chat gamma"])
        self.assertIn(b"[DONE]", await story.finish())
        self.assert_answered(await beta.turn(), "restored")

    async def test_where_all_are_busy_it_waits_and_is_then_served(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        asked = self.begin(self.chat_with("gamma").turn())
        await self.until_waiting(1)
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        self.assert_answered(await asked, "cold")
        self.assertEqual(self.steps("unload"), [])
        self.assertEqual(self.told("which was not saved"), [])


class OffTests(FakeRouterCase):
    """The router does what it does."""

    tracker = "off"

    async def test_nothing_is_saved_or_unloaded_for_another_model(self) -> None:
        alpha, beta = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        await self.dirty("gamma")
        self.assertEqual(self.steps("save", "unload"), [])
        self.assertEqual(self.router.unloads, ["alpha"])
        self.assert_answered(await beta.turn(), "resident")
        self.assert_answered(await alpha.turn(), "cold")
        self.assertEqual(len(self.told("which was not saved")), 2)

    async def test_where_all_are_busy_the_request_waits_in_the_router(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        asked = self.begin(self.chat_with("gamma").turn())
        await self.router.seen(path=CHAT, model="gamma")
        self.assertFalse(asked.called)
        for story in stories:
            self.assertIn(b"[DONE]", await story.finish())
        self.assertEqual((await asked).status, 200)


class OneOfTwoTests(FakeRouterCase):
    """Fewer models at once than the router allows."""

    models_max: ClassVar[object] = 1

    async def test_the_number_of_the_configuration_counts(self) -> None:
        chats = await self.dirty(*NAMES)
        await self.assert_none_is_lost(chats)
        self.assertEqual(await self.loaded(), {"gamma"})
        self.assertEqual(
            self.steps("load", "unload")[:3], ["load alpha", "unload alpha", "load beta"]
        )
        self.assertEqual(self.told("models_max"), [])


class NoLimitTests(FakeRouterCase):
    """No limit here, and none there."""

    models_max: ClassVar[object] = 0
    options: ClassVar[dict[str, Any]] = {"models_max": 0}

    async def test_no_model_has_to_go(self) -> None:
        chats = await self.dirty(*NAMES)
        for chat in chats:
            self.assert_answered(await chat.turn(), "resident")
        self.assertEqual(self.steps("save", "unload"), [])
        self.assertEqual(self.told("models_max"), [])


class NoLimitAutoTests(FakeRouterCase):
    """The router's own limit is none."""

    options: ClassVar[dict[str, Any]] = {"models_max": 0}

    async def test_no_model_has_to_go(self) -> None:
        await self.dirty(*NAMES)
        self.assertEqual(await self.loaded(), set(NAMES))


class TooManyTests(FakeRouterCase):
    """More models at once than the router holds."""

    models_max: ClassVar[object] = 5

    async def test_it_is_told_once_and_requests_are_served_all_the_same(self) -> None:
        (warning,) = self.told("models_max")
        self.assertIn("models_max is 5, and the router holds at most 2 models", warning)
        for chat in await self.dirty(*NAMES):
            self.assertEqual((await chat.turn()).status, 200)
        self.router.die()
        await self.missed()
        await self.router.restart()
        self.assertEqual((await self.chat_with("alpha").turn()).status, 200)
        self.assertEqual(len(self.told("models_max")), 1)

    async def test_a_router_that_is_full_is_asked_again(self) -> None:
        stories = [await self.held("alpha"), await self.held("beta")]
        asked = self.begin(self.chat_with("gamma").turn())
        await self.router.seen(path="/models/load", model="gamma")
        self.assertIn(b"[DONE]", await stories[0].finish())
        self.assert_answered(await asked, "cold")
        self.assertIn(b"[DONE]", await stories[1].finish())


class NoneOfTooManyTests(TooManyTests):
    """No limit here, and one there."""

    models_max: ClassVar[object] = 0

    async def test_it_is_told_once_and_requests_are_served_all_the_same(self) -> None:
        (warning,) = self.told("models_max")
        self.assertIn("models_max is 0, and the router holds at most 2 models", warning)


class NoEventsTests(FakeRouterCase):
    """An older router, which tells nothing by itself."""

    options: ClassVar[dict[str, Any]] = {"sse": False}
    models: ClassVar[dict[str, Any]] = {name: {"load_seconds": 0.05} for name in NAMES}

    async def test_it_is_looked_at_instead(self) -> None:
        chats = await self.dirty(*NAMES)
        for _ in range(2):
            await self.assert_none_is_lost(chats)
        self.assertEqual(self.told("which was not saved"), [])
        self.assertEqual(len(self.told("no events")), 1)

    async def test_an_unload_by_hand_is_noticed(self) -> None:
        chat = await self.saved("alpha")
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot("alpha").state, "gone")
        self.assert_answered(await chat.turn(), "restored")

    async def test_a_model_that_fails_to_load_is_an_error(self) -> None:
        self.router.models["gamma"].broken = True
        answer = await self.chat_with("gamma").turn()
        self.assertEqual(answer.status, 500)
        self.assertIn("failed to load", answer.json["error"]["message"])


class CutEventsTests(FakeRouterCase):
    """The connection of the events does not last."""

    async def test_they_are_asked_for_again_and_what_was_missed_is_looked_up(self) -> None:
        chat = await self.saved("alpha")
        self.router.drop_events()
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot("alpha").state, "gone")
        while not self.following.live:
            await self.pause(0.01)
        self.assert_answered(await chat.turn(), "restored")
        await self.at_rest("alpha")
        # events again, not only looks
        self.router.calls.clear()
        self.router.unload("alpha")
        await self.pause(0.02)
        self.assertEqual(self.slot("alpha").state, "gone")
        self.assertEqual([call.path for call in self.router.calls], [])

    async def test_what_no_look_has_shown_is_looked_up_as_soon_as_they_are_back(self) -> None:
        await self.saved("alpha")
        self.router.calls.clear()
        self.router.plan(Refuse(500), path="/models", times=1000)
        self.router.drop_events()
        self.router.unload("alpha")
        await self.router.seen(path="/models/sse")
        self.router._door._planned.clear()
        while self.slot("alpha").state != "gone":
            await self.pause(0.01)

    async def test_room_is_made_while_they_are_away(self) -> None:
        chats = await self.dirty("alpha", "beta")
        self.router.sse = False
        self.router.drop_events()
        chats += await self.dirty("gamma")
        await self.assert_none_is_lost(chats)
        self.assertEqual(self.told("which was not saved"), [])


class NewModelTests(FakeRouterCase):
    """A router reads its models again (``GET /models?reload=1``) and has another one."""

    async def test_a_new_model_is_served_like_the_others(self) -> None:
        chats = await self.dirty("alpha", "beta")
        newer = self.new_router(models_max=2)
        added = newer.registry.all["gamma"]
        del newer
        self.router.registry.all = {**self.router.registry.all, "delta": self.renamed(added)}
        self.router.events.tell("*", "models_reload", {})
        delta = self.chat_with("delta")
        self.assert_answered(await delta.turn(), "cold")
        await self.assert_none_is_lost([*chats, delta])

    def renamed(self, model: Any) -> Any:
        """The model under another name."""
        model.name = "delta"
        model.child.alias = "delta"
        model.child.heard = lambda happening: self.router.registry.heard(model, happening)
        return model


class NoAutoloadTests(FakeRouterCase):
    """A router that loads models only by hand."""

    options: ClassVar[dict[str, Any]] = {"autoload": False}

    async def load(self, model: str) -> None:
        """By hand, past slotgate."""
        answer = await self.post("/models/load", {"model": model}, base=self.url)
        self.assertEqual(answer.status, 200, answer.body)
        await self.until_status(model, "loaded")

    async def test_a_model_that_is_not_loaded_is_the_routers_to_refuse(self) -> None:
        await self.load("alpha")
        chats = await self.dirty("alpha")
        answer = await self.chat_with("beta").turn()
        self.assertEqual((answer.status, answer.cache), (400, "bypass"))
        self.assertEqual(answer.json["error"]["message"], "model is not loaded")
        self.assertEqual(self.router.loads, ["alpha"])
        await self.assert_none_is_lost(chats)
        self.assertEqual(len(self.told("it loads no models by itself")), 1)

    async def test_a_loaded_model_has_its_cache(self) -> None:
        await self.load("alpha")
        chat = await self.saved("alpha")
        self.assert_answered(await chat.turn(), "resident")
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        self.assertEqual((await chat.turn()).status, 400)
        chat.messages.pop()
        await self.load("alpha")
        self.assert_answered(await chat.turn(), "restored")

    async def test_a_load_through_slotgate_makes_room_with_a_save_first(self) -> None:
        for model in ("alpha", "beta"):
            await self.load(model)
        chats = await self.dirty("alpha", "beta")
        answer = await self.post("/models/load", {"model": "gamma"})
        self.assertEqual((answer.status, answer.json), (200, {"success": True}))
        await self.until_status("gamma", "loaded")
        self.assertEqual(self.told("which was not saved"), [])
        await self.load("alpha")
        self.assert_answered(await chats[0].turn(), "restored")

    async def test_a_deleted_session_leaves_no_file_where_its_model_is_not_loaded(self) -> None:
        await self.load("alpha")
        chat = await self.saved("alpha")
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        answer = await self.request("DELETE", f"/api/sessions/{chat.session}")
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(list(self.slots.iterdir()), [])


class KeyTests(FakeRouterCase):
    """A router that asks for a key."""

    options: ClassVar[dict[str, Any]] = {"api_key": "sesame"}
    config = RouterGatewayCase.config.replace(
        "poll_seconds = 0.2", 'poll_seconds = 0.2\n        api_key = "sesame"'
    )

    async def test_everything_is_asked_with_it(self) -> None:
        self.assertTrue(self.following.live)
        chats = await self.dirty(*NAMES)
        await self.assert_none_is_lost(chats)
        refused = [
            c for c in self.router.calls if c.headers.get("authorization") != "Bearer sesame"
        ]
        self.assertEqual(refused, [])
        self.assertEqual(self.steps("unload")[0], "unload alpha")


class WrongKeyTests(FakeRouterCase):
    """The key that slotgate has is not the router's."""

    options: ClassVar[dict[str, Any]] = {"api_key": "sesame"}

    async def followed(self) -> None:
        """There is nothing to be followed."""
        await self.recalled()

    async def test_the_client_gets_the_routers_refusal_until_the_key_fits(self) -> None:
        answer = await self.chat_with("alpha").turn()
        self.assertEqual(answer.status, 401)
        self.assertEqual(answer.json["error"]["message"], "Invalid API Key")
        self.router.api_key = ""
        chat = self.chat_with("alpha")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(), "resident")
