"""
What a server is, is found out: a router or a server with one model, and it may become the other.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gateway import CLOCK
from router_gateway import FakeRouterCase, RouterGatewayCase

from slotgate.slots.address import Address
from slotgate.slots.backend import Mode
from slotgate.testing import _router_settings as settings
from slotgate.testing.fake import FakeLlamaServer


class FoundCase(FakeRouterCase):
    """The servers have the same model in the same file, so its snapshots fit both."""

    def new_single(self) -> FakeLlamaServer:
        """A server with alpha and nothing else, which does not listen yet."""
        single = FakeLlamaServer(CLOCK, self.slots, model_path="/models/alpha.gguf", alias="alpha")
        self.addCleanup(single.stop)
        return single

    async def take_over(self, server: Any, port: int) -> None:
        """Listen where another one was."""
        server._listening.port = port
        await server.listen(CLOCK)

    async def found(self) -> list[str]:
        """What the status says that was found out about the server."""
        (server,) = (await self.get("/slotgate/status")).json["servers"]
        return [one["text"] for one in server["found"]]

    @property
    def mode(self) -> Mode:
        """What slotgate takes the server for."""
        return self.gateway._parts.backends["local"].mode


class MeanwhileTests(FoundCase):
    """The router comes up while requests wait that were taken for those of a single server."""

    async def test_they_are_let_in_as_all_others(self) -> None:
        chat = await self.saved("alpha")
        self.router.die()
        await self.missed()
        self.gateway._parts.backends["local"].lost()
        slot = self.gateway._parts.pool.at(Address("local", "", 0))
        await slot._lock.acquire()
        turn = self.begin(chat.turn())
        while not slot.waiting:
            await self.pause(0.01)
        await self.router.restart()
        slot._lock.release()
        self.assert_answered(await turn, "restored")
        self.assertEqual(self.router.loads, ["alpha", "alpha"])


class ChangeTests(FoundCase):
    """Another server comes up at the same address."""

    async def start_router(self) -> None:
        """There is a server with one model first."""
        await super().start_router()
        self.single = self.new_single()
        self.router.die()
        await self.router.stop()
        self.port = self.router.port
        await self.take_over(self.single, self.port)

    async def followed(self) -> None:
        """There is nothing to be followed."""
        await self.recalled()

    async def test_single_then_router_then_single(self) -> None:
        self.assertIs(self.mode, Mode.SINGLE)
        self.assertEqual(await self.found(), ["it serves one model"])
        chat = self.chat_with("alpha")
        await chat.turn()
        self.assert_answered(await chat.turn(), "resident")
        await self.post(f"/api/sessions/{chat.session}/save", {})

        await self.single.stop()
        self.assertEqual((await self.get("/health")).status, 502)
        self.assertEqual((await chat.turn()).status, 502)
        chat.messages.pop()
        await self.router.restart()
        self.assert_answered(await chat.turn(), "restored")
        self.assertIs(self.mode, Mode.ROUTER)
        self.assertEqual(
            await self.found(),
            ["it is a router with 3 models, and holds at most 2 of them at once"],
        )
        self.assert_answered(await chat.turn(), "resident")
        self.assertEqual([slot["model"] for slot in await self.shown()], ["alpha"])
        self.assert_answered(await self.chat_with("beta").turn(), "cold")
        await self.post(f"/api/sessions/{chat.session}/save", {})

        await self.router.stop()
        await self.missed()
        await self.single.restart()
        self.assert_answered(await chat.turn(), "restored")
        self.assertIs(self.mode, Mode.SINGLE)
        self.assertEqual(await self.found(), ["it serves one model"])
        self.assertEqual(len(self.told("it serves one model")), 2)
        self.assertNotIn("model", (await self.shown())[0])
        # its models are followed no more
        self.assertFalse(self.following.live)
        self.single.calls.clear()
        await self.pause(0.5)
        self.assertEqual(self.single.calls, [])

    async def test_a_router_that_came_unseen_is_found_by_the_next_request(self) -> None:
        chat = self.chat_with("alpha")
        await chat.turn()
        await self.post(f"/api/sessions/{chat.session}/save", {})
        await self.single.stop()
        await self.router.restart()
        self.assertEqual((await chat.turn()).status, 200)
        answer = await chat.turn()
        self.assertEqual(answer.status, 200)
        self.assertIs(self.mode, Mode.ROUTER)
        self.assertIn(answer.cache, ("restored", "resident"))

    async def shown(self) -> list[dict[str, Any]]:
        """The slots of the session API."""
        slots: list[dict[str, Any]] = (await self.get("/api/sessions/current")).json["slots"]
        return slots


class UnseenTests(FoundCase):
    """The router is replaced so fast that no request and no look met a closed port."""

    async def test_a_single_server_instead_of_the_router(self) -> None:
        chat = await self.saved("alpha")
        await self.router.stop()
        single = self.new_single()
        await self.take_over(single, self.router.port)
        while self.following.live:
            await self.pause(0.01)
        await self.pause(0.5)  # a look or two at what is not a router any more
        self.assertEqual((await chat.turn()).status, 200)
        answer = await chat.turn()
        self.assertIs(self.mode, Mode.SINGLE)
        self.assertIn(answer.cache, ("restored", "resident"))

    async def test_a_router_with_room_for_less(self) -> None:
        await self.router.stop()
        self.router.models_max = 1
        await self.router.restart()
        while self.following.live:
            await self.pause(0.01)
        await self.followed()
        self.assertEqual(
            await self.found(),
            ["it is a router with 3 models, and holds at most 1 of them at once"],
        )
        chats = await self.dirty("alpha", "beta")
        await self.assert_none_is_lost(chats)
        self.assertEqual(self.told("which was not saved"), [])

    async def test_a_router_that_is_started_again_between_two_turns(self) -> None:
        chat = await self.saved("alpha")
        await self.router.restart()
        self.assert_answered(await chat.turn(), "restored")
        self.assert_answered(await chat.turn(), "resident")


class LateTests(FoundCase):
    """Nothing is at the address yet when slotgate starts."""

    async def start_router(self) -> None:
        """It is there, and dies."""
        await super().start_router()
        await self.router.stop()
        self.router.died = True

    async def followed(self) -> None:
        """There is nothing to be followed."""
        await self.recalled()

    async def test_a_router_that_comes_up_later_is_found(self) -> None:
        self.assertEqual((await self.chat_with("alpha").turn()).status, 502)
        self.assertIs(self.mode, Mode.UNKNOWN)
        await self.router.restart()
        chats = [self.chat_with(model) for model in ("alpha", "beta", "gamma")]
        for chat in chats:
            self.assert_answered(await chat.turn(), "cold")
        self.assertIs(self.mode, Mode.ROUTER)
        await self.assert_none_is_lost(chats)

    async def test_a_router_that_still_starts(self) -> None:
        self.router.loading = True
        await self.router.restart()
        self.assertEqual((await self.get("/models")).status, 503)
        self.assertIs(self.mode, Mode.UNKNOWN)
        self.router.loading = False
        chat = self.chat_with("alpha")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(), "resident")


class RestartTests(FoundCase):
    """The router dies and comes again."""

    async def test_saved_sessions_are_restored_and_others_begin_anew(self) -> None:
        saved, lost = await self.saved("alpha"), (await self.dirty("beta"))[0]
        self.router.die()
        await self.missed()
        self.assertEqual((await saved.turn()).status, 502)
        saved.messages.pop()
        await self.router.restart()
        self.assert_answered(await saved.turn(), "restored")
        self.assert_answered(await lost.turn(), "cold")
        self.assert_answered(await lost.turn(), "resident")
        # and it is followed again
        await self.followed()
        self.router.unload("alpha")
        await self.until_status("alpha", "unloaded")
        self.assertEqual(self.slot("alpha").state, "gone")

    async def test_it_dies_while_a_request_waits_for_room(self) -> None:
        chat = await self.saved("alpha")
        await self.dirty("beta")
        stories = [await self.held("alpha"), await self.held("beta")]
        asked = self.begin(self.chat_with("gamma").turn())
        await self.until_waiting(1)
        self.router.die()
        for story in stories:
            await story.caller.gone
        self.assertIn((await asked).status, (502, 500))
        await self.router.restart()
        self.assert_answered(await self.chat_with("gamma").turn(), "cold")
        self.assert_answered(await chat.turn(), "restored")


class DisagreeingTests(FoundCase):
    """What the router says does not fit the configuration."""

    models: ClassVar[dict[str, Any]] = {
        "alpha": {"total_slots": 1},
        "beta": {"total_slots": 2},
        "gamma": {"total_slots": 3},
    }
    config = RouterGatewayCase.config + "        slots = [2]\n"

    def new_router(self, **options: Any) -> Any:
        """Alpha writes to another folder, and beta to none."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        self.models["alpha"]["slot_save_path"] = elsewhere
        router = super().new_router(slot_save_path=None, **options)
        router.child("gamma").slot_save_path = self.slots
        return router

    async def test_each_thing_is_told_once(self) -> None:
        expected = {
            "alpha: the slot files go to": 1,
            "beta: started without --slot-save-path": 1,
            "alpha: has 1 slots (--parallel), and a route uses slot 2": 1,
            "beta: has 2 slots (--parallel), and a route uses slot 2": 1,
            "gamma: the slot files": 0,
            "gamma: has": 0,
            "it is a router with 3 models, and holds at most 2 of them at once": 1,
        }
        for _ in range(2):
            for part, times in expected.items():
                self.assertEqual(len(self.told(part)), times, part)
            self.router.die()
            await self.missed()
            await self.router.restart()
            # looked at again
            chat = self.chat_with("gamma")
            self.assert_answered(await chat.turn(), "cold")
            self.assert_answered(await chat.turn(), "resident")


class WithoutParallelTests(FoundCase):
    """The number of slots is the server's choice."""

    def new_router(self, **options: Any) -> Any:
        """Its command line does not say how many slots a model has."""
        told = settings.options

        def without(server: Any, model: Any) -> dict[str, str]:
            return {
                name: value for name, value in told(server, model).items() if name != "parallel"
            }

        self.patch(settings, "options", without)
        return super().new_router(**options)

    async def test_it_is_told_once_for_all_models(self) -> None:
        (told,) = self.told("started without --parallel")
        self.assertIn("alpha, beta, gamma: ", told)
