"""Ollama's own Python package, through slotgate to a llama-server, which has none of its API."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import ollama
from sdk import (
    KEYS,
    MODEL,
    PARAMETERS,
    PATIENCE,
    RULE,
    TOOL,
    ClientCase,
    EmbeddingCase,
    Message,
    SdkCase,
    in_a_thread,
)
from twisted.internet import reactor
from twisted.internet.threads import blockingCallFromThread

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
#: A byte is a token, and there is one before all.
HELLO_TOKENS = 1 + len("user: hello\nassistant: ")
#: Eight letters, always the same ones.
SURE = {"num_predict": 8, "temperature": 0}
PATIENT = {"num_predict": 200, "temperature": 0}

#: A PNG of one pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


class OllamaCase(ClientCase):
    def client(self, **headers: str) -> ollama.Client:
        return self.once(ollama.Client, host=self.base, timeout=PATIENCE, headers=headers)

    def ask(self, messages: list[Any] = HELLO, **more: Any) -> Any:
        fields: dict[str, Any] = {"model": MODEL, "options": SURE, **more}
        return self.client().chat(messages=messages, **fields)

    def refused(self, status: int, function: Any, *args: Any, **more: Any) -> str:
        """What the package raises when this is asked for."""
        with self.assertRaises(ollama.ResponseError) as caught:
            answer = function(*args, **more)
            if more.get("stream"):
                list(answer)
        self.assertEqual(caught.exception.status_code, status)
        told: str = caught.exception.error
        return told

    def counted(self, answer: Any, prompt: int) -> None:
        """The counts and times of an answer with eight tokens."""
        self.assertIs(answer.done, True)
        self.assertEqual((answer.done_reason, answer.model), ("length", MODEL))
        self.assertEqual((answer.prompt_eval_count, answer.eval_count), (prompt, 8))
        durations = [
            *(answer.total_duration, answer.load_duration),
            *(answer.prompt_eval_duration, answer.eval_duration),
        ]
        for duration in durations:
            self.assertIs(type(duration), int)
            self.assertGreater(duration, 0)
        total, *parts = durations
        # nanoseconds, not milliseconds, and no more than there were
        self.assertGreaterEqual(total, sum(parts))
        self.assertGreater(total, 10**5)
        self.assertLess(total, 10**9 * PATIENCE)
        age = datetime.now(UTC) - datetime.fromisoformat(answer.created_at)
        self.assertLess(abs(age.total_seconds()), 2 * PATIENCE)


class GenerationTests(OllamaCase, SdkCase):
    @in_a_thread
    def test_a_chat_whole_and_streamed(self) -> None:
        answer = self.ask()
        self.assertIsInstance(answer, ollama.ChatResponse)
        self.assertEqual((answer.message.role, len(answer.message.content)), ("assistant", 8))
        self.counted(answer, HELLO_TOKENS)
        *parts, last = self.ask(stream=True)
        for part in parts:
            self.assertIsInstance(part, ollama.ChatResponse)
            self.assertIs(part.done, False)
        self.assertEqual(len(parts), 8)
        self.assertEqual("".join(part.message.content for part in parts), answer.message.content)
        self.counted(last, HELLO_TOKENS)

    @in_a_thread
    def test_a_prompt_whole_and_streamed(self) -> None:
        for more, tokens in (
            ({}, HELLO_TOKENS),
            ({"system": "be brief"}, len("system: be brief\n") + HELLO_TOKENS),
            ({"raw": True}, 1 + len("hello")),
        ):
            fields: dict[str, Any] = {"prompt": "hello", "options": SURE, **more}
            answer = self.client().generate(MODEL, **fields)
            self.assertIsInstance(answer, ollama.GenerateResponse)
            self.assertEqual(len(answer.response), 8)
            self.counted(answer, tokens)
            *parts, last = self.client().generate(MODEL, stream=True, **fields)
            self.assertEqual("".join(part.response or "" for part in parts), answer.response)
            self.counted(last, tokens)
        filled = self.client().generate(MODEL, "def f(", suffix="return", options=SURE)
        self.assertEqual((len(filled.response or ""), filled.done_reason), (8, "length"))

    @in_a_thread
    def test_a_tool_is_called_and_its_result_goes_back(self) -> None:
        answer = self.ask(tools=[TOOL], options=PATIENT)
        [call] = answer.message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("get", {"what": "tea"}))
        self.assertEqual(answer.done_reason, "stop")
        *parts, last = self.ask(tools=[TOOL], options=PATIENT, stream=True)
        calls = [part.message.tool_calls for part in parts if part.message.tool_calls]
        self.assertEqual([call[0].function.arguments for call in calls], [{"what": "tea"}])
        self.assertEqual(last.done_reason, "stop")
        result = {"role": "tool", "tool_name": "get", "content": "Earl Grey"}
        after = self.ask([*HELLO, answer.message, result], tools=[TOOL])
        self.assertEqual((len(after.message.content), after.message.tool_calls), (8, None))
        sessions = [self.served().session for _ in range(3)]
        self.assertEqual(sessions[0], sessions[2])

    @in_a_thread
    def test_a_function_of_pythons_is_a_tool(self) -> None:
        def get(hot: bool) -> str:
            """
            Get tea.

            Args:
                hot: Whether it is to be hot.
            """
            return "hot" if hot else "cold"

        [call] = self.ask(tools=[get], options=PATIENT).message.tool_calls
        self.assertEqual(call.function.name, "get")
        self.assertIn(get(**call.function.arguments), ("hot", "cold"))

    @in_a_thread
    def test_a_format_is_kept_to(self) -> None:
        answer = self.ask(format=PARAMETERS, options=PATIENT)
        self.assertEqual(json.loads(answer.message.content), {"what": "tea"})
        told = self.client().generate(MODEL, "hello", format=PARAMETERS, options=PATIENT)
        self.assertEqual(json.loads(told.response or ""), {"what": "tea"})
        parts = self.ask(format="json", options=PATIENT, stream=True)
        self.assertEqual(json.loads("".join(part.message.content for part in parts)), {})

    @in_a_thread
    def test_what_the_model_can_not_do(self) -> None:
        client = self.client()
        for stream in (False, True):
            more: dict[str, Any] = {"stream": stream, "options": SURE}
            told = self.refused(400, client.chat, MODEL, HELLO, think=True, **more)
            self.assertEqual(told, f'"{MODEL}" does not support thinking')
            told = self.refused(400, client.generate, MODEL, "hello", think=True, **more)
            self.assertEqual(told, f'"{MODEL}" does not support thinking')
            seen = [{"role": "user", "content": "what is it?", "images": [PIXEL]}]
            told = self.refused(400, client.chat, MODEL, seen, **more)
            self.assertEqual(told, f'"{MODEL}" does not support images')
        self.assertEqual(len(self.ask(think=False).message.content), 8)


class ModelTests(OllamaCase, SdkCase):
    async def test_a_name_of_the_list_is_good_on_every_surface(self) -> None:
        # Copilot takes it from /api/tags and then chats on /v1
        name = (await self.get("/api/tags")).json["models"][0]["name"]
        self.assertTrue(name.endswith(":latest"))
        body = {"model": name, "messages": HELLO, "max_tokens": 2}
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"):
            answer = await self.post(path, body)
            self.assertEqual(answer.status, 200, (path, answer.body))

    @in_a_thread
    def test_the_models_are_listed(self) -> None:
        listing = self.client().list()
        self.assertIsInstance(listing, ollama.ListResponse)
        [model] = listing.models
        self.assertEqual(model.model, f"{MODEL}:latest")
        self.assertEqual(len(model.digest or ""), 64)
        self.assertGreater(model.size or 0, 400_000)
        self.assertIsInstance(model.modified_at, datetime)
        assert model.details is not None
        self.assertEqual((model.details.format, model.details.quantization_level), ("gguf", "F32"))

    @in_a_thread
    def test_the_models_in_memory_are_listed(self) -> None:
        listing = self.client().ps()
        self.assertIsInstance(listing, ollama.ProcessResponse)
        [model] = listing.models
        self.assertEqual((model.model, model.name), (f"{MODEL}:latest", f"{MODEL}:latest"))
        self.assertEqual(model.context_length, 4096)
        assert model.expires_at is not None
        self.assertGreater(model.expires_at, datetime.now(UTC))
        self.assertEqual([model.digest], [each.digest for each in self.client().list().models])

    @in_a_thread
    def test_a_model_is_shown(self) -> None:
        for name in (MODEL, f"{MODEL}:latest"):
            shown = self.client().show(name)
            self.assertIsInstance(shown, ollama.ShowResponse)
            self.assertEqual(shown.capabilities, ["completion", "tools"])
            assert shown.modelinfo is not None
            family = shown.modelinfo["general.architecture"]
            self.assertEqual(shown.modelinfo[f"{family}.context_length"], 4096)
            self.assertIn("[XYZ]", shown.template or "")

    @in_a_thread
    def test_names_with_latest_and_without_are_one_model_and_one_session(self) -> None:
        sessions = set()
        for name in (MODEL, f"{MODEL}:latest"):
            answer = self.ask(model=name)
            self.assertEqual((answer.model, len(answer.message.content)), (name, 8))
            sessions.add(self.served().session)
        self.assertEqual(len(sessions), 1)

    @in_a_thread
    def test_what_is_there_is_pulled_at_once(self) -> None:
        client = self.client()
        self.assertEqual(client.pull(MODEL).status, "success")
        *steps, last = client.pull(f"{MODEL}:latest", stream=True)
        self.assertIsInstance(last, ollama.ProgressResponse)
        self.assertEqual(last.status, "success")
        [layer] = [step for step in steps if step.digest]
        self.assertEqual(layer.completed, layer.total)

    @in_a_thread
    def test_models_can_not_be_changed(self) -> None:
        client = self.client()
        for function, args in (
            (client.delete, (MODEL,)),
            (client.copy, (MODEL, "other")),
            (client.create, ("other", None, MODEL)),
            (client.push, (MODEL,)),
        ):
            self.assertIn("not supported", self.refused(501, function, *args))
        self.assertEqual(len(client.list().models), 1)

    @in_a_thread
    def test_keep_alive_0_saves_what_is_in_the_slot(self) -> None:
        client = self.client(**{"X-Session-ID": "mine"})
        messages: list[Any] = [{"role": "user", "content": RULE}]
        said = client.chat(MODEL, messages, options=SURE)
        self.assertEqual(self.served().cache, "cold")
        self.assertEqual(list(self.slots.iterdir()), [])
        answer = client.generate(MODEL, "", keep_alive=0)
        self.assertEqual((answer.done, answer.done_reason, answer.response), (True, "unload", ""))
        [snapshot] = self.slots.iterdir()
        self.assertGreater(snapshot.stat().st_size, 1000)
        blockingCallFromThread(reactor, self.llama.restart)  # type: ignore[arg-type]
        messages += [said.message, *HELLO]
        client.chat(MODEL, messages, options=SURE)
        turn = self.served()
        self.assertEqual(turn.cache, "restored")
        self.assertLess(turn.share_read, 0.1)

    @in_a_thread
    def test_no_prompt_and_no_messages_only_load(self) -> None:
        self.assertEqual(self.client().generate(MODEL).done_reason, "load")
        self.assertEqual(self.client().chat(MODEL).done_reason, "load")
        self.assertEqual(self.client().chat(MODEL, keep_alive="0s").done_reason, "unload")
        [last] = self.client().generate(MODEL, stream=True)
        self.assertEqual((last.done, last.done_reason), (True, "load"))


class ErrorTests(OllamaCase, SdkCase):
    @in_a_thread
    def test_a_model_that_is_not_there(self) -> None:
        client = self.client()
        for function, more in (
            (client.chat, {"messages": HELLO}),
            (client.chat, {"messages": HELLO, "stream": True}),
            (client.generate, {"prompt": "hello"}),
            (client.generate, {"prompt": "", "keep_alive": 0}),
            (client.embed, {"input": "hello"}),
            (client.embeddings, {"prompt": "hello"}),
            (client.show, {}),
            (client.pull, {}),
            (client.pull, {"stream": True}),
        ):
            told = self.refused(404, function, "other", **more)
            self.assertIn("other", told)

    @in_a_thread
    def test_bodies_that_are_refused(self) -> None:
        told = self.refused(400, self.ask, options={"num_predict": "many"})
        self.assertEqual(told, 'option "num_predict" must be of type integer')
        self.refused(400, self.ask, keep_alive="soon")
        self.refused(400, self.client().generate, MODEL, "x", raw=True, system="y")
        # what nobody knows is left out
        options = {**SURE, "mirostat_eta": 0.1, "of_no_use": "at all"}
        self.assertEqual(len(self.ask(options=options).message.content), 8)

    @in_a_thread
    def test_a_prompt_that_is_too_long(self) -> None:
        long = [{"role": "user", "content": "x" * 5000}]
        for stream in (False, True):
            told = self.refused(400, self.ask, long, stream=stream)
            self.assertIn("exceeds the available context size (4096 tokens)", told)

    @in_a_thread
    def test_no_embeddings_of_a_model_without_them(self) -> None:
        told = self.refused(501, self.client().embed, MODEL, "hello")
        self.assertIn("--embeddings", told)
        self.refused(501, self.client().embeddings, MODEL, "hello")


class KeyTests(OllamaCase, SdkCase):
    config = SdkCase.config + KEYS

    @in_a_thread
    def test_only_the_right_key_is_let_in(self) -> None:
        ann = self.client(Authorization="Bearer key-of-ann")
        self.assertEqual(len(ann.chat(MODEL, HELLO, options=SURE).message.content or ""), 8)
        self.assertEqual(len(ann.list().models), 1)
        bob = self.client(Authorization="Bearer key-of-bob")
        for function, args in (
            (bob.chat, (MODEL, HELLO)),
            (bob.generate, (MODEL, "hello")),
            (bob.embed, (MODEL, "hello")),
            (bob.show, (MODEL,)),
            (bob.list, ()),
            (bob.ps, ()),
            (bob.pull, (MODEL,)),
            (bob.delete, (MODEL,)),
        ):
            self.assertIn("key", self.refused(401, function, *args).lower())


class SessionTests(OllamaCase, SdkCase):
    def say(self, client: ollama.Client, messages: list[Message], **more: Any) -> str:
        said: list[Any] = [{"role": "system", "content": RULE}, *messages]
        return client.chat(MODEL, said, options=SURE, **more).message.content or ""

    @in_a_thread
    def test_by_a_header_of_the_client(self) -> None:
        clients = {name: self.client(**{"X-Session-ID": name}) for name in ("alps", "baltic")}
        self.restored(
            "header:x-session-id", lambda name, messages: self.say(clients[name], messages)
        )

    @in_a_thread
    def test_by_nothing_but_what_was_said(self) -> None:
        client = self.client()
        self.restored("history", lambda _, messages: self.say(client, messages))

    @in_a_thread
    def test_streams_as_well(self) -> None:
        client = self.client()

        def say(_: str, messages: list[Message]) -> str:
            said: list[Any] = [{"role": "system", "content": RULE}, *messages]
            parts = client.chat(MODEL, said, options=SURE, stream=True)
            return "".join(part.message.content or "" for part in parts)

        self.restored("history", say)


class EmbeddingTests(OllamaCase, EmbeddingCase):
    @in_a_thread
    def test_embeddings(self) -> None:
        client = self.client()
        answer = client.embed(MODEL, ["hello", "world"])
        self.assertIsInstance(answer, ollama.EmbedResponse)
        self.assertEqual(len(answer.embeddings), 2)
        for vector in answer.embeddings:
            self.assertAlmostEqual(math.hypot(*vector), 1, 4)
        self.assertNotEqual(*answer.embeddings)
        self.assertEqual(answer.prompt_eval_count, 2 * (1 + len("hello")))
        for duration in (answer.total_duration, answer.load_duration):
            self.assertIs(type(duration), int)
        self.assertGreater(answer.total_duration or 0, 0)
        [short] = client.embed(f"{MODEL}:latest", "hello", dimensions=16).embeddings
        self.assertEqual(len(short), 16)

        old = client.embeddings(MODEL, "hello")
        self.assertIsInstance(old, ollama.EmbeddingsResponse)
        self.assertEqual(len(old.embedding), len(answer.embeddings[0]))
        for number, same in zip(old.embedding, answer.embeddings[0], strict=True):
            self.assertAlmostEqual(number, same, 4)

    @in_a_thread
    def test_a_text_that_is_too_long(self) -> None:
        told = self.refused(400, self.client().embed, MODEL, "x" * 5000)
        self.assertEqual(told, "the input length exceeds the context length")
