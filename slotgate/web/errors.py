"""
Answers that are errors of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.iweb import IRequest

from slotgate.surfaces.errors import error_body
from slotgate.web.requests import path_of


def answer_error(
    request: IRequest, status: int, message: str, headers: Mapping[str, str] | None = None
) -> bytes:
    """
    Turn the answer to a request into an error answer; nothing of it may have been written yet.

    :param headers: further response headers, such as ``Retry-After``.
    :return: the body, for the caller to write (a Klein handler returns it).
    """
    body = error_body(status, message, path_of(request))
    answer: Any = request
    answer.setResponseCode(status)
    for name, value in (headers or {}).items():
        answer.setHeader(name, value)
    answer.setHeader(b"Content-Type", b"application/json; charset=utf-8")
    answer.setHeader(b"Content-Length", b"%d" % len(body))
    return body
