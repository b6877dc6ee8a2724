"""Whatever comes in, in whatever pieces: an answer, or the declared error."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.surfaces.ollama import embeddings
from slotgate.surfaces.ollama.answers import Streaming, whole
from slotgate.surfaces.ollama.clocks import Watch, go_duration, rfc3339
from slotgate.surfaces.ollama.errors import OllamaError, upstream_error
from slotgate.surfaces.ollama.models import found, listed, ps, show, shown, tags
from slotgate.surfaces.ollama.pulls import pull
from slotgate.surfaces.ollama.requests import chat, generate

WATCH = Watch(0.0, 0.5, lambda: 1.0)
CHAT = chat(b'{"model": "m", "messages": [{}], "logprobs": true, "top_logprobs": 1}')
RAW = generate(b'{"model": "m", "prompt": "x", "raw": true}')

REQUESTED = (
    "model name messages role content images tool_calls tool_name tool_call_id thinking function"
    " arguments parameters id prompt suffix system template context raw stream format think tools"
    " options keep_alive truncate dimensions input logprobs top_logprobs num_predict top_k stop"
    " temperature seed repeat_last_n num_ctx use_mmap"
)
ANSWERED = (
    "choices delta message content reasoning_content tool_calls index id function name arguments"
    " finish_reason timings cache_n prompt_n prompt_ms predicted_n predicted_ms"
    " error stop stop_type logprobs token logprob bytes top_logprobs completion_probabilities data"
    " embedding usage prompt_tokens status value args meta aliases architecture input_modalities"
    " created size ftype n_params n_ctx chat_template chat_template_caps modalities"
    " default_generation_settings"
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["m", "m:latest", "5m", "AAAA", "json", "high", "{}", '{"a": 1}', "length"]),
)


def json_of(names: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        VALUES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(names.split()), inner, max_size=6),
        ),
        max_leaves=25,
    )


REQUESTS = st.dictionaries(st.sampled_from(REQUESTED.split()), json_of(REQUESTED), max_size=8)
ANSWERS = st.dictionaries(st.sampled_from(ANSWERED.split()), json_of(ANSWERED), max_size=6)
BODIES = st.one_of(st.binary(max_size=40), json_of(REQUESTED).map(json.dumps).map(str.encode))


T = TypeVar("T")


def outcome(call: Callable[..., T], *arguments: Any) -> T | OllamaError:
    try:
        return call(*arguments)
    except OllamaError as error:
        return error


@given(st.one_of(REQUESTS.map(json.dumps).map(str.encode), BODIES))
@settings(max_examples=150, deadline=None)
def test_a_request_is_read_or_refused(body: bytes) -> None:
    for read in (chat, generate):
        asked = outcome(read, body)
        if isinstance(asked, OllamaError):
            assert asked.status == 400
            assert list(json.loads(asked.body())) == ["error"]
        else:
            assert json.loads(asked.generation("m").raw)["model"] == "m"
    for ask in (embeddings.embed, embeddings.embeddings, pull, shown):
        other = outcome(ask, body)
        assert not isinstance(other, OllamaError) or other.status == 400


def test_a_request_of_any_depth_is_read_or_refused() -> None:
    for depth in range(100, 3000, 61):
        schema = '{"a":' * depth + "1" + "}" * depth
        body = f'{{"model": "m", "messages": [{{}}], "format": {schema}}}'.encode()
        sent = outcome(lambda body: chat(body).generation("m"), body)
        assert not isinstance(sent, OllamaError) or sent.status == 400


def test_tool_arguments_of_any_depth_are_told_or_an_error() -> None:
    for depth in range(100, 3000, 61):
        arguments = '{"a":' * depth + "1" + "}" * depth
        call = {"index": 0, "function": {"name": "f", "arguments": arguments}}
        choice = {"finish_reason": "tool_calls", "delta": {"tool_calls": [call]}}
        streaming = Streaming(CHAT, WATCH)
        streaming.feed(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        assert streaming.end()
        assert streaming.over


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(at)]


EVENTS = st.one_of(
    ANSWERS.map(lambda event: b"data: " + json.dumps(event).encode() + b"\n\n"),
    st.sampled_from([b":\n\n", b"data: [DONE]\n\n", b"event: x\r\n", b"\r\n", b"error: {}\n\n"]),
    st.binary(max_size=12),
    st.text(max_size=8).map(
        lambda text: (
            b"data: "
            + json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False).encode(
                "utf-8", "surrogatepass"
            )
            + b"\n\n"
        )
    ),
)


@given(st.lists(EVENTS, max_size=8).map(b"".join), st.lists(st.integers(0, 10_000), max_size=9))
@settings(max_examples=150, deadline=None)
def test_it_does_not_matter_where_a_stream_is_cut(data: bytes, cuts: list[int]) -> None:
    for asked in (CHAT, RAW):
        at_once, cut = Streaming(asked, WATCH), Streaming(asked, WATCH)
        told = at_once.feed(data) + at_once.end()
        assert b"".join(map(cut.feed, pieces(data, cuts))) + cut.end() == told
        lines = [json.loads(line) for line in told.decode().splitlines()]
        assert told.endswith(b"\n")
        # every stream ends, and says how
        assert [line for line in lines if "error" in line or line["done"]] == lines[-1:]


@given(st.one_of(ANSWERS.map(json.dumps).map(str.encode), BODIES), st.integers(400, 599))
@settings(max_examples=150, deadline=None)
def test_an_answer_is_translated_or_an_error(body: bytes, status: int) -> None:
    for asked in (CHAT, RAW):
        told = outcome(whole, asked, WATCH, body)
        if isinstance(told, OllamaError):
            assert told.status == 502
        else:
            assert json.loads(told)["done"] is True
    embed = embeddings.embed(b'{"model": "m", "input": "x"}')
    vectors = outcome(embeddings.answer, embed, WATCH, body)
    assert not isinstance(vectors, OllamaError) or vectors.status in (500, 502)
    assert upstream_error(status, body).message


@given(st.lists(ANSWERS, max_size=3), ANSWERS)
@settings(max_examples=100, deadline=None)
def test_any_listing_is_listed(models: list[dict[str, Any]], props: dict[str, Any]) -> None:
    listing = listed({"data": [{"id": f"m{n}", **model} for n, model in enumerate(models)]})
    json.loads(tags(listing, dict.fromkeys(listing, props)))
    json.loads(ps(listing, 0.0, dict.fromkeys(listing, props)))
    for name, told in listing.items():
        assert found(name, listing) == name
        json.loads(show(name, name, told, props))


@given(st.text(max_size=80), st.floats(allow_nan=False, allow_infinity=False))
def test_times_of_any_kind(text: str, seconds: float) -> None:
    with suppress(ValueError):
        go_duration(text)
    assert rfc3339(seconds).endswith("Z")
