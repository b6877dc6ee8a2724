"""
``/api/tags``, ``/api/ps``, ``/api/show`` and ``/api/version``, from llama-server's ``/v1/models``
and ``/props``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from slotgate.surfaces.ollama._json import dump
from slotgate.surfaces.ollama.clocks import rfc3339
from slotgate.surfaces.ollama.details import (
    architecture,
    args_of,
    capabilities,
    context_length,
    details,
    meta_of,
    status_of,
    text,
    whole,
)
from slotgate.surfaces.ollama.errors import model_not_found
from slotgate.surfaces.ollama.names import digest, resolved, tagged
from slotgate.surfaces.ollama.requests import model_of, parsed, refusals

#: The Ollama whose API this is; VS Code refuses those before 0.6.4.
VERSION = "0.33.0"

#: ``GET /`` and ``HEAD /``.
RUNNING = b"Ollama is running"

#: How long a model stays that nobody unloads; what clients do with it must not overflow.
_LONG = 100 * 365 * 86400

_NOTHING: Mapping[str, object] = {}
_NO_PROPS: Mapping[str, Mapping[str, object]] = {}


def size_of(told: Mapping[str, object]) -> int:
    """The size of a model in bytes, 0 where it is not known."""
    return max(0, whole(meta_of(told).get("size")))


def version() -> bytes:
    """The answer of ``/api/version``."""
    return dump({"version": VERSION})


def listed(listing: object) -> dict[str, Mapping[str, object]]:
    """
    The models that a server tells, by name.

    :param listing: its ``GET /v1/models``, parsed; whatever else it may be has none.
    """
    data = listing.get("data") if isinstance(listing, dict) else None
    found: dict[str, Mapping[str, object]] = {}
    for told in data if isinstance(data, list) else ():
        name = told.get("id") if isinstance(told, dict) else None
        if isinstance(name, str) and name:
            found[name] = told
    return found


def tags(
    models: Mapping[str, Mapping[str, object]],
    props: Mapping[str, Mapping[str, object]] = _NO_PROPS,
) -> bytes:
    """
    The answer of ``/api/tags``.

    :param models: by the names that clients are to use, of one server or several
        (:func:`listed`, and the names of routes).
    :param props: of those models whose properties are known.
    """
    entries = []
    for name, told in models.items():
        entry = _entry(name, told)
        entry["modified_at"] = rfc3339(whole(told.get("created")))
        entry["capabilities"] = capabilities(told, props.get(name, _NOTHING))
        entries.append(entry)
    return dump({"models": entries})


def ps(
    models: Mapping[str, Mapping[str, object]],
    now: float,
    props: Mapping[str, Mapping[str, object]] = _NO_PROPS,
) -> bytes:
    """
    The answer of ``/api/ps``: the models that are in memory.

    llama-server does not tell where: ``size_vram`` is 0.

    :param now: seconds since the epoch.
    """
    entries = []
    for name, told in models.items():
        known = props.get(name, _NOTHING)
        if status_of(told) != "loaded" or known.get("is_sleeping") is True:
            continue
        entry = _entry(name, told)
        entry["expires_at"] = rfc3339(now + _stays(told))
        entry["size_vram"] = 0
        entry["context_length"] = context_length(told, known)
        entries.append(entry)
    return dump({"models": entries})


def shown(raw: bytes) -> str:
    """
    The model that a request to ``/api/show`` asks for, as the client said it.

    :raises OllamaError: it asks for none.
    """
    with refusals():
        return model_of(parsed(raw), old_name=True)


def found(asked: str, models: Mapping[str, Mapping[str, object]]) -> str:
    """
    The name of a model in a listing.

    :param asked: the name as a client said it, with ``:latest`` or without.
    :raises OllamaError: it is not there.
    """
    name = resolved(asked, models.keys())
    if name in models:
        return name
    for name, told in models.items():
        aliases = told.get("aliases")
        if isinstance(aliases, list) and resolved(asked, _texts(aliases)) in aliases:
            return name
    raise model_not_found(asked)


def show(
    asked: str, name: str, told: Mapping[str, object], props: Mapping[str, object] = _NOTHING
) -> bytes:
    """
    The answer of ``/api/show``.

    :param asked: the name as the client said it, which Copilot shows.
    :param name: the model's, by the server.
    :param told: what the server tells of it (:func:`listed`).
    :param props: its properties, empty where they are not known.
    """
    family, meta = architecture(told), meta_of(told)
    context = context_length(told, props)
    info: dict[str, object] = {
        "general.architecture": family,
        "general.basename": asked,
        "general.parameter_count": whole(meta.get("n_params")),
        f"{family}.context_length": context,
        f"{family}.embedding_length": whole(meta.get("n_embd")),
    }
    return dump(
        {
            "license": "",
            "modelfile": f"# served by llama-server\nFROM {name}\n",
            # as a Modelfile has it: clients read the size of the context here
            "parameters": f"{'num_ctx':<30} {context}" if context else "",
            "template": text(props.get("chat_template")),
            "details": details(told),
            "model_info": info,
            "capabilities": capabilities(told, props),
            "modified_at": rfc3339(whole(told.get("created"))),
        }
    )


def _entry(name: str, told: Mapping[str, object]) -> dict[str, object]:
    return {
        "name": tagged(name),
        "model": tagged(name),
        "size": size_of(told),
        "digest": digest(name),
        "details": details(told),
    }


def _stays(told: Mapping[str, object]) -> float:
    """How long an unused model stays in memory, in seconds."""
    arguments = args_of(told)
    for name, value in pairwise(arguments):
        if name == "--sleep-idle-seconds" and value.isascii() and value.isdigit():
            return min(int(value[:12]), _LONG)
    return _LONG


def _texts(values: list[object]) -> list[str]:
    return [value for value in values if isinstance(value, str)]
