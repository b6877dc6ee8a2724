"""
Forms: that they are ours, and what is said after one was sent.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict

from attrs import define, field, frozen
from twisted.web.iweb import IRequest

from slotgate.dashboard.keys import fields_of
from slotgate.web._session_calls import from_elsewhere
from slotgate.web.logins import Logins
from slotgate.web.rejected import Rejected
from slotgate.web.requests import body_of

#: So many messages wait for their page.
MOST_NOTICES = 100
#: A form has a few fields, each shorter than a few kilobytes.
_LARGEST = 64 * 1024

_FORM = b"application/x-www-form-urlencoded"


@define(eq=False)
class Forms:
    """
    Tells our own forms, sent in the browser that got them, from what other pages send.
    """

    _logins: Logins
    _secret: bytes = field(factory=lambda: secrets.token_bytes(32))

    def token(self, request: IRequest) -> str:
        """What every form on a page carries: it goes with the login where there is one."""
        login = self._logins.token(request)
        return hmac.new(self._secret, login.encode(), hashlib.sha256).hexdigest()

    def read(self, request: IRequest) -> dict[str, str]:
        """
        The fields of a form.

        :raises Rejected: it is not one of ours.
        """
        headers = request.requestHeaders
        site = headers.getRawHeaders(b"sec-fetch-site", [b"same-origin"])
        if from_elsewhere(headers) or not {b"same-origin", b"none"}.issuperset(site):
            raise Rejected(403, "a page of another origin must not send this form")
        (kind,) = headers.getRawHeaders(b"content-type", [b""])[:1]
        body = body_of(request)
        if kind.partition(b";")[0].strip().lower() != _FORM or len(body) > _LARGEST:
            raise Rejected(400, "this is no form of the dashboard")
        fields = fields_of(body.decode("latin-1"))
        given = fields.pop("token", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self.token(request).encode()):
            raise Rejected(
                403, "this form is from before a restart or a login: go back, load it again"
            )
        return fields


@frozen
class Notice:
    """What is said after a form was sent."""

    text: str
    failed: bool = False


@define(eq=False)
class Notices:
    """Messages for the page that comes after a form, by a word in its address."""

    _waiting: OrderedDict[str, Notice] = field(factory=OrderedDict, init=False)

    def leave(self, notice: Notice) -> str:
        """Leave one; returns the word."""
        word = secrets.token_urlsafe(8)
        self._waiting[word] = notice
        while len(self._waiting) > MOST_NOTICES:
            self._waiting.popitem(last=False)
        return word

    def find(self, word: str) -> Notice | None:
        """The message; it stays, so that the page can be loaded again."""
        return self._waiting.get(word)
