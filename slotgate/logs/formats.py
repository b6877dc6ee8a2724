"""
A log event as a line: for people, and for programs.
"""

from __future__ import annotations

import json

from twisted.logger import LogEvent, formatTime

from slotgate.logs.events import (
    fields_of,
    level_of,
    message_of,
    namespace_of,
    system_of,
    time_of,
    traceback_of,
)
from slotgate.plain import printable


def as_json(event: LogEvent) -> str:
    """
    One JSON object and a line end: ``time``, ``level``, ``namespace``, ``message``, the fields of
    the event, and the ``traceback`` of a failure.

    It is ASCII, so that it is the same in any encoding.
    """
    line = {
        "time": time_of(event),
        "level": level_of(event),
        "namespace": namespace_of(event),
        "message": message_of(event),
        **fields_of(event),
    }
    if traceback := traceback_of(event):
        line["traceback"] = traceback
    whole = {_whole(name): _whole(value) for name, value in line.items()}
    return json.dumps(whole, allow_nan=False) + "\n"


def as_text(event: LogEvent, *, with_time: bool = True) -> str | None:
    """
    One line as twistd writes it, and the lines of a traceback below it, each after a tab.

    What a message has in it of line ends and control characters is escaped, so a line that does
    not begin with a tab is one that we wrote.

    :returns: ``None`` for an event without a message.
    """
    message, traceback = message_of(event), traceback_of(event)
    if not message and not traceback:
        return None
    time = f"{_local_time(event)} " if with_time else ""
    lines = [f"{time}[{printable(system_of(event))}] {printable(message)}"]
    lines += [f"\t{printable(line)}" for line in traceback.rstrip("\n").split("\n") if line]
    return "\n".join(lines) + "\n"


def _local_time(event: LogEvent) -> str:
    try:
        return formatTime(event.get("log_time"))
    except (TypeError, ValueError, OverflowError, OSError):
        return "-"


def _whole(value: object) -> object:
    """Text without halves of surrogate pairs, which are no characters to a strict reader."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
