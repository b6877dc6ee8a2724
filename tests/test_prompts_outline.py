"""What is remembered of a prompt: enough to compare it, and never its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_pairs import SYSTEM, TALK, chat, image, said, tool, words

from slotgate.messages import MOST_MESSAGES
from slotgate.prompts.comparison import Change, compare
from slotgate.prompts.outline import MOST_CHARACTERS, Outline, outline_of
from slotgate.prompts.parts import agreement
from slotgate.prompts.rows import rows_of
from slotgate.prompts.sentences import sentence

CANARY = "canary"


def outline(fields: Any, previous: Outline | None = None, *, keep_text: bool = False) -> Outline:
    found = outline_of(fields, previous=previous, keep_text=keep_text)
    assert found is not None
    return found


def shown(fields: Any) -> list[tuple[str, str | None]]:
    return [(part.role, part.text) for part in outline(fields, keep_text=True).parts]


def test_roles_and_what_the_beginning_is() -> None:
    found = outline(chat(SYSTEM, said("user", "Hi"), tools=[tool("Sunny")]))
    assert [part.role for part in found.parts] == ["tools", "system", "user"]
    assert (found.tools, found.head, found.messages) == (True, 2, 2)
    assert [found.number(at) for at in range(3)] == [0, 1, 2]
    late = outline(chat(SYSTEM, said("user", "Hi"), said("developer", "Be kind.")))
    assert (late.tools, late.head, late.number(0)) == (False, 1, 1)
    assert late.parts[2].role == "system"


def test_whose_items_and_results_are() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        {"role": CANARY, "content": "Hm"},
        7,
    ]
    roles = [part.role for part in outline({"input": items}).parts]
    assert roles == ["user", "assistant", "tool", "other", "other"]
    result = {"type": "tool_result", "tool_use_id": "a", "content": "sunny"}
    assert outline(chat(said("user", [result]))).parts[0].role == "tool"
    also = said("user", [result, {"type": "text", "text": "And?"}])
    assert outline(chat(also)).parts[0].role == "user"


def test_calls_count_by_what_they_say() -> None:
    def call(arguments: object, named: str) -> Any:
        function = {"name": "f", "arguments": arguments}
        return chat(said("assistant", None) | {"tool_calls": [{"id": named, "function": function}]})

    one, same, other = call('{"x": 1,"y":2}', "a"), call({"y": 2, "x": 1}, "b"), call("{}", "a")
    assert compare(outline(one), outline(same)).change is Change.SAME
    assert compare(outline(one), outline(other)).change is not Change.SAME


def test_images_are_digests_of_their_data() -> None:
    data = "QUJD" * 4000
    ((_, text),) = shown(chat(said("user", [image(data), {"type": "text", "text": "What?"}])))
    assert text is not None
    assert data[:40] not in text
    assert text.startswith("[image 12 kB, ")
    assert text.endswith("]\nWhat?")
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    ]
    result = {"type": "tool_result", "tool_use_id": "a", "content": blocks}
    ((_, text),) = shown(chat(said("user", [result])))
    assert text is not None
    assert data[:40] not in text
    assert "[image 12 kB, " in text
    ((_, text),) = shown(chat(said("user", "What?") | {"images": [data]}))
    assert text is not None
    assert data[:40] not in text
    other = image("https://example.org/secret.png")["image_url"]
    ((_, text),) = shown(chat(said("user", [{"type": "input_image", "image_url": other}])))
    assert text is not None
    assert "secret" not in text


def test_plain_completions() -> None:
    assert shown({"prompt": "Once"}) == [("prompt", "Once")]
    assert shown({"prompt": ["Once", "Twice"]}) == [("prompt", "Once"), ("prompt", "Twice")]
    assert shown({"prompt": [1, 22, "Once", 3]}) == [("prompt", "1 22 Once 3")]
    assert shown({"prompt": [[1, 2], [3]]}) == [("prompt", "1 2"), ("prompt", "3")]
    extra = [{"filename": "a", "text": "b"}]
    filled = {"input_prefix": "def ", "input_suffix": ":", "prompt": "f", "input_extra": extra}
    assert [role for role, _ in shown(filled)] == ["file", "prefix", "suffix"]
    assert shown(filled)[1] == ("prefix", "def f")
    assert not outline({"prompt": "Once"}).chat


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": []},
        {"messages": "text", "prompt": None} | {"messages": None},
        {"messages": {"role": "user"}},
        {"prompt": ""},
        {"prompt": []},
        {"messages": [said("user", "Hi")] * (MOST_MESSAGES + 1)},
        {"messages": [said("user", ["Hi"] * (MOST_MESSAGES + 1))]},
        {"prompt": ["Once"] * (MOST_MESSAGES + 1)},
        {"prompt": [10**5000, "Once"]},
    ],
)
def test_where_there_is_nothing_to_remember(fields: Any) -> None:
    assert outline_of(fields) is None


def test_what_is_nested_too_deeply_is_not_looked_at() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    for fields in (
        {"messages": [said("user", deep)]},
        {"messages": [deep]},
        {"prompt": deep},
        {"messages": [said("user", "Hi")], "tools": deep},
        {"messages": [said("user", "Hi")], "system": deep},
        {"messages": [{"role": "tool", "type": {"a": deep}, "content": [{"type": deep}]}]},
    ):
        assert outline_of(fields) is None


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "image_url", "tool_calls", "x"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            *("messages", "input", "prompt", "system", "instructions", "tools"),
            *("input_prefix", "input_suffix", "input_extra"),
        ]
    ),
    JSON | st.lists(JSON, max_size=5),
)


@given(FIELDS, FIELDS, st.booleans())
def test_junk_is_compared_too(one: Any, other: Any, keep_text: bool) -> None:
    before = outline_of(one, keep_text=keep_text)
    after = outline_of(other, previous=before, keep_text=keep_text)
    if before is not None and after is not None:
        found = compare(before, after)
        assert sentence(found)
        assert rows_of(found)


def test_lone_surrogates_and_what_is_no_number() -> None:
    odd = json.loads('{"messages": [{"role": "user", "content": "\\ud800 x", "temp": NaN}]}')
    found = outline(odd)
    assert compare(found, outline(odd)).change is Change.SAME
    assert outline({"prompt": "\udfff" * 200}).characters == 200


def test_parts_that_are_the_same_are_taken_from_the_last_prompt() -> None:
    before = outline(chat(*TALK))
    after = outline(chat(TALK[0], *TALK[2:], said("user", "And?")), before)
    assert all(part in before.parts for part in after.parts[:5])
    kept = outline(chat(*TALK), before, keep_text=True)
    assert all(part.text is not None for part in kept.parts)
    assert all(part.text is None for part in outline(chat(*TALK), kept).parts)


def test_the_beginnings_of_texts_are_the_same_whatever_alphabet_follows() -> None:
    plain, accents = words("cafe", 200), words("cafe", 180) + "é☃𝄞" * 40
    for one, other in ((plain, accents), (accents, plain)):
        before = outline({"prompt": one})
        found = agreement(before.parts[0], outline({"prompt": other}, before).parts[0])
        assert (found.characters, found.exact) == (128, False)


def test_where_a_part_begins_with_all_of_the_last_one_that_is_known_exactly() -> None:
    before = outline({"prompt": "é" * 101})
    after = outline({"prompt": "é" * 150}, before)
    assert agreement(before.parts[0], after.parts[0]).characters == 101
    assert agreement(before.parts[0], outline({"prompt": "é" * 150}).parts[0]).characters == 64


def strings_in(value: Any, seen: set[int]) -> list[str]:
    """All texts that can be reached from something."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode("latin-1")]
    if isinstance(value, tuple | list):
        return [text for one in value for text in strings_in(one, seen)]
    slots = getattr(type(value), "__slots__", ())
    found = [repr(value)]
    for name in slots:
        found += strings_in(getattr(value, name, None), seen)
    return found


def test_no_text_can_be_reached_from_what_is_remembered() -> None:
    secret = f"{CANARY} {words(CANARY, 300)}"
    fields = chat(
        said("system", secret),
        said("user", [{"type": "text", "text": secret}, image(CANARY * 20)]),
        {"role": CANARY, "content": secret, CANARY: CANARY, "type": CANARY},
        said("assistant", [{"type": CANARY, "text": secret}]),
        tools=[tool(secret)],
    )
    found = compare(outline(chat(said("user", "Hi"))), outline(fields))
    told = strings_in(found, set())
    told += [*strings_in(rows_of(found), set()), sentence(found)]
    assert len(told) > 20
    assert not [text for text in told if CANARY in text]
    for one in (outline({"prompt": secret}), outline({"input_prefix": secret})):
        assert not [text for text in strings_in(one, set()) if CANARY in text]
    # what is kept does not come into a log by being shown either
    kept = outline(fields, keep_text=True)
    assert [text for text in strings_in(kept, set()) if CANARY in text]
    assert CANARY not in repr(kept) + repr(kept.parts) + repr(rows_of(compare(kept, kept)))


def test_a_prompt_that_would_take_too_long_is_not_compared() -> None:
    assert outline_of({"prompt": "x" * MOST_CHARACTERS}) is not None
    assert outline_of({"prompt": "x" * (MOST_CHARACTERS + 1)}) is None
