"""
Pages that ask: for a key, and whether something is really meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.template import Tag

from slotgate.dashboard.keys import query_of
from slotgate.dashboard.machines import slot_name
from slotgate.dashboard.markup import Content, shown, tag
from slotgate.dashboard.numbers import count, size
from slotgate.dashboard.page import hidden
from slotgate.sessions import SessionKey

_Json = Mapping[str, Any]


def login(token: str, mistake: str) -> Tag:
    """
    The form that asks for a key.

    :param token: what every form carries.
    :param mistake: why the last one was not taken, if there was one.
    """
    field = tag(
        "input",
        id="key",
        name="key",
        type="password",
        autocomplete="current-password",
        required="required",
        autofocus="autofocus",
        spellcheck="false",
        aria_describedby="mistake" if mistake else None,
    )
    form = tag(
        "form",
        hidden(token=token),
        # for those who keep passwords: browsers ask for a name to keep it under
        tag(
            "input",
            type="text",
            value="slotgate admin",
            autocomplete="username",
            readonly="readonly",
            tabindex="-1",
            aria_hidden="true",
            class_="silent",
        ),
        tag("label", "Key of a client with admin = true", for_="key"),
        field,
        tag("p", shown(mistake), id="mistake", role="alert", class_="mistake") if mistake else "",
        tag("button", "Log in", type="submit", class_="button primary"),
        method="post",
        action="login",
    )
    told = tag(
        "p",
        "This gateway asks for keys. They are in [[clients]] of its configuration.",
        class_="dim",
    )
    return tag("section", tag("h1", "Log in"), told, form, class_="card ask")


def delete(key: SessionKey, row: _Json | None, token: str) -> Tag:
    """
    Whether a session is really to be deleted.

    :param row: how the session API shows it; ``None``: it does not.
    """
    facts = [("Session", shown(key.id)), ("Route", shown(key.route))]
    if key.client is not None:
        facts.insert(1, ("Client", shown(key.client)))
    if row is not None:
        facts.append(("Tokens", count(row["tokens"])))
        facts.append(("On disk", size(row["bytes"]) if row["bytes"] else "nothing"))
    return _ask(
        "Delete this session?",
        facts,
        "Its snapshot is deleted and what is in a slot of it is not saved any more. Its next"
        " request reads the whole prompt again. The conversation itself is the client's and stays.",
        "delete",
        "Delete",
        hidden(token=token, key=query_of(key)),
    )


def clear(slot: _Json, token: str) -> Tag:
    """
    Whether a slot is really to be emptied.

    :param slot: how the status shows it.
    """
    inside = "nobody knows" if slot["session"] is None else shown(slot["session"])
    facts = [("Slot", slot_name(slot)), ("In it", inside), ("Tokens", count(slot["tokens"]))]
    told = "The server drops what is in it."
    if slot["state"] == "dirty":
        told += " It is not saved: its next request reads the whole prompt again."
    elif slot["state"] in ("leased", "draining"):
        told += " A request uses it now; it is emptied once that has ended."
    fields = hidden(token=token, server=slot["server"], model=slot["model"], slot=str(slot["slot"]))
    return _ask("Clear this slot?", facts, told, "clear", "Clear", fields)


def _ask(
    question: str,
    facts: list[tuple[str, str]],
    told: str,
    action: str,
    verb: str,
    fields: Content,
) -> Tag:
    rows = [[tag("dt", name), tag("dd", value)] for name, value in facts]
    buttons = [
        tag("button", verb, type="submit", class_="button danger"),
        tag("a", "Leave it", href="./", class_="button"),
    ]
    return tag(
        "section",
        tag("h1", question),
        tag("dl", *rows, class_="facts"),
        tag("p", told),
        tag("form", fields, tag("div", *buttons, class_="buttons"), method="post", action=action),
        class_="card ask",
    )


def refused(message: str) -> Tag:
    """Why something was not done."""
    back = tag("a", "Back to the dashboard", href="./", class_="button")
    return tag(
        "section", tag("h1", "That did not work"), tag("p", shown(message)), back, class_="card ask"
    )
