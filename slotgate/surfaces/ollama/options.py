"""
Ollama's ``options`` as llama-server's parameters.

What a client does not set is left to the server, whose operator chose its defaults. Options of the
model's loading are llama-server's command line and have no effect here.
"""

from __future__ import annotations

from collections.abc import Callable

from slotgate.surfaces.ollama._json import Fields, WrongType, is_number

_INT32 = 2**31 - 1

#: Where ``-1`` asks for all of the context. llama-server keeps a list of so many tokens.
_MOST_LOOKED_BACK = 2**18


def _clamped(low: int, high: int = _INT32) -> Callable[[int], int]:
    return lambda value: min(max(value, low), high)


def _looked_back(value: int) -> int:
    return _MOST_LOOKED_BACK if value < 0 else min(value, _MOST_LOOKED_BACK)


# llama-server refuses what lies beyond these limits, or lets it overflow (b11549)
_INTEGERS: dict[str, tuple[str, Callable[[int], int]]] = {
    "num_predict": ("n_predict", _clamped(-1)),
    "num_keep": ("n_keep", _clamped(-1)),
    "top_k": ("top_k", _clamped(0)),
    "repeat_last_n": ("repeat_last_n", _looked_back),
    "seed": ("seed", _clamped(-1, 2**32 - 1)),
}

_FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)

#: Settled when the model was loaded.
_IGNORED_INTEGERS = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "draft_num_predict",
)
_IGNORED_FLAGS = ("use_mmap",)


def parameters(request: Fields) -> dict[str, object]:
    """
    The parameters that a request's ``options`` ask for. Unknown options ask for none.

    :raises WrongType: an option has another type than Ollama's; the message is Ollama's.
    """
    asked = request.inner("options")
    found: dict[str, object] = {}
    for name, value in asked.values.items() if asked is not None else ():
        if value is None:
            continue
        if name in _INTEGERS:
            theirs, limited = _INTEGERS[name]
            found[theirs] = limited(_integer(name, value))
        elif name in _FLOATS:
            found[name] = _float(name, value)
        elif name == "stop":
            found[name] = _texts(name, value)
        elif name in _IGNORED_INTEGERS:
            _integer(name, value)
        elif name in _IGNORED_FLAGS and not isinstance(value, bool):
            raise WrongType(f'option "{name}" must be of type boolean')
    return found


def _integer(name: str, value: object) -> int:
    # all numbers are floats to Ollama, which cuts the fraction off
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_number(value):
        raise WrongType(f'option "{name}" must be of type integer')
    return int(value)


def _float(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_number(value):
        raise WrongType(f'option "{name}" must be of type float32')
    largest = 3.4e38
    return min(max(value, -largest), largest)


def _texts(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        raise WrongType(f'option "{name}" must be of type array')
    if not all(isinstance(text, str) for text in value):
        raise WrongType(f'option "{name}" must be of an array of strings')
    return value
