"""
Servers with their models, and slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from twisted.web.template import Tag

from slotgate.dashboard.markup import (
    LONGEST_SLOT,
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
from slotgate.dashboard.numbers import count, plural
from slotgate.sessions import SessionKey

_Json = Mapping[str, Any]

#: What a slot's states look like, and what they mean.
STATES = {
    "unknown": ("dull", "nobody can say what is in it"),
    "empty": ("dull", "nothing is in it"),
    "dirty": ("dull", "it holds a session that is not saved as it is"),
    "saved": ("good", "it holds a session that is saved"),
    "leased": ("busy", "a request uses it"),
    "draining": ("busy", "the client has gone, the server still works"),
    "gone": ("dull", "the server is down, or the model is not loaded"),
}
_WORDS = {"dirty": "not saved", "leased": "in use"}

_MODELS = {
    "loaded": "good",
    "loading": "busy",
    "sleeping": "dull",
    "unloaded": "dull",
    "unknown": "dull",
}

#: So many models are listed, whatever they do; of more only those that are not unloaded.
_LISTED = 8
_LONGEST_URL = 60


def servers(found: Sequence[_Json]) -> Tag:
    """What is behind slotgate."""
    return section("servers", "Servers", *[_server(server) for server in found])


def _server(server: _Json) -> Tag:
    if not server["reachable"]:
        state = badge("not reached", "bad", server["problem"] or "it did not answer")
    elif server["mode"] == "router":
        state = badge("router", "good", "a server with many models")
    else:
        state = badge("one model", "good")
    waiting = server["waiting"]
    head = [
        tag("h3", name(server["name"])),
        state,
        tag("code", name(server["url"], _LONGEST_URL)),
        badge(f"{count(waiting)} waiting", "busy") if waiting else "",
    ]
    problem = [{"text": server["problem"], "warn": True}] if server["problem"] else []
    # what somebody should put right comes first
    findings = [*problem, *sorted(server["found"], key=lambda one: not one["warn"])]
    told = [
        tag(
            "li",
            badge("look", "bad") if one["warn"] else "",
            " " if one["warn"] else "",
            shown(one["text"]),
            class_="finding warn" if one["warn"] else "finding",
        )
        for one in findings
    ]
    return tag(
        "div",
        tag("div", *head, class_="server-head"),
        _models(server["models"]),
        tag("ul", *told, class_="findings") if told else "",
        class_="server",
        data_key=shown(server["name"]),
    )


def _models(models: Sequence[_Json]) -> Content:
    if not models:
        return ""
    ordered = sorted(models, key=lambda one: str(one["id"]))
    idle = [one for one in ordered if one["status"] == "unloaded" and not one["failed"]]
    # those with a process first, and those that somebody should look at
    others = [one for one in ordered if one not in idle]
    if len(ordered) <= _LISTED:
        return _listed([*others, *idle])
    folded: Content = ""
    if idle:
        summary = tag("summary", plural(len(idle), "unloaded model"))
        folded = tag("details", summary, _listed(idle), data_key="unloaded")
    return [_listed(others) if others else "", folded]


def _listed(models: Sequence[_Json]) -> Tag:
    return tag("ul", *[_model(model) for model in models], class_="models")


def _model(model: _Json) -> Tag:
    speed = model["tokens_per_second"]
    status = "failed" if model["failed"] else str(model["status"])
    kind = "bad" if model["failed"] else _MODELS.get(model["status"], "dull")
    return tag(
        "li",
        name(model["id"], class_="model"),
        " ",
        badge(status, kind),
        tag("span", f" reads {count(speed)} tokens/s", class_="dim") if speed else "",
        data_key=shown(model["id"]),
    )


def slots(found: Sequence[_Json], now: float, *, clients: bool) -> Tag:
    """
    The slots and who is in them.

    :param clients: whether sessions belong to clients.
    """
    if not found:
        return section("slots", "Slots", nothing("No slot was used yet."))
    columns = [
        Column("Slot"),
        Column("State"),
        Column("Session in it"),
        Column("Tokens", number=True),
        Column("Used"),
        Column("Actions", silent=True),
    ]
    rows = [(slot_name(slot), _slot(slot, now, clients=clients)) for slot in found]
    return section("slots", "Slots", table("Slots", columns, rows))


def slot_name(slot: _Json) -> str:
    """Which slot it is."""
    model = f" · {shown(slot['model'])}" if slot["model"] else ""
    return f"{shown(slot['server'])}{model} · slot {slot['slot']}"


def key_in(one: _Json) -> SessionKey | None:
    """The session of a slot, a request or a span."""
    if one["session"] is None or one.get("route") is None:
        return None
    return SessionKey(one["client"], one["route"], one["session"])


def _slot(slot: _Json, now: float, *, clients: bool) -> list[Content]:
    state: str = slot["state"]
    kind, meaning = STATES.get(state, ("dull", ""))
    key = key_in(slot)
    session: Content = tag("span", "none known", class_="dim")
    if key is not None:
        whose = [" of ", name(key.client)] if clients and key.client is not None else []
        session = [session_link(key), tag("span", *whose, " on ", name(key.route), class_="dim")]
    where = urlencode(
        {"server": slot["server"], "model": slot["model"], "slot": slot["slot"]},
        errors="surrogatepass",
        quote_via=quote,
    )
    clear = tag("a", "Clear…", href=f"confirm?do=clear&{where}", class_="button")
    buttons = tag("div", clear, class_="buttons")
    waiting = [" ", badge(f"{count(slot['waiting'])} waiting", "busy")] if slot["waiting"] else []
    return [
        name(slot_name(slot), LONGEST_SLOT, "slot"),
        [badge(_WORDS.get(state, state), kind, meaning), *waiting],
        session,
        count(slot["tokens"]),
        time(slot["last_used"], now),
        buttons if slot["state"] != "gone" else "",
    ]
