"""
How the pages below ``/slotgate`` are answered.
"""

from __future__ import annotations

import json
from typing import cast

from twisted.web.http import Request
from twisted.web.iweb import IRequest

from slotgate.web.rejected import Rejected

#: The methods of a page that is only looked at.
LOOK = ("GET", "HEAD")


def allow(request: IRequest, *methods: str) -> None:
    """
    Let these methods pass.

    :raises Rejected: with 405.
    """
    if request.method.decode("latin-1") not in methods:
        allowed = ", ".join(methods)
        raise Rejected(405, f"only {allowed} is for this page", {"Allow": allowed})


def page_answer(request: IRequest, content_type: str, body: bytes) -> bytes:
    """An answer that nobody may keep: it is about now."""
    answer = cast(Request, request)
    answer.setHeader(b"Content-Type", content_type.encode("ascii"))
    answer.setHeader(b"Cache-Control", b"no-store")
    answer.setHeader(b"X-Content-Type-Options", b"nosniff")
    answer.setHeader(b"Content-Length", b"%d" % len(body))
    return body


def json_answer(request: IRequest, content: object, status: int = 200) -> bytes:
    """The same, as JSON."""
    cast(Request, request).setResponseCode(status)
    return page_answer(request, "application/json", json.dumps(content).encode() + b"\n")
