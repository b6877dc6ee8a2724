"""
The page around everything the dashboard shows.
"""

from __future__ import annotations

from attrs import frozen
from twisted.python.filepath import FilePath
from twisted.web.iweb import IRequest
from twisted.web.template import Element, Tag, XMLFile, renderer

from slotgate import __version__
from slotgate.dashboard.forms import Notice
from slotgate.dashboard.markup import Content, shown, tag, to_html

FOLDER = FilePath(__file__).parent()

_LOADER = XMLFile(FOLDER.child("page.xml"))


@frozen
class Frame:
    """What is around the content."""

    title: str
    content: Content
    notice: Notice | None = None
    #: What the forms carry; empty: nobody is logged in who could log out.
    logout_token: str = ""
    #: The content changes by itself where scripts run; the time it is from.
    live_since: float | None = None
    #: Which part of it is looked at.
    live_query: str = ""
    #: Which process made it.
    live_instance: str = ""

    def html(self) -> bytes:
        """The whole page."""
        return b"<!DOCTYPE html>\n" + to_html(_Page(self)).encode()


class _Page(Element):
    loader = _LOADER

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    @renderer
    def page(self, request: IRequest | None, page: Tag) -> Tag:
        """Fill the slots of the template."""
        frame = self._frame
        live, script = _live(frame)
        return page.fillSlots(
            title=shown(frame.title),
            version=__version__,
            logo=_logo(),
            script=script,
            live=live,
            logout=_logout(frame.logout_token),
            notice="" if frame.notice is None else _notice(frame.notice),
            content=frame.content,
        )


def _logo() -> Tag:
    bars = [
        tag("rect", x=x, y="7", width="3.2", height="10", rx="1.2", class_=kind)
        for x, kind in (("6", "one"), ("10.4", "two"), ("14.8", "three"))
    ]
    back = tag("rect", x="2", y="3", width="20", height="18", rx="5", class_="back")
    return tag(
        "svg",
        back,
        *bars,
        viewBox="0 0 24 24",
        width="26",
        height="26",
        aria_hidden="true",
        class_="logo",
    )


def _live(frame: Frame) -> tuple[Content, Content]:
    if frame.live_since is None:
        return "", ""
    state = tag(
        "span",
        "as it was when it was loaded",
        id="live",
        role="status",
        class_="live",
        data_now=f"{frame.live_since:.3f}",
        data_events=f"events{frame.live_query}",
        data_instance=frame.live_instance,
    )
    return state, tag("script", src="live.js", defer="defer")


def _logout(token: str) -> Content:
    if not token:
        return ""
    button = tag("button", "Log out", type="submit", class_="button")
    return tag("form", hidden(token=token), button, method="post", action="logout")


def _notice(notice: Notice) -> Tag:
    role, kind = ("alert", "notice failed") if notice.failed else ("status", "notice")
    return tag("p", shown(notice.text), role=role, class_=kind)


def hidden(**fields: str) -> list[Tag]:
    """Fields of a form that nobody sees."""
    return [tag("input", type="hidden", name=name, value=value) for name, value in fields.items()]
