"""
The requests of ``/api/chat`` and ``/api/generate``, read and translated.

The templated form of both becomes a chat, for which llama-server applies the model's template;
``raw`` becomes a completion, ``suffix`` an infill. ``template`` and ``context`` have no effect:
the template is the model's, and a context of tokens would need the server to be turned into text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from slotgate.surfaces.ollama import messages, options
from slotgate.surfaces.ollama._json import Fields, WrongType, is_number
from slotgate.surfaces.ollama.asked import CHAT, COMPLETION, INFILL, Asked, Purpose
from slotgate.surfaces.ollama.clocks import go_duration
from slotgate.surfaces.ollama.errors import OllamaError

_LEVELS = ("high", "medium", "low", "max")
_LEVEL_NAMES = '"high", "medium", "low", "max", true, or false'

#: Fields that have no effect but a type.
_NO_EFFECT = ("truncate", "shift")

_MOST_ALTERNATIVES = 20


def chat(raw: bytes) -> Asked:
    """
    Read the body of a request to ``/api/chat``.

    :raises OllamaError: it is none.
    """
    with refusals():
        return _chat(parsed(raw))


def generate(raw: bytes) -> Asked:
    """
    Read the body of a request to ``/api/generate``.

    :raises OllamaError: it is none.
    """
    with refusals():
        return _generate(parsed(raw))


@contextmanager
def refusals() -> Iterator[None]:
    """
    Turn what is wrong with a request into the error that its client gets.

    :raises OllamaError: instead of :class:`WrongType`.
    """
    try:
        yield
    except WrongType as error:
        raise OllamaError(400, str(error)) from None
    except RecursionError:
        raise OllamaError(400, "the request body is nested too deeply") from None


def parsed(raw: bytes) -> Fields:
    """
    The JSON object of a body.

    :raises OllamaError: it has none.
    :raises RecursionError: it is nested too deeply.
    """
    if not raw.strip():
        raise OllamaError(400, "missing request body")
    try:
        values = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise OllamaError(400, "the request body is not UTF-8") from None
    except ValueError as error:
        raise OllamaError(400, f"the request body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise OllamaError(400, "the request body must be a JSON object")
    return Fields(values)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(written: str) -> float:
    value = float(written)
    if math.isinf(value):
        raise ValueError(f"{written[:20]} is too large a number")
    return value


def model_of(fields: Fields, *, old_name: bool = False) -> str:
    """
    The model that a request is about.

    :param old_name: whether ``name`` stands for it, too.
    :raises OllamaError: it says none.
    :raises WrongType: it is no string.
    """
    model = fields.text("model") or (fields.text("name") if old_name else "")
    if not model:
        raise OllamaError(400, "model is required")
    return model


def keep_alive(fields: Fields) -> float | None:
    """
    How long the model is to stay after the request: seconds, infinity for ever.

    :raises WrongType: it is neither a number nor a Go duration.
    """
    value = fields.values.get("keep_alive")
    if value is None:
        return None
    if isinstance(value, str):
        try:
            seconds = go_duration(value)
        except ValueError as error:
            raise WrongType(str(error)) from None
    elif isinstance(value, int | float) and is_number(value):
        # Ollama's whole numbers are floats, too
        seconds = float(min(max(value, -1), 1e300))
    else:
        fields.refuse("keep_alive", "number or string")
    return math.inf if seconds < 0 else seconds


def _chat(fields: Fields) -> Asked:
    model = model_of(fields)
    said = [messages.message(message) for message in fields.objects("messages")]
    tools = messages.tools(fields)
    stream = fields.flag("stream", True)
    body: dict[str, object] = {"messages": said, "stream": stream}
    body |= _chat_settings(fields)
    if tools:
        body["tools"] = tools
    return _asked(fields, model, CHAT, body, chats=True, empty=not said)


def _generate(fields: Fields) -> Asked:
    model = model_of(fields)
    prompt, suffix, system = fields.text("prompt"), fields.text("suffix"), fields.text("system")
    template, context = fields.text("template"), fields.items("context")
    content = messages.content(prompt, fields)
    stream = fields.flag("stream", True)
    settings = _chat_settings(fields), _completion_settings(fields)
    body: dict[str, object]
    if fields.flag("raw"):
        if template or system or context:
            raise OllamaError(400, "raw mode does not support template, system, or context")
        if not isinstance(content, str):
            raise OllamaError(400, "raw mode does not support images")
        path, body = COMPLETION, {"prompt": prompt, **settings[1]}
    elif suffix:
        path, body = INFILL, {"input_prefix": prompt, "input_suffix": suffix, **settings[1]}
    else:
        said: list[object] = [{"role": "system", "content": system}] if system else []
        said.append({"role": "user", "content": content})
        path, body = CHAT, {"messages": said, **settings[0]}
    body["stream"] = stream
    # a gap at the beginning of a file has nothing before it
    empty = not prompt and path != INFILL
    return _asked(fields, model, path, body, chats=False, empty=empty)


def _asked(
    fields: Fields, model: str, path: str, body: Mapping[str, object], *, chats: bool, empty: bool
) -> Asked:
    kept = keep_alive(fields)
    purpose = Purpose.GENERATE
    if empty:
        purpose = Purpose.UNLOAD if kept == 0 else Purpose.LOAD
    for name in _NO_EFFECT:
        fields.flag(name)
    return Asked(
        chats=chats,
        purpose=purpose,
        model=model,
        stream=fields.flag("stream", True),
        keep_alive=kept,
        fields=fields.values,
        path=path,
        body=body,
        alternatives=fields.whole("top_logprobs") > 0,
    )


def _chat_settings(fields: Fields) -> dict[str, object]:
    settings = options.parameters(fields)
    schema = _format(fields)
    if schema is not None:
        json_schema = {"name": "schema", "schema": schema}
        settings["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        if not schema:
            settings["response_format"] = {"type": "json_object"}
    if (think := _think(fields)) is not None:
        # the names that templates know: Qwen's switch and gpt-oss's level
        arguments: dict[str, object] = {"enable_thinking": think is not False}
        if isinstance(think, str):
            arguments["reasoning_effort"] = think
        settings["chat_template_kwargs"] = arguments
    if alternatives := _alternatives(fields):
        settings |= {"logprobs": True, "top_logprobs": alternatives}
    return settings


def _completion_settings(fields: Fields) -> dict[str, object]:
    settings = options.parameters(fields)
    schema = _format(fields)
    if schema is not None:
        settings["json_schema"] = schema or {"type": "object"}
    if alternatives := _alternatives(fields):
        settings["n_probs"] = alternatives
    return settings


def _format(fields: Fields) -> Mapping[str, object] | None:
    """The schema of the answer, an empty one for any JSON object."""
    value = fields.values.get("format")
    if value is None or value == "":
        return None
    if value == "json":
        return {}
    if not isinstance(value, dict):
        said = json.dumps(value)[:100]
        expected = 'expected "json" or a valid JSON Schema object'
        raise WrongType(f"invalid format: {said}; {expected}")
    return value


def _think(fields: Fields) -> bool | str | None:
    value = fields.values.get("think")
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise WrongType(f"think must be a boolean or string ({_LEVEL_NAMES})")
    if value not in _LEVELS:
        said = json.dumps(value)[:100]
        raise WrongType(f"invalid think value: {said} (must be {_LEVEL_NAMES})")
    return value


def _alternatives(fields: Fields) -> int:
    """How many tokens the log probabilities are wanted of, 0 for none at all."""
    number = fields.whole("top_logprobs")
    if not 0 <= number <= _MOST_ALTERNATIVES:
        raise WrongType(f"top_logprobs must be between 0 and {_MOST_ALTERNATIVES}")
    return max(number, 1) if fields.flag("logprobs") else 0
