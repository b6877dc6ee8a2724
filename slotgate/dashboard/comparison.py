"""
A session's last two prompts side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define
from twisted.web.template import Tag

from slotgate.dashboard.markup import Content, badge, middle_cut, nothing, sentence, shown, tag
from slotgate.dashboard.numbers import count, percent, plural
from slotgate.dashboard.plots import legend, split_bar
from slotgate.dashboard.requests import VERDICTS

_Json = Mapping[str, Any]

#: So many characters of a message that are the same are shown before what differs, and of any
#: text at all.
_BEFORE, LONGEST = 400, 20_000
#: So many messages are drawn, from just before the first difference on, and so many before those.
MOST, EARLIER = 100, 50
#: All texts together: of more messages only the beginning of each is drawn.
_ALL, _BEGINNING = 400_000, 1_000

#: What the first that is not the same is called.
_FIRST = {
    "added": "new from here on",
    "changed": "the first difference",
    "deleted": "the first difference",
    "same": "the first to be read again",
}
_STATUS = {"same": "dull", "changed": "warn", "added": "busy", "deleted": "bad"}


@define
class _Room:
    """How much text may still be drawn: a browser and the reactor wait for all of it."""

    _left: int = _ALL

    def take(self, characters: int) -> int:
        """How many of a text's characters are drawn."""
        most = min(characters, LONGEST if self._left > LONGEST else _BEGINNING)
        self._left -= max(most, 0)
        return most


def comparison(prompt: _Json | None) -> Tag:
    """
    The comparison.

    :param prompt: as the session API tells it; ``None``: there is none.
    """
    heading = tag("h2", "Last two prompts", id="prompts-heading")
    if prompt is None:
        why = nothing(
            "No prompt of this session is remembered: it had no request since slotgate started,"
            " its prompts are not compared (those of more than 8 million characters are not), or so"
            " many other sessions had a request since then ([prompt_history])."
        )
        return tag("section", heading, why, class_="card", id="prompts")
    rows: Sequence[_Json] = prompt["messages"]
    told = [
        heading,
        tag("p", sentence(prompt["sentence"]), class_="lead"),
        _verdict(prompt),
        _tokens(prompt["tokens"]),
    ]
    if not any("text" in row or "old_text" in row for row in rows):
        told.append(
            tag(
                "p",
                "Texts are not kept, so lengths are shown. keep_prompts = true in"
                " [prompt_history] keeps them, in memory.",
                class_="dim",
            )
        )
    return tag(
        "section",
        *told,
        _side_by_side(rows, compared=prompt["change"] is not None),
        class_="card",
        id="prompts",
        aria_labelledby="prompts-heading",
    )


def _verdict(prompt: _Json) -> Content:
    if not prompt.get("cache"):
        return ""
    words = sentence(prompt["verdict"]) if prompt.get("verdict") else ""
    # the first prompt of a session has nothing that it could find
    kind = "dull" if prompt["change"] is None else VERDICTS.get(prompt["cache"], "dull")
    return tag("p", badge(shown(prompt["cache"]), kind), " ", words)


def _tokens(tokens: _Json) -> Content:
    whole, reused, read = tokens["prompt"], tokens["reused"], tokens["read"]
    if not whole:
        return ""
    possible = tokens["could_reuse"]
    facts = [("Prompt", f"{count(whole)} tokens")]
    if possible is not None:
        facts.append(("Could be reused", f"about {count(possible)} ({percent(possible / whole)})"))
    facts.append(("Reused", f"{count(reused)} ({percent(reused / whole)})"))
    facts.append(("Read", f"{count(read)} ({percent(read / whole)})"))
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    label = f"{count(reused)} tokens reused, {count(read)} read"
    bar = split_bar([("reused", reused / whole), ("read", read / whole)], label)
    kinds = legend([("reused", "reused"), ("read", "read")])
    return tag("div", tag("dl", *pairs, class_="facts row"), bar, kinds, class_="with-bar")


def _side_by_side(rows: Sequence[_Json], *, compared: bool) -> Content:
    """From just before the first difference on; what is before it is folded up."""
    first = next((at for at, row in enumerate(rows) if row["status"] != "same"), len(rows))
    # the last message that is the same shows where one is
    shown_from = max(first - 1, 0) if compared else 0
    parts: list[Content] = []
    room = _Room()
    # what matters most gets its texts first
    later = rows[shown_from : shown_from + MOST]
    drawn = _rows(later, first - shown_from if compared else None, room)
    if shown_from:
        parts.append(_folded(rows[:shown_from], room))
    columns = tag(
        "div",
        tag("div", "The prompt before"),
        tag("div", "The last prompt"),
        class_="pair pair-head",
        aria_hidden="true",
    )
    parts.append(columns if compared else "")
    parts.append(drawn)
    left = len(rows) - shown_from - len(later)
    if left:
        parts.append(_left_out(f"{plural(left, 'more message')} after these"))
    return tag("div", *parts, class_="side-by-side")


def _folded(rows: Sequence[_Json], room: _Room) -> Tag:
    """What is the same before the first difference: the last of it."""
    number, verb = plural(len(rows), "earlier message"), "is" if len(rows) == 1 else "are"
    left = len(rows) - EARLIER
    return tag(
        "details",
        tag("summary", f"{number} that {verb} the same"),
        _left_out(f"{plural(left, 'message')} before these") if left > 0 else "",
        _rows(rows[-EARLIER:], None, room),
        class_="folded",
    )


def _left_out(what: str) -> Tag:
    told = f"{what} left out here; GET /api/sessions/…/prompt has all of them."
    return tag("p", told, class_="dim left-out")


def _rows(rows: Sequence[_Json], first: int | None, room: _Room) -> Tag:
    items = [_row(row, at == first, room) for at, row in enumerate(rows)]
    return tag("ol", *items, class_="pairs")


def _row(row: _Json, first: bool, room: _Room) -> Tag:
    status = row["status"]
    head = [
        tag("span", _name(row), class_="which"),
        badge(status, _STATUS.get(status, "dull")),
        badge("read again", "warn") if row["read_again"] else "",
        tag("span", _FIRST.get(status, ""), class_="first-mark") if first else "",
        tag("span", _agreeing(row), class_="dim"),
    ]
    return tag(
        "li",
        tag("div", *head, class_="pair-title"),
        _texts(row, room),
        class_=f"message is-{status}{' again' if row['read_again'] or status == 'added' else ''}",
        id="difference" if first else None,
    )


def _name(row: _Json) -> str:
    number, old = row["number"], row["old_number"]
    role = middle_cut(shown(row["role"]))
    if 0 in (number, old):
        return role
    if number is None:
        return f"{old} was {role}"
    moved = f" (was {old})" if old not in (None, number) else ""
    return f"{number} {role}{moved}"


def _agreeing(row: _Json) -> str:
    characters = plural(row["characters"], "character")
    if row["status"] == "changed":
        return f"the first {count(row['same_characters'])} of {characters} are the same"
    return characters


def _texts(row: _Json, room: _Room) -> Content:
    old, new = row.get("old_text"), row.get("text")
    if old is None and new is None:
        return ""
    if row["status"] == "same":
        return tag("div", _text(new or "", room), class_="pair whole")
    at = row["same_characters"]
    was: Content = "" if old is None else _split(old, at, room)
    now: Content = "" if new is None else _split(new, at, room)
    before = tag("div", was, class_="old", aria_label="before")
    return tag("div", before, tag("div", now, class_="new", aria_label="now"), class_="pair")


def _split(text: str, at: int, room: _Room) -> Content:
    """
    A text from just before the place where it differs.

    :param at: so many characters are the same.
    """
    kept = text[max(at - _BEFORE, 0) : at]
    most = room.take(len(text) - at)
    return tag(
        "pre",
        tag("span", f"… {count(at - len(kept))} characters …\n", class_="dim")
        if len(kept) < at
        else "",
        visible(kept),
        tag("mark", visible(text[at : at + most])) if at < len(text) else "",
        tag("span", _rest(len(text) - at - most), class_="dim"),
    )


def _text(text: str, room: _Room) -> Tag:
    most = room.take(len(text))
    return tag("pre", visible(text[:most]), tag("span", _rest(len(text) - most), class_="dim"))


def _rest(number: int) -> str:
    return f"\n… {count(number)} more characters" if number > 0 else ""


def visible(text: str) -> str:
    """A text of several lines, with what can not be seen escaped."""
    lines = text.split("\n")
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in lines)
