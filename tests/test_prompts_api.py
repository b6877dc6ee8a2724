"""The last two prompts of a session, as the session API shows them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from gateway import Answer, Chat, FakeGatewayCase, RealGatewayCase
from prompt_pairs import words
from test_session_api import ApiCalls, FakeCase
from twisted.internet.defer import Deferred

SYSTEM = {"role": "system", "content": words("terse", 300)}
FIRST = [SYSTEM, {"role": "user", "content": words("question", 200)}]
ANSWER = {"role": "assistant", "content": words("canary", 100)}
SECOND = [*FIRST, ANSWER, {"role": "user", "content": words("more", 150)}]
#: The last user message is another one.
EDITED = [SYSTEM, {"role": "user", "content": words("question", 130) + "?"}, ANSWER]


class PromptCalls(ApiCalls):
    """Calls for prompts."""

    async def prompt(self, session: str, new: int, path: str = "", key: str = "") -> Any:
        """What is shown of a session, once a prompt of so many messages is remembered of it."""
        while True:
            # the answer to a request comes before its book-keeping
            answer = await self.shown(session, path, key)
            if answer.status == 200 and answer.json["prompts"][0]["new"] == new:
                return answer.json["prompts"]

    async def shown(self, session: str, path: str = "", key: str = "") -> Answer:
        return await self.call("GET", f"/{quote(session, safe='')}/prompt{path}", key)


class ShowingTests(FakeCase, PromptCalls):
    """What it shows."""

    async def test_a_prompt_that_grew(self) -> None:
        await self.ask("A", messages=FIRST)
        await self.prompt("A", 2)
        await self.ask("A", messages=SECOND)
        (shown,) = await self.prompt("A", 4)
        tokens = shown.pop("tokens")
        messages = shown.pop("messages")
        last = shown.pop("last_message")
        self.assertTrue(shown.pop("verdict"))
        self.assertEqual(
            shown,
            {
                "id": "A",
                "source": "body:chat_id",
                "route": "*",
                "sentence": "4 messages, the last prompt had 2: the first 2 are the same:"
                " 2 new messages follow",
                "change": "grown",
                "with": "last",
                "same": 2,
                "new": 4,
                "old": 2,
                "first_difference": None,
                "same_characters": 500,
                "exact": True,
                "characters": 750,
                "old_characters": 500,
                "cache": "resident",
            },
        )
        self.assertEqual(
            last["sentence"], "the last messages differ within their first 64 of 150 characters"
        )
        self.assertEqual(tokens["prompt"], tokens["reused"] + tokens["read"])
        # the answer, message 3, may be in the cache too
        self.assertEqual(tokens["could_reuse"], tokens["prompt"] * 600 // 750)
        self.assertEqual(
            [(one["number"], one["status"], one["read_again"]) for one in messages],
            [(1, "same", False), (2, "same", False), (3, "added", False), (4, "added", False)],
        )
        self.assertEqual(
            messages[0],
            {
                "number": 1,
                "old_number": 1,
                "role": "system",
                "status": "same",
                "read_again": False,
                "characters": 300,
                "same_characters": 300,
            },
        )

    async def test_the_first_difference(self) -> None:
        for messages in (FIRST, EDITED):
            await self.ask("A", messages=messages)
            (shown,) = await self.prompt("A", len(messages))
        self.assertEqual(shown["change"], "last user message")
        self.assertEqual(
            shown["first_difference"],
            {
                "number": 2,
                "role": "user",
                "same_characters": 128,
                "exact": False,
                "characters": 131,
                "old_characters": 200,
            },
        )
        self.assertEqual([one["status"] for one in shown["messages"]], ["same", "changed", "added"])

    async def test_a_first_prompt(self) -> None:
        await self.ask("A", messages=FIRST)
        (shown,) = await self.prompt("A", 2)
        self.assertEqual(
            shown["sentence"], "the session's first prompt: there is none to compare it with"
        )
        self.assertEqual((shown["change"], shown["old"], shown["cache"]), (None, None, "cold"))
        self.assertEqual([one["status"] for one in shown["messages"]], ["added", "added"])
        self.assertIsNone(shown["tokens"]["could_reuse"])
        self.assertGreater(shown["tokens"]["read"], 100)

    async def test_no_text_is_shown(self) -> None:
        for messages in (FIRST, SECOND, EDITED):
            await self.ask("A", messages=messages)
            await self.prompt("A", len(messages))
            answer = await self.shown("A")
            for text in (b"canary", b"question", b"terse"):
                self.assertNotIn(text, answer.body)

    async def test_what_is_not_there(self) -> None:
        for path, why in (
            ("/A/prompt", "no session 'A'"),
            ("//prompt", "the path names no session"),
        ):
            answer = await self.call("GET", path)
            self.assertEqual(answer.status, 404)
            self.assertEqual(answer.json["error"]["message"], why)
        await self.ask("A", messages=FIRST)
        await self.prompt("A", 2)
        answer = await self.shown("A", "?route=other")
        self.assertEqual(answer.json["error"]["message"], "no session 'A' on route 'other'")
        self.assertEqual((await self.shown("A", "?rout=x")).status, 400)
        head = await self.call("HEAD", "/A/prompt")
        self.assertEqual((head.status, head.body), (200, b""))

    async def test_an_id_on_several_routes(self) -> None:
        for model in ("m1", "m2"):
            await self.ask("A", model, messages=FIRST)
            await self.prompt("A", 2, f"?route={model}")
        shown = await self.prompt("A", 2)
        self.assertEqual([one["route"] for one in shown], ["m1", "m2"])

    async def test_ids_that_end_as_the_call_does(self) -> None:
        for session in ("x/prompt", "prompt", "x/save", "current", "a b/é"):
            shown = (await self.ask(session, messages=FIRST)).headers["x-slotgate-session"]
            (one,) = await self.prompt(session, 2)
            self.assertEqual(one["id"], session)
            answer = await self.call("GET", f"/{shown}/prompt")
            self.assertEqual(answer.json["prompts"], [one])
        await self.ask("x", messages=FIRST)
        deleted = await self.call("DELETE", "/x/prompt")
        self.assertEqual([one["id"] for one in deleted.json["deleted"]], ["x/prompt"])
        self.assertEqual((await self.shown("x/prompt")).status, 404)
        self.assertEqual([one["id"] for one in await self.prompt("x", 2)], ["x"])

    async def test_a_session_that_is_nowhere_but_here(self) -> None:
        await self.ask("A", messages=[{"role": "user", "content": "hi"}])
        await self.prompt("A", 1)
        # too short for a snapshot
        await self.ask("B", messages=FIRST)
        self.assertEqual(await self.ids(), ["B"])
        (shown,) = await self.prompt("A", 1)
        self.assertEqual((shown["id"], shown["source"]), ("A", ""))
        answer = await self.call("POST", "/A/save")
        self.assertEqual(answer.status, 409)
        self.assertEqual(
            answer.json["error"]["message"],
            "session 'A' is not in a slot; nothing of it is saved",
        )
        (deleted,) = (await self.call("DELETE", "/A")).json["deleted"]
        self.assertEqual(
            (deleted["id"], deleted["resident"], deleted["saved"]), ("A", False, False)
        )
        self.assertEqual((await self.shown("A")).status, 404)
        self.assertEqual((await self.call("DELETE", "/A")).status, 404)

    async def test_a_session_that_is_deleted_while_it_is_asked(self) -> None:
        await self.ask("A", messages=FIRST)
        await self.prompt("A", 2)
        stream = await self.stream("A")
        deleting = Deferred.fromCoroutine(self.call("DELETE", "/A"))
        await self.slot_is(waiting=1)
        await self.end(stream)
        self.assertEqual((await deleting).status, 200)
        answer = await self.shown("A")
        self.assertEqual((answer.status, answer.json["error"]["code"]), (404, 404))


class KeptTests(FakeCase, PromptCalls):
    """With ``keep_prompts``."""

    config = FakeGatewayCase.config + "\n[prompt_history]\nkeep_prompts = true\n"

    async def test_texts(self) -> None:
        for messages in (FIRST, EDITED):
            await self.ask("A", messages=messages)
            (shown,) = await self.prompt("A", len(messages))
        system, changed, added = shown["messages"]
        self.assertEqual(system["text"], SYSTEM["content"])
        self.assertNotIn("old_text", system)
        self.assertEqual(changed["text"], EDITED[1]["content"])
        self.assertEqual(changed["old_text"], FIRST[1]["content"])
        self.assertEqual((added["text"], added["old_number"]), (ANSWER["content"], None))
        self.assertEqual((changed["same_characters"], shown["exact"]), (130, True))


class FewTests(FakeCase, PromptCalls):
    """With fewer sessions than there are."""

    config = FakeGatewayCase.config + "\n[prompt_history]\nsessions = 1\n"

    async def test_a_session_of_which_no_prompt_is_remembered(self) -> None:
        for session in ("A", "B"):
            await self.ask(session, messages=FIRST)
            await self.prompt(session, 2)
        answer = await self.shown("A")
        self.assertEqual(answer.status, 404)
        self.assertEqual(
            answer.json["error"]["message"],
            "no prompt of session 'A' is remembered: it had none since slotgate started, so many"
            " others did since then (prompt_history), or it is longer than 8 million characters",
        )
        self.assertEqual((await self.call("DELETE", "/A")).status, 200)


class NoneTests(FakeCase, PromptCalls):
    """With ``sessions = 0``."""

    config = FakeGatewayCase.config + "\n[prompt_history]\nsessions = 0\n"

    async def test_it_says_so(self) -> None:
        await self.ask("A", messages=FIRST)
        answer = await self.shown("A")
        self.assertEqual(answer.status, 404)
        self.assertEqual(
            answer.json["error"]["message"],
            "prompts are not compared: prompt_history.sessions is 0",
        )


class OwnerTests(FakeCase, PromptCalls):
    """With keys."""

    config = FakeGatewayCase.config + "".join(
        f'\n[[clients]]\nname = "{name}"\nkey = "{name}-key"\nadmin = {admin}\n'
        for name, admin in (("alice", "false"), ("bob", "false"), ("root", "true"))
    )
    admin = "root-key"

    async def test_clients_see_their_own_prompts_and_an_admin_everybodys(self) -> None:
        await self.ask("same", key="alice-key", messages=FIRST)
        await self.ask("same", key="bob-key", messages=SECOND)
        await self.ask("bobs", key="bob-key", messages=FIRST)
        (alices,) = await self.prompt("same", 2, key="alice-key")
        self.assertNotIn("client", alices)
        (bobs,) = await self.prompt("same", 4, key="bob-key")
        self.assertEqual(bobs["new"], 4)
        both = await self.prompt("same", 2, key="root-key")
        self.assertEqual([(one["client"], one["new"]) for one in both], [("alice", 2), ("bob", 4)])
        self.assertEqual((await self.shown("bobs", key="alice-key")).status, 404)
        for key in ("", "wrong"):
            self.assertEqual((await self.shown("same", key=key)).status, 401)
        deleted = await self.call("DELETE", "/same", "alice-key")
        self.assertEqual(deleted.status, 200)
        self.assertEqual((await self.shown("same", key="alice-key")).status, 404)
        await self.prompt("same", 4, key="bob-key")


class RealTests(RealGatewayCase, PromptCalls):
    """With the real llama-server."""

    async def test_what_could_be_reused_and_what_was(self) -> None:
        chat = Chat(self, "A", list(FIRST[:-1]))
        for said in (FIRST[-1], SECOND[-1], SECOND[-1]):
            if len(chat.messages) == 5:
                chat.messages[1] = EDITED[1]
            await chat.turn(said["content"])
            (shown,) = await self.prompt("A", len(chat.messages) - 1)
            tokens = shown["tokens"]
            self.assertEqual(tokens["prompt"], tokens["read"] + tokens["reused"])
            if len(chat.messages) > len(FIRST) + 1:
                # the template's own tokens are no characters of messages
                apart = abs(tokens["reused"] - tokens["could_reuse"])
                self.assertLess(apart, 0.1 * tokens["prompt"])
                self.assertGreater(tokens["reused"], 0.4 * tokens["prompt"])
        self.assertEqual(shown["first_difference"]["number"], 2)
