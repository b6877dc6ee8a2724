"""
What llama-server tells of a model, in Ollama's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from slotgate.surfaces.ollama._json import is_number

#: What llama-server does not tell (b11549).
UNKNOWN = "unknown"

_SUFFIXES = {" - Small": "_S", " - Medium": "_M", " - Large": "_L"}

#: A template that can switch thinking on or off, or that takes thoughts back in.
_THINKS = re.compile(r"enable_thinking|reasoning_content|reasoning_effort|</?think>|\bthinking\b")


def quantization(file_type: object) -> str:
    """
    llama.cpp's name of a file's type as Ollama writes it: ``Q4_K - Medium`` is ``Q4_K_M``.
    """
    if not isinstance(file_type, str):
        return ""
    name = file_type.removesuffix(" (guessed)").removeprefix("all ").removeprefix("mostly ")
    for words, letter in _SUFFIXES.items():
        if name.endswith(words):
            return name.removesuffix(words) + letter
    # "IQ2_XXS - 2.0625 bpw"
    return name.partition(" - ")[0]


def human(parameters: object) -> str:
    """A number of parameters: ``134.52M``, ``8.0B``."""
    if type(parameters) is not int or parameters <= 0:
        return ""
    if parameters >= 10**9:
        return f"{parameters / 10**9:.1f}B"
    if parameters >= 10**6:
        millions = f"{parameters / 10**6:.2f}".removesuffix(".00")
        return f"{millions}M"
    if parameters >= 10**3:
        return f"{parameters / 10**3:.0f}K"
    return str(parameters)


def capabilities(told: Mapping[str, object], props: Mapping[str, object]) -> list[str]:
    """
    What a model can do.

    Whether it can fill a gap (``insert``) llama-server tells nowhere.

    :param told: its entry in ``GET /v1/models``.
    :param props: ``GET /props`` of it, empty where they are not known: then neither tools nor
        thinking are found.
    """
    arguments = args_of(told)
    if any(each in ("--embedding", "--embeddings", "--pooling") for each in arguments):
        return ["embedding"]
    found = ["completion"]
    caps = _object(props.get("chat_template_caps"))
    template = text(props.get("chat_template"))
    if caps.get("supports_tools") is True:
        found.append("tools")
    modalities = _object(props.get("modalities"))
    inputs = _object(told.get("architecture")).get("input_modalities")
    named = inputs if isinstance(inputs, list) else []
    if modalities.get("vision") is True or "image" in named:
        found.append("vision")
    if modalities.get("audio") is True or "audio" in named:
        found.append("audio")
    if caps.get("supports_reasoning_effort") is True or _THINKS.search(template):
        found.append("thinking")
    return found


def context_length(told: Mapping[str, object], props: Mapping[str, object]) -> int:
    """
    How many tokens a conversation can have, 0 where the server does not say.

    One slot's share, else all slots' together; of a model that is not loaded what it was trained
    for, or what its command line says.
    """
    settings = _object(props.get("default_generation_settings"))
    meta = meta_of(told)
    for value in (settings.get("n_ctx"), meta.get("n_ctx")):
        if type(value) is int and value > 0:
            return value
    arguments = args_of(told)
    for name, value in pairwise(arguments):
        if name in ("-c", "--ctx-size") and value.isascii() and value.isdigit() and int(value[:12]):
            return int(value[:12])
    return whole(meta.get("n_ctx_train"))


def meta_of(told: Mapping[str, object]) -> Mapping[str, object]:
    """What the server tells of a loaded model's file."""
    return _object(told.get("meta"))


def architecture(told: Mapping[str, object]) -> str:
    """The family of a model, where a server tells it."""
    return text(meta_of(told).get("architecture")) or UNKNOWN


def details(told: Mapping[str, object]) -> dict[str, object]:
    """Ollama's ``details`` of a model."""
    meta = meta_of(told)
    family = architecture(told)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": human(meta.get("n_params")),
        "quantization_level": quantization(meta.get("ftype")),
    }


def args_of(told: Mapping[str, object]) -> list[str]:
    """The command line of a router's model."""
    args = _object(told.get("status")).get("args")
    return [each for each in args if isinstance(each, str)] if isinstance(args, list) else []


def status_of(told: Mapping[str, object]) -> str:
    """``loaded``, ``unloaded``, …: a server with one model has it, and tells nothing."""
    return text(_object(told.get("status")).get("value")) or "loaded"


def text(value: object) -> str:
    """The value where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int:
    """The value where it is a number, else 0."""
    return int(value) if isinstance(value, int | float) and is_number(value) else 0


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
