"""Embeddings, pulls, errors and times of the Ollama surface."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from slotgate.surfaces.ollama import embeddings
from slotgate.surfaces.ollama.clocks import Watch, rfc3339
from slotgate.surfaces.ollama.errors import (
    OllamaError,
    model_not_found,
    not_supported,
    upstream_error,
)
from slotgate.surfaces.ollama.pulls import pull

WATCH = Watch(10.0, 10.5, lambda: 12.0)


def embed(**fields: object) -> embeddings.Embed:
    return embeddings.embed(json.dumps({"model": "m:latest", **fields}).encode())


def vectors(*said: object, **more: object) -> bytes:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(said)]
    return json.dumps({"data": data[::-1], "usage": {"prompt_tokens": 7}, **more}).encode()


# embeddings


def test_texts_are_embedded_in_one_request() -> None:
    assert embed(input="a").texts == ["a"]
    assert embed(input=["a", "b"]).texts == ["a", "b"]


def test_embeddings_come_in_the_order_of_the_texts_and_with_length_one() -> None:
    said = embeddings.answer(embed(input=["a", "b"]), WATCH, vectors([3, 4], [0, 0.5]))
    assert json.loads(said) == {
        "model": "m:latest",
        "embeddings": [[0.6, 0.8], [0.0, 1.0]],
        "total_duration": 2_000_000_000,
        "load_duration": 500_000_000,
        "prompt_eval_count": 7,
    }


def test_fewer_dimensions_are_as_long() -> None:
    asked = embed(input="a", dimensions=2)
    [vector] = json.loads(embeddings.answer(asked, WATCH, vectors([3, 4, 12])))["embeddings"]
    assert vector == [0.6, 0.8]
    assert math.hypot(*vector) == pytest.approx(1)


def test_an_embedding_of_nothing_stays_nothing() -> None:
    said = json.loads(embeddings.answer(embed(input="a"), WATCH, vectors([0, 0])))
    assert said["embeddings"] == [[0.0, 0.0]]


def test_the_older_endpoint_has_one_text_and_the_servers_numbers() -> None:
    asked = embeddings.embeddings(b'{"model": "m", "prompt": "a"}')
    assert asked.texts == ["a"]
    assert json.loads(embeddings.answer(asked, WATCH, vectors([3, 4]))) == {"embedding": [3, 4]}


def test_without_a_text_there_is_nothing_to_ask_the_server() -> None:
    nothings: list[object] = ["", [], None]
    for nothing in nothings:
        asked = embed(input=nothing)
        assert not asked.texts
        assert json.loads(embeddings.without_texts(asked)) == {
            "model": "m:latest",
            "embeddings": [],
        }
    old = embeddings.embeddings(b'{"model": "m"}')
    assert (old.texts, json.loads(embeddings.without_texts(old))) == ([], {"embedding": []})


@pytest.mark.parametrize("said", [1, {}, [1], [["a"]], [None], True])
def test_only_texts_can_be_embedded(said: object) -> None:
    with pytest.raises(OllamaError, match="invalid input type") as caught:
        embed(input=said)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "fields", [{"truncate": 1}, {"dimensions": "2"}, {"options": {"num_ctx": "x"}}]
)
def test_other_fields_have_their_types(fields: dict[str, Any]) -> None:
    with pytest.raises(OllamaError, match="must be of type") as caught:
        embed(input="a", **fields)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", vectors(), vectors([1], [2]), vectors([]), vectors([1, None]), vectors("x")],
)
def test_one_embedding_for_each_text_or_none(body: bytes) -> None:
    with pytest.raises(OllamaError) as caught:
        embeddings.answer(embed(input="a"), WATCH, body)
    assert caught.value.status in (500, 502)


def test_a_text_that_is_too_long_is_the_clients_fault() -> None:
    # b11549
    message = "input (1001 tokens) is too large to process. increase the physical batch size"
    error = embeddings.refused(500, json.dumps({"error": {"message": message}}).encode())
    assert (error.status, error.message) == (400, "the input length exceeds the context length")
    other = embeddings.refused(501, b'{"error": {"message": "no embeddings here"}}')
    assert (other.status, other.message) == (501, "no embeddings here")


# pulls


def test_a_model_that_is_there_is_pulled_at_once() -> None:
    steps = [json.loads(line) for line in pull(b'{"model": "m"}').done("m", 5).splitlines()]
    assert steps[0] == {"status": "pulling manifest"}
    assert (steps[1]["total"], steps[1]["completed"]) == (5, 5)
    assert steps[-1] == {"status": "success"}
    whole = pull(b'{"name": "m", "stream": false}').done("m", 5)
    assert json.loads(whole) == {"status": "success"}


def test_a_model_that_is_not_there_can_not_be_pulled() -> None:
    error = pull(b'{"model": "m"}').missing()
    assert error.status == 404
    assert error.message.startswith("model 'm' not found; it can not be pulled")


def test_a_pull_needs_a_model() -> None:
    for body, why in ((b"", "missing request body"), (b"{}", "model is required")):
        with pytest.raises(OllamaError, match=why):
            pull(body)


# errors


def test_an_error_is_one_text() -> None:
    error = model_not_found("m")
    assert (error.status, json.loads(error.body())) == (404, {"error": "model 'm' not found"})
    assert not_supported("/api/create").status == 501
    assert "/api/create" in not_supported("/api/create").message


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (
            400,
            b'{"error":{"code":400,"message":"exceeds the context","type":"x"}}',
            (400, "exceeds the context"),
        ),
        (503, b'{"error":{"code":503,"message":"Loading model"}}', (503, "Loading model")),
        (401, b'{"error":"Invalid API Key"}', (401, "Invalid API Key")),
        # a router's
        (400, b'{"error":{"message":"model \'x\' not found"}}', (404, "model 'x' not found")),
        (
            500,
            b"proxy error: Failed to read connection",
            (500, "proxy error: Failed to read connection"),
        ),
        (502, b"", (502, "the server answered 502 and no reason")),
        (500, b'{"error":{}}', (500, '{"error":{}}')),
        (500, b'{"error":{"code":7}}', (500, '{"code": 7}')),
        (500, b"\xff", (500, "\ufffd")),
        (500, b"[" * 9999, (500, "[" * 500)),
    ],
)
def test_what_the_server_refuses_keeps_its_words(
    status: int, body: bytes, told: tuple[int, str]
) -> None:
    error = upstream_error(status, body)
    assert (error.status, error.message) == told


# times


def test_a_time_has_nanoseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000000000Z"
    assert rfc3339(1_700_000_000.25) == "2023-11-14T22:13:20.250000000Z"
    assert rfc3339(1_700_000_000.9999999999) == "2023-11-14T22:13:21.000000000Z"
    assert rfc3339(1e300).startswith("9999-12-31T23:59:59")
