"""Sessions find their prompt cache again, with the real llama-server."""

from __future__ import annotations

from gateway import CHAT, Answer, Caller, RealGatewayCase
from twisted.internet.defer import Deferred, gatherResults


class SessionTests(RealGatewayCase):
    """One slot, without a memory cache of the server's own."""

    async def test_a_session_that_comes_back_reads_little(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        first, second, third = await a.turn(), await b.turn(), await a.turn()
        self.assertGreater(first.timings["prompt_n"], 1000)
        self.assertEqual([x.cache for x in (first, second, third)], ["cold", "cold", "restored"])
        self.assertLess(third.share_read, 0.1)

    async def test_also_after_the_server_was_killed(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        await a.turn()
        await b.turn()
        await self.llama.restart()
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)

    async def test_the_resident_session_too(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b, a):
            await chat.turn()
        before = sorted(self.slots.iterdir())
        await self.llama.restart()
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)
        self.assertEqual(sorted(self.slots.iterdir()), before, "nothing was written or lost")

    async def test_and_after_the_gateway_was_stopped(self) -> None:
        a = self.chat("A")
        await a.turn()
        await self.stop_gateway()
        self.assertEqual(len(list(self.slots.iterdir())), 1)
        await self.llama.restart()
        self.start_gateway(self.llama.url)
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)

    async def test_two_turns_in_a_row_write_and_read_no_file(self) -> None:
        a = self.chat("A")
        await a.turn()
        answer = await a.turn()
        self.assertEqual(answer.cache, "resident")
        self.assertLess(answer.share_read, 0.1)
        self.assertEqual(list(self.slots.iterdir()), [])

    async def test_the_response_tells_the_session_and_its_source(self) -> None:
        said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        answer = await self.post(CHAT, {**said, "chat_id": "c 1é"})
        self.assertEqual(answer.headers["x-slotgate-session"], "c%201%C3%A9")
        self.assertEqual(answer.headers["x-slotgate-source"], "body:chat_id")

    async def test_all_generation_paths_share_the_session(self) -> None:
        prompt = "word " * 300
        said = {"X-Session-ID": "A"}
        chat = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
        for path, body in {
            "/completion": {"prompt": prompt, "n_predict": 2},
            "/completions": {"prompt": prompt, "n_predict": 2},
            "/v1/completions": {"prompt": prompt, "max_tokens": 2},
            CHAT: chat,
            "/chat/completions": chat,
            "/v1/responses": {"input": prompt, "max_output_tokens": 2},
            "/responses": {"input": prompt, "max_output_tokens": 2},
            "/v1/messages": chat,
        }.items():
            answer = await self.post(path, body, said)
            self.assertEqual(answer.status, 200, (path, answer.body))
            expected = "cold" if path == "/completion" else "resident"
            self.assertEqual(answer.cache, expected, path)

    async def test_many_sessions_at_once_all_get_their_own_answers(self) -> None:
        async def play(name: str) -> list[Answer]:
            chat = self.chat(name)
            answers = []
            for _ in range(5):
                answer = await chat.turn(stream=True)
                # in a stream the answer comes in pieces; what it says does not matter here
                chat.messages.append({"role": "assistant", "content": f"said to {name}"})
                answers.append(answer)
            return answers

        names = [f"session{number}" for number in range(8)]
        played = await gatherResults([Deferred.fromCoroutine(play(name)) for name in names])
        for name, answers in zip(names, played, strict=True):
            for turn, answer in enumerate(answers):
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.headers["x-slotgate-session"], name)
                self.assertTrue(answer.body.endswith(b"data: [DONE]\n\n"))
                if turn:
                    self.assertIn(answer.cache, ("restored", "resident"))
                    self.assertLess(answer.share_read, 0.1)

    async def test_a_short_request_without_session_costs_the_session_nothing(self) -> None:
        a = self.chat("A")
        await a.turn()
        said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        await self.post(CHAT, said, {"X-Session-ID": "x" * 300})
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)

    async def test_a_path_that_only_looks_different_takes_a_lease_too(self) -> None:
        said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        for path in ("/v1/chat%2Fcompletions", "/v1/chat/complet%69ons"):
            answer = await self.post(path, said, {"X-Session-ID": "A"})
            self.assertEqual(answer.status, 200)
            self.assertIn("x-slotgate-cache", answer.headers)


class StrangerTests(RealGatewayCase):
    """Somebody uses the server past the gateway."""

    async def test_their_tokens_are_in_nobodys_snapshot(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b, a):
            await chat.turn()
        await self.post(
            "/completion", {"prompt": "stranger " * 200, "n_predict": 2}, base=self.llama.url
        )
        for chat in (b, a):
            answer = await chat.turn()
            self.assertEqual(answer.cache, "restored")
            self.assertLess(answer.share_read, 0.1)

    async def test_a_clients_own_erase_through_the_gateway_is_noticed(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b, a):
            await chat.turn()
        answer = await self.post("/slots/0?action=erase", {})
        self.assertEqual(answer.status, 200)
        self.assertGreater(answer.json["n_erased"], 1000)
        self.assertEqual((await a.turn()).cache, "restored")

    async def test_an_erase_of_a_slot_that_is_none_is_noticed_too(self) -> None:
        # the server takes 7, -1 and 0abc for slot 0
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b, a):
            await chat.turn()
        for name in ("7", "-1", "0abc", "0%3Fx", "0/", "0%2f"):
            await self.post(f"/slots/{name}?action=erase", {})
            self.assertEqual((await a.turn()).cache, "restored")

    async def test_a_client_can_not_write_over_a_snapshot(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b):
            await chat.turn()
        (snapshot,) = self.slots.iterdir()
        for path in ("/slots/0", "/slots/0/", "/slots/0%2f", "/slots/0/x"):
            answer = await self.post(f"{path}?action=save", {"filename": snapshot.name})
            self.assertEqual(answer.status, 403, path)


class DisconnectTests(RealGatewayCase):
    """A client that goes away frees the slot, and leaves nothing false behind."""

    async def ask(self, words: int, **fields: object) -> Caller:
        """Ask for much, and wait until the server works on it."""
        caller = await self.connect()
        messages = [{"role": "user", "content": "w " * words}]
        body = {"messages": messages, "max_tokens": 4000, **fields}
        caller.post(CHAT, body, {"X-Session-ID": "leaver"})
        while not (await self.slot())["is_processing"]:
            self.assertFalse(caller.gone.called)
        return caller

    async def test_while_the_prompt_is_read(self) -> None:
        a = self.chat("A")
        await a.turn()
        caller = await self.ask(3000)
        await caller.leave()
        # b11549 reads a prompt to its end, whether its client is there or not
        self.assertTrue((await self.slot())["is_processing"])
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)

    async def test_in_mid_stream(self) -> None:
        a = self.chat("A")
        await a.turn()
        caller = await self.ask(10, stream=True)
        await caller.heard(b"delta")
        await caller.leave()
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)
        # the answer had 4000 tokens to go when its client left
        self.assertLess((await self.slot())["n_prompt_tokens"], 2000)

    async def test_what_the_leaver_had_is_only_saved_as_the_leavers(self) -> None:
        a = self.chat("A")
        await a.turn()
        caller = await self.ask(500, stream=True)
        await caller.heard(b"delta")
        await caller.leave()
        await a.turn()
        sizes = {}
        for file in self.slots.iterdir():
            restored = await self.post(
                "/slots/0?action=restore", {"filename": file.name}, base=self.llama.url
            )
            probe = {"prompt": "system: A00000", "n_predict": 0}
            answer = await self.post("/completion", probe, base=self.llama.url)
            # does the file begin as A's conversation does?
            sizes[answer.timings["cache_n"] > 10] = restored.json["n_restored"]
        self.assertEqual(sizes.keys(), {True, False})
        self.assertGreater(sizes[True], 1000)
