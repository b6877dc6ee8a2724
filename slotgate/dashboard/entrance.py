"""
Who comes in: the form that asks for a key, and what it leaves in a browser.
"""

from __future__ import annotations

from typing import cast

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from slotgate.dashboard import asked
from slotgate.dashboard.answers import html_page, see_other, wants_html
from slotgate.dashboard.forms import Forms
from slotgate.dashboard.page import Frame
from slotgate.web.admins import Admins
from slotgate.web.logins import LOGIN_SECONDS
from slotgate.web.pages import allow
from slotgate.web.rejected import Rejected

#: Whoever sent a wrong key hears so after this, in seconds.
WRONG_SECONDS = 1.0
#: From one address so many may wait for that.
MOST_WRONG = 4


@define(eq=False)
class Entrance:
    """
    Logs browsers in and out.

    A guess costs a second, and four are under way from one address: those who are logged in, and
    those with a key in a header, notice nothing of them.
    """

    _admins: Admins
    _forms: Forms
    _clock: IReactorTime
    #: When each address guessed, lately; a guesser that hangs up guesses no faster for that.
    _wrong: dict[str, list[float]] = field(factory=dict, init=False)

    def admits(self, request: IRequest) -> bool:
        """
        Whether somebody may see a page; a browser is sent to the form if not.

        :raises Rejected: another program may not.
        """
        try:
            self._admins.check(request)
        except Rejected:
            if not wants_html(request):
                raise
            cast(Request, request).write(see_other(request, "login"))
            return False
        return True

    async def login(self, request: IRequest, path: str) -> bytes | None:
        """``/slotgate/login``: the form, and what it sends."""
        allow(request, "GET", "HEAD", "POST")
        if not self._admins.have_keys:
            return see_other(request, "./")
        if request.method != b"POST":
            return self._form(request)
        fields = self._forms.read(request)
        address = str(getattr(request.getClientAddress(), "host", ""))
        if len(self._lately(address)) >= MOST_WRONG:
            raise Rejected(429, "too many wrong keys, try again in a while", {"Retry-After": "2"})
        try:
            token = self._admins.logins.begin(fields.get("key", "").strip())
        except Rejected as error:
            await self._wait(address)
            cast(Request, request).setResponseCode(error.status)
            return self._form(request, error.message)
        _set_cookie(request, self._admins.logins.cookie, token, LOGIN_SECONDS)
        return see_other(request, "./")

    async def logout(self, request: IRequest, path: str) -> bytes | None:
        """``/slotgate/logout``."""
        allow(request, "POST")
        self._forms.read(request)
        self._admins.logins.end(request)
        _set_cookie(request, self._admins.logins.cookie, "", 0)
        return see_other(request, "./")

    async def _wait(self, address: str) -> None:
        self._wrong[address] = [*self._lately(address), self._clock.seconds()]
        await deferLater(self._clock, WRONG_SECONDS)

    def _lately(self, address: str) -> list[float]:
        """When an address guessed within the last second; what is longer ago is forgotten."""
        since = self._clock.seconds() - WRONG_SECONDS
        kept = {one: [at for at in times if at > since] for one, times in self._wrong.items()}
        self._wrong = {one: times for one, times in kept.items() if times}
        return self._wrong.get(address, [])

    def _form(self, request: IRequest, mistake: str = "") -> bytes:
        content = asked.login(self._forms.token(request), mistake)
        return html_page(request, Frame("Log in – slotgate", content))  # noqa: RUF001


def _set_cookie(request: IRequest, name: str, value: str, seconds: float) -> None:
    answer = cast(Request, request)
    # no path: a browser takes the folder of this page, whatever a proxy calls it
    forwarded = request.requestHeaders.getRawHeaders(b"x-forwarded-proto", [b""])
    answer.addCookie(
        name,
        value,
        max_age=f"{seconds:.0f}",
        httpOnly=True,
        sameSite="strict",
        # a proxy that ends TLS says so; who lies about it only spoils their own cookie
        secure=request.isSecure() or forwarded[0].strip().lower() == b"https",
    )
