"""
``/api/embed`` and the older ``/api/embeddings``, over ``/v1/embeddings``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from attrs import frozen

from slotgate.surfaces.ollama import options
from slotgate.surfaces.ollama._json import Fields, WrongType, dump, is_number
from slotgate.surfaces.ollama.clocks import Watch
from slotgate.surfaces.ollama.errors import OllamaError, upstream_error
from slotgate.surfaces.ollama.requests import keep_alive, model_of, parsed, refusals

PATH = "/v1/embeddings"

#: How llama-server says that a text is too long (b11549): as a server error.
_TOO_LONG = ("too large", "context size", "context length", "physical batch size")


@frozen
class Embed:
    """
    A request for embeddings.

    :ivar old: whether it is one to ``/api/embeddings``, for one text.
    :ivar model: as the client said it; answers repeat it.
    :ivar texts: none: the model is only to be loaded.
    :ivar truncate: whether a text that is too long is to be cut. llama-server cuts none: whoever
        sends the request would have to.
    :ivar dimensions: how many numbers of each embedding are wanted, 0 for all.
    :ivar keep_alive: seconds, infinity for ever, ``None`` where it does not say.
    """

    old: bool
    model: str
    texts: Sequence[str]
    truncate: bool = True
    dimensions: int = 0
    keep_alive: float | None = None


def embed(raw: bytes) -> Embed:
    """
    Read the body of a request to ``/api/embed``.

    :raises OllamaError: it is none.
    """
    with refusals():
        fields = parsed(raw)
        options.parameters(fields)
        return Embed(
            old=False,
            model=model_of(fields),
            texts=_texts(fields),
            truncate=fields.flag("truncate", True),
            dimensions=fields.whole("dimensions"),
            keep_alive=keep_alive(fields),
        )


def embeddings(raw: bytes) -> Embed:
    """
    Read the body of a request to ``/api/embeddings``.

    :raises OllamaError: it is none.
    """
    with refusals():
        fields = parsed(raw)
        options.parameters(fields)
        model, prompt = model_of(fields), fields.text("prompt")
        return Embed(True, model, [prompt] if prompt else [], keep_alive=keep_alive(fields))


def _texts(fields: Fields) -> list[str]:
    value = fields.values.get("input")
    if value is None or isinstance(value, str):
        return [value] if value else []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise WrongType("invalid input type")
    return value


def without_texts(asked: Embed) -> bytes:
    """The answer to a request with nothing to embed."""
    return dump({"embedding": []} if asked.old else {"model": asked.model, "embeddings": []})


def answer(asked: Embed, watch: Watch, body: bytes) -> bytes:
    """
    The embeddings.

    :param body: the answer of :data:`PATH`, of status 200.
    :raises OllamaError: it has not one embedding for each text.
    """
    try:
        said = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        said = None
    data = said.get("data") if isinstance(said, dict) else None
    vectors: dict[int, list[float]] = {}
    for number, one in enumerate(data if isinstance(data, list) else ()):
        if isinstance(one, dict):
            index = one.get("index")
            vectors[index if type(index) is int else number] = _vector(one.get("embedding"))
    if sorted(vectors) != list(range(len(asked.texts))):
        raise OllamaError(502, "the server did not answer with one embedding for each text")
    ordered = [vectors[number] for number in range(len(asked.texts))]
    if asked.old:
        return dump({"embedding": ordered[0]})
    cut = [
        _unit(vector[: asked.dimensions] if asked.dimensions > 0 else vector) for vector in ordered
    ]
    usage = said.get("usage")
    return dump(
        {
            "model": asked.model,
            "embeddings": cut,
            **watch.durations(),
            "prompt_eval_count": _tokens(usage if isinstance(usage, dict) else {}),
        }
    )


def refused(status: int, body: bytes) -> OllamaError:
    """
    What llama-server refuses, in Ollama's words where a text is too long.

    :param status: of its answer, 400 to 599.
    """
    error = upstream_error(status, body)
    if any(words in error.message for words in _TOO_LONG):
        return OllamaError(400, "the input length exceeds the context length")
    return error


def _vector(said: object) -> list[float]:
    numbers = [float(each) for each in said if is_number(each)] if isinstance(said, list) else []
    if not numbers or len(numbers) != len(said if isinstance(said, list) else ()):
        raise OllamaError(500, "embedding contains NaN or Inf values")
    return numbers


def _unit(vector: Sequence[float]) -> list[float]:
    """The vector at length 1."""
    length = max(math.hypot(*vector), 1e-12)
    return [number / length for number in vector]


def _tokens(usage: Mapping[str, object]) -> int:
    tokens = usage.get("prompt_tokens")
    return tokens if type(tokens) is int else 0
