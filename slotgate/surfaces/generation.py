"""
A generation request, parsed once: what slotgate needs to know of it, and the body that goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import frozen

from slotgate.surfaces import anthropic, openai

#: The paths of llama-server that generate, and how each says its system prompt.
PATHS = {
    "/v1/chat/completions": openai.chat_system,
    "/chat/completions": openai.chat_system,
    "/v1/completions": openai.no_system,
    "/completions": openai.no_system,
    "/completion": openai.no_system,
    "/infill": openai.no_system,
    "/v1/responses": openai.responses_system,
    "/responses": openai.responses_system,
    "/v1/messages": anthropic.system,
}

_WHITE = b" \t\r\n"

#: Some clients on Windows begin with it, and llama-server reads past it.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MalformedRequest(ValueError):
    """The body is not a JSON object; the message is for the client."""


@frozen
class Generation:
    """What a client asks to be generated."""

    path: str
    raw: bytes
    fields: Mapping[str, object]
    #: The model the client asked for, ``None`` where it names none.
    model: str | None
    #: The text of the system prompt, empty where there is none.
    system_prompt: str


def parse(path: str, raw: bytes) -> Generation:
    """
    Read the body of a request for one of :data:`PATHS`.

    :raises MalformedRequest: the body is no JSON object.
    """
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        fields = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedRequest("the request body is not UTF-8") from None
    except RecursionError:
        raise MalformedRequest("the request body is nested too deeply") from None
    except ValueError as error:
        raise MalformedRequest(f"the request body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MalformedRequest("the request body must be a JSON object")
    model = fields.get("model")
    return Generation(
        path=path,
        raw=raw,
        fields=fields,
        model=model if isinstance(model, str) and model else None,
        system_prompt=PATHS[path](fields),
    )


def body_for(
    generation: Generation, slot_id: int | None, model: str | None, *, may_reuse: bool = True
) -> bytes:
    """
    The body that goes to the server: pinned to a slot and with the prompt cache on.

    A client that sets neither field keeps every other byte of its body: number formats,
    escapes and the order of fields are its own.

    :param slot_id: ``None``: the client's own choice.
    :param model: what the server calls the model, where that is not what the client said.
    :param may_reuse: whether the server may start from what is in the slot.
    """
    own: dict[str, object] = {}
    if slot_id is not None:
        own |= {"id_slot": slot_id, "cache_prompt": may_reuse}
    if model is not None and model != generation.model:
        own["model"] = model
    return with_fields(generation.raw, generation.fields, own)


def with_fields(raw: bytes, fields: Mapping[str, object], own: Mapping[str, object]) -> bytes:
    """
    A JSON object with some fields set; where they are new, all other bytes stay as they are.

    :param raw: the object as it came.
    :param fields: the same object, parsed.
    """
    if not own:
        return raw
    if any(name in fields for name in own):
        return json.dumps({**fields, **own}).encode("ascii")
    # an object was parsed from it, so white space apart the first and the last byte are its braces
    inner = raw.strip(_WHITE)[1:-1]
    comma = b"," if fields else b""
    return b"{" + inner + comma + json.dumps(own)[1:-1].encode() + b"}"
