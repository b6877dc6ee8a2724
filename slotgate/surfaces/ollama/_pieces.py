"""
What one event of llama-server's streams, or one whole answer, says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from slotgate.surfaces.ollama.errors import message_of


class Unusable(Exception):
    """What the server said can not be translated; the message is for the client."""


@frozen
class CallPart:
    """
    Some of a tool call.

    :ivar index: which one it is part of.
    :ivar arguments: the beginning, middle or end of a JSON object.
    """

    index: int
    id: str
    name: str
    arguments: str


@frozen
class Piece:
    """
    A part of an answer.

    :ivar reason: why it ended, ``stop`` or ``length``; empty: it has not yet.
    :ivar timings: llama-server's, empty where it says none.
    :ivar logprobs: of the text, as llama-server says them.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[CallPart, ...] = ()
    reason: str = ""
    timings: Mapping[str, object] = field(factory=dict)
    logprobs: tuple[Mapping[str, Any], ...] = ()


def piece_of(data: bytes) -> Piece:
    """
    Read an event or a whole answer of chat, completion or infill.

    :raises Unusable: it is an error, or no JSON object.
    """
    try:
        said = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unusable("the server's answer is not JSON")
    if (error := said.get("error")) is not None:
        raise Unusable(message_of(error) or "the server failed")
    choices = said.get("choices")
    if choices is None:
        return _completion(said)
    choice = choices[0] if isinstance(choices, list) and choices else None
    return _choice(_object(choice), _object(said.get("timings")))


def _completion(said: Mapping[str, object]) -> Piece:
    reason = ""
    if said.get("stop") is True:
        reason = "length" if said.get("stop_type") == "limit" else "stop"
    return Piece(
        text=_text(said.get("content")),
        reason=reason,
        timings=_object(said.get("timings")),
        logprobs=tuple(_objects(said.get("completion_probabilities"))),
    )


def _choice(choice: Mapping[str, object], timings: Mapping[str, object]) -> Piece:
    # a whole answer has a message, an event has a delta
    message = _object(choice.get("delta") or choice.get("message"))
    finish = choice.get("finish_reason")
    reason = "length" if finish == "length" else "stop"
    return Piece(
        text=_text(message.get("content")),
        thinking=_text(message.get("reasoning_content")),
        calls=tuple(_calls(message.get("tool_calls"))),
        reason=reason if isinstance(finish, str) else "",
        timings=timings,
        logprobs=tuple(_objects(_object(choice.get("logprobs")).get("content"))),
    )


def _calls(calls: object) -> Iterator[CallPart]:
    for number, call in enumerate(_objects(calls)):
        function = _object(call.get("function"))
        index = call.get("index")
        yield CallPart(
            index=index if type(index) is int else number,
            id=_text(call.get("id")),
            name=_text(function.get("name")),
            arguments=_text(function.get("arguments")),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            yield one
