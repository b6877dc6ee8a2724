"""llama-server's answers in Ollama's words, whole and in a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotgate.surfaces.ollama.answers import Streaming, whole, without_prompt
from slotgate.surfaces.ollama.asked import Asked
from slotgate.surfaces.ollama.clocks import Watch
from slotgate.surfaces.ollama.errors import OllamaError
from slotgate.surfaces.ollama.requests import chat, generate

TIMINGS = {"cache_n": 20, "prompt_n": 1, "prompt_ms": 1.5, "predicted_n": 3, "predicted_ms": 30.25}
BEGAN = 1_700_000_000.0
WATCH = Watch(BEGAN, BEGAN + 0.25, lambda: BEGAN + 2)
CREATED = "2023-11-14T22:13:22.000000000Z"
LAST = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 2_000_000_000,
    "load_duration": 250_000_000,
    "prompt_eval_count": 21,
    "prompt_eval_duration": 1_500_000,
    "eval_count": 3,
    "eval_duration": 30_250_000,
}
CHAT = chat(b'{"model": "m:latest", "messages": [{"role": "user", "content": "x"}]}')
RAW = generate(b'{"model": "m", "prompt": "x", "raw": true}')
PROMPT = generate(b'{"model": "m", "prompt": "x"}')


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def delta(finish: str | None = None, **fields: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": finish, "delta": fields}]}


def end(finish: str = "stop") -> dict[str, Any]:
    return {**delta(finish), "timings": TIMINGS}


def lines(data: bytes) -> list[dict[str, Any]]:
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def streamed(asked: Asked, data: bytes) -> list[dict[str, Any]]:
    streaming = Streaming(asked, WATCH)
    return lines(streaming.feed(data) + streaming.end())


def line(content: str = "", **fields: object) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields}
    return {"model": "m:latest", "created_at": CREATED, "message": message, "done": False}


# chat


def test_a_chat_streams_its_tokens_and_then_its_counts() -> None:
    opening = delta(role="assistant", content=None)
    said = sse(opening, delta(content="Hel"), delta(content="lo"), end()) + b"data: [DONE]\n\n"
    assert streamed(CHAT, said) == [line("Hel"), line("lo"), line() | LAST]


def test_the_last_line_comes_with_the_counts_and_not_with_the_end_of_the_connection() -> None:
    streaming = Streaming(CHAT, WATCH)
    assert lines(streaming.feed(sse(end())))[-1]["done"] is True
    assert streaming.over
    assert streaming.feed(b"data: [DONE]\n\n") + streaming.end() == b""


def test_counts_may_come_after_the_reason() -> None:
    usage = {"choices": [], "usage": {}, "timings": TIMINGS}
    assert streamed(CHAT, sse(delta(content="x"), delta("length"), usage))[-1] == line() | LAST | {
        "done_reason": "length"
    }


def test_an_answer_without_counts_is_one_all_the_same() -> None:
    said = sse(delta(content="x"), delta("stop")) + b"data: [DONE]\n\n"
    last = streamed(CHAT, said)[-1]
    assert (last["done"], last["eval_count"]) == (True, 0)
    assert streamed(CHAT, sse(delta("stop")))[-1]["done"] is True


def test_timings_of_each_token_are_no_end() -> None:
    each = {**delta(content="x"), "timings": TIMINGS}
    assert [one["done"] for one in streamed(CHAT, sse(each, each, end()))] == [False, False, True]


def test_thoughts_are_told_apart_from_the_answer() -> None:
    said = sse(delta(reasoning_content="hm"), delta(content="Yes"), end())
    assert streamed(CHAT, said) == [line(thinking="hm"), line("Yes"), line() | LAST]


def test_tool_calls_come_whole_and_once() -> None:
    def part(index: int, arguments: str, **more: object) -> dict[str, Any]:
        name = {"name": more.pop("name")} if "name" in more else {}
        function = {**name, "arguments": arguments}
        return delta(tool_calls=[{"index": index, "function": function, **more}])

    said = sse(
        part(0, "", id="c0", type="function", name="get"),
        part(0, '{"city": "K'),
        part(1, '{"n":', id="c1", name="put"),
        part(0, 'öln"}'),
        part(1, " [1]}"),
        end("tool_calls"),
    )
    first = {"index": 0, "name": "get", "arguments": {"city": "Köln"}}
    second = {"index": 1, "name": "put", "arguments": {"n": [1]}}
    calls = [{"id": "c0", "function": first}, {"id": "c1", "function": second}]
    assert streamed(CHAT, said) == [line(tool_calls=calls), line() | LAST]


def test_a_tool_call_without_arguments_has_an_empty_object() -> None:
    call = {"index": 0, "function": {"name": "now"}}
    first, _ = streamed(CHAT, sse(delta(tool_calls=[call]), end("tool_calls")))
    assert first["message"]["tool_calls"] == [
        {"function": {"index": 0, "name": "now", "arguments": {}}}
    ]


@pytest.mark.parametrize("arguments", ["{", "[]", '{"a": NaN}', '{"a": 1e999}', "[" * 9000])
def test_arguments_that_are_no_object_are_an_error(arguments: str) -> None:
    call = {"index": 0, "function": {"name": "get", "arguments": arguments}}
    [error] = streamed(CHAT, sse(delta(tool_calls=[call]), end("tool_calls")))
    assert error == {"error": "the arguments of the tool call 'get' are no JSON object"}


def test_a_tool_call_that_the_limit_cut_off_is_left_out() -> None:
    call = {"index": 0, "function": {"name": "get", "arguments": '{"a'}}
    [last] = streamed(CHAT, sse(delta(tool_calls=[call]), end("length")))
    assert (last["done_reason"], last["message"]) == (
        "length",
        {"role": "assistant", "content": ""},
    )


def test_log_probabilities_have_alternatives_only_where_they_were_asked_for() -> None:
    token = {"token": "H", "logprob": -0.5, "bytes": [72], "id": 3}
    said = delta(content="H")
    said["choices"][0]["logprobs"] = {"content": [{**token, "top_logprobs": [token]}, {"id": 1}]}
    plain = {"token": "H", "logprob": -0.5, "bytes": [72]}
    body = b'{"model": "m", "messages": [{}], "logprobs": true, "top_logprobs": %d}'
    assert streamed(chat(body % 0), sse(said, end()))[0]["logprobs"] == [plain]
    assert streamed(chat(body % 1), sse(said, end()))[0]["logprobs"] == [
        {**plain, "top_logprobs": [plain]}
    ]


def test_no_line_end_of_unicode_stands_in_a_line() -> None:
    streaming = Streaming(CHAT, WATCH)
    text = "a\u2028b\u0085c\u2029d\x0be\x1cf"
    told = streaming.feed(sse(delta(content=text)))
    # what httpx does, which the Python client reads with
    [only] = told.decode().splitlines()
    assert json.loads(only)["message"]["content"] == text


# a sign of life


def test_a_comment_keeps_the_client_waiting() -> None:
    streaming = Streaming(CHAT, WATCH)
    assert lines(streaming.feed(b":\n\n")) == [line()]
    assert lines(streaming.feed(b": ping\n\n")) == [line()]


# completions


def test_a_completion_streams_its_tokens() -> None:
    said = sse(
        {"content": "Hel", "stop": False},
        {"content": "lo", "stop": False},
        {"content": "", "stop": True, "stop_type": "limit", "timings": TIMINGS, "prompt": "x"},
    )
    head = {"model": "m", "created_at": CREATED}
    assert streamed(RAW, said) == [
        {**head, "response": "Hel", "done": False},
        {**head, "response": "lo", "done": False},
        {**head, "response": "", **LAST, "done_reason": "length"},
    ]


def test_a_templated_prompt_is_answered_in_the_words_of_generate() -> None:
    said = sse(delta(reasoning_content="hm"), delta(content="Yes"), end())
    thought, text, last = streamed(PROMPT, said)
    assert (thought["response"], thought["thinking"], text["response"]) == ("", "hm", "Yes")
    assert (last["response"], last["done_reason"]) == ("", "stop")
    # nobody has counted which tokens it was
    assert "context" not in last


# errors


def test_an_error_in_the_middle_is_the_last_line() -> None:
    error = {"error": {"code": 500, "message": "the GPU is gone", "type": "server_error"}}
    said = sse(delta(content="x"), error, delta(content="y"), end())
    assert streamed(CHAT, said) == [line("x"), {"error": "the GPU is gone"}]
    old = b'error: {"code":500,"message":"context shift is disabled"}\n\n'
    assert streamed(CHAT, old) == [{"error": "context shift is disabled"}]


def test_a_stream_that_breaks_off_is_an_error() -> None:
    for said in (b"", sse(delta(content="x")), sse(delta(content="x"), end())[:-9]):
        streaming = Streaming(CHAT, WATCH)
        streaming.feed(said)
        assert lines(streaming.end("no more bytes")) == [{"error": "no more bytes"}]
        assert streaming.failed


def test_a_stream_is_not_ended_by_its_end_mark_alone() -> None:
    assert streamed(CHAT, b"data: [DONE]\n\n") == [{"error": "the server's answer broke off"}]


def test_what_is_no_json_is_an_error() -> None:
    for said in (b"data: proxy error\n\n", b"data: [1]\n\n", b"data: " + b"[" * 99999 + b"\n\n"):
        assert streamed(CHAT, said) == [{"error": "the server's answer is not JSON"}]


def test_lines_may_end_as_windows_ends_them_and_data_may_have_several() -> None:
    split = b'data: {"choices": [{"delta":\r\ndata: {"content": "x"}}]}\r\n\r\n'
    assert streamed(CHAT, split + sse(end()))[0] == line("x")


# whole


def test_a_whole_chat() -> None:
    call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": [call]}
    choice = {"finish_reason": "tool_calls", "index": 0, "message": message}
    answer = whole(CHAT, WATCH, json.dumps({"choices": [choice], "timings": TIMINGS}).encode())
    function = {"index": 0, "name": "f", "arguments": {"a": 1}}
    calls = [{"id": "c", "function": function}]
    assert json.loads(answer) == line("x", thinking="hm", tool_calls=calls) | LAST


def test_a_whole_completion() -> None:
    said = {"content": "Hello", "stop": True, "stop_type": "eos", "timings": TIMINGS}
    head = {"model": "m", "created_at": CREATED, "response": "Hello"}
    assert json.loads(whole(RAW, WATCH, json.dumps(said).encode())) == {**head, **LAST}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"error": {}}', b"\xff"])
def test_a_whole_answer_that_is_none_is_a_bad_gateway(body: bytes) -> None:
    with pytest.raises(OllamaError) as caught:
        whole(CHAT, WATCH, body)
    assert caught.value.status == 502


def test_loading_and_unloading_are_answered_by_themselves() -> None:
    asked = chat(b'{"model": "m:latest", "messages": []}')
    assert json.loads(without_prompt(asked, WATCH)) == line() | {
        "done": True,
        "done_reason": "load",
    }
    gone = generate(b'{"model": "m", "keep_alive": 0}')
    assert json.loads(without_prompt(gone, WATCH)) == {
        "model": "m",
        "created_at": CREATED,
        "response": "",
        "done": True,
        "done_reason": "unload",
    }


def test_a_clock_that_was_set_back_makes_no_negative_durations() -> None:
    watch = Watch(BEGAN, BEGAN - 5, lambda: BEGAN - 9)
    last = json.loads(whole(RAW, watch, b'{"stop": true, "timings": {"prompt_n": -3}}'))
    durations = ("total_duration", "load_duration", "prompt_eval_count")
    assert [last[name] for name in durations] == [0, 0, 0]
