"""
Tables, sizes and times for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from slotgate import units
from slotgate.plain import cells, cut, printable

#: Columns are not made narrower than this to fit a terminal.
_NARROWEST = 8
_GAP = "  "
#: Nothing to show.
NONE = "-"


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    right: Sequence[str] = (),
    yielding: Sequence[str] = (),
) -> list[str]:
    """
    Aligned lines, headings first.

    :param width: of the terminal; ``None``: as wide as it gets.
    :param right: the headings of columns of numbers.
    :param yielding: the headings of columns that are cut where it gets too wide, the widest first.
    """
    cleaned = [list(headings), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(cells, column)) for column in zip(*cleaned, strict=True)]
    if width is not None:
        _fit(widths, [headings.index(name) for name in yielding], width)
    lines = []
    for row in cleaned:
        parts = []
        for heading, cell, most in zip(headings, row, widths, strict=True):
            kept = cut(cell, most)
            room = " " * (most - cells(kept))
            parts.append(room + kept if heading in right else kept + room)
        line = _GAP.join(parts).rstrip()
        lines.append(line if width is None else cut(line, width))
    return lines


def _fit(widths: list[int], yielding: Sequence[int], width: int) -> None:
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while over > 0 and yielding:
        widest = max(yielding, key=lambda column: widths[column])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1
        over -= 1


def count(value: object) -> str:
    """A number of tokens or things."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else NONE


def size(value: object) -> str:
    """Bytes, in the unit that leaves the fewest digits."""
    number = as_number(value)
    return NONE if number is None else units.size(number)


def duration(value: object) -> str:
    """Seconds, as people say them."""
    seconds = as_number(value)
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    for most, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < most:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"


def ago(text: object, now: float) -> str:
    """
    How long ago a time was.

    :param text: RFC 3339.
    :param now: in seconds since the epoch.
    """
    if not isinstance(text, str):
        return NONE
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return NONE
    seconds = now - (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return "now" if seconds < 1 else f"{duration(float(int(seconds)))} ago".replace(".0 s", " s")


def as_number(value: object) -> float | None:
    """A number that is one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if number - number == 0 else None
    return None
