"""
One session: where its cache is, and what its latest requests did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.template import Tag

from slotgate.dashboard.machines import key_in
from slotgate.dashboard.markup import Column, Content, badge, name, shown, table, tag, time
from slotgate.dashboard.numbers import count, duration, plural, size
from slotgate.dashboard.requests import row_key, verdict
from slotgate.dashboard.saved import buttons, seconds, state
from slotgate.sessions import SessionKey

_Json = Mapping[str, Any]

_MOST = 10
_COLUMNS = (
    Column("When"),
    Column("Cache"),
    Column("Read", number=True),
    Column("Reused", number=True),
    Column("Time", number=True),
)


def about_session(key: SessionKey, row: _Json | None, now: float) -> Tag:
    """
    What is known of a session.

    :param row: how the session API lists it; ``None``: nothing of it is kept.
    """
    facts: list[tuple[str, Content]] = [("Route", name(key.route))]
    if key.client is not None:
        facts.append(("Client", name(key.client)))
    if row is None:
        facts.append(("Cache", badge("not kept", "dull", "neither in a slot nor on disk")))
    else:
        facts += [
            ("Cache", state(row)),
            ("Tokens", count(row["tokens"])),
            ("On disk", size(row["bytes"]) if row["bytes"] else "nothing"),
            ("Used", time(seconds(row["last_used"]), now)),
            ("Found by", shown(row["source"] or "not known any more")),
        ]
    pairs = [tag("div", tag("dt", what), tag("dd", value)) for what, value in facts]
    return tag(
        "section",
        tag("p", tag("a", "← Dashboard", href="./"), class_="back"),
        tag("h1", tag("span", "Session ", class_="dim"), tag("span", shown(key.id), class_="id")),
        tag("dl", *pairs, class_="facts row"),
        buttons(row) if row is not None else "",
        class_="card",
    )


def latest(key: SessionKey, status: _Json) -> Content:
    """The session's latest requests."""
    own = [one for one in status["requests"] if key_in(one) == key][:_MOST]
    if not own:
        return ""
    now = status["time"]
    rows = [
        (
            row_key(one),
            [
                time(one["time"], now),
                verdict(one),
                count(one["read"]),
                count(one["reused"]),
                duration(one["seconds"]),
            ],
        )
        for one in own
    ]
    heading = tag("h2", "Its latest ", plural(len(own), "request"))
    return tag("section", heading, table("Requests", _COLUMNS, rows), class_="card latest")
