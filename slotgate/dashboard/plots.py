"""
Plots, as SVG without a style of its own: places and widths are parts of whatever width there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen
from twisted.web.template import Tag

from slotgate.dashboard.markup import LONGEST_SLOT, Content, name, tag

#: The kinds of spans, and what each is called. The first three are steps of a switch.
KINDS = {
    "save": "save",
    "restore": "restore",
    "erase": "erase",
    "read": "read the prompt",
    "generate": "generate",
}
#: From the top down: what follows within milliseconds would hide what was before it.
_TRACKS = {"save": 0, "restore": 1, "erase": 1, "read": 2, "generate": 3}

#: Sessions are told apart by so many colours.
COLOURS = 6

_LANE, _TRACK, _STEP, _NAMES_AT, _NAMES = 60, 8, 10, 42, 18
_BARS = 96
#: Nothing without a width is drawn at all.
_LEAST = 0.001


@frozen
class Mark:
    """Something that took a while."""

    kind: str
    began: float
    ended: float
    failed: bool
    title: str


@frozen
class Stay:
    """A session in a slot."""

    name: str
    colour: int
    began: float
    ended: float


@frozen
class Lane:
    """What one slot did."""

    name: str
    marks: Sequence[Mark]
    stays: Sequence[Stay]


@frozen
class Bar:
    """A request's tokens."""

    read: int
    reused: int
    title: str


def _percent(part: float) -> str:
    return f"{part * 100:.2f}%"


def _rect(x: float, width: float, y: float, height: float, kind: str, *inside: Content) -> Tag:
    return tag(
        "rect",
        *inside,
        x=_percent(x),
        width=_percent(width),
        y=f"{y:g}",
        height=f"{height:g}",
        class_=kind,
    )


def swatch(kind: str) -> Tag:
    """The colour of something, for a legend."""
    box = tag("rect", width="12", height="12", rx="2", class_=kind)
    return tag("svg", box, width="12", height="12", aria_hidden="true", class_="swatch")


def legend(kinds: Iterable[tuple[str, str]]) -> Tag:
    """What the colours mean."""
    items = [tag("li", swatch(kind), what) for kind, what in kinds]
    return tag("ul", *items, class_="legend")


def timeline(lanes: Sequence[Lane], begin: float, end: float, ticks: int) -> Tag:
    """
    A row for each slot: from the top down what was saved, restored or erased, read and generated,
    and at the bottom whose cache is in the slot.

    :param begin: the time at the left, and at the right.
    :param ticks: into so many parts it is divided.
    """
    rows = [
        tag(
            "div",
            tag("div", name(lane.name, LONGEST_SLOT), class_="lane-name"),
            _lane(lane, begin, end, ticks),
            class_="lane",
            data_key=lane.name,
        )
        for lane in lanes
    ]
    seconds = end - begin
    labels = [
        tag(
            "text",
            "now" if at == ticks else _before(seconds * (ticks - at) / ticks),
            x=_percent(at / ticks),
            y="13",
            class_=_kind_of_label(at, ticks),
        )
        for at in range(ticks + 1)
    ]
    axis = tag("svg", *labels, width="100%", height="18", class_="axis", aria_hidden="true")
    return tag("div", *rows, tag("div", axis, class_="axis-row"), class_="timeline")


def _kind_of_label(at: int, ticks: int) -> str | None:
    kinds = {0: "first", ticks // 2: None, ticks: "last"}
    # where it is narrow there is no room for these
    return kinds.get(at, "between")


def _before(seconds: float) -> str:
    minutes = seconds / 60
    return f"−{minutes:g} min" if minutes >= 1 else f"−{seconds:g} s"  # noqa: RUF001


def _lane(lane: Lane, begin: float, end: float, ticks: int) -> Tag:
    def part(at: float) -> float:
        return min(max((at - begin) / (end - begin), 0.0), 1.0)

    grid = [
        tag("line", x1=x, x2=x, y1="0", y2="100%", class_="grid")
        for x in (_percent(at / ticks) for at in range(1, ticks))
    ]
    stays = []
    for stay in lane.stays:
        x, width = part(stay.began), part(stay.ended) - part(stay.began)
        # an inner svg cuts a name that is longer than the time
        stays.append(
            tag(
                "svg",
                tag("rect", tag("title", stay.name), width="100%", height="100%", rx="3"),
                tag("text", stay.name, x="5", y="13"),
                x=_percent(x),
                width=_percent(width),
                y=f"{_NAMES_AT}",
                height=f"{_NAMES}",
                class_=f"stay colour-{stay.colour % COLOURS}",
            )
        )
    marks = [
        _rect(
            part(mark.began),
            max(part(mark.ended) - part(mark.began), _LEAST),
            1 + _TRACKS[mark.kind] * _STEP,
            _TRACK,
            f"mark {mark.kind}{' failed' if mark.failed else ''}",
            tag("title", mark.title),
        )
        for mark in lane.marks
    ]
    return tag(
        "svg",
        *grid,
        *stays,
        *marks,
        width="100%",
        height=f"{_LANE}",
        role="img",
        aria_label=f"{lane.name}: {len(marks)} steps",
        class_="lane-plot",
    )


def token_bars(bars: Sequence[Bar], room: int) -> Tag:
    """
    Requests beside each other, the latest at the right: reused tokens, and on top of them those
    that were read.

    :param room: for so many bars there is room.
    """
    most = max((bar.read + bar.reused for bar in bars), default=0) or 1
    step = 1 / room
    columns = []
    for at, bar in enumerate(bars, start=room - len(bars)):
        reused, read = (_BARS * tokens / most for tokens in (bar.reused, bar.read))
        # nothing that is there is too small to be seen
        reused, read = (max(height, 1.5) if height else 0 for height in (reused, read))
        x, width = at * step, step * 0.8
        stack = [
            _rect(x, width, 0, _BARS, "behind"),
            _rect(x, width, _BARS - reused, reused, "reused"),
            _rect(x, width, max(_BARS - reused - read, 0), read, "read"),
        ]
        columns.append(tag("g", tag("title", bar.title), *stack))
    return tag(
        "svg",
        *columns,
        width="100%",
        height=f"{_BARS}",
        role="img",
        aria_label=f"Tokens read and reused by the last {len(bars)} requests",
        class_="bars",
    )


def split_bar(parts: Sequence[tuple[str, float]], label: str) -> Tag:
    """
    A bar that is divided.

    :param parts: a class and a part of 1 each.
    """
    rects, x = [], 0.0
    for kind, part in parts:
        rects.append(_rect(x, part, 0, 8, kind))
        x += part
    return tag(
        "svg", *rects, width="100%", height="8", role="img", aria_label=label, class_="split"
    )
