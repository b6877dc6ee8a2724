"""Anthropic's own Python package, through slotgate to a real llama-server."""

from __future__ import annotations

from typing import Any, ClassVar

import anthropic
from anthropic.types import Message as Answer
from anthropic.types import TextBlock, ToolUseBlock
from anthropic.types.beta import BetaMessage
from attrs import define
from gateway import FakeGatewayCase
from sdk import (
    KEYS,
    MODEL,
    PARAMETERS,
    PATIENCE,
    RULE,
    ClientCase,
    Message,
    SdkCase,
    in_a_thread,
)

from slotgate.testing.faults import Wire

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
#: A byte is a token, and there is one before all.
HELLO_TOKENS = 1 + len("user: hello\nassistant: ")
TOOLS: list[Any] = [{"name": "get", "description": "Gets it.", "input_schema": PARAMETERS}]
#: The package has no argument for it any more.
SURE = {"temperature": 0}

# the error object of the surface, as https://docs.claude.com/en/api/errors has it
WRONG = "invalid_request_error"


class AnthropicCase(ClientCase):
    def client(self, key: str | None = "none", **more: Any) -> anthropic.Anthropic:
        settings = {"base_url": self.base, "api_key": key, "timeout": PATIENCE, **more}
        return self.once(anthropic.Anthropic, max_retries=0, **settings)

    def ask(self, messages: list[Any] = HELLO, **more: Any) -> Any:
        fields: dict[str, Any] = {"model": MODEL, "max_tokens": 8, "extra_body": SURE, **more}
        return self.client().messages.create(messages=messages, **fields)

    def told(self, error: anthropic.APIStatusError, kind: str) -> str:
        """The message of an error in Anthropic's shape."""
        body: Any = error.body
        self.assertEqual((set(body), body["type"]), ({"type", "error"}, "error"))
        self.assertEqual(set(body["error"]), {"type", "message"})
        self.assertEqual(body["error"]["type"], kind)
        message: str = body["error"]["message"]
        return message


class MessageTests(AnthropicCase, SdkCase):
    @in_a_thread
    def test_a_message_whole_and_streamed(self) -> None:
        answer = self.ask()
        self.assertIsInstance(answer, Answer)
        [block] = answer.content
        self.assertIsInstance(block, TextBlock)
        self.assertEqual((len(block.text), answer.stop_reason), (8, "max_tokens"))
        self.assertEqual((answer.model, answer.role), (MODEL, "assistant"))
        usage = answer.usage
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, HELLO_TOKENS)
        self.assertEqual(usage.output_tokens, 8)

        events = list(self.ask(stream=True))
        kinds = [event.type for event in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[2:-3], ["content_block_delta"] * 8)
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual("".join(event.delta.text for event in events[2:-3]), block.text)
        self.assertEqual(events[-2].delta.stop_reason, "max_tokens")

        with self.client().messages.stream(
            model=MODEL, max_tokens=8, messages=HELLO, extra_body=SURE
        ) as stream:
            self.assertEqual("".join(stream.text_stream), block.text)
            self.assertEqual(stream.get_final_message().usage.output_tokens, 8)

    @in_a_thread
    def test_a_response_tells_its_session(self) -> None:
        raw = self.client().messages.with_raw_response.create(
            model=MODEL, messages=HELLO, max_tokens=8, extra_headers={"X-Session-ID": "mine"}
        )
        told = [raw.headers[f"x-slotgate-{name}"] for name in ("session", "source", "cache")]
        self.assertEqual(told, ["mine", "header:x-session-id", "cold"])
        self.assertIsInstance(raw.parse(), Answer)

    @in_a_thread
    def test_beta_messages(self) -> None:
        fields: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 8}
        fields |= {"betas": ["context-1m-2025-08-07"], "extra_body": SURE}
        answer = self.client().beta.messages.create(**fields)
        self.assertIsInstance(answer, BetaMessage)
        text = answer.content[0].text
        self.assertEqual(len(text), 8)
        with self.client().beta.messages.stream(**fields) as stream:
            self.assertEqual("".join(stream.text_stream), text)
        counted = self.client().beta.messages.count_tokens(model=MODEL, messages=HELLO)
        self.assertEqual(counted.input_tokens, HELLO_TOKENS)
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client().beta.messages.create(**{**fields, "model": "other"})
        self.told(caught.exception, "not_found_error")

    @in_a_thread
    def test_tokens_are_counted(self) -> None:
        counted = self.client().messages.count_tokens(
            model=MODEL, messages=HELLO, system="be brief"
        )
        self.assertEqual(counted.input_tokens, len("system: be brief\n") + HELLO_TOKENS)

    @in_a_thread
    def test_a_tool_is_called_and_its_result_goes_back(self) -> None:
        answer = self.ask(tools=TOOLS, max_tokens=200)
        self.assertEqual(answer.stop_reason, "tool_use")
        [call] = answer.content
        self.assertIsInstance(call, ToolUseBlock)
        self.assertEqual((call.name, call.input), ("get", {"what": "tea"}))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "Earl Grey"}
        said = [
            *HELLO,
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [result]},
        ]
        [block] = self.ask(said, tools=TOOLS).content
        self.assertEqual(len(block.text), 8)
        self.assertEqual(self.served().session, self.served().session)

    @in_a_thread
    def test_a_tool_that_must_be_called_is_how_this_surface_keeps_to_a_schema(self) -> None:
        for choice in ({"type": "any"}, {"type": "tool", "name": "get"}):
            with self.client().messages.stream(
                model=MODEL,
                max_tokens=200,
                messages=HELLO,
                tools=TOOLS,
                tool_choice=choice,  # type: ignore[arg-type]
            ) as stream:
                parts = [event.partial_json for event in stream if event.type == "input_json"]
                [call] = stream.get_final_message().content
            self.assertGreater(len(parts), 1)
            self.assertEqual(call.type, "tool_use")
            self.assertEqual(getattr(call, "input", None), {"what": "tea"})

    @in_a_thread
    def test_the_models_are_listed(self) -> None:
        page = self.client().models.list(limit=1000)
        self.assertEqual([model.id for model in page], [MODEL])


class ErrorTests(AnthropicCase, SdkCase):
    @in_a_thread
    def test_a_model_that_no_route_serves(self) -> None:
        for stream in (False, True):
            with self.assertRaises(anthropic.NotFoundError) as caught:
                self.ask(model="other", stream=stream)
            self.assertIn("other", self.told(caught.exception, "not_found_error"))

    @in_a_thread
    def test_bodies_that_the_server_refuses(self) -> None:
        for more in ({"messages": [7]}, {"max_tokens": "many"}):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.ask(extra_body=more)
            self.told(caught.exception, WRONG)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client().messages.count_tokens(model=MODEL, messages=[7])  # type: ignore[list-item]
        self.told(caught.exception, WRONG)

    @in_a_thread
    def test_a_prompt_that_is_too_long(self) -> None:
        for stream in (False, True):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.ask([{"role": "user", "content": "x" * 5000}], stream=stream)
            told = self.told(caught.exception, WRONG)
            self.assertIn("exceeds the available context size (4096 tokens)", told)


class KeyTests(AnthropicCase, SdkCase):
    config = SdkCase.config + KEYS

    @in_a_thread
    def test_only_the_right_key_is_let_in(self) -> None:
        fields: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 8}
        # the package makes both a bearer; Claude Code and older packages send x-api-key
        older = {"Authorization": anthropic.omit, "X-Api-Key": "key-of-ann"}
        for client in (
            self.client("key-of-ann"),
            self.client(key=None, auth_token="key-of-ann"),
            self.client(default_headers=older),
        ):
            self.assertEqual(len(client.messages.create(**fields).content), 1)
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.client("key-of-bob").messages.create(**fields)
        self.told(caught.exception, "authentication_error")
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.client("key-of-bob").messages.count_tokens(model=MODEL, messages=HELLO)
        self.told(caught.exception, "authentication_error")


class SessionTests(AnthropicCase, SdkCase):
    def say(self, client: anthropic.Anthropic, messages: list[Message], **more: Any) -> str:
        said: list[Any] = list(messages)
        answer = client.messages.create(
            model=MODEL, system=RULE, messages=said, max_tokens=8, extra_body=SURE, **more
        )
        return "".join(block.text for block in answer.content if block.type == "text")

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
    def test_by_nothing_but_what_was_said(self) -> None:
        client = self.client()
        self.restored("history", lambda _, messages: self.say(client, messages))

    @in_a_thread
    def test_streams_as_well(self) -> None:
        client = self.client()

        def say(_: str, messages: list[Message]) -> str:
            said: list[Any] = list(messages)
            with client.beta.messages.stream(
                model=MODEL, system=RULE, messages=said, max_tokens=8, extra_body=SURE
            ) as stream:
                return "".join(stream.text_stream)

        self.restored("history", say)


@define(eq=False)
class Says:
    """A server that answers with this stream."""

    body: bytes
    instead: ClassVar[bool] = True
    after: ClassVar[int | None] = None

    async def strike(self, wire: Wire) -> None:
        await wire.answer(200, "text/event-stream", self.body)


STARTED = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
    b'"role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":0}}}\n'
    b"\n: ping\n\n"
    b'event: ping\ndata: {"type":"ping"}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"hi"}}\n\n: ping\n\n'
)
ENDED = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":1}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
BROKEN = (
    b'event: error\ndata: {"error":{"code":500,"message":"no memory left","type":"server_error"}}\n'
    b"\n"
)


class StreamTests(AnthropicCase, FakeGatewayCase):
    """What a real server says only after half a minute, or when it is broken."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.keep_inside()
        await super().setUp()

    @in_a_thread
    def test_pings_are_no_news(self) -> None:
        self.llama.plan(Says(STARTED + ENDED), path="/v1/messages")
        with self.client().messages.stream(model=MODEL, max_tokens=8, messages=HELLO) as stream:
            self.assertEqual("".join(stream.text_stream), "hi")

    @in_a_thread
    def test_an_error_in_mid_stream(self) -> None:
        self.llama.plan(Says(STARTED + BROKEN), path="/v1/messages")
        heard = []
        with self.assertRaises(anthropic.APIStatusError) as caught:
            for event in self.ask(stream=True):
                heard.append(event.type)
        self.assertEqual(heard[-1], "content_block_delta")
        self.assertEqual(self.told(caught.exception, "api_error"), "no memory left")
