"""Clients that name no session, and what they ask beside it, through a real llama-server."""

from __future__ import annotations

from gateway import CHAT, Answer, RealGatewayCase, long_text


class UnnamedTests(RealGatewayCase):
    """Conversations that are known by what was said in them."""

    def begin(self, asked: str) -> list[dict[str, str]]:
        """Chats over one system prompt."""
        return [
            {"role": "system", "content": long_text("rule")},
            {"role": "user", "content": long_text(asked, 60)},
        ]

    async def say(self, messages: list[dict[str, str]], **headers: str) -> Answer:
        body = {"messages": messages, "max_tokens": 8, "temperature": 0}
        answer = await self.post(CHAT, body, headers)
        self.assertEqual(answer.status, 200, answer.body)
        messages.append({"role": "assistant", "content": answer.text})
        return answer

    async def test_two_chats_over_one_system_prompt_take_turns(self) -> None:
        chats = [self.begin("alps"), self.begin("baltic")]
        sessions: list[set[str]] = [set(), set()]
        for turn in range(5):
            for chat, seen in zip(chats, sessions, strict=True):
                answer = await self.say(chat)
                self.assertEqual(answer.headers["x-slotgate-source"], "history")
                seen.add(answer.headers["x-slotgate-session"])
                if turn:
                    self.assertEqual(answer.cache, "restored")
                    self.assertLess(answer.share_read, 0.1)
                chat.append({"role": "user", "content": f"And {turn}?"})
        self.assertEqual([len(seen) for seen in sessions], [1, 1])
        self.assertNotEqual(*sessions)

    async def test_an_edited_last_answer_and_a_restart_of_slotgate_still_find_it(self) -> None:
        chat, other = self.begin("alps"), self.begin("baltic")
        first = await self.say(chat)
        await self.say(other)
        chat[-1]["content"] = "Something else, as edited by hand."
        chat.append({"role": "user", "content": "And?"})
        second = await self.say(chat)
        self.assertEqual(second.cache, "restored")
        self.assertLess(second.share_read, 0.1)
        await self.say([*other, {"role": "user", "content": "So?"}])
        await self.stop_gateway()
        self.start_gateway(self.llama.url)
        chat.append({"role": "user", "content": "And then?"})
        third = await self.say(chat)
        self.assertEqual(third.cache, "restored")
        self.assertLess(third.share_read, 0.1)
        ids = {answer.headers["x-slotgate-session"] for answer in (first, second, third)}
        self.assertEqual(len(ids), 1)

    async def test_a_fork_starts_from_what_it_shares(self) -> None:
        chat, other = self.begin("alps"), self.begin("baltic")
        await self.say(chat)
        chat.append({"role": "user", "content": "And?"})
        first = await self.say(chat)
        await self.say(other)
        edited = [*chat[:-2], {"role": "user", "content": "Or?"}]
        fork = await self.say(edited)
        self.assertEqual(fork.cache, "forked")
        self.assertLess(fork.share_read, 0.1)
        ids = {answer.headers["x-slotgate-session"] for answer in (first, fork)}
        self.assertEqual(len(ids), 2)
        chat.append({"role": "user", "content": "So?"})
        again = await self.say(chat)
        self.assertEqual(again.headers["x-slotgate-session"], first.headers["x-slotgate-session"])
        self.assertLess(again.share_read, 0.1)

    async def test_a_program_that_asks_many_questions_does_not_fill_the_disk(self) -> None:
        for number in range(10):
            answer = await self.say(self.begin(f"q{number}"))
            self.assertEqual(answer.cache, "cold")
            if number:
                # the system prompt was there
                self.assertLess(answer.share_read, 0.5)
        self.assertLessEqual(len(list(self.slots.iterdir())), 4)


class BesideTests(RealGatewayCase):
    """Titles and the like, under the session's own name."""

    async def test_a_marked_one_costs_the_session_nothing(self) -> None:
        chat = self.chat("A")
        await chat.turn()
        title = {"messages": [{"role": "user", "content": long_text("title", 30)}]}
        answer = await self.post(
            CHAT,
            {**title, "max_tokens": 8},
            {"X-Session-ID": "A", "X-OpenWebUI-Task": "title_generation"},
        )
        self.assertEqual((answer.cache, answer.headers["x-slotgate-session"]), ("bypass", "none"))
        again = await chat.turn()
        self.assertEqual(again.cache, "restored")
        self.assertLess(again.share_read, 0.1)

    async def test_nor_does_one_that_nothing_marks(self) -> None:
        chat = self.chat("A")
        await chat.turn()
        await chat.turn()
        rows = (await self.get("/api/sessions")).json["sessions"]
        beside = [
            {"role": "system", "content": "You sum up."},
            {"role": "user", "content": "Sum up: " + long_text("sum", 20)},
        ]
        answer = await self.post(CHAT, {"messages": beside, "max_tokens": 8}, {"X-Session-ID": "A"})
        self.assertEqual(answer.cache, "bypass")
        again = await chat.turn()
        self.assertEqual(again.cache, "restored")
        self.assertLess(again.share_read, 0.1)
        after = (await self.get("/api/sessions")).json["sessions"]
        self.assertEqual([row["id"] for row in after], [row["id"] for row in rows])
