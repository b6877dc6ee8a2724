"""
What a router's models are called: by clients, in routes, to the router, and in the session API.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from gateway import CHAT, CLOCK
from router_gateway import FakeRouterCase, RouterGatewayCase

from slotgate.testing.faults import Answer

#: Ids that a careless hand would put into a query, a path or a file name as they are.
ODD_NAMES = (
    "org/we ird:mödel:Q4",
    "a%2Fb?c=1&d#e+f",
    "100% /../ü;x",
    "日本/模型:q8_0",
    "[*]",
)


class NameTests(FakeRouterCase):
    """One route for all models, and one that has another name for alpha."""

    models: ClassVar[dict[str, Any]] = {
        "alpha": {"aliases": ("a1", "llama3:latest", "openai/a2")},
        "beta": {},
        "delta": {},
        "openai/gamma": {},
    }
    config = (
        RouterGatewayCase.config
        + """
        [[routes]]
        model = "fast"
        server = "local"
        upstream_model = "alpha"
        """
    )

    async def test_a_name_of_the_route_becomes_the_routers(self) -> None:
        chat = self.chat_with("fast")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(), "resident")
        self.assertEqual({call.model for call in self.router.calls if call.path == CHAT}, {"alpha"})
        (listed,) = (await self.get("/api/sessions")).json["sessions"]
        self.assertEqual(listed["route"], "fast")

    async def test_a_leading_openai_is_no_part_of_the_name(self) -> None:
        chat = self.chat_with("openai/alpha")
        self.assert_answered(await chat.turn(), "cold")
        self.assertEqual(self.steps("chat"), ["chat alpha"])
        self.assert_answered(await chat.turn(model="alpha"), "resident")

    async def test_aliases_are_the_same_model_slot_and_session(self) -> None:
        chat = self.chat_with("alpha")
        self.assert_answered(await chat.turn(), "cold")
        for alias in ("a1", "llama3:latest", "openai/a1", "alpha"):
            self.assert_answered(await chat.turn(model=alias), "resident")
        self.assertEqual(self.router.loads, ["alpha"])
        (listed,) = (await self.get("/api/sessions")).json["sessions"]
        self.assertEqual((listed["id"], listed["route"]), (chat.session, "alpha"))
        (slot,) = (await self.get("/api/sessions/current")).json["slots"]
        self.assertEqual(slot["model"], "alpha")

    async def test_an_alias_that_the_router_has_with_openai_is_served(self) -> None:
        # asked without slotgate it is
        chat = self.chat_with("openai/a2")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(model="alpha"), "resident")

    async def test_an_id_that_begins_with_openai_is_served(self) -> None:
        chat = self.chat_with("openai/gamma")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(), "resident")
        await self.post(f"/api/sessions/{chat.session}/save", {})
        (slot,) = (await self.get("/api/sessions/current")).json["slots"]
        self.assertEqual(slot["routes"], ["*"])
        cleared = await self.post(f"/api/sessions/clear?route={quote('openai/gamma', safe='')}", {})
        self.assertEqual((cleared.status, len(cleared.json["cleared"])), (200, 1), cleared.body)

    async def test_the_models_of_one_session_id_are_sessions_of_their_own(self) -> None:
        alpha, beta = self.chat_with("alpha", "one"), self.chat_with("beta", "one")
        for chat, cache in ((alpha, "cold"), (beta, "cold"), (alpha, "resident")):
            self.assert_answered(await chat.turn(), cache)
        listed = (await self.get("/api/sessions")).json["sessions"]
        self.assertEqual(
            {(one["id"], one["route"]) for one in listed}, {("one", "alpha"), ("one", "beta")}
        )

    async def test_bodies_of_embeddings_and_tokenize_are_rewritten_too(self) -> None:
        vectors = Answer(body=b'{"data":[]}')
        self.router.child("alpha").plan(vectors, path="/v1/embeddings", times=2)
        for path in ("/v1/embeddings", "/tokenize"):
            for name in ("fast", "openai/alpha"):
                body = {"model": name, "content": "hello", "input": "hello"}
                answer = await self.post(path, body)
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(self.router.calls[-1].json(), {**body, "model": "alpha"})
        self.assertEqual(self.router.loads, ["alpha"])

    async def test_a_name_of_the_route_in_a_query_becomes_the_routers(self) -> None:
        await self.dirty("alpha")
        for name in ("alpha", "a1", "openai/alpha", "fast"):
            answer = await self.get(f"/props?model={quote(name, safe='')}")
            self.assertEqual((answer.status, answer.json.get("model_alias")), (200, "alpha"), name)

    async def test_no_model_is_loaded_for_a_query_that_the_router_refuses(self) -> None:
        await self.dirty("beta", "delta")
        for name in ("fast", "openai/alpha"):
            answer = await self.get(f"/props?model={quote(name, safe='')}")
            if answer.status != 200:
                self.assertEqual(self.router.loads, ["beta", "delta"], name)


class UnknownTests(FakeRouterCase):
    """What no model of the router's is meant by."""

    async def refused(self, body: dict[str, Any]) -> str:
        """Send it while alpha and beta are resident and not saved; the router's message."""
        chats = await self.dirty("alpha", "beta")
        self.router.calls.clear()
        answer = await self.post(CHAT, body, {"X-Session-ID": "nobody"})
        direct = await self.post(CHAT, body, base=self.url)
        self.assertEqual((answer.status, answer.body), (direct.status, direct.body))
        self.assertEqual((answer.status, answer.cache), (400, "bypass"))
        # ours and the one that was sent past slotgate
        sent = [call.path for call in self.router.calls if call.method == "POST"]
        self.assertEqual(sent, [CHAT, CHAT])
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        self.assertEqual(list(self.slots.iterdir()), [])
        self.assertEqual(len(list(self.gateway._parts.pool)), 2)
        for chat in chats:
            self.assert_answered(await chat.turn(), "resident")
        message: str = answer.json["error"]["message"]
        return message

    async def test_a_model_that_the_router_does_not_know(self) -> None:
        body = {"model": "nobody", "messages": [{"role": "user", "content": "hello"}]}
        self.assertEqual(await self.refused(body), "model 'nobody' not found")

    async def test_no_model_at_all(self) -> None:
        for body in ({}, {"model": ""}, {"model": None}, {"model": 5}):
            answer = await self.post(CHAT, {"messages": [], **body}, {"X-Session-ID": "nobody"})
            self.assertEqual((answer.status, answer.cache), (400, "bypass"), body)
        message = await self.refused({"messages": [{"role": "user", "content": "hello"}]})
        self.assertEqual(message, "model name is missing from the request")

    async def test_names_with_control_characters_are_no_names(self) -> None:
        for name in ("al\npha", "alpha\x00", "\x7f", "\ud800"):
            answer = await self.post(CHAT, {"model": name, "messages": []})
            self.assertEqual(answer.status, 400, repr(name))
            self.assertEqual(answer.json["error"]["message"], "the model is no name of a model")
        self.assertEqual(self.steps(), [])

    async def test_they_are_the_routers_to_refuse_where_nothing_is_generated(self) -> None:
        await self.dirty("alpha", "beta")
        self.router.calls.clear()
        for name in ("al\npha", "alpha\x00", "nobody"):
            body = {"model": name, "content": "hello"}
            here, there = (
                await self.post("/tokenize", body),
                await self.post("/tokenize", body, base=self.url),
            )
            self.assertEqual((here.status, here.body), (there.status, there.body))
            self.assertEqual(here.status, 400)
        self.assertEqual(self.router.loads, ["alpha", "beta"])
        self.assertEqual(self.steps("save", "unload", "load"), [])

    async def test_a_model_that_is_new_since_the_router_was_started_again(self) -> None:
        self.assertEqual((await self.chat_with("delta").turn()).status, 400)
        await self.router.stop()
        await self.missed()
        self.models = {**self.models, "delta": {}}  # type: ignore[misc]
        port, self.router = self.router.port, self.new_router()
        self.router._listening.port = port
        await self.router.listen(CLOCK)
        await self.followed()
        chat = self.chat_with("delta")
        self.assert_answered(await chat.turn(), "cold")
        self.assert_answered(await chat.turn(), "resident")


class OddNameTests(FakeRouterCase):
    """Names with everything in them."""

    models: ClassVar[dict[str, Any]] = {"alpha": {}, **{name: {} for name in ODD_NAMES}}
    options: ClassVar[dict[str, Any]] = {"models_max": 0}

    async def test_sessions_are_saved_and_restored(self) -> None:
        for name in ODD_NAMES:
            first, second = self.chat_with(name, "first"), self.chat_with(name, "second")
            for chat, cache in (
                (first, "cold"),
                (second, "cold"),
                (first, "restored"),
                (second, "restored"),
                (second, "resident"),
            ):
                self.assert_answered(await chat.turn(), cache)
        self.assertEqual(self.router.loads, list(ODD_NAMES))
        named = {call.model for call in self.router.calls if call.path.startswith("/slots")}
        self.assertEqual(named, set(ODD_NAMES))
        tags = {file.name.partition("_")[0] for file in self.slots.iterdir()}
        self.assertEqual(len(list(self.slots.iterdir())), 2 * len(ODD_NAMES), tags)

    async def test_they_make_room_and_are_unloaded(self) -> None:
        self.router.models_max = 1
        self.router.die()
        await self.missed()
        await self.router.restart()
        await self.followed()
        chats = [self.chat_with(name, f"talk{number}") for number, name in enumerate(ODD_NAMES)]
        for chat in chats:
            self.assert_answered(await chat.turn(), "cold")
        for chat in chats:
            self.assert_answered(await chat.turn(), "restored")

    async def test_in_queries_of_clients(self) -> None:
        for name in ODD_NAMES:
            await self.chat_with(name).turn()
            for path in ("/slots", "/props"):
                answer = await self.get(f"{path}?model={quote(name, safe='')}")
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(self.router.calls[-1].query["model"], name)

    async def test_in_the_session_api(self) -> None:
        for name in ODD_NAMES:
            await self.chat_with(name, f"on {name}").turn()
        listed = (await self.get("/api/sessions")).json["sessions"]
        self.assertEqual(
            {(one["id"], one["route"]) for one in listed}, {(f"on {n}", n) for n in ODD_NAMES}
        )
        for name in ODD_NAMES:
            session, route = quote(f"on {name}", safe=""), quote(name, safe="")
            for method, path in (("POST", f"/{session}/save"), ("DELETE", f"/{session}")):
                answer = await self.request(method, f"/api/sessions{path}?route={route}")
                self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(list(self.slots.iterdir()), [])
