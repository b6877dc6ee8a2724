"""
TOML into attrs classes, strictly, with every mistake as one line that names its place.

Nothing here knows a setting: the classes, their readers and the further keys come from the caller.
A *reader* turns one value of the file into the field's value or raises :class:`Wrong`.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, TypeVar

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

T = TypeVar("T")

#: Turns one value of the file into the value of a field.
Reader = Callable[[Any], Any]
#: The way to a value: keys, and numbers for the elements of a list.
Place = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (str, "text"),
    ((int, float), "a number"),
    (list, "a list"),
    (dict, "a table"),
    ((date, time), "a date or time"),
)
_SHOWN_CHARACTERS = 60
_SHOWN_NUMBER = 10**20


class Wrong(ValueError):
    """
    A value that a reader refuses.

    :ivar item: the element of the list that is meant, where the value is a list.
    :ivar key: the key that was really written, where several end in the same field.
    """

    def __init__(self, message: str, *, item: int | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.item = item
        self.key = key


def kind(value: object) -> str:
    """What sort of TOML value this is, in words and without the value itself."""
    return next((words for types, words in _KINDS if isinstance(value, types)), "something else")


def shown(value: object) -> str:
    """The value as it stands in the file, shortened; of lists, tables and dates only the kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return json.dumps(cut, ensure_ascii=False)
    if isinstance(value, int) and abs(value) > _SHOWN_NUMBER:
        return "a huge number"  # str() of an int has a limit of digits
    if isinstance(value, (int, float)):
        return str(value)
    return kind(value)


def dotted(place: Place) -> str:
    """The place as TOML writes it: ``servers.local.url``, ``routes[1].slot``."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


def guess(word: str, known: Sequence[str]) -> str:
    """``(did you mean "…"?)`` with a leading space, or nothing when no known word is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def parse(text: str) -> dict[str, Any]:
    """
    Parse TOML.

    :raises Wrong: for text that is no TOML, with line and column.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise Wrong("not valid TOML: nested too deeply") from None
    except ValueError as error:  # also what int() says of a number with thousands of digits
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        message = str(error).replace("at end of document", f"at line {line}, column {column}")
        raise Wrong(f"not valid TOML: {message}") from None


class Structurer:
    """
    Structures tables into attrs classes and collects the mistakes.

    :param readers: for every class the reader of each of its fields. All are needed: cattrs' own
        would coerce (``listen = 5`` becomes ``"5"``).
    :param alternatives: fields that several keys end in; their reader gets the written ones as a
        mapping.
    :param hidden: fields that are no keys of the file.
    """

    def __init__(
        self,
        readers: Mapping[type, Mapping[str, Reader]],
        alternatives: Mapping[str, Sequence[str]],
        hidden: Mapping[type, Sequence[str]],
    ) -> None:
        self.mistakes: list[tuple[Place, str]] = []
        self._alternatives = alternatives
        self._hidden = hidden
        self._hooks: dict[type, Callable[[Any, type], Any]] = {}
        converter = Converter(forbid_extra_keys=True, detailed_validation=True)
        for cls, fields in readers.items():
            overrides: dict[str, Any] = {
                name: override(struct_hook=_hook(fields[name])) for name in _fields(cls)
            }
            self._hooks[cls] = make_dict_structure_fn(cls, converter, **overrides)

    def keys(self, cls: type) -> list[str]:
        """The keys that the table of a class may have."""
        hidden = self._hidden.get(cls, ())
        names = [name for name in _fields(cls) if name not in hidden]
        return [key for name in names for key in self._alternatives.get(name, (name,))]

    def wrong(self, place: Place, message: str) -> None:
        """Note a mistake."""
        self.mistakes.append((place, message))

    def structure(self, cls: type[T], table: object, place: Place, **given: Any) -> T | None:
        """
        Structure one table.

        :param given: values of hidden fields.
        :return: ``None`` when there were mistakes; they are noted.
        """
        if isinstance(table, dict):
            for name in self._hidden.get(cls, ()):
                if name in table:
                    self.wrong(place, self._unknown(name, cls))
        try:
            return self.structured(cls, table, given)
        except (ClassValidationError, Wrong) as error:
            self.mistakes.extend(self._walk(error, place))
            return None

    def structured(self, cls: type[T], table: object, given: Mapping[str, Any] | None = None) -> T:
        """
        Structure a table inside another one's reader.

        :raises ClassValidationError: all its mistakes.
        :raises Wrong: when it is no table.
        """
        if not isinstance(table, dict):
            raise Wrong(f"expected a table, got {kind(table)}")
        values = dict(table)
        for field, keys in self._alternatives.items():
            if field not in _fields(cls):
                continue
            written = {key: values.pop(key) for key in keys if key in values}
            if written:
                values[field] = written
        result: T = self._hooks[cls]({**values, **(given or {})}, cls)
        return result

    def _unknown(self, key: str, cls: type) -> str:
        return f"unknown key {shown(key)}{guess(key, self.keys(cls))}"

    def _walk(self, error: BaseException, place: Place) -> Iterator[tuple[Place, str]]:
        if isinstance(error, ClassValidationError):
            noted, others = error.group_exceptions()
            for inner, note in noted:
                yield from self._walk(inner, (*place, note.name))
            for inner in others:
                yield from self._walk(inner, place)
        elif isinstance(error, ExceptionGroup):
            for inner in error.exceptions:
                yield from self._walk(inner, place)
        elif isinstance(error, ForbiddenExtraKeysError):
            for key in sorted(error.extra_fields):
                yield place, self._unknown(key, error.cl)
        elif isinstance(error, KeyError):  # from cattrs; readers raise Wrong only
            ways = self._alternatives.get(str(place[-1]), ())
            yield place, "missing" + (f": write one of {', '.join(ways)}" if ways else "")
        elif isinstance(error, Wrong):
            if error.key is not None:
                place = (*place[:-1], error.key)
            if error.item is not None:
                place = (*place, error.item)
            yield place, str(error)
        else:
            raise error


def _fields(cls: type) -> list[str]:
    return [field.name for field in attrs.fields(cls)]


def _hook(reader: Reader) -> Callable[[Any, Any], Any]:
    return lambda value, _: reader(value)
