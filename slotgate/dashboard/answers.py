"""
How the dashboard answers a browser.
"""

from __future__ import annotations

from typing import cast

from twisted.web.http import SEE_OTHER, Request
from twisted.web.iweb import IRequest

from slotgate.dashboard.page import Frame

#: Nothing but what this gateway serves, and nothing that is written into the page itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # with "no-referrer" a browser would send our own forms with "Origin: null"
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def guard(request: IRequest) -> None:
    """Tell a browser what the page may do, and that nobody may keep it."""
    for name, value in _HEADERS.items():
        cast(Request, request).setHeader(name, value)


def wants_html(request: IRequest) -> bool:
    """Whether a person reads the answer."""
    return b"text/html" in b",".join(request.requestHeaders.getRawHeaders(b"accept", []))


def html_page(request: IRequest, frame: Frame) -> bytes:
    """A page."""
    body = frame.html()
    cast(Request, request).setHeader(b"Content-Type", b"text/html; charset=utf-8")
    cast(Request, request).setHeader(b"Content-Length", b"%d" % len(body))
    return body


def see_other(request: IRequest, where: str) -> bytes:
    """
    Send a browser to another page.

    :param where: relative, so that it holds behind a proxy too that serves us below a path.
    """
    answer = cast(Request, request)
    answer.setResponseCode(SEE_OTHER)
    answer.setHeader("Location", where)
    answer.setHeader(b"Content-Length", b"0")
    return b""
