"""Token counts at the ends of a response."""

from __future__ import annotations

import json

import pytest

from slotgate.llama.wire import Usage
from slotgate.surfaces.usage import HEAD_BYTES, TAIL_BYTES, Ends

TIMINGS = {"cache_n": 20, "prompt_n": 1, "prompt_ms": 1.4, "predicted_n": 3, "predicted_ms": 1.3}


def ends_of(*chunks: bytes) -> Ends:
    ends = Ends()
    for chunk in chunks:
        ends(chunk)
    return ends


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_timings_tell_what_was_read_reused_and_generated() -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 21}, "timings": TIMINGS})
    assert ends_of(body.encode()).usage() == Usage(reused=20, read=1, generated=3)


def test_the_last_timings_of_a_stream_count() -> None:
    early = {"choices": [], "timings": {**TIMINGS, "predicted_n": 1}}
    stream = sse(early, {"choices": [], "timings": TIMINGS}) + b"data: [DONE]\n\n"
    assert ends_of(stream).usage() == Usage(20, 1, 3)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_it_does_not_matter_how_the_body_is_cut_into_chunks(size: int) -> None:
    body = sse({"choices": [{"delta": {"content": "é" * 9000}}]}) * 9 + sse({"timings": TIMINGS})
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    assert ends_of(*chunks).usage() == Usage(20, 1, 3)


def test_a_model_that_writes_about_timings_is_not_believed() -> None:
    prose = '{"timings": {"cache_n": 9, "prompt_n": 9}}'
    assert ends_of(sse({"choices": [{"delta": {"content": prose}}]})).usage() is None


def test_an_anthropic_stream_tells_it_at_both_ends() -> None:
    start = {
        "message": {
            "usage": {"cache_read_input_tokens": 1000, "input_tokens": 20, "output_tokens": 0}
        }
    }
    middle = {"delta": {"text": "word " * 50}}
    stop = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3000}}
    chunks = [sse(start), *[sse(middle)] * 3000, sse(stop)]
    assert sum(map(len, chunks)) > HEAD_BYTES + 4 * TAIL_BYTES
    assert ends_of(*chunks).usage() == Usage(reused=1000, read=20, generated=3000)


def test_usage_with_cached_tokens_is_enough_where_there_are_no_timings() -> None:
    responses = {
        "usage": {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens": 2,
        }
    }
    assert ends_of(json.dumps(responses).encode()).usage() == Usage(20, 10, 2)


@pytest.mark.parametrize(
    "body", [b"", b"junk", b'{"timings": {', b'{"timings": {"cache_n": "9"}}', b'{"usage": {}}']
)
def test_a_body_without_counts_tells_nothing(body: bytes) -> None:
    assert ends_of(body).usage() is None


def test_a_stream_that_ends_in_an_error_has_failed() -> None:
    content = sse({"choices": [{"delta": {"content": 'an "error": {} in prose'}}]})
    assert ends_of(content, sse({"error": {"message": "no", "code": 500}})).failed()
    assert not ends_of(content).failed()


def test_what_is_kept_of_a_long_body_is_bounded() -> None:
    ends = ends_of(*[b"x" * 1000] * 10_000)
    assert sum(map(len, ends._chunks)) <= 5 * TAIL_BYTES
