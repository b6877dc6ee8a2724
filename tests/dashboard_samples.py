"""
What the dashboard shows, made up, and a way to look at its HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from attrs import define, field
from twisted.web.template import Tag

from slotgate.dashboard.markup import to_html

NOW = 1_800_000_000.0

#: What a client may call itself: markup, quotes, what XML forbids, half of a pair, a turn of the
#: direction of writing.
NASTY = "<script>alert(1)</script>\"'&\x00\x1b[31m\ufffe\ud800\u202e"

_VOID = frozenset(("input", "link", "meta"))


@define
class Element:
    """An element of a page."""

    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    def all(self, name: str, class_: str = "") -> Iterator[Element]:
        """The elements in it of a name, and of a class."""
        for one in self.children:
            if isinstance(one, Element):
                if one.name == name and (not class_ or class_ in one.classes):
                    yield one
                yield from one.all(name, class_)

    @property
    def classes(self) -> list[str]:
        """Its classes."""
        return (self.attributes.get("class") or "").split()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = Element("", {})
        self._open = [self.top]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        assert self._open[-1].name == tag, (self._open[-1].name, tag)
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read_html(html: str) -> Element:
    """Read a page; every element must be closed in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader._open == [reader.top]
    return reader.top


def drawn(content: Tag) -> Element:
    """Draw something, and read it."""
    return read_html(to_html(content))


def request(**more: Any) -> dict[str, Any]:
    """A request as the status tells it."""
    return {
        "time": NOW - 5,
        "session": "chat-1",
        "client": None,
        "source": "header:x-session-id",
        "surface": "openai",
        "server": "local",
        "route": "*",
        "model": "",
        "cache": "restored",
        "reason": "",
        "finding": "",
        "sentence": "its snapshot was restored",
        "prompt": "",
        "end": "complete",
        "read": 100,
        "reused": 900,
        "generated": 20,
        "waited": 0.5,
        "switched": 0.2,
        "first_byte": 0.9,
        "seconds": 1.5,
        **more,
    }


def span(kind: str, began: float, ended: float, session: str | None, **more: Any) -> dict[str, Any]:
    """Something that a slot did; times are before now."""
    return {
        "kind": kind,
        "server": "local",
        "model": "",
        "slot": 0,
        "session": session,
        "client": None,
        "began": NOW - began,
        "ended": NOW - ended,
        "tokens": 0,
        "bytes": 0,
        "failed": False,
        **more,
    }


def slot(**more: Any) -> dict[str, Any]:
    """A slot as the status tells it."""
    return {
        "server": "local",
        "model": "",
        "slot": 0,
        "state": "dirty",
        "session": "chat-1",
        "client": None,
        "route": "*",
        "tokens": 1000,
        "saved": False,
        "waiting": 0,
        "last_used": NOW - 5,
        **more,
    }


def server(**more: Any) -> dict[str, Any]:
    """A server as the status tells it."""
    return {
        "name": "local",
        "url": "http://127.0.0.1:8080",
        "mode": "single",
        "reachable": True,
        "problem": None,
        "found": [],
        "models": [],
        "waiting": 0,
        **more,
    }


def session(**more: Any) -> dict[str, Any]:
    """A session as the API lists it."""
    return {
        "id": "chat-1",
        "client": None,
        "source": "header:x-session-id",
        "route": "*",
        "model": "tiny",
        "tokens": 1000,
        "bytes": 5 * 1024 * 1024,
        "created": "2027-01-15T07:59:00Z",
        "last_used": "2027-01-15T07:59:50Z",
        "resident": False,
        "saved": True,
        "generation": 3,
        **more,
    }


def disk(**more: Any) -> dict[str, Any]:
    """The disk as the status tells it."""
    gib = 1024**3
    return {
        "files": 3,
        "bytes": 2 * gib,
        "limit_bytes": 10 * gib,
        "free_bytes": 50 * gib,
        "routes": [
            {
                "server": "local",
                "route": "*",
                "files": 3,
                "bytes": 2 * gib,
                "max_files": 4,
                "max_bytes": 10 * gib,
            }
        ],
        "servers": [
            {
                "server": "local",
                "folder": "/var/cache/slots",
                "free_bytes": 50 * gib,
                "min_free_bytes": gib,
            }
        ],
        **more,
    }


def totals(**more: Any) -> dict[str, Any]:
    """The totals as the status tells them."""
    return {
        "requests": 10,
        "hits": 7,
        "misses": 3,
        "tokens_read": 2500,
        "tokens_reused": 7500,
        "tokens_generated": 200,
        "seconds_saved": 75.0,
        "saves": 5,
        "restores": 4,
        "bytes_written": 3 * 1024**3,
        "bytes_read": 2 * 1024**3,
        "evictions": 1,
        "upstream_errors": 0,
        "hit_ratio": 0.75,
        **more,
    }


def status(**more: Any) -> dict[str, Any]:
    """Everything."""
    return {
        "time": NOW,
        "version": "0",
        "servers": [server()],
        "slots": [slot()],
        "totals": totals(),
        "disk": disk(),
        "requests": [request()],
        "spans": [span("read", 5, 4, "chat-1")],
        **more,
    }


def listing(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A page of sessions."""
    return {
        "sessions": list(rows),
        "total": len(rows),
        "bytes": sum(row["bytes"] for row in rows),
        "limit": 25,
        "offset": 0,
        **more,
    }
