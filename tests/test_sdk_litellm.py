"""LiteLLM, through slotgate to a real llama-server, on each surface."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest import mock

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

#: Its names for the surfaces; ``ollama`` asks for a prompt, and so gets a template of LiteLLM's.
CHATS = ("openai", "anthropic", "ollama_chat")
ALL = (*CHATS, "ollama")


class LiteLLMCase(SdkCase):
    #: The package takes seconds to import.
    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        # not before, as it fetches its prices else; and it asks Ollama's own port what models can
        patched = mock.patch.dict(os.environ, {"OLLAMA_API_BASE": self.base})
        patched.start()
        self.addCleanup(patched.stop)
        import litellm

        litellm.telemetry = False
        litellm.suppress_debug_info = True
        self.litellm: Any = litellm

    def to(self, provider: str) -> dict[str, Any]:
        """Where a provider's requests go."""
        base = f"{self.base}/v1" if provider == "openai" else self.base
        return {
            "model": f"{provider}/{MODEL}",
            "api_base": base,
            "api_key": "key-of-ann",
            "timeout": PATIENCE,
            "num_retries": 0,
        }

    def ask(self, provider: str, messages: list[Any] = HELLO, **more: Any) -> Any:
        fields = {**self.to(provider), "max_tokens": 8, "temperature": 0, **more}
        return self.litellm.completion(messages=messages, **fields)


class CompletionTests(LiteLLMCase):
    @in_a_thread
    def test_a_chat_whole_and_streamed(self) -> None:
        texts = {}
        for provider in ALL:
            answer = self.ask(provider)
            self.assertIsInstance(answer, self.litellm.ModelResponse)
            texts[provider] = text = answer.choices[0].message.content
            self.assertEqual(len(text), 8, provider)
            chunks = list(self.ask(provider, stream=True, stream_options={"include_usage": True}))
            parts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
            self.assertEqual("".join(filter(None, parts)), text, provider)
            self.assertGreater(len(list(filter(None, parts))), 4, provider)
            for usage in (answer.usage, chunks[-1].usage):
                self.assertEqual(usage.completion_tokens, 8, provider)
                if provider in CHATS:
                    self.assertEqual(usage.prompt_tokens, HELLO_TOKENS, provider)
        # one model, whatever language it is spoken to
        self.assertEqual(len({texts[provider] for provider in CHATS}), 1)

    @in_a_thread
    def test_a_tool_is_called_and_its_result_goes_back(self) -> None:
        for provider in CHATS:
            answer = self.ask(provider, tools=[TOOL], max_tokens=200).choices[0]
            self.assertEqual(answer.finish_reason, "tool_calls", provider)
            [call] = answer.message.tool_calls
            self.assertEqual(call.function.name, "get")
            self.assertEqual(json.loads(call.function.arguments), {"what": "tea"})
            result = {"role": "tool", "tool_call_id": call.id, "name": "get", "content": "Assam"}
            said = [*HELLO, answer.message.model_dump(exclude_none=True), result]
            after = self.ask(provider, said, tools=[TOOL]).choices[0].message
            self.assertEqual((len(after.content), after.tool_calls), (8, None), provider)
            self.assertEqual(self.served().session, self.served().session, provider)

    @in_a_thread
    def test_a_schema_is_kept_to(self) -> None:
        schema = {"name": "wanted", "schema": PARAMETERS, "strict": True}
        wanted = {"type": "json_schema", "json_schema": schema}
        for provider in ALL:
            answer = self.ask(provider, max_tokens=200, response_format=wanted)
            said = json.loads(answer.choices[0].message.content)
            self.assertEqual(said, {"what": "tea"}, provider)

    @in_a_thread
    def test_prompts_responses_and_lists(self) -> None:
        where = self.to("openai")
        text = self.litellm.text_completion(prompt="hello", max_tokens=8, **where)
        self.assertEqual(len(text.choices[0].text), 8)
        answer = self.litellm.responses(input="hello", max_output_tokens=16, **where)
        self.assertEqual(len(answer.output[0].content[0].text), 16)
        listed = self.litellm.get_valid_models(
            check_provider_endpoint=True,
            custom_llm_provider="openai",
            api_base=where["api_base"],
            api_key="none",
        )
        self.assertEqual(listed, [MODEL])

    @in_a_thread
    def test_no_embeddings_of_a_model_without_them(self) -> None:
        for provider in ("openai", "ollama"):
            with self.assertRaises(self.litellm.APIError) as caught:
                self.litellm.embedding(input=["hello"], **self.to(provider))
            self.assertIn("--embeddings", str(caught.exception))


class ErrorTests(LiteLLMCase):
    @in_a_thread
    def test_a_model_that_no_route_serves(self) -> None:
        for provider in ALL:
            with self.assertRaises(self.litellm.NotFoundError) as caught:
                self.ask(provider, model=f"{provider}/other")
            self.assertIn("other", str(caught.exception))

    @in_a_thread
    def test_bodies_that_the_server_refuses(self) -> None:
        for provider in ALL:
            with self.assertRaises(self.litellm.BadRequestError) as caught:
                self.ask(provider, temperature="hot")
            self.assertIn("temperature", str(caught.exception), provider)

    @in_a_thread
    def test_a_prompt_that_is_too_long(self) -> None:
        long = [{"role": "user", "content": "x" * 5000}]
        for provider in ALL:
            with self.assertRaises(self.litellm.BadRequestError) as caught:
                self.ask(provider, long)
            self.assertIn("exceeds the available context size (4096 tokens)", str(caught.exception))


class KeyTests(LiteLLMCase):
    config = LiteLLMCase.config + KEYS

    @in_a_thread
    def test_only_the_right_key_is_let_in(self) -> None:
        for provider in CHATS:
            answer = self.ask(provider)
            self.assertEqual(len(answer.choices[0].message.content), 8, provider)
            with self.assertRaises(self.litellm.AuthenticationError):
                self.ask(provider, api_key="key-of-bob")


class SessionTests(LiteLLMCase):
    def say(self, provider: str, messages: list[Message], **more: Any) -> str:
        said = [{"role": "system", "content": RULE}, *messages]
        answer = self.ask(provider, said, **more)
        text: str = answer.choices[0].message.content
        return text

    def switches_by_header(self, provider: str, header: str) -> None:
        def say(name: str, messages: list[Message]) -> str:
            headers = {header: f"session-{name}"}
            return self.say(provider, messages, extra_headers=headers)

        self.restored(f"header:{header}", say)

    @in_a_thread
    def test_by_its_session_header_to_openai(self) -> None:
        self.switches_by_header("openai", "x-litellm-session-id")

    @in_a_thread
    def test_by_its_session_header_to_anthropic(self) -> None:
        self.switches_by_header("anthropic", "x-litellm-session-id")

    @in_a_thread
    def test_by_its_session_header_to_ollama(self) -> None:
        self.switches_by_header("ollama_chat", "x-litellm-session-id")

    @in_a_thread
    def test_by_a_session_header_of_somebody_elses_that_it_would_know(self) -> None:
        self.switches_by_header("openai", "x-somebody-session-id")

    @in_a_thread
    def test_by_nothing_but_what_was_said(self) -> None:
        self.restored("history", lambda _, messages: self.say("openai", messages))

    @in_a_thread
    def test_a_chat_goes_on_by_another_surface_and_back(self) -> None:
        sessions = set()
        messages: list[Message] = [{"role": "user", "content": "hello"}]
        for provider in ("openai", "ollama_chat", "openai"):
            said = self.say(provider, messages)
            messages.append({"role": "assistant", "content": said})
            messages.append({"role": "user", "content": "And then?"})
            sessions.add(self.served().session)
        self.assertEqual(len(sessions), 1)


class EmbeddingTests(EmbeddingCase, LiteLLMCase):
    @in_a_thread
    def test_embeddings(self) -> None:
        vectors = []
        for provider in ("openai", "ollama"):
            answer = self.litellm.embedding(input=["hello", "world"], **self.to(provider))
            self.assertEqual(len(answer.data), 2)
            vectors.append(answer.data[1]["embedding"])
        for number, same in zip(*vectors, strict=True):
            self.assertAlmostEqual(number, same, 4)
