"""
What a model's file (GGUF) says of its attention: does a slot file hold all that there is?

The keys are those of llama.cpp's ``gguf-py/gguf/constants.py``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

from slotgate.doctor.facts import Header

_MOST_BYTES = 64 << 20
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_WHOLE = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
_STRING, _ARRAY = 8, 9
#: Endings of keys that only models with a state have.
_STATE = (".ssm.state_size", ".ssm.conv_kernel", ".wkv.head_size", ".shortconv.l_cache")


class NotGGUF(Exception):
    """The file is no GGUF file, or none that we understand."""


def header_of(path: str) -> Header | None:
    """
    What a file says; ``None``: it is not seen here, or says nothing that we understand.
    """
    try:
        with Path(path).open("rb") as file:
            values = _values(file)
    except (OSError, ValueError, NotGGUF, struct.error, MemoryError):
        return None
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        return None
    window = values.get(f"{architecture}.attention.sliding_window", 0)
    return Header(
        architecture=architecture,
        window=window if isinstance(window, int) else 0,
        recurrent=any(key.endswith(_STATE) and value != 0 for key, value in values.items()),
    )


def _values(file: IO[bytes]) -> dict[str, int | str]:
    """The whole numbers and texts among the keys."""
    magic, version, _, count = struct.unpack("<4sIQQ", _read(file, 24))
    if magic != b"GGUF" or version < 2:
        raise NotGGUF
    values: dict[str, int | str] = {}
    for _ in range(count):
        key = _text(file)
        if file.tell() > _MOST_BYTES:
            raise NotGGUF
        kind = _number(file, "<I")
        if kind == _STRING:
            values[key] = _text(file)
        elif kind in _WHOLE:
            values[key] = _number(file, _WHOLE[kind])
        else:
            _skip(file, kind)
    return values


def _skip(file: IO[bytes], kind: int) -> None:
    if kind in _SIZES:
        file.seek(_SIZES[kind], 1)
    elif kind == _STRING:
        file.seek(_number(file, "<Q"), 1)
    elif kind == _ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        if inner in _SIZES:
            file.seek(_SIZES[inner] * count, 1)
            return
        for _ in range(count):
            if file.tell() > _MOST_BYTES:
                raise NotGGUF
            _skip(file, inner)
    else:
        raise NotGGUF


def _number(file: IO[bytes], form: str) -> int:
    number: int = struct.unpack(form, _read(file, struct.calcsize(form)))[0]
    return number


def _text(file: IO[bytes]) -> str:
    return _read(file, _number(file, "<Q")).decode("utf-8", "replace")


def _read(file: IO[bytes], size: int) -> bytes:
    if size > _MOST_BYTES:
        raise NotGGUF
    data = file.read(size)
    if len(data) < size:
        raise NotGGUF
    return data
