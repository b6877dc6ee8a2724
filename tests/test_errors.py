"""
Error answers have the shape that llama-server's have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.web.test.requesthelper import DummyRequest

from slotgate.web.errors import answer_error, error_body


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (500, "server_error"),
        (501, "not_supported_error"),
        (502, "server_error"),
        (503, "unavailable_error"),
        (504, "server_error"),
    ],
)
def test_the_type_follows_from_the_status(status: int, kind: str) -> None:
    error = json.loads(error_body(status, "so it is"))
    assert error == {"error": {"message": "so it is", "type": kind, "code": status}}


def test_a_message_may_hold_what_is_no_text() -> None:
    body = error_body(400, 'quote " line\n and a lone surrogate \ud800')
    assert json.loads(body)["error"]["message"].startswith('quote " line\n and')


def test_an_error_answer_has_status_type_length_and_the_headers_asked_for() -> None:
    request: Any = DummyRequest([b""])
    body = answer_error(request, 503, "full", {"Retry-After": "2"})
    sent = request.responseHeaders
    assert request.responseCode == 503
    assert sent.getRawHeaders("Content-Type") == ["application/json; charset=utf-8"]
    assert sent.getRawHeaders("Content-Length") == [str(len(body))]
    assert sent.getRawHeaders("Retry-After") == ["2"]
    assert json.loads(body)["error"]["code"] == 503
