"""
Sessions: those in slots, and those that are saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from twisted.web.template import Tag

from slotgate.dashboard.keys import query_of
from slotgate.dashboard.markup import (
    Column,
    Content,
    badge,
    name,
    nothing,
    section,
    session_link,
    shown,
    table,
    tag,
    time,
)
from slotgate.dashboard.numbers import NONE, count, plural, size
from slotgate.dashboard.plots import split_bar
from slotgate.dashboard.view import PAGE, View
from slotgate.sessions import SessionKey

_Json = Mapping[str, Any]


def sessions(listing: _Json | None, now: float, view: View) -> Tag:
    """
    A page of the sessions.

    :param listing: as the session API tells it; ``None``: the index does not answer.
    """
    if listing is None:
        away = nothing("The index does not answer; the log says why.")
        return section("sessions", "Sessions", away)
    rows: Sequence[_Json] = listing["sessions"]
    total = tag(
        "span",
        f"{plural(listing['total'], 'session')}, {size(listing['bytes'])} on disk",
        class_="dim",
    )
    if not rows and not listing["total"]:
        none = nothing("No session yet: a request that names one, or begins one, will be here.")
        return section("sessions", "Sessions", none)
    clients = any(row.get("client") is not None for row in rows)
    largest = max((row["bytes"] for row in rows), default=0)
    columns = [
        Column("Session"),
        *([Column("Client")] if clients else []),
        Column("Route"),
        Column("Cache"),
        Column("Tokens", number=True),
        Column("Size"),
        Column("Used"),
        Column("Actions", silent=True),
    ]
    listed = [(query_of(key_of_row(row)), _row(row, now, largest, clients)) for row in rows]
    # where there are not so many it is the last page
    pages = _pages(listing["total"], view.at(listing["offset"]))
    return section("sessions", "Sessions", table("Sessions", columns, listed), pages, aside=total)


def key_of_row(row: _Json) -> SessionKey:
    """The session of a row of the API's list."""
    return SessionKey(row.get("client"), row["route"], row["id"])


def state(row: _Json) -> Tag:
    """Where a session's cache is."""
    if not row["resident"]:
        return badge("saved", "good", "its cache is on disk")
    if row["saved"]:
        return badge("in a slot, saved", "good")
    if row["bytes"]:
        return badge("in a slot, changed", "dull", "its snapshot is older than the slot")
    return badge("in a slot, never saved", "dull", "there is no snapshot of it")


def _row(row: _Json, now: float, largest: int, clients: bool) -> list[Content]:
    key = key_of_row(row)
    bar: Content = ""
    if row["bytes"] and largest:
        part = row["bytes"] / largest
        label = f"{part * 100:.0f} % of the largest"
        bar = split_bar([("used", part), ("behind", 1 - part)], label)
    text = size(row["bytes"]) if row["bytes"] else NONE
    whose = [name(key.client) if key.client is not None else NONE]
    return [
        session_link(key),
        *(whose if clients else []),
        name(key.route),
        state(row),
        count(row["tokens"]),
        tag("div", text, bar, class_="with-bar"),
        time(seconds(row["last_used"]), now),
        buttons(row),
    ]


def buttons(row: _Json) -> Tag:
    """What can be done with a session. The form of "save" is elsewhere on the page."""
    key = key_of_row(row)
    query = query_of(key)
    save: Content = ""
    if row["resident"] and not row["saved"]:
        save = tag(
            "button", "Save", type="submit", form="save", name="key", value=query, class_="button"
        )
    delete = tag(
        "a",
        "Delete…",
        href=f"confirm?{query_of(key, do='delete')}",
        class_="button",
        aria_label=f"Delete {shown(key.id)}…",
    )
    return tag("div", save, delete, class_="buttons")


def seconds(text: str | None) -> float | None:
    """A time as the session API writes it, in seconds since the epoch."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _pages(total: int, view: View) -> Content:
    if total <= PAGE and not view.offset:
        return ""
    last = min(view.offset + PAGE, total)
    told = tag("span", f"{view.offset + 1} to {last} of {plural(total, 'session')}")
    before = (
        tag("a", "← before", href=f"{view.at(view.offset - PAGE).query}#sessions", rel="prev")
        if view.offset
        else ""
    )
    after = (
        tag("a", "more →", href=f"{view.at(view.offset + PAGE).query}#sessions", rel="next")
        if last < total
        else ""
    )
    return tag("nav", before, told, after, class_="pages", aria_label="Pages of sessions")
