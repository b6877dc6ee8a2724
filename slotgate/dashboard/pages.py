"""
The addresses below ``/slotgate/`` that people look at.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, cast

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.web.http import Request
from twisted.web.iweb import IRequest
from twisted.web.template import Tag

from slotgate.dashboard import asked
from slotgate.dashboard.answers import guard, html_page, see_other, wants_html
from slotgate.dashboard.comparison import comparison
from slotgate.dashboard.entrance import Entrance
from slotgate.dashboard.forms import Forms, Notice, Notices
from slotgate.dashboard.keys import fields_of, key_of
from slotgate.dashboard.markup import shown, tag
from slotgate.dashboard.numbers import plural
from slotgate.dashboard.page import FOLDER, Frame, hidden
from slotgate.dashboard.sections import Section, sections
from slotgate.dashboard.sessions import about_session, latest
from slotgate.dashboard.view import PAGE, View
from slotgate.dashboard.watching import Watching
from slotgate.dashboard.work import Work
from slotgate.slots.address import Address
from slotgate.snapshots.database import IndexAway
from slotgate.web.admins import Admins
from slotgate.web.pages import allow, page_answer
from slotgate.web.rejected import Rejected
from slotgate.web.status import Statuses

_Page = Callable[[IRequest, str], Coroutine[Any, Any, bytes | None]]

_ASSETS = {
    "style.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

_LONGEST_SLOT = 6


@define(eq=False)
class Dashboard:
    """The pages, the stream, and what the forms do."""

    _admins: Admins
    _statuses: Statuses
    _work: Work
    _clock: IReactorTime
    _forms: Forms = field(init=False)
    _entrance: Entrance = field(init=False)
    _notices: Notices = field(factory=Notices, init=False)
    #: Tells this process from the one before it.
    _instance: str = field(factory=lambda: secrets.token_urlsafe(8), init=False)
    watching: Watching = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._forms = Forms(self._admins.logins)
        self._entrance = Entrance(self._admins, self._forms, self._clock)
        self.watching = Watching(self._sections, self._clock, self._instance)

    @property
    def pages(self) -> Mapping[str, _Page]:
        """What answers, by path."""
        own: dict[str, _Page] = {
            "": self._main,
            "events": self._events,
            "session": self._session,
            "confirm": self._confirm,
            "save": self._save,
            "delete": self._delete,
            "clear": self._clear,
            "login": self._entrance.login,
            "logout": self._entrance.logout,
        }
        pages: dict[str, _Page] = {"/slotgate": _to_the_page}
        for name, page in own.items():
            pages[f"/slotgate/{name}"] = _guarded(page)
        for name, content_type in _ASSETS.items():
            pages[f"/slotgate/{name}"] = _asset(name, content_type)
        return pages

    async def _sections(self, view: View) -> Iterable[Section]:
        status = await self._statuses.now()
        return sections(status, await self._work.listing(view.offset, PAGE), view)

    async def _main(self, request: IRequest, path: str) -> bytes | None:
        allow(request, "GET", "HEAD")
        if not self._entrance.admits(request):
            return None
        fields = _fields(request)
        view = View.of(fields)
        parts = {one.name: one.draw() for one in await self._sections(view)}
        content = [
            tag("h1", "Dashboard", class_="silent"),
            *parts.values(),
            _save_form(self._forms.token(request)),
        ]
        notice = self._notices.find(fields.get("told", ""))
        return self._page(
            request,
            "slotgate",
            content,
            notice=notice,
            live_since=self._clock.seconds(),
            live_query=view.query,
            live_instance=self._instance,
        )

    async def _events(self, request: IRequest, path: str) -> bytes | None:
        allow(request, "GET", "HEAD")
        self._admins.check(request)
        if request.method == b"HEAD":
            # whether it may look at all: a script is not told why a stream did not begin
            return b""
        answer = cast(Request, request)
        answer.setHeader(b"Content-Type", b"text/event-stream")
        # a proxy on the way must not wait for the end
        answer.setHeader(b"X-Accel-Buffering", b"no")
        view = View.of(_fields(request))
        await self.watching.stream(request, view, lambda: self._admins.may(request))
        return None

    async def _session(self, request: IRequest, path: str) -> bytes | None:
        allow(request, "GET", "HEAD")
        if not self._entrance.admits(request):
            return None
        fields = _fields(request)
        key = key_of(fields)
        status = await self._statuses.now()
        prompt = await self._work.prompts(key)
        row = await self._work.session(key)
        content = [
            about_session(key, row, status["time"]),
            comparison(prompt),
            latest(key, status),
            _save_form(self._forms.token(request)),
        ]
        return self._page(request, f"{shown(key.id)} – slotgate", content)  # noqa: RUF001

    async def _confirm(self, request: IRequest, path: str) -> bytes | None:
        allow(request, "GET", "HEAD")
        if not self._entrance.admits(request):
            return None
        fields = _fields(request)
        token = self._forms.token(request)
        if fields.get("do") == "clear":
            address = _address(fields)
            status = await self._statuses.now()
            for slot in status["slots"]:
                if (slot["server"], slot["model"], slot["slot"]) == (
                    address.server,
                    address.model,
                    address.slot,
                ):
                    return self._page(request, "Clear a slot", asked.clear(slot, token))
            raise Rejected(404, f"there is no {address}")
        key = key_of(fields)
        row = await self._work.session(key)
        return self._page(request, "Delete a session", asked.delete(key, row, token))

    async def _save(self, request: IRequest, path: str) -> bytes | None:
        async def save(fields: dict[str, str]) -> str:
            key = key_of(fields_of(fields.get("key", "")))
            await self._work.save(key)
            return f"Saved {shown(key.id)}."

        return await self._do(request, save)

    async def _delete(self, request: IRequest, path: str) -> bytes | None:
        async def delete(fields: dict[str, str]) -> str:
            key = key_of(fields_of(fields.get("key", "")))
            await self._work.delete(key)
            return f"Deleted {shown(key.id)}."

        return await self._do(request, delete)

    async def _clear(self, request: IRequest, path: str) -> bytes | None:
        async def clear(fields: dict[str, str]) -> str:
            address = _address(fields)
            tokens = await self._work.clear(address)
            return f"Cleared {address}: {plural(tokens, 'token')} dropped."

        return await self._do(request, clear)

    async def _do(
        self, request: IRequest, work: Callable[[dict[str, str]], Coroutine[Any, Any, str]]
    ) -> bytes | None:
        """Do what a form asks for, and show the page again with what came of it."""
        allow(request, "POST")
        self._admins.check(request)
        fields = self._forms.read(request)
        try:
            notice = Notice(await work(fields))
        except Rejected as error:
            notice = Notice(error.message, failed=True)
        return see_other(request, f"./?told={self._notices.leave(notice)}")

    def _page(self, request: IRequest, title: str, content: Any, **more: Any) -> bytes:
        logged_in = bool(self._admins.logins.client(request))
        token = self._forms.token(request) if logged_in else ""
        return html_page(request, Frame(title, content, logout_token=token, **more))


def _guarded(page: _Page) -> _Page:
    """Tell the browser what a page may do, and people what went wrong."""

    async def answer(request: IRequest, path: str) -> bytes | None:
        guard(request)
        try:
            try:
                return await page(request, path)
            except IndexAway as error:
                raise Rejected(503, f"{error}; try again", {"Retry-After": "2"}) from error
        except Rejected as error:
            if not wants_html(request):
                raise
            answer = cast(Request, request)
            answer.setResponseCode(error.status)
            for name, value in error.headers.items():
                answer.setHeader(name, value)
            return html_page(request, Frame("slotgate", asked.refused(error.message)))

    return answer


def _asset(name: str, content_type: str) -> _Page:
    body = FOLDER.child(name).getContent()

    async def answer(request: IRequest, path: str) -> bytes:
        allow(request, "GET", "HEAD")
        guard(request)
        return page_answer(request, content_type, body)

    return answer


async def _to_the_page(request: IRequest, path: str) -> bytes:
    allow(request, "GET", "HEAD")
    # relative: there may be a proxy before us that serves this below another path
    return see_other(request, "slotgate/")


def _fields(request: IRequest) -> dict[str, str]:
    return fields_of(request.uri.partition(b"?")[2].decode("latin-1"))


def _address(fields: Mapping[str, str]) -> Address:
    slot = fields.get("slot", "")
    if not (slot.isascii() and slot.isdigit() and len(slot) <= _LONGEST_SLOT):
        raise Rejected(400, "the address names no slot")
    return Address(fields.get("server", ""), fields.get("model", ""), int(slot))


def _save_form(token: str) -> Tag:
    """The form of the buttons that save; they are in parts of the page that carry no token."""
    return tag("form", hidden(token=token), id="save", method="post", action="save")
