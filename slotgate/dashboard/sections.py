"""
The parts of the page that change by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen
from twisted.web.template import Tag

from slotgate.dashboard.activity import Window, switches
from slotgate.dashboard.machines import servers, slots
from slotgate.dashboard.requests import BARS, requests
from slotgate.dashboard.saved import sessions
from slotgate.dashboard.totals import disk, totals
from slotgate.dashboard.view import View

_Json = Mapping[str, Any]


@frozen
class Section:
    """A part of the page."""

    name: str
    #: What it is made of: as long as that is the same, so is what it looks like, but for how long
    #: ago things were.
    about: object = field(repr=False)
    draw: Callable[[], Tag] = field(repr=False)
    #: It is another one for those who look at something else.
    of_view: bool = False


def sections(status: _Json, listing: _Json | None, view: View) -> list[Section]:
    """
    The parts, in their order.

    :param status: what goes on.
    :param listing: the sessions, as the session API lists them.
    """
    now = status["time"]
    numbers, used = status["totals"], status["disk"]
    window = Window.until(now, view.minutes)
    spans = window.of(status["spans"])
    places = [(slot["server"], slot["model"], slot["slot"]) for slot in status["slots"]]
    # an empty time line does not move
    moving = (spans, window, places) if spans else (view.minutes,)
    found = status["slots"]
    clients = any(slot["client"] is not None for slot in found)
    latest = status["requests"][: max(BARS * 2, 1)]
    short = {name: used[name] for name in ("bytes", "limit_bytes", "free_bytes")}
    return [
        Section("totals", (numbers, short), lambda: totals(numbers, used)),
        Section("switches", moving, lambda: switches(spans, found, window, view), True),
        Section("slots", found, lambda: slots(found, now, clients=clients)),
        Section("servers", status["servers"], lambda: servers(status["servers"])),
        Section("requests", latest, lambda: requests(latest, now)),
        Section("sessions", listing, lambda: sessions(listing, now, view), True),
        Section("disk", used, lambda: disk(used)),
    ]
