"""
What messages say, whichever surface they came by and however their client spells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

#: What of a message is not said in the prompt again, or by other words: clients drop it, or send
#: it only sometimes.
_PASSING = frozenset(
    {"reasoning_content", "reasoning", "thinking", "refusal", "annotations", "audio", "id"}
    | {"status", "cache_control", "timestamp", "prefix"}
)

#: What models think aloud, which clients cut from older answers.
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_THINKING = ("thinking", "redacted_thinking", "reasoning")

#: More messages or parts are not looked at: no client has so many, and it takes long.
MOST_MESSAGES = 20_000


def count_of(messages: Sequence[object]) -> int:
    """How many messages and parts of messages there are."""
    contents = [one.get("content") for one in messages if isinstance(one, Mapping)]
    return len(messages) + sum(len(one) for one in contents if isinstance(one, list))


def said_by(message: object) -> object:
    """
    What a message says, without what is not said in the prompt again.

    :raises RecursionError: it is nested too deeply.
    """
    if not isinstance(message, Mapping):
        return message
    kept = {
        name: value
        for name, value in message.items()
        if name not in _PASSING and value not in (None, [], "")
    }
    if kept.get("type") == "message":
        del kept["type"]
    if "content" in kept:
        kept["content"] = content_of(kept["content"])
    if kept.get("role") == "assistant" and isinstance(kept.get("content"), str):
        kept["content"] = _THOUGHTS.sub("", kept["content"])
    if "tool_calls" in kept:
        kept["tool_calls"] = _calls(kept["tool_calls"])
    if "arguments" in kept:
        kept["arguments"] = _arguments(kept["arguments"])
    return kept


def content_of(content: object) -> object:
    """
    A text, or what is in the parts; parts that are all text are one text.

    :raises RecursionError: it is nested too deeply.
    """
    if not isinstance(content, list):
        return content
    parts = [
        _part(part)
        for part in content
        if not (isinstance(part, Mapping) and part.get("type") in _THINKING)
    ]
    if all(isinstance(part, str) for part in parts):
        return "".join(str(part) for part in parts)
    return parts


def _part(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    if part.get("type") in ("text", "input_text", "output_text") and isinstance(
        part.get("text"), str
    ):
        return part["text"]
    kept = {name: value for name, value in part.items() if name not in _PASSING - {"id"}}
    if "content" in kept:
        kept["content"] = content_of(kept["content"])
    if "arguments" in kept:
        kept["arguments"] = _arguments(kept["arguments"])
    return kept


def _calls(calls: object) -> object:
    if not isinstance(calls, list):
        return calls
    kept = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            kept.append([function.get("name"), _arguments(function.get("arguments"))])
        else:
            kept.append(call)
    return kept


def _arguments(arguments: object) -> object:
    """OpenAI's surface spells them as JSON in a text, Ollama's as an object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
