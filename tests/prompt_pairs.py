"""
Pairs of prompts, and the sentence that each must get: without the texts, and with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

Fields = Mapping[str, Any]


@frozen
class Pair:
    """An earlier request, a later one, and what is to be said of them."""

    name: str
    old: Fields
    new: Fields
    change: str
    sentence: str
    #: The same where prompts are kept; empty: the same sentence.
    kept: str = ""


def words(word: str, length: int) -> str:
    """A text of so many characters, which differs from that of other words from the beginning."""
    return (f"{word} " * length)[:length]


def edited(text: str, at: int) -> str:
    """A text with another character."""
    return f"{text[:at]}#{text[at + 1 :]}"


def said(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


def tool(description: str) -> dict[str, object]:
    function = {"name": "weather", "description": description, "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


def image(data: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def chat(*messages: object, **fields: object) -> Fields:
    return {"messages": list(messages), **fields}


SYSTEM = said("system", words("terse", 300))
TURNS = [
    said(role, words(f"{role}{turn}", 200 + turn))
    for turn in range(1, 7)
    for role in ("user", "assistant")
]
#: Six messages: the system prompt, two turns, and a question.
TALK = [SYSTEM, *TURNS[:5]]
LONG = chat(*TALK, *TURNS[5:11])

PAIRS = [
    Pair(
        "the system message changed",
        chat(*TALK),
        chat(said("system", edited(words("terse", 300), 130)), *TURNS[:7]),
        "system",
        "8 messages, the last prompt had 6: message 1 (system) is the same for at least its "
        "first 128 of 300 characters: the system message changed",
        "8 messages, the last prompt had 6: message 1 (system) is the same for its first 130 "
        "of 300 characters: the system message changed",
    ),
    Pair(
        "a message in the middle was edited",
        chat(*TALK),
        chat(SYSTEM, TURNS[0], said("assistant", words("else", 100)), *TURNS[2:7]),
        "middle",
        "8 messages, the last prompt had 6: the first 2 are the same, message 3 (assistant) "
        "differs within its first 64 of 100 characters: a message in the middle changed",
        "8 messages, the last prompt had 6: the first 2 are the same, message 3 (assistant) "
        "differs from its first character on: a message in the middle changed",
    ),
    Pair(
        "the start moved by one",
        chat(*TALK),
        chat(SYSTEM, *TURNS[1:7]),
        "start moved",
        "7 messages, the last prompt had 6: the first is the same, message 2 (assistant) has "
        "the place of one with another role (user): the start of the conversation moved, its "
        "oldest message is gone",
    ),
    Pair(
        "the start moved by three",
        LONG,
        chat(SYSTEM, *TURNS[3:11], said("assistant", "Yes."), said("user", "ok")),
        "start moved",
        "11 messages, the last prompt had 12: the first is the same, message 2 (assistant) "
        "has the place of one with another role (user): the start of the conversation moved, "
        "its oldest 3 messages are gone",
    ),
    Pair(
        "the end was cut",
        chat(*TALK),
        chat(*TALK[:4]),
        "cut",
        "4 messages, the last prompt had 6: all are the same: the end of the last prompt was "
        "cut (2 messages)",
    ),
    Pair(
        "grown by a turn",
        chat(*TALK),
        chat(*TALK, *TURNS[5:7]),
        "grown",
        "8 messages, the last prompt had 6: the first 6 are the same: 2 new messages follow",
    ),
    Pair(
        "swipe",
        chat(*TALK, TURNS[5]),
        chat(*TALK),
        "cut",
        "6 messages, the last prompt had 7: all are the same: the answer to the last user "
        "message was left out",
    ),
    Pair(
        "regenerate",
        chat(*TALK),
        chat(*TALK, seed=2, temperature=1.5),
        "same",
        "6 messages, the last prompt had 6: all are the same: the same prompt again",
    ),
    Pair(
        "the tools changed",
        chat(*TALK, tools=[tool(words("Sunny", 100))]),
        chat(*TALK, *TURNS[5:7], tools=[tool(edited(words("Sunny", 100), 90))]),
        "tools",
        "8 messages, the last prompt had 6: the tools are the same for at least their first "
        "64 of 208 characters: the tools changed, and they come first",
        "8 messages, the last prompt had 6: the tools are the same for their first 121 of 208"
        " characters: the tools changed, and they come first",
    ),
    Pair(
        "an image changed",
        chat(SYSTEM, said("user", [image("A" * 16000), {"type": "text", "text": "What?"}])),
        chat(SYSTEM, said("user", [image("B" * 16000), {"type": "text", "text": "What?"}])),
        "last user message",
        "2 messages, the last prompt had 2: the first is the same, message 2 (user) differs "
        "within its 29 characters: only the last user message differs",
        "2 messages, the last prompt had 2: the first is the same, message 2 (user) is the "
        "same for its first 14 of 29 characters: only the last user message differs",
    ),
    Pair(
        "text parts and a plain string",
        chat(*TALK),
        chat(
            *TALK[:3],
            *(
                said(str(one["role"]), [{"type": "text", "text": one["content"]}])
                for one in TALK[3:]
            ),
        ),
        "same",
        "6 messages, the last prompt had 6: all are the same: the same prompt again",
    ),
    Pair(
        "the text of a completion",
        {"prompt": words("Once upon a time", 5000)},
        {"prompt": edited(words("Once upon a time", 6000), 2150)},
        "text",
        "6000 characters, the last prompt had 5000: at least the first 2112 are the same: the"
        " text differs after them",
        "6000 characters, the last prompt had 5000: the first 2150 are the same: the text "
        "differs after them",
    ),
    Pair(
        "nothing in common",
        chat(*TALK),
        chat(said("system", "Be kind."), said("user", "Hello")),
        "other",
        "2 messages, the last prompt had 6: nothing in common",
    ),
    # what the issue does not name
    Pair(
        "the last user message differs, and more follow",
        chat(*TALK, *TURNS[5:10], said("user", words("lamp", 2150) + words("task", 3000))),
        chat(
            *TALK,
            *TURNS[5:10],
            said("user", words("lamp", 2150) + words("part", 6881)),
            said("assistant", "Yes."),
            said("user", "And now?"),
        ),
        "last user message",
        "14 messages, the last prompt had 12: the first 11 are the same, message 12 (user) is"
        " the same for at least its first 2112 of 9031 characters: only the last user message"
        " differs",
        "14 messages, the last prompt had 12: the first 11 are the same, message 12 (user) is"
        " the same for its first 2150 of 9031 characters: only the last user message differs",
    ),
    Pair(
        "the start moved, and the last user message is another one",
        chat(*TALK[:5], said("user", words("task", 500))),
        chat(SYSTEM, *TURNS[2:6], said("user", words("task", 500))),
        "start moved",
        "6 messages, the last prompt had 6: the first is the same, message 2 (user) differs "
        "within its first 64 of 202 characters: the start of the conversation moved, its "
        "oldest 2 messages are gone",
        "6 messages, the last prompt had 6: the first is the same, message 2 (user) is the "
        "same for its first 4 of 202 characters: the start of the conversation moved, its "
        "oldest 2 messages are gone",
    ),
    Pair(
        "messages are gone from the middle",
        LONG,
        chat(SYSTEM, *TURNS[:2], *TURNS[4:11]),
        "middle",
        "10 messages, the last prompt had 12: the first 3 are the same, message 4 (user) "
        "differs within its first 64 of 203 characters: of the last prompt messages 4 to 5 "
        "are gone",
        "10 messages, the last prompt had 12: the first 3 are the same, message 4 (user) is "
        "the same for its first 4 of 203 characters: of the last prompt messages 4 to 5 are "
        "gone",
    ),
    Pair(
        "a message is new in the middle",
        chat(*TALK),
        chat(*TALK[:3], said("system", "A note."), *TURNS[2:7]),
        "middle",
        "9 messages, the last prompt had 6: the first 3 are the same, message 4 (system) has "
        "the place of one with another role (user): message 4 is new there",
    ),
    Pair(
        "a system message is new",
        chat(*TURNS[:5]),
        chat(SYSTEM, *TURNS[:5]),
        "system",
        "6 messages, the last prompt had 5: message 1 (system) has the place of one with "
        "another role (user): a system message is new",
    ),
    Pair(
        "another system message",
        chat(*TALK),
        chat(SYSTEM, said("system", "A note."), *TURNS[:5]),
        "system",
        "7 messages, the last prompt had 6: the first is the same, message 2 (system) has the"
        " place of one with another role (user): a system message is new",
    ),
    Pair(
        "tools are new",
        chat(*TALK),
        chat(*TALK, tools=[tool("Sunny")]),
        "tools",
        "6 messages, the last prompt had 6: there are tools now, and they come first",
    ),
    Pair(
        "the tools are gone",
        chat(*TALK, tools=[tool("Sunny")]),
        chat(*TALK),
        "tools",
        "6 messages, the last prompt had 6: the tools are gone, which came first",
    ),
    Pair(
        "an answer that is to be gone on with",
        chat(*TALK, said("assistant", words("well", 70))),
        chat(*TALK, said("assistant", words("well", 170))),
        "grown",
        "7 messages, the last prompt had 7: the first 6 are the same: message 7 goes on",
    ),
    Pair(
        "a completion goes on",
        {"prompt": words("Once", 1000)},
        {"prompt": words("Once", 1001)},
        "grown",
        "1001 characters, the last prompt had 1000: the first 1000 are the same: new text follows",
    ),
    Pair(
        "another conversation with the same system message",
        chat(*TALK),
        chat(SYSTEM, said("user", "Hello")),
        "other",
        "2 messages, the last prompt had 6: nothing but the system message in common",
    ),
    Pair(
        "a completion after a chat",
        chat(*TALK),
        {"prompt": "Hello"},
        "other",
        "5 characters, the last prompt had 1309: nothing in common",
    ),
]

#: Those that the issue names.
NAMED = PAIRS[:13]


def anthropic(fields: Fields) -> Fields | None:
    """The same request on Anthropic's surface; ``None``: it can not be said there."""
    system, rest = _split(fields)
    if rest is None:
        return None
    shaped = [said(str(one["role"]), _blocks(one["content"])) for one in rest]
    found: dict[str, Any] = {**fields, "messages": shaped, "max_tokens": 100}
    if system is not None:
        cached = {"type": "ephemeral"}
        found["system"] = [{"type": "text", "text": system, "cache_control": cached}]
    return found


def _blocks(content: Any) -> list[dict[str, object]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def responses(fields: Fields) -> Fields | None:
    """The same request on the surface of Responses; ``None``: it can not be said there."""
    system, rest = _split(fields)
    if rest is None:
        return None
    items = []
    for one in rest:
        kind = "output_text" if one["role"] == "assistant" else "input_text"
        texts = [block["text"] for block in _blocks(one["content"])]
        content = [{"type": kind, "text": text} for text in texts]
        items.append({"type": "message", "role": one["role"], "content": content})
    found: dict[str, Any] = {name: fields[name] for name in fields if name != "messages"}
    return {**found, "input": items, **({} if system is None else {"instructions": system})}


def _split(fields: Fields) -> tuple[str | None, list[Any] | None]:
    """The system prompt, and the messages after it."""
    messages = fields.get("messages", [])
    systems = [one["content"] for one in messages if one["role"] == "system"]
    rest = [one for one in messages if one["role"] != "system"]
    texts = all(isinstance(one["content"], str) or "text" in one["content"][0] for one in messages)
    if not rest or not texts or len(systems) > 1:
        return None, None
    if systems and messages[0]["role"] != "system":
        return None, None
    return (systems[0] if systems else None), rest
