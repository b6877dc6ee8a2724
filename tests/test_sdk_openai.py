"""OpenAI's own Python package, through slotgate to a real llama-server."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from sdk import (
    KEYS,
    MODEL,
    PARAMETERS,
    PATIENCE,
    RULE,
    TOOL,
    EmbeddingCase,
    Message,
    SdkCase,
    in_a_thread,
)

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
#: A byte is a token, and there is one before all.
HELLO_TOKENS = 1 + len("user: hello\nassistant: ")


class Wanted(BaseModel):
    """The only answer that a schema leaves."""

    what: Literal["tea"]


class OpenAICase(SdkCase):
    def client(self, key: str = "none", **more: Any) -> openai.OpenAI:
        settings = {"base_url": f"{self.base}/v1", "api_key": key, "timeout": PATIENCE, **more}
        return self.once(openai.OpenAI, max_retries=0, **settings)

    def chat(self, messages: list[Any] = HELLO, **more: Any) -> Any:  # type: ignore[override]
        fields = {"model": MODEL, "max_tokens": 8, "temperature": 0, **more}
        return self.client().chat.completions.create(messages=messages, **fields)


class ChatTests(OpenAICase):
    @in_a_thread
    def test_a_chat_whole_and_streamed(self) -> None:
        answer = self.chat()
        self.assertIsInstance(answer, ChatCompletion)
        text = answer.choices[0].message.content
        self.assertEqual(len(text), 8)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual((answer.model, answer.object), (MODEL, "chat.completion"))
        self.assertEqual(answer.usage.prompt_tokens, HELLO_TOKENS)
        self.assertEqual(answer.usage.completion_tokens, 8)
        # llama-server's own, which the package hands on
        self.assertEqual(answer.timings["prompt_n"], HELLO_TOKENS)

        chunks = list(self.chat(stream=True))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), text)
        self.assertGreater(len(chunks), 8)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")
        self.assertEqual([chunk for chunk in chunks if chunk.usage], [])

    @in_a_thread
    def test_stream_options_are_as_sent(self) -> None:
        *chunks, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertEqual(last.choices, [])
        self.assertEqual(last.usage.prompt_tokens, HELLO_TOKENS)
        self.assertEqual([chunk for chunk in chunks if chunk.usage], [])
        chunks = list(self.chat(stream=True, stream_options={"include_usage": False}))
        self.assertEqual([chunk for chunk in chunks if chunk.usage], [])

    @in_a_thread
    def test_a_response_tells_its_session(self) -> None:
        raw = self.client().chat.completions.with_raw_response.create(
            model=MODEL, messages=HELLO, max_tokens=8, extra_headers={"X-Session-ID": "mine"}
        )
        told = [raw.headers[f"x-slotgate-{name}"] for name in ("session", "source", "cache")]
        self.assertEqual(told, ["mine", "header:x-session-id", "cold"])
        self.assertEqual(len(raw.parse().choices[0].message.content or ""), 8)

    @in_a_thread
    def test_a_tool_is_called_and_its_result_goes_back(self) -> None:
        answer = self.chat(tools=[TOOL], max_tokens=200)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        [call] = answer.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "get")
        self.assertEqual(json.loads(call.function.arguments), {"what": "tea"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "Earl Grey"}
        said = [*HELLO, answer.choices[0].message, result]
        after = self.chat(said, tools=[TOOL]).choices[0]
        self.assertEqual((len(after.message.content), after.message.tool_calls), (8, None))
        self.assertEqual(self.served().session, self.served().session)

    @in_a_thread
    def test_a_tool_call_streams(self) -> None:
        with self.client().chat.completions.stream(
            model=MODEL,
            messages=HELLO,
            max_tokens=200,
            tools=[{**TOOL}],  # type: ignore[list-item]
        ) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            message = stream.get_final_completion().choices[0].message
        [call] = message.tool_calls or []
        self.assertEqual(json.loads(call.function.arguments), {"what": "tea"})
        self.assertEqual([event.name for event in done], ["get"])

    @in_a_thread
    def test_a_schema_is_kept_to(self) -> None:
        schema = {"name": "wanted", "schema": PARAMETERS, "strict": True}
        answer = self.chat(
            max_tokens=200, response_format={"type": "json_schema", "json_schema": schema}
        )
        self.assertEqual(json.loads(answer.choices[0].message.content), {"what": "tea"})
        parsed = self.client().chat.completions.parse(
            model=MODEL, messages=HELLO, max_tokens=200, response_format=Wanted
        )
        self.assertEqual(parsed.choices[0].message.parsed, Wanted(what="tea"))


class OtherTests(OpenAICase):
    @in_a_thread
    def test_completions(self) -> None:
        fields: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 8}
        fields["temperature"] = 0
        answer = self.client().completions.create(**fields)
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.usage.prompt_tokens, 1 + len("hello"))
        chunks = list(self.client().completions.create(stream=True, **fields))
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        self.assertEqual((len(text), text), (8, answer.choices[0].text))

    @in_a_thread
    def test_responses(self) -> None:
        fields: dict[str, Any] = {"model": MODEL, "max_output_tokens": 8, "temperature": 0}
        fields |= {"instructions": "be brief", "input": "hello", "store": False}
        answer = self.client().responses.create(**fields)
        self.assertEqual(len(answer.output_text), 8)
        tokens = len("system: be brief\n") + HELLO_TOKENS
        self.assertEqual(answer.usage.input_tokens, tokens)
        events = list(self.client().responses.create(stream=True, **fields))
        self.assertEqual(events[0].type, "response.created")
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), answer.output_text)
        self.assertGreater(len(deltas), 4)
        last = events[-1]
        self.assertEqual(last.type, "response.completed")
        self.assertEqual(last.response.output_text, answer.output_text)
        self.assertEqual(last.response.usage.input_tokens, tokens)

    @in_a_thread
    def test_responses_call_tools_too(self) -> None:
        tools: list[Any] = [{"type": "function", "strict": True, **TOOL["function"]}]
        fields: dict[str, Any] = {"model": MODEL, "max_output_tokens": 200, "tools": tools}
        answer = self.client().responses.create(input="hello", **fields)
        [call] = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual((call.name, json.loads(call.arguments)), ("get", {"what": "tea"}))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "Earl Grey"}
        said = [*HELLO, call.model_dump(), result]
        after = self.client().responses.create(input=said, **{**fields, "max_output_tokens": 8})
        self.assertEqual(len(after.output_text), 8)

    @in_a_thread
    def test_the_models_are_listed(self) -> None:
        page = self.client().models.list()
        self.assertEqual([model.id for model in page], [MODEL])
        self.assertEqual([model.object for model in page.data], ["model"])

    @in_a_thread
    def test_no_embeddings_of_a_model_without_them(self) -> None:
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client().embeddings.create(model=MODEL, input="hello")
        self.assertEqual(caught.exception.status_code, 501)
        self.assertIn("--embeddings", caught.exception.message)


class ErrorTests(OpenAICase):
    @in_a_thread
    def test_a_model_that_no_route_serves(self) -> None:
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="other")
        self.assertEqual(caught.exception.type, "not_found_error")
        self.assertIn("other", caught.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.client().responses.create(model="other", input="hello")

    @in_a_thread
    def test_bodies_that_the_server_refuses(self) -> None:
        for messages in ("hello", [{"role": "user", "content": 7}], [7]):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(extra_body={"messages": messages})
            self.assertEqual(caught.exception.type, "invalid_request_error")

    @in_a_thread
    def test_a_prompt_that_is_too_long(self) -> None:
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat([{"role": "user", "content": "x" * 5000}], stream=stream)
            self.assertEqual(caught.exception.type, "exceed_context_size_error")
            body: Any = caught.exception.body
            self.assertEqual(body["n_ctx"], 4096)


class KeyTests(OpenAICase):
    config = OpenAICase.config + KEYS

    @in_a_thread
    def test_only_the_right_key_is_let_in(self) -> None:
        fields: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 8}
        answer = self.client("key-of-ann").chat.completions.create(**fields)
        self.assertEqual(len(answer.choices[0].message.content or ""), 8)
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.client("key-of-bob").chat.completions.create(**fields)
        self.assertEqual(caught.exception.type, "authentication_error")
        with self.assertRaises(openai.AuthenticationError):
            self.client("key-of-bob").models.list()


class SessionTests(OpenAICase):
    def say(self, client: openai.OpenAI, messages: list[Message], **more: Any) -> str:
        said: list[Any] = [{"role": "system", "content": RULE}, *messages]
        answer = client.chat.completions.create(
            model=MODEL, messages=said, max_tokens=8, temperature=0, **more
        )
        return answer.choices[0].message.content or ""

    @in_a_thread
    def test_by_a_header_of_the_client(self) -> None:
        clients = {
            name: self.client(default_headers={"X-Session-ID": name}) for name in ("alps", "baltic")
        }
        self.restored(
            "header:x-session-id", lambda name, messages: self.say(clients[name], messages)
        )

    @in_a_thread
    def test_by_a_header_of_the_request(self) -> None:
        client = self.client()

        def say(name: str, messages: list[Message]) -> str:
            return self.say(client, messages, extra_headers={"X-Session-ID": name})

        self.restored("header:x-session-id", say)

    @in_a_thread
    def test_by_the_cache_key_that_the_package_has_a_field_for(self) -> None:
        client = self.client()

        def say(name: str, messages: list[Message]) -> str:
            return self.say(client, messages, prompt_cache_key=name)

        self.restored("body:prompt_cache_key", say)

    @in_a_thread
    def test_by_nothing_but_what_was_said(self) -> None:
        client = self.client()
        self.restored("history", lambda _, messages: self.say(client, messages))

    @in_a_thread
    def test_so_do_responses(self) -> None:
        client = self.client()

        def item(message: Message) -> Any:
            kind = "input_text" if message["role"] == "user" else "output_text"
            content = [{"type": kind, "text": message["content"]}]
            return {"type": "message", "role": message["role"], "content": content}

        def say(_: str, messages: list[Message]) -> str:
            answer = client.responses.create(
                model=MODEL,
                instructions=RULE,
                input=[item(message) for message in messages],
                max_output_tokens=8,
                temperature=0,
            )
            return answer.output_text

        self.restored("history", say)


class EmbeddingTests(EmbeddingCase, OpenAICase):
    @in_a_thread
    def test_embeddings_of_several_texts(self) -> None:
        # the package asks for base64 by itself
        answer = self.client().embeddings.create(model=MODEL, input=["hello", "world"])
        self.assertEqual([one.index for one in answer.data], [0, 1])
        for one in answer.data:
            self.assertAlmostEqual(math.hypot(*one.embedding), 1, 4)
        floats = self.client().embeddings.create(
            model=MODEL, input="hello", encoding_format="float"
        )
        vectors = floats.data[0].embedding, answer.data[0].embedding
        for number, same in zip(*vectors, strict=True):
            self.assertAlmostEqual(number, same, 4)
        self.assertEqual(floats.usage.prompt_tokens, 1 + len("hello"))
