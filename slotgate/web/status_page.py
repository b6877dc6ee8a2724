"""
``GET /slotgate/status``, and how all pages below ``/slotgate`` are answered.
"""

from __future__ import annotations

import json
from typing import cast

from attrs import frozen
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from slotgate.web.admins import Admins
from slotgate.web.rejected import Rejected
from slotgate.web.status import Statuses

_READ = ("GET", "HEAD")


def only(request: IRequest, *methods: str) -> None:
    """
    Let these methods pass.

    :raises Rejected: with 405.
    """
    if request.method.decode("latin-1") not in methods:
        allowed = ", ".join(methods)
        raise Rejected(405, f"only {allowed} is for this page", {"Allow": allowed})


def told(request: IRequest, content_type: str, body: bytes) -> bytes:
    """An answer that nobody may keep: it is about now."""
    answer = cast(Request, request)
    answer.setHeader(b"Content-Type", content_type.encode("ascii"))
    answer.setHeader(b"Cache-Control", b"no-store")
    answer.setHeader(b"X-Content-Type-Options", b"nosniff")
    answer.setHeader(b"Content-Length", b"%d" % len(body))
    return body


@frozen
class StatusPage:
    """What goes on, as JSON, for admins."""

    _admins: Admins
    _statuses: Statuses

    async def answer(self, request: IRequest, path: str) -> bytes:
        """
        Answer one call.

        :raises Rejected: without an admin's key, or for another method.
        """
        only(request, *_READ)
        self._admins.check(request)
        status = await self._statuses.now()
        return told(request, "application/json", json.dumps(status).encode() + b"\n")
