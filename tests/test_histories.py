"""What counts as the same conversation, message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.histories import History, history_of
from slotgate.messages import MOST_MESSAGES


def said(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


def history(*messages: object, **fields: object) -> History:
    found = history_of({"messages": list(messages), **fields})
    assert found is not None
    return found


SYSTEM = said("system", "You are terse.")
ASKED = said("user", "How high is the mountain?")
ANSWERED = said("assistant", "2,962 m")
AND = said("user", "And the valley?")


def test_a_next_turn_extends_the_one_before_whatever_the_answer_was() -> None:
    first = history(SYSTEM, ASKED)
    assert history(SYSTEM, ASKED, ANSWERED, AND).extends(first.tip)
    assert history(SYSTEM, ASKED, said("assistant", "I do not know"), AND).extends(first.tip)
    assert history(SYSTEM, ASKED, AND).extends(first.tip)


def test_the_same_request_again_extends_itself() -> None:
    assert history(SYSTEM, ASKED).extends(history(SYSTEM, ASKED).tip)


@pytest.mark.parametrize(
    "other",
    [
        history(said("system", "You are kind."), ASKED, ANSWERED, AND),
        history(ASKED, ANSWERED, AND),
        history(SYSTEM, said("user", "How deep is the lake?"), ANSWERED, AND),
        history(SYSTEM, said("assistant", "How high is the mountain?"), AND),
        history(SYSTEM, said("user", "How high is the mountain?", name="Ann"), AND),
        history(SYSTEM, ASKED, ANSWERED, AND, tools=[{"type": "function"}]),
    ],
)
def test_what_was_said_otherwise_before_is_another_conversation(other: History) -> None:
    assert not other.extends(history(SYSTEM, ASKED).tip)


def test_an_older_answer_that_was_edited_makes_another_conversation() -> None:
    second = history(SYSTEM, ASKED, ANSWERED, AND)
    edited = history(SYSTEM, ASKED, said("assistant", "3 km"), AND, said("user", "So?"))
    assert not edited.extends(second.tip)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (said("user", "Hi there"), said("user", [{"type": "text", "text": "Hi there"}])),
        (
            said("user", "Hi there"),
            said("user", [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]),
        ),
        (
            said("user", [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]),
            said("user", "Hi"),
        ),
        (said("assistant", "Hi", reasoning_content="Hm."), said("assistant", "Hi")),
        (said("assistant", "<think>Hm.</think>\n\nHi"), said("assistant", "Hi")),
        (
            said(
                "assistant",
                [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "text", "text": "Hi"},
                ],
            ),
            said("assistant", "Hi"),
        ),
        (said("user", "Hi", type="message"), said("user", "Hi")),
        (said("assistant", "Hi", tool_calls=[], refusal=None), said("assistant", "Hi")),
        (
            said(
                "assistant",
                None,
                tool_calls=[{"id": "a", "function": {"name": "f", "arguments": '{"x": 1,"y":2}'}}],
            ),
            said(
                "assistant",
                "",
                tool_calls=[{"id": "b", "function": {"name": "f", "arguments": {"y": 2, "x": 1}}}],
            ),
        ),
    ],
)
def test_spellings_of_the_same(one: object, other: object) -> None:
    assert history(ASKED, one, AND).tip == history(ASKED, other, AND).tip


def test_images_tool_results_and_arguments_count() -> None:
    def image(data: str) -> object:
        return said("user", [{"type": "image_url", "image_url": {"url": f"data:,{data}"}}])

    def call(arguments: str) -> object:
        function = {"name": "f", "arguments": arguments}
        return said("assistant", None, tool_calls=[{"function": function}])

    assert history(image("a")).tip != history(image("b")).tip
    assert history(ASKED, call('{"x": 1}')).tip != history(ASKED, call('{"x": 2}')).tip
    results = [said("tool", text, tool_call_id="a") for text in ("sunny", "rain")]
    assert history(ASKED, results[0]).tip != history(ASKED, results[1]).tip


def test_every_surface_has_a_history() -> None:
    chat = history_of({"messages": [SYSTEM, ASKED]})
    anthropic = history_of({"system": "You are terse.", "messages": [ASKED]})
    responses = history_of({"instructions": "You are terse.", "input": "How high?"})
    for one in (chat, anthropic, responses):
        assert one is not None
        assert one.start
    items = [{"type": "message", "role": "user", "content": "How high?"}]
    spelled = history_of({"input": [{"role": "user", "content": "How high?"}]})
    assert spelled is not None
    assert history_of({"input": items}) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Once upon a time"},
        {"messages": []},
        {"messages": "text"} | {"messages": None},
        {"messages": [SYSTEM]},
        {},
    ],
)
def test_where_nobody_said_anything_there_is_no_conversation(fields: Any) -> None:
    assert history_of(fields) is None


def test_a_conversation_that_begins_with_nothing_has_no_start() -> None:
    assert history(ASKED).start == b""
    assert history(SYSTEM, ASKED).start == history(SYSTEM, AND).start != b""


def test_what_claude_code_writes_anew_each_time_is_left_out() -> None:
    def billed(cch: str) -> History:
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"
        return history(ASKED, system=[{"type": "text", "text": line + "\nBe brief."}])

    assert billed("1f00a").tip == billed("9bb21").tip


def test_no_request_takes_long() -> None:
    # each took seconds, or hours with a few megabytes
    assert history(ASKED, system="x-anthropic-billing-header:" * 40_000).size > 1_000_000
    assert history_of({"messages": [{}] * (MOST_MESSAGES + 1)}) is None
    parts = [{"type": "text", "text": ""}] * MOST_MESSAGES
    assert history_of({"messages": [said("user", parts)]}) is None


def test_it_is_quick() -> None:
    # a megabyte in a thousand messages: one pass, not one for each message
    long = [said("user", "x" * 1000) for _ in range(1000)]
    found = history(*long)
    assert len(found.digests) == 1000
    assert found.size > 1_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "text",
                    "type",
                    "tool_calls",
                    "function",
                    "arguments",
                    "messages",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"messages": st.lists(JSON, max_size=4), "tools": JSON}))
def test_nothing_that_json_can_say_raises(fields: dict[str, object]) -> None:
    found = history_of(json.loads(json.dumps(fields)))
    assert found is None or found.extends(found.tip)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.lists(st.text(max_size=5)))
def test_every_beginning_is_extended_and_nothing_else(texts: list[str], other: list[str]) -> None:
    whole = history(*[said("user", text) for text in texts])
    for count in range(1, len(texts) + 1):
        assert whole.extends(history(*[said("user", text) for text in texts[:count]]).tip)
    if other and other != texts[: len(other)]:
        assert not whole.extends(history(*[said("user", text) for text in other]).tip)
