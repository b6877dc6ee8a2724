"""Clients with keys of their own: nothing of one shows in what another one is told."""

from __future__ import annotations

from typing import Any, ClassVar

from gateway import CHAT, Answer, RealGatewayCase, long_text


class IsolationCase(RealGatewayCase):
    """Two clients whose chats begin alike, under the same session id."""

    config = (
        RealGatewayCase.config
        + """
        [[clients]]
        name = "ann"
        key = "key-of-ann"
        [[clients]]
        name = "bob"
        key = "key-of-bob"
        [[clients]]
        name = "root"
        key = "key-of-root"
        admin = true
    """
    )

    async def say(self, who: str, messages: list[dict[str, str]], path: str = CHAT) -> Answer:
        headers = {"Authorization": f"Bearer key-of-{who}", "X-Session-ID": "same"}
        body = {"messages": messages, "max_tokens": 8, "temperature": 0}
        answer = await self.post(path, body, headers)
        self.assertEqual(answer.status, 200, answer.body)
        if path == CHAT:
            messages.append({"role": "assistant", "content": answer.text})
            messages.append({"role": "user", "content": "And then?"})
        return answer

    def chat(self) -> list[dict[str, str]]:  # type: ignore[override]
        return [
            {"role": "system", "content": long_text("rule")},
            {"role": "user", "content": "Hello"},
        ]

    async def apart(self) -> None:
        """Turns of both: the first ones reuse nothing, the later ones their own."""
        ann, bob = self.chat(), self.chat()
        for turn in range(3):
            for who, messages in (("ann", ann), ("bob", bob)):
                answer = await self.say(who, messages)
                if turn:
                    self.assertEqual(answer.cache, "restored")
                    self.assertLess(answer.share_read, 0.1)
                else:
                    self.assertEqual(answer.cache, "cold")
                    self.assertEqual(answer.timings["cache_n"], 0, who)
        listing = await self.request(
            "GET", "/api/sessions", {"Authorization": "Bearer key-of-root"}
        )
        rows = listing.json["sessions"]
        self.assertEqual({row["client"] for row in rows}, {"ann", "bob"})
        files = {file.name.split(".")[0] for file in self.slots.iterdir()}
        self.assertEqual(len(files), 2)

    async def nothing_shows(self, path: str) -> None:
        """Bob asks what ann has asked, word for word, and is told nothing of that."""
        secret = [{"role": "user", "content": long_text("secret")}]
        await self.say("ann", list(secret), path)
        for _ in range(2):
            await self.say("ann", [{"role": "user", "content": long_text("other")}], path)
        # bob is resident with something of his own
        await self.say("bob", [{"role": "user", "content": long_text("mine")}], path)
        answer = await self.say("bob", list(secret), path)
        if path == CHAT:
            told = answer.timings["cache_n"]
        else:
            told = answer.json["usage"]["cache_read_input_tokens"]
        # what every chat begins with
        self.assertLess(told, 20)


class IsolationTests(IsolationCase):
    async def test_one_session_id_of_two_clients_is_two_sessions(self) -> None:
        await self.apart()

    async def test_nothing_of_one_shows_to_the_other(self) -> None:
        await self.nothing_shows(CHAT)

    async def test_nor_on_a_surface_that_takes_no_orders_about_the_cache(self) -> None:
        await self.nothing_shows("/v1/messages")


class HostCacheTests(IsolationCase):
    """A server that keeps prompts in memory by itself (``--cache-ram``)."""

    options: ClassVar[dict[str, Any]] = {"cache_ram": 512}

    async def test_the_server_does_not_mix_them(self) -> None:
        await self.apart()

    async def test_nothing_of_one_shows_to_the_other(self) -> None:
        await self.nothing_shows(CHAT)

    async def test_nor_on_a_surface_that_takes_no_orders_about_the_cache(self) -> None:
        await self.nothing_shows("/v1/messages")
