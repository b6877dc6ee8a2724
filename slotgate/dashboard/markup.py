"""
HTML of what is shown more than once. All text goes through :mod:`twisted.web.template`, which
escapes it; what clients sent goes through :func:`shown` before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen
from twisted.python.failure import Failure
from twisted.web.template import Tag, flattenString, tags

from slotgate.dashboard.keys import query_of
from slotgate.dashboard.numbers import ago, clock
from slotgate.plain import printable
from slotgate.sessions import SessionKey
from slotgate.web._session_json import time_text

#: Whatever the template takes.
Content = Any

#: So much of a name is shown.
LONGEST_NAME = 40
#: The same of a slot's, which has two in it.
LONGEST_SLOT = 60


def to_html(content: Content) -> str:
    """
    Markup as text. Nothing in it may be waited for.

    :raises FlattenerError: it can not be rendered.
    """
    done: list[bytes] = []
    failures: list[Failure] = []
    flattenString(None, content).addCallbacks(done.append, failures.append)
    for failure in failures:
        failure.raiseException()
    return done[0].decode()


def tag(name: str, /, *children: Content, **attributes: str | None) -> Tag:
    """
    An element. ``_`` in an attribute's name stands for ``-``, and one at its end for nothing;
    those that are ``None`` are left out.
    """
    given = {
        name.rstrip("_").replace("_", "-"): value
        for name, value in attributes.items()
        if value is not None
    }
    return Tag(name)(*children, **given)


def shown(text: object) -> str:
    """Text of others, without what can not be seen."""
    return printable(str(text))


def sentence(text: str) -> str:
    """Text of ours that begins a line, and may quote others."""
    said = shown(text)
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "?", ")")) else ".")


def time(at: float | None, now: float) -> Content:
    """A time as how long ago it was."""
    if not at:
        return "never"
    return tag("time", ago(now - at), datetime=time_text(at), title=clock(at), data_at=f"{at:.3f}")


def badge(text: str, kind: str, title: str | None = None) -> Tag:
    """
    A word that stands out.

    :param kind: its class.
    """
    return tag("span", text, class_=f"badge {kind}", title=title)


def middle_cut(text: str, most: int = LONGEST_NAME) -> str:
    """A text without its middle where it is long: names that differ mostly do at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def name(text: object, most: int = LONGEST_NAME, class_: str = "") -> Tag:
    """What somebody else has named: cut where it is long, and then whole for the pointer."""
    whole = shown(text)
    told = middle_cut(whole, most)
    title = whole if told != whole else None
    return tag("span", told, title=title, class_=f"name {class_}".rstrip())


def session_link(key: SessionKey) -> Tag:
    """A session by its id, cut where it is long; it leads to where its prompts differ."""
    whole = shown(key.id)
    of = f" of {shown(key.client)}" if key.client is not None else ""
    return tag(
        "a",
        middle_cut(whole),
        href=f"session?{query_of(key)}#difference",
        title=f"{whole}{of}, route {shown(key.route)}",
        class_="session",
    )


@frozen
class Column:
    """A column of a table."""

    heading: str
    #: Its numbers stand one below another.
    number: bool = False
    #: Its heading is only for those who hear it.
    silent: bool = False


def table(
    name: str, columns: Sequence[Column], rows: Iterable[tuple[str, Sequence[Content]]]
) -> Tag:
    """
    A table that becomes a stack of cards where it is narrow. The roles say what it is where the
    style sheet makes blocks of it.

    :param name: what it is a table of.
    :param rows: a key, by which a row is found again in the next version, and the cells.
    """
    head = [
        tag(
            "th",
            tag("span", one.heading, class_="silent") if one.silent else one.heading,
            scope="col",
            role="columnheader",
            class_="number" if one.number else None,
        )
        for one in columns
    ]
    body = [
        tag(
            "tr",
            *[
                tag(
                    "td",
                    cell,
                    role="cell",
                    data_label=None if one.silent else one.heading,
                    class_="number" if one.number else None,
                )
                for one, cell in zip(columns, cells, strict=True)
            ],
            role="row",
            data_key=key,
        )
        for key, cells in rows
    ]
    return tag(
        "table",
        tag("caption", name, class_="silent"),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
    )


def section(name: str, heading: str, *content: Content, aside: Content = "") -> Tag:
    """A part of the page that is replaced as a whole."""
    top = tag("div", tag("h2", heading, id=f"{name}-heading"), aside, class_="section-head")
    return tags.section(
        top, *content, id=name, **{"aria-labelledby": f"{name}-heading", "class": "card"}
    )


def nothing(text: str) -> Tag:
    """What stands where there is nothing to show."""
    return tag("p", text, class_="nothing")
