"""What Ollama's requests become for llama-server, and which are refused."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from slotgate.surfaces.ollama.asked import Asked, Purpose
from slotgate.surfaces.ollama.errors import OllamaError
from slotgate.surfaces.ollama.requests import chat, generate

HELLO = [{"role": "user", "content": "hello"}]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def chatted(**fields: object) -> Asked:
    return chat(json.dumps({"model": "m", "messages": HELLO, **fields}).encode())


def generated(**fields: object) -> Asked:
    return generate(json.dumps({"model": "m", "prompt": "hello", **fields}).encode())


def sent_by(asked: Asked) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = json.loads(asked.generation("m").raw)["messages"]
    return sent


def refusal(**fields: object) -> str:
    with pytest.raises(OllamaError) as caught:
        chatted(**fields)
    assert caught.value.status == 400
    return str(json.loads(caught.value.body())["error"])


# chat


def test_a_chat_streams_unless_it_says_otherwise() -> None:
    asked = chatted()
    assert (asked.path, asked.body) == (
        "/v1/chat/completions",
        {"messages": HELLO, "stream": True},
    )
    assert (asked.chats, asked.stream, asked.purpose) == (True, True, Purpose.GENERATE)
    assert chatted(stream=None).stream is True
    assert chatted(stream=False).body["stream"] is False


def test_the_model_goes_by_the_name_that_was_found_for_it() -> None:
    asked = chat(b'{"model": "llama3:latest", "messages": [{"role": "system", "content": "Be."}]}')
    generation = asked.generation("llama3")
    assert json.loads(generation.raw) == generation.fields
    assert (generation.model, generation.fields["model"]) == ("llama3", "llama3")
    assert (generation.path, generation.system_prompt) == ("/v1/chat/completions", "Be.")
    assert asked.model == "llama3:latest"


def test_what_names_a_session_is_still_there_to_be_found() -> None:
    assert chatted(session_id="s").fields["session_id"] == "s"
    assert "session_id" not in chatted(session_id="s").body


def test_roles_are_read_in_any_case_and_content_may_be_missing() -> None:
    assert sent_by(chatted(messages=[{"role": "User"}])) == [{"role": "user", "content": ""}]


def test_images_become_parts_typed_by_their_first_bytes() -> None:
    kinds = {
        PNG: "image/png",
        b"\xff\xd8\xff\xe0": "image/jpeg",
        b"GIF89a": "image/gif",
        b"RIFF\0\0\0\0WEBP": "image/webp",
        b"whatever": "image/jpeg",
    }
    images = [base64.b64encode(data).decode() for data in kinds]
    message = {"role": "user", "content": "what?", "images": images}
    [sent] = sent_by(chatted(messages=[message]))
    text, *parts = sent["content"]
    assert text == {"type": "text", "text": "what?"}
    assert [part["image_url"]["url"] for part in parts] == [
        f"data:{kind};base64,{image}" for kind, image in zip(kinds.values(), images, strict=True)
    ]


def test_sound_is_sent_as_sound() -> None:
    image = base64.b64encode(b"RIFF\0\0\0\0WAVEfmt ").decode()
    [sent] = sent_by(chatted(messages=[{"role": "user", "images": [image]}]))
    audio = {"data": image, "format": "wav"}
    assert sent["content"] == [{"type": "input_audio", "input_audio": audio}]


def test_tool_calls_have_their_arguments_as_json_and_results_their_name() -> None:
    function = {"index": 0, "name": "get", "arguments": {"city": "Köln"}}
    said: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "content": "rain", "tool_name": "get", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Rain.", "thinking": "hm"},
    ]
    call, result, answer = sent_by(chatted(messages=said))
    assert call["content"] == ""
    [sent] = call["tool_calls"]
    assert json.loads(sent["function"].pop("arguments")) == {"city": "Köln"}
    assert sent == {"type": "function", "id": "c1", "function": {"name": "get"}}
    assert result == {"role": "tool", "content": "rain", "name": "get", "tool_call_id": "c1"}
    assert answer == {"role": "assistant", "content": "Rain.", "reasoning_content": "hm"}


def test_tools_are_openais_with_or_without_a_type() -> None:
    function = {"name": "get", "parameters": {"type": "object", "properties": {}}}
    tools = [{"function": function}, {"type": "function", "function": function}]
    assert chatted(tools=tools).body["tools"] == [tools[1], tools[1]]
    assert "tools" not in chatted(tools=[]).body


def test_a_format_is_json_or_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert chatted(format="json").body["response_format"] == {"type": "json_object"}
    assert chatted(format=schema).body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "schema", "schema": schema},
    }
    for nothing in ("", None):
        assert "response_format" not in chatted(format=nothing).body
    assert refusal(format="yaml") == (
        'invalid format: "yaml"; expected "json" or a valid JSON Schema object'
    )


def test_thinking_is_a_switch_and_a_level_of_the_template() -> None:
    def arguments(think: object) -> object:
        return chatted(think=think).body.get("chat_template_kwargs")

    assert arguments(None) is None
    assert arguments(True) == {"enable_thinking": True}
    assert arguments(False) == {"enable_thinking": False}
    assert arguments("high") == {"enable_thinking": True, "reasoning_effort": "high"}
    assert 'invalid think value: "much"' in refusal(think="much")
    assert refusal(think=1).startswith("think must be a boolean or string")


def test_a_model_is_not_asked_for_what_it_can_not_do() -> None:
    function = {"name": "get", "parameters": {}}
    with pytest.raises(OllamaError, match='"m" does not support thinking') as caught:
        chatted(think=True).check(["completion", "tools"])
    assert caught.value.status == 400
    with pytest.raises(OllamaError, match='"m" does not support tools'):
        chatted(tools=[{"function": function}]).check(["completion"])
    chatted(think=False).check(["completion"])
    chatted(think="low", tools=[{"function": function}]).check(["thinking", "tools"])


def test_log_probabilities_are_asked_for_with_their_alternatives() -> None:
    assert "logprobs" not in chatted(top_logprobs=3).body
    asked = chatted(logprobs=True, top_logprobs=3)
    assert (asked.body["logprobs"], asked.body["top_logprobs"]) == (True, 3)
    assert asked.alternatives
    assert generated(raw=True, logprobs=True).body["n_probs"] == 1
    assert refusal(top_logprobs=21) == "top_logprobs must be between 0 and 20"


# options


def test_options_get_the_servers_names_and_limits() -> None:
    options = {
        "num_predict": -2,
        "num_keep": 4,
        "temperature": 0,
        "top_k": 2**40,
        "top_p": 0.9,
        "min_p": 0.05,
        "typical_p": 1.0,
        "repeat_penalty": 1.1,
        "repeat_last_n": -1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "seed": -1,
        "stop": ["\n", "User:"],
    }
    body = dict(chatted(options=options).body)
    del body["messages"], body["stream"]
    assert body == {
        "n_predict": -1,
        "n_keep": 4,
        "temperature": 0,
        "top_k": 2**31 - 1,
        "top_p": 0.9,
        "min_p": 0.05,
        "typical_p": 1.0,
        "repeat_penalty": 1.1,
        "repeat_last_n": 2**18,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "seed": -1,
        "stop": ["\n", "User:"],
    }


def test_options_of_the_loading_and_unknown_ones_and_null_have_no_effect() -> None:
    options = {"num_ctx": 8192, "use_mmap": True, "mirostat": "x", "vim": 1, "top_k": None}
    assert chatted(options=options).body == chatted().body


def test_a_number_with_a_fraction_is_cut_where_a_whole_one_is_meant() -> None:
    assert chatted(options={"num_predict": 12.9}).body["n_predict"] == 12


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("num_predict", "12", "of type integer"),
        ("num_ctx", True, "of type integer"),
        ("temperature", "hot", "of type float32"),
        ("temperature", False, "of type float32"),
        ("use_mmap", 1, "of type boolean"),
        ("stop", "x", "of type array"),
        ("stop", [1], "of an array of strings"),
    ],
)
def test_an_option_of_another_type_is_refused_in_ollamas_words(
    name: str, value: object, kind: str
) -> None:
    assert refusal(options={name: value}) == f'option "{name}" must be {kind}'


# keep_alive


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (300, 300.0),
        (0.5, 0.5),
        (0, 0.0),
        (-1, math.inf),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("-1s", math.inf),
        ("0", 0.0),
        ("0s", 0.0),
        ("250ms", 0.25),
        ("+10s", 10.0),
        (None, None),
    ],
)
def test_a_model_is_kept_for_seconds_or_a_go_duration(said: object, seconds: float | None) -> None:
    assert chatted(keep_alive=said).keep_alive == pytest.approx(seconds)


@pytest.mark.parametrize("said", ["5", "", "5 m", "m", "1d", "9" * 100, "1" * 70 + "s"])
def test_what_is_no_duration_is_refused(said: str) -> None:
    assert refusal(keep_alive=said).startswith("time: ")


def test_without_messages_a_model_is_loaded_and_unloaded_when_nothing_is_to_keep_it() -> None:
    assert chatted(messages=[]).purpose is Purpose.LOAD
    assert chatted(messages=[], keep_alive=300).purpose is Purpose.LOAD
    assert chatted(messages=None, keep_alive=0).purpose is Purpose.UNLOAD
    assert chatted(messages=[], keep_alive="0s").purpose is Purpose.UNLOAD
    assert chatted(keep_alive=0).purpose is Purpose.GENERATE
    assert generated(prompt="", keep_alive=0).purpose is Purpose.UNLOAD
    assert generated(prompt="").purpose is Purpose.LOAD


# generate


def test_a_prompt_is_a_chat_of_one_message() -> None:
    asked = generated(system="Be brief.", template="{{ .Prompt }}", context=[1, 2])
    assert (asked.chats, asked.path) == (False, "/v1/chat/completions")
    system = {"role": "system", "content": "Be brief."}
    assert asked.body == {"messages": [system, *HELLO], "stream": True}


def test_a_prompt_can_have_images() -> None:
    image = base64.b64encode(PNG).decode()
    [message] = sent_by(generated(images=[image]))
    text, part = message["content"]
    assert (text["text"], part["type"]) == ("hello", "image_url")


def test_a_raw_prompt_is_completed_as_it_is() -> None:
    asked = generated(raw=True, format="json", options={"num_predict": 3}, stream=False)
    assert asked.path == "/completion"
    assert asked.body == {
        "prompt": "hello",
        "n_predict": 3,
        "json_schema": {"type": "object"},
        "stream": False,
    }


@pytest.mark.parametrize("more", [{"system": "s"}, {"template": "t"}, {"context": [1]}])
def test_a_raw_prompt_has_nothing_around_it(more: dict[str, object]) -> None:
    with pytest.raises(OllamaError, match="raw mode does not support") as caught:
        generated(raw=True, **more)
    assert caught.value.status == 400


def test_a_suffix_asks_for_what_is_between() -> None:
    asked = generated(suffix="}", options={"stop": ["\n"]})
    assert asked.path == "/infill"
    assert asked.body == {
        "input_prefix": "hello",
        "input_suffix": "}",
        "stop": ["\n"],
        "stream": True,
    }
    assert generated(prompt="", suffix="}").purpose is Purpose.GENERATE
    assert asked.generation("m").system_prompt == ""


# refusals


def test_a_request_needs_a_body_and_a_model() -> None:
    for read in (chat, generate):
        for body, why in ((b" \n", "missing request body"), (b"{}", "model is required")):
            with pytest.raises(OllamaError) as caught:
                read(body)
            assert (caught.value.status, caught.value.message) == (400, why)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff{}", b'{"model": NaN}', b'{"a": 1e999}', b"[" * 100_000]
)
def test_a_body_must_be_a_json_object(body: bytes) -> None:
    with pytest.raises(OllamaError) as caught:
        chat(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"model": 1}, 'field "model" must be of type string'),
        ({"messages": "hello"}, 'field "messages" must be of type array'),
        ({"messages": ["hello"]}, 'field "messages[0]" must be of type object'),
        (
            {"messages": [{"role": "user", "content": ["x"]}]},
            'field "messages[0].content" must be of type string',
        ),
        ({"messages": [{"role": 1}]}, 'field "messages[0].role" must be of type string'),
        (
            {"messages": [{"role": "user", "images": ["*"]}]},
            'field "messages[0].images[0]": illegal base64 data',
        ),
        (
            {"messages": [{"tool_calls": [{"function": {"arguments": "{}"}}]}]},
            'field "messages[0].tool_calls[0].function.arguments" must be of type object',
        ),
        ({"stream": "no"}, 'field "stream" must be of type boolean'),
        ({"tools": {}}, 'field "tools" must be of type array'),
        ({"tools": [{}]}, 'field "tools[0].function" must be of type object'),
        ({"options": []}, 'field "options" must be of type object'),
        ({"keep_alive": True}, 'field "keep_alive" must be of type number or string'),
        ({"truncate": 1}, 'field "truncate" must be of type boolean'),
        ({"logprobs": 1}, None),
        ({"top_logprobs": 1.5}, 'field "top_logprobs" must be of type integer'),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(
    fields: dict[str, object], why: str | None
) -> None:
    said = refusal(**({"top_logprobs": 1} | fields))
    assert why is None or said == why


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": 1},
        {"suffix": 1},
        {"system": []},
        {"template": {}},
        {"context": "x"},
        {"raw": "yes"},
        {"images": "x"},
    ],
)
def test_a_field_of_a_prompt_of_another_type_is_refused(fields: dict[str, object]) -> None:
    [name] = fields
    with pytest.raises(OllamaError, match=f'field "{name}" must be of type') as caught:
        generated(**fields)
    assert caught.value.status == 400
