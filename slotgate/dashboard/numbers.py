"""
Numbers and times as people read them.
"""

from __future__ import annotations

from slotgate.web._session_json import time_text

#: Nothing to show.
NONE = "–"  # noqa: RUF001

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(value: float | None) -> str:
    """A number of things: exact as long as that can be read at a look."""
    if value is None:
        return NONE
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for limit, unit, name in ((1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if abs(value) < limit:
            number = value / unit
            return f"{number:.1f} {name}" if abs(number) < 100 else f"{number:.0f} {name}"
    return f"{value / 1e9:,.1f} G"


def size(value: float | None) -> str:
    """Bytes, in the unit that leaves the fewest digits."""
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            digits = 0 if unit == "B" or abs(value) >= 100 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float | None) -> str:
    """Seconds, as people say them."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"−{duration(-seconds)}"  # noqa: RUF001
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        minutes, rest = divmod(int(seconds), _MINUTE)
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    if seconds < _DAY:
        hours, rest = divmod(int(seconds) // _MINUTE, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{seconds / _DAY:.1f} d"


def ago(seconds: float) -> str:
    """
    How long ago something was. ``live.js`` says the same once it runs.

    :param seconds: from then to now.
    """
    if seconds < 1:
        return "now"
    for limit, unit, name in ((_MINUTE, 1, "s"), (_HOUR, _MINUTE, "min"), (_DAY, _HOUR, "h")):
        if seconds < limit:
            return f"{int(seconds // unit)} {name} ago"
    return f"{int(seconds // _DAY)} d ago"


def percent(part: float | None) -> str:
    """A part of 1."""
    return NONE if part is None else f"{part * 100:.0f} %"


def plural(number: int, one: str, many: str = "") -> str:
    """So many of something."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def clock(seconds: float) -> str:
    """A time, in UTC."""
    return time_text(seconds).replace("T", " ").replace("Z", " UTC")
