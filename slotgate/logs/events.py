"""
What of a log event is shown.

An event holds whatever was given to a logger, and what Twisted adds: the object that logged, whole
failures with all their frames. Here is taken out of it what may be written down. Nothing here
raises, whatever an event holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

#: Longer ones are cut, in characters.
LONGEST_MESSAGE, LONGEST_FIELD, LONGEST_NAME, LONGEST_TRACEBACK = 8192, 1024, 100, 32768
MOST_FIELDS = 50

Scalar = str | int | float | bool | None

#: Names of a line's own, and what twisted.python.log adds to the events that it sees.
_NO_FIELDS = frozenset(
    {"time", "level", "namespace", "message", "traceback"}
    | {"system", "isError", "format", "failure", "why", "printed", "logLevel"}
)
_LARGEST = 2**63


class _Unshown(dict[str, Any]):
    """An event that Twisted can not write out whole, which it does where a format fails."""

    def __repr__(self) -> str:
        return "(its fields are not shown)"

    __str__ = __repr__

    def items(self) -> Any:
        """Nothing; the other methods are as they were."""
        return ()


def message_of(event: LogEvent) -> str:
    """The message, in words."""
    return _cut(formatEvent(_Unshown(event)), LONGEST_MESSAGE)


def traceback_of(event: LogEvent) -> str:
    """
    The traceback of a failure, without the values of variables; empty: there is no failure.
    """
    failure = event.get("log_failure")
    if not isinstance(failure, Failure):
        return ""
    try:
        text = failure.getTraceback()
    except Exception as error:
        return f"(the traceback can not be shown: {type(error).__name__})"
    # what was raised stands at the end
    return text if len(text) <= LONGEST_TRACEBACK else "…" + text[-LONGEST_TRACEBACK:]


def time_of(event: LogEvent) -> str | None:
    """When it happened, RFC 3339 in UTC with milliseconds; ``None``: nobody knows."""
    try:
        at = datetime.fromtimestamp(event["log_time"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def level_of(event: LogEvent) -> str | None:
    """The level's name; ``None``: it has none."""
    level = getattr(event.get("log_level"), "name", None)
    return level if isinstance(level, str) else None


def namespace_of(event: LogEvent) -> str | None:
    """Which module logged it; ``None``: it does not say."""
    namespace = event.get("log_namespace")
    return _cut(namespace, LONGEST_FIELD) if isinstance(namespace, str) else None


def system_of(event: LogEvent) -> str:
    """What stands between brackets before a message: who logged it, and the level."""
    system = event.get("log_system")
    if isinstance(system, str):
        return _cut(system, LONGEST_FIELD)
    return f"{namespace_of(event) or '-'}#{level_of(event) or '-'}"


def fields_of(event: LogEvent) -> dict[str, Scalar]:
    """The fields that were given to the logger, as far as they are plain values."""
    fields: dict[str, Scalar] = {}
    for name, value in _given(event):
        if len(fields) == MOST_FIELDS:
            break
        if value is None or isinstance(value, (str, bytes, int, float)):
            fields[_cut(name, LONGEST_NAME)] = _scalar(value)
    return fields


def _given(event: LogEvent) -> Iterable[tuple[str, Any]]:
    for name, value in event.items():
        if isinstance(name, str) and name not in _NO_FIELDS and not name.startswith("log_"):
            yield name, value


def _scalar(value: str | bytes | int | float | None) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return _cut(value[:LONGEST_FIELD].decode("utf-8", "backslashreplace"), LONGEST_FIELD)
    if isinstance(value, str):
        # a str of another class: an enum's member
        return _cut(str.__str__(value), LONGEST_FIELD)
    if isinstance(value, int):
        # more digits than others read, and than Python writes
        return int(value) if -_LARGEST <= value < _LARGEST else "a huge number"
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"
