"""
Our own error answers, in the shape that llama-server gives on every surface:
``{"error": {"message": ..., "type": ..., "code": ...}}`` (OpenAI's error object with the HTTP
status as ``code``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.web.iweb import IRequest

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def error_body(status: int, message: str) -> bytes:
    """
    The JSON of an error answer.

    :param status: the HTTP status, 400 to 599; it decides ``type``.
    :param message: one sentence for the person who reads the client's error.
    """
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "code": status}
    return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")


def answer_error(
    request: IRequest, status: int, message: str, headers: Mapping[str, str] | None = None
) -> bytes:
    """
    Turn the answer to a request into an error answer; nothing of it may have been written yet.

    :param headers: further response headers, such as ``Retry-After``.
    :return: the body, for the caller to write (a Klein handler returns it).
    """
    body = error_body(status, message)
    answer: Any = request
    answer.setResponseCode(status)
    for name, value in (headers or {}).items():
        answer.setHeader(name, value)
    answer.setHeader(b"Content-Type", b"application/json; charset=utf-8")
    answer.setHeader(b"Content-Length", b"%d" % len(body))
    return body
