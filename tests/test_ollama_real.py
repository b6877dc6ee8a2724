"""
The translators with what a real llama-server says: its bytes, recorded here and now.

The tiny model is given a template with thoughts and tool calls, and is forced into a call by the
server's own grammar: all it needs is a push to the five letters that a call begins with.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from attrs import evolve, frozen

from slotgate.surfaces.ollama.answers import Streaming, whole
from slotgate.surfaces.ollama.asked import Asked
from slotgate.surfaces.ollama.clocks import Watch
from slotgate.surfaces.ollama.embeddings import embed, refused
from slotgate.surfaces.ollama.errors import upstream_error
from slotgate.surfaces.ollama.models import found, listed, ps, show, tags
from slotgate.surfaces.ollama.requests import chat, generate
from slotgate.testing import models
from slotgate.testing.real import RealServerOptions

WATCH = Watch(1000.0, 1000.5, lambda: 1002.0)

TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ 'assistant: ' }}"
    "{% if message.reasoning_content %}"
    "{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}"
    "{{ message.content or '' }}{% for call in message.tool_calls or [] %}"
    """{{ '[XYZ]{"name": "' + call.function.name + '", "arguments": ' }}"""
    "{{ call.function.arguments | tojson }}{{ '}[/XYZ]' }}{% endfor %}{{ '\n' }}"
    "{% else %}{{ message.role + ': ' + (message.content or '') + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}"
    "{% if enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"
)

TOOL = {
    "type": "function",
    "function": {
        "name": "get",
        "description": "Gets it.",
        "parameters": {
            "type": "object",
            "properties": {"what": {"enum": ["tea"]}},
            "required": ["what"],
        },
    },
}

#: Each letter once, in this order, before anything else.
INTO_A_CALL = {
    "tool_choice": "required",
    "logit_bias": [[letter, 5000 - 100 * at] for at, letter in enumerate("[XYZ]")],
    "presence_penalty": 10000,
    "repeat_last_n": 10,
}


@frozen
class Server:
    url: str

    def ask(self, path: str, body: object = None) -> tuple[int, bytes]:
        """A 503 is the model still loading."""
        data = None if body is None else json.dumps(body).encode()
        while True:
            try:
                with urlopen(Request(self.url + path, data), timeout=20) as answer:
                    return answer.status, answer.read()
            except HTTPError as error:
                if error.code != 503:
                    return error.code, error.read()
            time.sleep(0.02)

    def good(self, path: str, body: object = None) -> bytes:
        status, answer = self.ask(path, body)
        assert status == 200, answer
        return answer

    def bytes_for(self, asked: Asked, more: dict[str, Any] | None = None) -> bytes:
        generation = asked.generation("tiny")
        return self.good(generation.path, {**generation.fields, **(more or {})})

    def streams(self, asked: Asked, more: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The lines of an answer that comes a few bytes at a time."""
        recorded = self.bytes_for(asked, more)
        streaming = Streaming(asked, WATCH)
        told = b"".join(streaming.feed(recorded[at : at + 7]) for at in range(0, len(recorded), 7))
        told += streaming.end()
        assert not streaming.failed, told
        return [json.loads(line) for line in told.splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path: Path = tmp_path_factory.mktemp("ollama") / "tiny.gguf"
    with mock.patch.object(models, "CHAT_TEMPLATE", TEMPLATE):
        models.write_tiny_model(path)
    options = RealServerOptions(path, alias="tiny", context=1024, threads=1)
    process = subprocess.Popen(
        options.command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=options.environment(),
    )
    try:
        assert process.stdout is not None
        yield Server(json.loads(process.stdout.readline())["url"])
    finally:
        process.kill()
        with process:
            pass


def chatted(**fields: object) -> Asked:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "think": False}
    options = {"num_predict": 4, "seed": 1, "temperature": 0}
    return chat(json.dumps({**body, "options": options, **fields}).encode())


def generated(**fields: object) -> Asked:
    options = {"num_predict": 4, "seed": 1, "temperature": 0}
    body = {"model": "tiny", "prompt": "hello", "options": options, "think": False}
    return generate(json.dumps({**body, **fields}).encode())


def text_of(lines: list[dict[str, Any]]) -> str:
    return "".join(line["message"]["content"] for line in lines)


def counted(last: dict[str, Any]) -> None:
    assert last["done"] is True
    for name in ("prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"):
        assert type(last[name]) is int
        assert last[name] > 0
    assert (last["total_duration"], last["load_duration"]) == (2_000_000_000, 500_000_000)


def test_a_chat_is_the_same_streamed_and_whole(server: Server) -> None:
    lines = server.streams(chatted())
    asked = chatted(stream=False)
    answer = json.loads(whole(asked, WATCH, server.bytes_for(asked)))
    assert text_of(lines) == answer["message"]["content"]
    assert len(text_of(lines)) == 4
    assert [line["done"] for line in lines] == [False] * 4 + [True]
    for last in (lines[-1], answer):
        counted(last)
        assert (last["eval_count"], last["done_reason"]) == (4, "length")
        # a byte is a token, and there is one before all
        assert last["prompt_eval_count"] == len("user: hello\nassistant: ") + 1


def test_a_stop_word_ends_an_answer(server: Server) -> None:
    said = text_of(server.streams(chatted()))
    options = {"num_predict": 4, "temperature": 0, "stop": [said[0]]}
    [last] = server.streams(chatted(options=options))
    assert last["done_reason"] == "stop"


def test_thoughts_are_told_apart(server: Server) -> None:
    *thoughts, last = server.streams(chatted(think=True))
    assert len("".join(line["message"]["thinking"] for line in thoughts)) == 4
    assert text_of([*thoughts, last]) == ""
    asked = chatted(think=True, stream=False)
    message = json.loads(whole(asked, WATCH, server.bytes_for(asked)))["message"]
    assert (message["content"], len(message["thinking"])) == ("", 4)
    [thought, *_] = server.streams(generated(think=True))
    assert (thought["response"], len(thought["thinking"])) == ("", 1)


def test_a_tool_call_comes_whole_and_its_result_goes_back(server: Server) -> None:
    options = {"num_predict": 300, "temperature": 0}
    asked = chatted(tools=[TOOL], options=options)
    called, last = server.streams(asked, INTO_A_CALL)
    [call] = called["message"]["tool_calls"]
    assert call["function"] == {"index": 0, "name": "get", "arguments": {"what": "tea"}}
    assert call["id"]
    assert last["done_reason"] == "stop"
    counted(last)

    once = evolve(asked, stream=False, body={**asked.body, "stream": False})
    answer = json.loads(whole(once, WATCH, server.bytes_for(once, INTO_A_CALL)))
    assert answer["message"]["tool_calls"][0]["function"] == call["function"]

    result = {"role": "tool", "tool_name": "get", "content": "Earl Grey"}
    said = [{"role": "user", "content": "hello"}, answer["message"], result]
    assert len(text_of(server.streams(chatted(messages=said, tools=[TOOL])))) == 4


def test_a_tool_call_that_the_limit_cuts_off_is_no_error(server: Server) -> None:
    asked = chatted(tools=[TOOL], options={"num_predict": 25, "temperature": 0})
    assert server.streams(asked, INTO_A_CALL)[-1]["done_reason"] == "length"


def test_a_format_forces_the_answer(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["b"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    options = {"num_predict": 200, "temperature": 0}
    assert json.loads(text_of(server.streams(chatted(format=schema, options=options)))) == {
        "a": "b"
    }
    raw = server.streams(generated(format=schema, options=options, raw=True))
    assert json.loads("".join(line["response"] for line in raw)) == {"a": "b"}


@pytest.mark.parametrize("more", [{"raw": True}, {"suffix": "}"}, {}])
def test_a_prompt_is_the_same_streamed_and_whole(server: Server, more: dict[str, Any]) -> None:
    lines = server.streams(generated(**more))
    asked = generated(stream=False, **more)
    answer = json.loads(whole(asked, WATCH, server.bytes_for(asked)))
    assert "".join(line["response"] for line in lines) == answer["response"]
    assert len(answer["response"]) == 4
    for last in (lines[-1], answer):
        counted(last)
        assert last["done_reason"] == "length"


@pytest.mark.parametrize("fields", [{"raw": True}, {}])
def test_log_probabilities_of_each_token(server: Server, fields: dict[str, Any]) -> None:
    *lines, _ = server.streams(generated(logprobs=True, top_logprobs=2, **fields))
    assert [line["logprobs"][0]["token"] for line in lines] == [line["response"] for line in lines]
    assert {len(line["logprobs"][0]["top_logprobs"]) for line in lines} == {2}


def test_the_server_takes_every_option_at_its_limits(server: Server) -> None:
    for value in (-(2**70), -1, 0, 2**70):
        names = ("num_keep", "top_k", "repeat_last_n", "seed")
        options = {**dict.fromkeys(names, value), "num_predict": 1, "num_ctx": value}
        assert len(text_of(server.streams(chatted(options=options)))) <= 1
    floats = ("temperature", "top_p", "min_p", "typical_p", "presence_penalty", "frequency_penalty")
    for limit in (-1e300, 0, 1e300):
        server.streams(chatted(options={**dict.fromkeys(floats, limit), "num_predict": 1}))


def test_refusals_keep_the_servers_words(server: Server) -> None:
    long = chatted(messages=[{"role": "user", "content": "x" * 5000}]).generation("tiny")
    error = upstream_error(*server.ask(long.path, long.fields))
    assert error.status == 400
    assert "exceeds the available context size" in error.message
    image = [{"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}]
    seen = chatted(messages=image).generation("tiny")
    assert (
        "image input is not supported"
        in upstream_error(*server.ask(seen.path, seen.fields)).message
    )
    wanted = {"model": "tiny", "input": embed(b'{"model": "tiny", "input": "x"}').texts}
    assert refused(*server.ask("/v1/embeddings", wanted)).status == 501


def test_the_model_is_listed_and_shown(server: Server) -> None:
    listing = listed(json.loads(server.good("/v1/models")))
    props = json.loads(server.good("/props"))
    assert found("tiny:latest", listing) == "tiny"
    [tag] = json.loads(tags(listing, {"tiny": props}))["models"]
    assert (tag["name"], tag["details"]["quantization_level"]) == ("tiny:latest", "F32")
    assert tag["size"] > 400_000
    assert tag["capabilities"] == ["completion", "tools", "thinking"]
    [running] = json.loads(ps(listing, 0.0, {"tiny": props}))["models"]
    assert running["context_length"] == 1024
    shown = json.loads(show("tiny", "tiny", listing["tiny"], props))
    assert shown["model_info"]["unknown.context_length"] == 1024
    assert shown["template"] == TEMPLATE


def test_the_python_client_takes_the_answers(server: Server) -> None:
    ollama = pytest.importorskip("ollama")
    for line in server.streams(chatted(think=True, logprobs=True)):
        ollama.ChatResponse.model_validate(line)
    for line in server.streams(generated(raw=True)):
        ollama.GenerateResponse.model_validate(line)
    asked = chatted(tools=[TOOL], options={"num_predict": 300, "temperature": 0})
    called, _ = server.streams(asked, INTO_A_CALL)
    [call] = ollama.ChatResponse.model_validate(called).message.tool_calls
    assert call.function.arguments == {"what": "tea"}
