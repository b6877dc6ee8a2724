"""
What slots did: a time line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from attrs import frozen
from twisted.web.template import Tag

from slotgate.dashboard.machines import slot_name
from slotgate.dashboard.markup import nothing, section, shown, tag
from slotgate.dashboard.numbers import count, duration, size
from slotgate.dashboard.plots import COLOURS, KINDS, Lane, Mark, Stay, legend, timeline
from slotgate.dashboard.view import MINUTES, View

_Json = Mapping[str, Any]
_Place = tuple[str, str, int]

#: Into so many parts the time line is divided.
TICKS = {2: 4, 5: 5, 10: 5}
#: The right end moves on in so many steps to be where the left one was.
_STEPS = 150
#: What together is less than this part of the whole is one.
_NEAR = 0.006
#: So many steps of all slots are drawn, and so many sessions: the latest.
MOST_MARKS, MOST_STAYS = 400, 120
_MOST_NAMES = 4


@frozen
class Window:
    """A part of time that is shown."""

    begin: float
    end: float

    @classmethod
    def until(cls, now: float, minutes: int) -> Window:
        """The last minutes; the end moves in steps, so that not each look is another picture."""
        step = minutes * 60 / _STEPS
        end = math.ceil(now / step) * step
        return cls(end - minutes * 60, end)

    def of(self, spans: Iterable[_Json]) -> list[_Json]:
        """What was going on in it."""
        return [span for span in spans if span["ended"] >= self.begin]


def switches(spans: Sequence[_Json], slots: Sequence[_Json], window: Window, view: View) -> Tag:
    """
    The time line.

    :param spans: those in the window.
    :param slots: each has a row, as have others in which something was going on.
    """
    choices = [
        tag(
            "a",
            f"{minutes} min",
            href=view.with_minutes(minutes).query,
            aria_current="true" if minutes == view.minutes else None,
        )
        for minutes in MINUTES
    ]
    aside = tag("nav", *choices, class_="choices", aria_label="How much of the time is shown")
    if not spans:
        quiet = nothing(f"No slot did anything in the last {view.minutes} minutes.")
        return section("switches", "Time line", quiet, aside=aside)
    plot = timeline(lanes_of(spans, slots, window), window.begin, window.end, TICKS[view.minutes])
    kinds = list(KINDS.items())
    if any(span["failed"] for span in spans):
        kinds.append(("failed", "failed"))
    return section("switches", "Time line", legend(kinds), plot, aside=aside)


def lanes_of(spans: Sequence[_Json], slots: Sequence[_Json], window: Window) -> list[Lane]:
    """A row for each slot."""
    now_in = {_place(slot): (slot["client"], slot["session"]) for slot in slots}
    places: dict[_Place, list[_Json]] = {_place(slot): [] for slot in slots}
    for span in spans:
        places.setdefault(_place(span), []).append(span)
    lanes = []
    for place, marks in places.items():
        marks.sort(key=lambda span: span["began"])
        name = slot_name({"server": place[0], "model": place[1], "slot": place[2]})
        stays = _stays(marks, now_in.get(place), window.end)
        steps = _marks(marks, (window.end - window.begin) * _NEAR)
        most = [max(limit // len(places), 1) for limit in (MOST_MARKS, MOST_STAYS)]
        lanes.append(Lane(name, steps[-most[0] :], stays[-most[1] :]))
    return lanes


def _place(one: _Json) -> _Place:
    return one["server"], one["model"], one["slot"]


def _marks(spans: Sequence[_Json], least: float) -> list[Mark]:
    """
    The steps of a slot; those of a kind that nobody could tell apart are one.

    :param spans: by their beginning.
    :param least: what together is shorter is one, in seconds.
    """
    groups: list[list[_Json]] = []
    last: dict[tuple[str, bool], list[_Json]] = {}
    for span in spans:
        kind = span["kind"], span["failed"]
        group = last.get(kind)
        if group is not None and span["ended"] - group[0]["began"] < least:
            group.append(span)
        else:
            last[kind] = [span]
            groups.append(last[kind])
    return [_mark(group) for group in groups]


def _mark(group: Sequence[_Json]) -> Mark:
    first, last = group[0], group[-1]
    words = [KINDS[first["kind"]] + (" failed" if first["failed"] else "")]
    if len(group) > 1:
        words[0] = f"{len(group)} times {words[0]}"
    words += dict.fromkeys(_whose(span) for span in group if span["session"] is not None)
    if len(words) > _MOST_NAMES:
        words[_MOST_NAMES:] = ["…"]
    tokens, written = (sum(span[name] for span in group) for name in ("tokens", "bytes"))
    if tokens:
        words.append(f"{count(tokens)} tokens")
    if written:
        words.append(size(written))
    words.append(duration(sum(span["ended"] - span["began"] for span in group)))
    return Mark(first["kind"], first["began"], last["ended"], first["failed"], ", ".join(words))


def _whose(span: _Json) -> str:
    of = f" of {shown(span['client'])}" if span["client"] is not None else ""
    return f"{shown(span['session'])}{of}"


def _stays(spans: Sequence[_Json], now: tuple[str | None, str] | None, end: float) -> list[Stay]:
    """
    Whose cache was in a slot, as far as what was done to it tells.

    :param spans: by their beginning.
    :param now: whose it is.
    """
    stays: list[Stay] = []
    last: tuple[str | None, str] | None = None
    for span in spans:
        who = (span["client"], span["session"])
        # an erase is of what was there before
        if span["session"] is None or span["kind"] == "erase":
            last = None
            continue
        began = span["began"]
        if who == last:
            stays[-1] = _until(stays[-1], span["ended"])
        else:
            if stays and last is not None:
                stays[-1] = _until(stays[-1], began)
            colour = crc32(repr(who).encode()) % COLOURS
            stays.append(Stay(_whose(span), colour, began, span["ended"]))
        last = who
    if stays and last is not None and last == now:
        stays[-1] = _until(stays[-1], end)
    return stays


def _until(stay: Stay, ended: float) -> Stay:
    return Stay(stay.name, stay.colour, stay.began, max(ended, stay.ended))
