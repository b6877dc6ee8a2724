"""
What llama-server's control endpoints answer, as data.

The shapes were read off b11434 and b11549; the contract suite (``tests/contract.py``) holds them.
"""

from __future__ import annotations

from typing import TypeVar

from attrs import field, frozen

from slotgate.llama.errors import Junk

_T = TypeVar("_T", int, float, str, bool)


@frozen
class SlotStatus:
    """One slot as ``GET /slots`` shows it."""

    id: int
    busy: bool
    #: The request that used the slot last; ``None``: none since the server's start. Saves and
    #: restores do not change it, so another value means that somebody else used the slot.
    task: int | None
    #: Tokens in the slot; ``None`` where the server does not say (a slot that served nothing yet).
    tokens: int | None
    #: How many tokens fit.
    n_ctx: int | None


@frozen
class Saved:
    """A save that the server called a success; an empty slot "succeeds" with 0 tokens."""

    tokens: int
    size: int
    milliseconds: float


@frozen
class Restored:
    """A restore that the server called a success."""

    tokens: int
    size: int
    milliseconds: float


@frozen
class Usage:
    """Token counts of one answer to a generation."""

    #: Tokens of the prompt that were in the slot already.
    reused: int
    #: Tokens of the prompt that had to be read.
    read: int
    #: Tokens generated; ``None`` where the response does not say.
    generated: int | None = None
    #: How long reading the prompt took, in milliseconds; ``None`` where the response does not say.
    #: Two answers with the same counts are the same.
    read_ms: float | None = field(default=None, eq=False)


@frozen
class Props:
    """``GET /props``."""

    total_slots: int
    model_path: str
    build: str
    sleeping: bool


#: Of ``meta``: what stays the same however the server is started. Its ``n_ctx`` does not.
_SHAPE = ("n_vocab", "n_ctx_train", "n_embd", "n_params", "size", "ftype")


def _get(answer: object, name: str, kind: type[_T]) -> _T | None:
    """
    :raises Junk: the field is there and of another type.
    """
    if not isinstance(answer, dict):
        raise Junk(f"expected an object, got {type(answer).__name__}")
    value = answer.get(name)
    if value is None:
        return None
    if kind is float and type(value) is int:
        return kind(value)
    # bool is an int to isinstance, and a server that says "n_saved": true says nothing
    if type(value) is not kind:
        # not the value: it would go into the log, and nobody knows what it holds
        raise Junk(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _need(answer: object, name: str, kind: type[_T]) -> _T:
    value = _get(answer, name, kind)
    if value is None:
        raise Junk(f"{name} is missing")
    return value


def _timing(answer: object, name: str) -> float:
    timings = answer.get("timings") if isinstance(answer, dict) else None
    return (_get(timings, name, float) or 0.0) if isinstance(timings, dict) else 0.0


def slots_from(answer: object) -> tuple[SlotStatus, ...]:
    """
    :raises Junk: not a list of slots.
    """
    if not isinstance(answer, list):
        raise Junk(f"/slots: expected a list, got {type(answer).__name__}")
    return tuple(
        SlotStatus(
            id=_need(slot, "id", int),
            busy=_need(slot, "is_processing", bool),
            task=_get(slot, "id_task", int),
            tokens=_get(slot, "n_prompt_tokens", int),
            n_ctx=_get(slot, "n_ctx", int),
        )
        for slot in answer
    )


def saved_from(answer: object) -> Saved:
    """
    :raises Junk: not the answer of a save.
    """
    tokens, size = _need(answer, "n_saved", int), _need(answer, "n_written", int)
    return Saved(tokens, size, _timing(answer, "save_ms"))


def restored_from(answer: object) -> Restored:
    """
    :raises Junk: not the answer of a restore.
    """
    tokens, size = _need(answer, "n_restored", int), _need(answer, "n_read", int)
    return Restored(tokens, size, _timing(answer, "restore_ms"))


def erased_from(answer: object) -> int:
    """
    How many tokens an erase dropped.

    :raises Junk: not the answer of an erase.
    """
    return _need(answer, "n_erased", int)


def shape_from(answer: object, model: str = "") -> str:
    """
    The shape of a model that ``GET /v1/models`` tells.

    :param model: which of a router's models; empty: the first one, a single server has no other.
    :raises Junk: not a list of models with this one in it.
    """
    models = answer.get("data") if isinstance(answer, dict) else None
    for one in models if isinstance(models, list) else ():
        if isinstance(one, dict) and model in ("", one.get("id")):
            meta = one.get("meta")
            known = meta if isinstance(meta, dict) else {}
            return ", ".join(f"{name} {known[name]}" for name in _SHAPE if name in known)
    raise Junk(f"/v1/models: no model {model!r} in it" if model else "/v1/models: no model in it")


def props_from(answer: object) -> Props:
    """
    :raises Junk: not the properties of a server with one model.
    """
    return Props(
        total_slots=_need(answer, "total_slots", int),
        model_path=_get(answer, "model_path", str) or "",
        build=_get(answer, "build_info", str) or "",
        sleeping=_get(answer, "is_sleeping", bool) or False,
    )
