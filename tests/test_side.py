"""
Which requests are beside a conversation.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import Recorded, recorded
from twisted.web.http_headers import Headers

from slotgate.side import side_request

CHAT = "/v1/chat/completions"


def reason(body: dict[str, Any], headers: dict[str, str] | None = None, path: str = CHAT) -> str:
    sent = Headers({name: [value] for name, value in (headers or {}).items()})
    return side_request(sent, path, body)


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


@pytest.mark.parametrize("request_", recorded())
@pytest.mark.parametrize("spelling", ["", "lower", "upper"])
def test_a_request_of_a_client_is_beside_its_conversation_or_not(
    request_: Recorded, spelling: str
) -> None:
    assert side_request(request_.sent(spelling), request_.path, request_.body) == request_.side


@pytest.mark.parametrize("request_", recorded())
def test_a_mark_of_open_webui_counts_more_than_what_a_request_looks_like(
    request_: Recorded,
) -> None:
    headers = request_.sent()
    headers.setRawHeaders("X-OpenWebUI-Task", ["tags_generation"])
    assert side_request(headers, request_.path, request_.body) == "openwebui task"
    headers.setRawHeaders("X-OpenWebUI-Task", [""])
    assert side_request(headers, request_.path, request_.body) == ""


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict"]
)
def test_a_probe_wants_a_token_at_most(name: str) -> None:
    assert [reason(asked("Hi", **{name: limit})) for limit in (0, 1, 2, -1)] == [
        "probe",
        "probe",
        "",
        "",
    ]
    assert reason(asked("Hi", **{name: True})) == ""
    assert reason(asked("Hi", options={name: 1}), path="/api/chat") == "probe"


def test_a_conversation_a_long_prompt_and_tools_are_no_probe() -> None:
    assert reason({"prompt": "Hi", "n_predict": 1}, path="/completion") == "probe"
    assert reason({"prompt": "word " * 100, "n_predict": 0}, path="/completion") == ""
    assert reason(asked("Hi", max_tokens=1, tools=[{}])) == ""
    messages = [{"role": role, "content": "Hi"} for role in ("user", "assistant", "user")]
    assert reason({"messages": messages, "max_tokens": 1}) == ""
    messages = [{"role": "system", "content": "word " * 100}, {"role": "user", "content": "Hi"}]
    assert reason({"messages": messages, "max_tokens": 1}) == ""


def test_a_sub_agent_in_the_background_has_a_session_of_its_own() -> None:
    background = {"x-app": "cli-bg", "x-claude-code-session-id": "s"}
    assert reason(asked("Hi"), background, "/v1/messages") == "claude-code background"
    agent = {"x-claude-code-agent-id": "a"}
    assert reason(asked("Hi"), background | agent, "/v1/messages") == ""


TITLES = {
    "role": "system",
    "content": "You are a title generator. You output ONLY a thread title. Nothing else.",
}


def test_an_agent_with_the_words_of_a_title_prompt_is_none() -> None:
    user, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
    assert reason({"messages": [TITLES, user, user]}) == "title"
    assert reason({"messages": [TITLES, user], "tools": [{}]}) == ""
    assert reason({"messages": [TITLES, user, answer, user]}) == ""
    assert reason({"messages": [TITLES, user, user, user]}) == ""
    assert reason(asked("What is wrong with my prompt? You are a title generator.")) == ""


TASK = "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history"


def test_a_task_of_open_webui_has_all_of_its_marks() -> None:
    assert reason(asked(TASK)) == "tags"
    assert reason(asked(TASK, stream=False)) == "tags"
    assert reason(asked(TASK, stream=True)) == ""
    assert reason(asked(f"Please: {TASK}")) == ""
    assert reason(asked("### Task:\nWrite a poem")) == ""
    system = {"role": "system", "content": "You are."}
    message = {"role": "user", "content": TASK}
    assert reason({"messages": [system, message]}) == ""
    assert reason({"messages": [message, {"role": "assistant", "content": "a"}, message]}) == ""


def test_ollama_streams_where_nothing_is_said() -> None:
    assert reason(asked(TASK), path="/api/chat") == ""
    assert reason(asked(TASK, stream=False), path="/api/chat") == "tags"


def test_a_text_in_parts_is_read_too() -> None:
    content = [{"type": "image_url"}, {"type": "text", "text": TASK}]
    assert reason({"messages": [{"role": "user", "content": content}]}) == "tags"


@pytest.mark.parametrize(
    "prompt",
    [
        "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "<|repo_name|>r\n<|file_sep|>a.py\n<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
        "<fim_prefix>a<fim_suffix>b<fim_middle>",
        "<PRE> a <SUF>b <MID>",
        "[SUFFIX]b[PREFIX]a",
        "<\uff5cfim\u2581begin\uff5c>a<\uff5cfim\u2581hole\uff5c>b<\uff5cfim\u2581end\uff5c>",
    ],
)
def test_a_prompt_that_is_to_be_filled_in_is_an_autocompletion(prompt: str) -> None:
    assert reason({"prompt": prompt}, path="/v1/completions") == "autocomplete"
    inside = f"What does this mean, please?\n{prompt}\nI found it in the documentation."
    assert reason({"prompt": inside}, path="/v1/completions") == ""
    assert reason({"prompt": inside, "raw": True}, path="/api/generate") == "autocomplete"
    assert reason(asked(prompt)) == ""


def test_an_empty_suffix_and_a_suffix_of_a_chat_mean_nothing() -> None:
    assert reason({"prompt": "a", "suffix": ""}, path="/v1/completions") == ""
    assert reason(asked("a", suffix="b")) == ""


def test_a_turn_of_claude_code_marked_main_is_one_whatever_it_says() -> None:
    marked = {"x-claude-code-request-class": "main"}
    assert reason(asked("quota", max_tokens=1), marked, "/v1/messages") == ""
    assert reason(asked("quota", max_tokens=1), {}, "/v1/messages") == "probe"


JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["text", "a"]), inner),
    max_leaves=6,
)
MESSAGE = JSON | st.dictionaries(
    st.sampled_from(["role", "content", "type"]),
    st.sampled_from(["user", "system", "assistant", TASK]) | JSON,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "input",
        "prompt",
        "system",
        "instructions",
        "tools",
        "stream",
        "suffix",
        "raw",
        "max_tokens",
        "n_predict",
        "options",
        "client_metadata",
        "prompt_cache_key",
    ]
)
MARKS = st.sampled_from(
    [
        "x-openwebui-task",
        "x-claude-code-request-class",
        "x-claude-code-agent-id",
        "x-app",
        "x-openai-subagent",
        "x-codex-turn-metadata",
        "session-id",
        "thread-id",
    ]
)
VALUES = (
    st.sampled_from([b"main", b"compaction", b'{"request_kind": []}', b"[" * 9999]) | st.binary()
)


REASONS = {one.values[0].side for one in recorded()} | {""}


@settings(deadline=None)
@given(
    st.dictionaries(MARKS, VALUES),
    st.sampled_from([CHAT, "/infill", "/v1/messages", "/v1/responses", "/api/generate", ""]),
    st.dictionaries(FIELDS, JSON | st.lists(MESSAGE)),
)
def test_whatever_is_sent_is_a_main_request_or_has_a_reason_for_the_log(
    marks: dict[str, bytes], path: str, fields: dict[str, object]
) -> None:
    headers = Headers()
    for name, value in marks.items():
        headers.addRawHeader(name.encode(), value)
    assert side_request(headers, path, fields) in REASONS
