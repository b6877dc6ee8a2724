"""
JSON out, and the typed reading of a client's JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NoReturn

from attrs import frozen


def dump(value: object) -> bytes:
    """
    One line of JSON in ASCII.

    Clients cut a stream into lines by every line end that Unicode knows (``str.splitlines`` in the
    Python one), so a U+2028 or U+0085 in a text must not stand there as it is.

    :raises ValueError: there is an infinite number in it.
    :raises RecursionError: it is nested too deeply.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


class WrongType(ValueError):
    """A field has another type than it must; the message names both."""


@frozen
class Fields:
    """
    A JSON object of a client, read by name and type; null is absent, as in Ollama.

    :ivar where: what stands before a field's name in an error, such as ``messages[0].``.
    """

    values: Mapping[str, object]
    where: str = ""

    def refuse(self, name: str, kind: str) -> NoReturn:
        """
        :raises WrongType: always.
        """
        raise WrongType(f'field "{self.where}{name}" must be of type {kind}')

    def text(self, name: str) -> str:
        """
        :raises WrongType: it is no string.
        """
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(name, "string")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """
        :raises WrongType: it is no boolean.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, "boolean")
        return value

    def whole(self, name: str) -> int:
        """
        An integer, 0 where it is absent.

        :raises WrongType: it is no integer.
        """
        value = self.values.get(name)
        if value is None:
            return 0
        if type(value) is not int:
            self.refuse(name, "integer")
        return value

    def inner(self, name: str) -> Fields | None:
        """
        :raises WrongType: it is no object.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, "object")
        return Fields(value, f"{self.where}{name}.")

    def items(self, name: str) -> list[object]:
        """
        :raises WrongType: it is no list.
        """
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, "array")
        return value

    def objects(self, name: str) -> list[Fields]:
        """
        :raises WrongType: it is no list of objects.
        """
        found = []
        for number, value in enumerate(self.items(name)):
            if not isinstance(value, dict):
                self.refuse(f"{name}[{number}]", "object")
            found.append(Fields(value, f"{self.where}{name}[{number}]."))
        return found

    def texts(self, name: str) -> list[str]:
        """
        :raises WrongType: it is no list of strings.
        """
        found = []
        for number, value in enumerate(self.items(name)):
            if not isinstance(value, str):
                self.refuse(f"{name}[{number}]", "string")
            found.append(value)
        return found


def is_number(value: object) -> bool:
    """Whether it is a finite JSON number; ``1e999`` is none, though Python reads it."""
    if type(value) is int:
        return True
    return type(value) is float and math.isfinite(value)
