"""Generation requests, parsed once, and the body that goes on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.surfaces.generation import MalformedRequest, body_for, parse

CHAT = "/v1/chat/completions"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_a_body_without_our_fields_keeps_every_other_byte() -> None:
    raw = b' \n{ "a":1.0e2 ,"b":"\\u00e9\xc3\xa9", "big":123456789012345678901234567890 }\n'
    sent = body_for(parse(CHAT, raw), 0, None)
    assert sent == (
        b'{ "a":1.0e2 ,"b":"\\u00e9\xc3\xa9", "big":123456789012345678901234567890 ,'
        b'"id_slot": 0, "cache_prompt": true}'
    )


@pytest.mark.parametrize("theirs", ['"id_slot": 7', '"cache_prompt": false', '"id_slot": "1"'])
def test_a_clients_own_fields_are_replaced_not_repeated(theirs: str) -> None:
    raw = ('{"prompt": "é", ' + theirs + ', "n": 1}').encode()
    pairs = json.loads(body_for(parse("/completion", raw), 3, None), object_pairs_hook=list)
    assert sorted(name for name, _ in pairs) == ["cache_prompt", "id_slot", "n", "prompt"]
    assert dict(pairs) == {"prompt": "é", "id_slot": 3, "cache_prompt": True, "n": 1}


def test_an_empty_object_is_a_body_too() -> None:
    assert json.loads(body_for(parse(CHAT, b"{ }"), 0, None)) == {
        "id_slot": 0,
        "cache_prompt": True,
    }


@given(st.dictionaries(st.text(), JSON), st.integers(0, 99))
def test_the_server_gets_what_the_client_sent_and_ours(
    fields: dict[str, object], slot: int
) -> None:
    sent = json.loads(body_for(parse(CHAT, json.dumps(fields).encode()), slot, None))
    assert sent == {**fields, "id_slot": slot, "cache_prompt": True}


def test_the_servers_name_of_the_model_replaces_the_clients() -> None:
    generation = parse(CHAT, b'{"model": "openai/a", "n": 1}')
    assert generation.model == "openai/a"
    assert json.loads(body_for(generation, 0, "a"))["model"] == "a"
    # the same name is no reason to write the body anew
    assert body_for(generation, 0, "openai/a").startswith(b'{"model": "openai/a", "n": 1,')
    assert json.loads(body_for(parse(CHAT, b"{}"), 0, "a"))["model"] == "a"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_in_words(raw: bytes, says: str) -> None:
    with pytest.raises(MalformedRequest, match=says):
        parse(CHAT, raw)


@pytest.mark.parametrize(
    ("path", "fields", "system"),
    [
        (CHAT, {"messages": [{"role": "system", "content": "S"}, {"role": "user"}]}, "S"),
        (
            CHAT,
            {
                "messages": [
                    {
                        "role": "system",
                        "content": [{"type": "text", "text": "S"}, {"type": "text", "text": "T"}],
                    }
                ]
            },
            "ST",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "S"}]}, ""),
        (CHAT, {"messages": [{"role": "developer", "content": "S"}]}, "S"),
        (CHAT, {"messages": "junk"}, ""),
        (CHAT, {"messages": [None, 1]}, ""),
        ("/v1/messages", {"system": "S", "messages": []}, "S"),
        ("/v1/messages", {"system": [{"type": "text", "text": "S"}]}, "S"),
        ("/v1/responses", {"instructions": "S"}, "S"),
        ("/v1/responses", {"instructions": ["S"]}, ""),
        ("/completion", {"prompt": "S"}, ""),
    ],
)
def test_each_surface_says_its_system_prompt(path: str, fields: object, system: str) -> None:
    assert parse(path, json.dumps(fields).encode()).system_prompt == system
