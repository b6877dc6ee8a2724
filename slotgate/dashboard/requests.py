"""
The latest requests: what each read, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.web.template import Tag

from slotgate.dashboard.machines import key_in
from slotgate.dashboard.markup import (
    Column,
    Content,
    badge,
    name,
    nothing,
    section,
    sentence,
    session_link,
    shown,
    table,
    tag,
    time,
)
from slotgate.dashboard.numbers import NONE, clock, count, duration
from slotgate.dashboard.plots import Bar, legend, split_bar, token_bars
from slotgate.slots.reasons import Reason

_Json = Mapping[str, Any]

#: So many requests are listed, so many more are folded up, and so many have a bar.
LISTED, FOLDED, BARS = 10, 20, 40

#: Less is not told, in seconds.
_NOTICED = 0.002

VERDICTS = {
    "resident": "good",
    "restored": "good",
    "forked": "good",
    "cold": "warn",
    "bypass": "dull",
}
_COLUMNS = (
    Column("When"),
    Column("Session"),
    Column("Cache"),
    Column("Tokens"),
    Column("Time", number=True),
)


def requests(served: Sequence[_Json], now: float) -> Tag:
    """
    The latest requests.

    :param served: the latest first.
    """
    if not served:
        return section("requests", "Requests", nothing("No request yet."))
    counted = [one for one in served if one["read"] is not None][:BARS]
    bars = [Bar(one["read"], one["reused"] or 0, _title(one)) for one in reversed(counted)]
    plot = token_bars(bars, BARS) if bars else ""
    highest = max((bar.read + bar.reused for bar in bars), default=0)
    kinds = tag(
        "div",
        legend([("reused", "tokens reused"), ("read", "tokens read")]),
        tag("span", f"the highest bar is {count(highest)} tokens", class_="dim"),
        class_="over-plot",
    )
    rows = [(row_key(one), _row(one, now)) for one in served[: LISTED + FOLDED]]
    listing = table("Requests, the latest first", _COLUMNS, rows[:LISTED])
    earlier: Content = ""
    if rows[LISTED:]:
        summary = tag("summary", f"{len(rows) - LISTED} earlier")
        before = table("Earlier requests", _COLUMNS, rows[LISTED:])
        earlier = tag("details", summary, before, data_key="earlier", class_="folded")
    return section("requests", "Requests", kinds if bars else "", plot, listing, earlier)


def row_key(one: _Json) -> str:
    """What tells a request from all others."""
    return f"{one['time']:.6f} {shown(one['session'])}"


def _title(one: _Json) -> str:
    who = shown(one["session"]) if one["session"] is not None else "no session"
    return (
        f"{clock(one['time'])}, {who}: {count(one['reused'] or 0)} tokens reused,"
        f" {count(one['read'])} read"
    )


def _row(one: _Json, now: float) -> list[Content]:
    key = key_in(one)
    session = session_link(key) if key else tag("span", "no session", class_="dim")
    of: list[Content] = []
    if key is not None and key.client is not None:
        of += ["of ", name(key.client), " · "]
    model = one["model"] or one["route"]
    if model not in ("", "*"):
        of += [name(model), " · "]
    return [
        time(one["time"], now),
        [session, tag("div", *of, shown(one["surface"]), class_="more")],
        verdict(one),
        _tokens(one),
        _seconds(one),
    ]


def verdict(one: _Json) -> Content:
    """A request's verdict, and the sentences behind it."""
    words = f"{one['cache']} ({one['reason']})" if one["reason"] else one["cache"]
    # the first request of a session has nothing that it could find
    expected = one["reason"] == Reason.NEW_SESSION.value
    kind = "dull" if expected else VERDICTS.get(one["cache"], "dull")
    told: list[Content] = [badge(shown(words), kind)]
    if one["finding"]:
        told += [" ", badge(shown(one["finding"]), "warn")]
    if one["end"] not in ("complete", ""):
        told += [" ", badge(shown(one["end"]), "bad", "how its answer ended")]
    why = sentence(one["sentence"]) if one["sentence"] else ""
    if one["prompt"]:
        summary = tag("summary", why or "Compared with the last prompt")
        prompt = tag("p", sentence(one["prompt"]))
        told.append(tag("details", summary, prompt, data_key="prompt", class_="sentence"))
    elif why:
        told.append(tag("div", why, class_="sentence"))
    return tag("div", *told)


def _tokens(one: _Json) -> Content:
    if one["read"] is None:
        return tag("span", "not told", class_="dim")
    read, reused = one["read"], one["reused"] or 0
    words = f"{count(reused)} reused, {count(read)} read"
    total = read + reused
    if not total:
        return words
    bar = split_bar([("reused", reused / total), ("read", read / total)], words)
    return tag("div", words, bar, class_="with-bar")


def _seconds(one: _Json) -> Content:
    parts = [
        ("waited", one["waited"] - one["switched"]),
        ("switch", one["switched"]),
        ("first byte", one["first_byte"]),
    ]
    told = [
        tag("span", f"{what} {duration(value)}")
        for what, value in parts
        if value is not None and value >= _NOTICED
    ]
    whole = duration(one["seconds"]) if one["seconds"] is not None else NONE
    return tag("div", whole, tag("div", *told, class_="more times"))
