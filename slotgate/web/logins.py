"""
Browsers in which an admin has logged in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IRequest

from slotgate.config import Client
from slotgate.reloading import Settings
from slotgate.web._session_calls import from_elsewhere
from slotgate.web.rejected import Rejected

#: How long a login lasts, in seconds.
LOGIN_SECONDS = 12 * 3600.0
#: So many are remembered; one more ends the oldest.
MOST_LOGINS = 100

#: What a browser says of where a request comes from, if it comes from our own page or is typed.
_OWN = frozenset((b"same-origin", b"none"))


@frozen
class _Login:
    """One browser."""

    name: str
    key: bytes
    ends: float


@define(eq=False)
class Logins:
    """
    The logins, in memory: they end with this process, after a while, and when the key with which
    they began is not in the configuration any more.

    :ivar cookie: the cookie's name, another one for each installation: a browser sends the cookies
        of a host to all of its ports.
    """

    _settings: Settings
    _clock: IReactorTime
    cookie: str
    _known: OrderedDict[bytes, _Login] = field(factory=OrderedDict, init=False)

    @classmethod
    def of(cls, settings: Settings, clock: IReactorTime, secret: bytes) -> Logins:
        """
        None yet.

        :param secret: the key of this installation.
        """
        name = hmac.new(secret, b"login cookie", hashlib.sha256).hexdigest()[:8]
        return cls(settings, clock, f"slotgate-{name}")

    def begin(self, key: str) -> str:
        """
        Log in.

        :returns: the cookie's value.
        :raises Rejected: with 403; it is nobody's key, or not an admin's.
        """
        found = None
        for client in self._settings.config.clients:
            # all of them, so that the time taken tells nothing about a match
            if hmac.compare_digest(key.encode("utf-8", "replace"), client.key.encode()):
                found = client
        if found is None:
            raise Rejected(403, "No client of this gateway has that key.")
        if not found.admin:
            raise Rejected(
                403,
                f"The key of {found.name} is right, but only clients with admin = true may see"
                " this page.",
            )
        token = secrets.token_urlsafe(32)
        ends = self._clock.seconds() + LOGIN_SECONDS
        self._known[_digest(token)] = _Login(found.name, _digest(found.key), ends)
        while len(self._known) > MOST_LOGINS:
            self._known.popitem(last=False)
        return token

    def end(self, request: IRequest) -> None:
        """Log out."""
        self._known.pop(_digest(self.token(request)), None)

    def token(self, request: IRequest) -> str:
        """The cookie's value; empty: there is none, or another page made the browser send it."""
        if not _own(request):
            return ""
        value: bytes | None = request.getCookie(self.cookie.encode())
        return "" if value is None else value.decode("latin-1")

    def client(self, request: IRequest) -> Client | None:
        """The admin who has logged in; ``None``: nobody has, or not any more."""
        digest = _digest(self.token(request))
        login = self._known.get(digest)
        if login is None:
            return None
        if self._clock.seconds() < login.ends:
            for client in self._settings.config.clients:
                same = hmac.compare_digest(_digest(client.key), login.key)
                if client.name == login.name and client.admin and same:
                    return client
        del self._known[digest]
        return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _own(request: IRequest) -> bool:
    """
    Whether a request comes from our own page, or is a person's way to it. SameSite lets the pages
    of other ports of a host through, and ``cors_origins`` may let them read.
    """
    headers = request.requestHeaders
    if from_elsewhere(headers):
        return False
    site = headers.getRawHeaders(b"sec-fetch-site", [b"none"])
    mode = headers.getRawHeaders(b"sec-fetch-mode", [b""])
    navigates = mode == [b"navigate"] and request.method in (b"GET", b"HEAD")
    return _OWN.issuperset(site) or navigates
