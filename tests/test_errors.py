"""
Error answers have the shape of the surface that was asked: Anthropic's, Ollama's, or the one that
llama-server's have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway import CHAT, Answer, FakeGatewayCase
from twisted.web.test.requesthelper import DummyRequest

from slotgate.surfaces.errors import error_body, reshaped
from slotgate.web.errors import answer_error

ANTHROPIC = ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages/")
OLLAMA = (
    *("/api/chat", "/api/generate", "/api/tags", "/api/show", "/api/ps", "/api/version"),
    *("/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create", "/api/copy"),
    *("/api/delete", "/api/blobs/sha256:0", "/api/blobs"),
)
OTHER = (
    *("", "/", CHAT, "/v1/models", "/v1/messagesx", "/messages", "/v1", "/api/sessions"),
    *("/api/sessions/chat", "/api/chatx", "/api/chat/x", "/api", "/API/CHAT", "/health"),
)


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


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (501, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_anthropics_paths_get_anthropics_types(status: int, kind: str) -> None:
    for path in ANTHROPIC:
        assert json.loads(error_body(status, "so it is", path)) == {
            "type": "error",
            "error": {"type": kind, "message": "so it is"},
        }


@pytest.mark.parametrize("path", OLLAMA)
def test_ollamas_paths_get_a_text(path: str) -> None:
    assert json.loads(error_body(503, "so it is", path)) == {"error": "so it is"}


@pytest.mark.parametrize("path", OTHER)
def test_all_other_paths_get_llama_servers_shape(path: str) -> None:
    assert error_body(404, "so it is", path) == error_body(404, "so it is")


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", CHAT])
def test_a_message_that_is_no_text_is_told_on_every_surface(path: str) -> None:
    assert b"quote" in error_body(400, 'quote " line\n \ud800 \u2028', path)
    json.loads(error_body(400, 'quote " line\n \ud800 \u2028', path))


# What the server says.

CONTEXT = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5000,
        "n_ctx": 4096,
    }
}


def test_a_servers_error_takes_the_shape_of_the_surface() -> None:
    said = json.dumps(CONTEXT).encode()
    message = "the request exceeds the available context size"
    assert json.loads(reshaped("/v1/messages", 400, said)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
    }
    assert json.loads(reshaped("/api/chat", 400, said)) == {"error": message}
    assert reshaped(CHAT, 400, said) == said


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "a text"}', "a text"),
        (b"<html>Bad Gateway</html>\n", "<html>Bad Gateway</html>"),
        (b"\xff not UTF-8", "\ufffd not UTF-8"),
        (b'{"detail": "other"}', '{"detail": "other"}'),
        (b"[1]", "[1]"),
        (b"", "the server answered 502 and no reason"),
        (b"[" * 100_000, "[" * 500),
        (b"x" * 100_000, "x" * 500),
    ],
)
def test_what_is_no_error_object_becomes_the_message(body: bytes, message: str) -> None:
    told = json.loads(reshaped("/v1/messages", 502, body))
    assert told == {"type": "error", "error": {"type": "api_error", "message": message}}
    if body != b'{"error": "a text"}':
        assert json.loads(reshaped("/api/chat", 502, body)) == {"error": message}


def test_what_has_the_shape_already_stays_as_it_is() -> None:
    anthropic = b'{"type":"error", "error": {"type": "api_error", "message": "m"}, "more": 1}'
    assert reshaped("/v1/messages", 500, anthropic) == anthropic
    ollama = b'{"error": "a text", "more": 1}'
    assert reshaped("/api/chat", 500, ollama) == ollama


def test_a_reshaped_error_is_one_line_for_every_reader_of_lines() -> None:
    said = json.dumps({"error": {"message": "a\nb\u2028c\x85d"}}).encode()
    for path in ("/v1/messages", "/api/chat"):
        assert len(reshaped(path, 500, said).decode().splitlines()) == 1


# Through the gateway.


class ErrorShapes(FakeGatewayCase):
    config = (
        FakeGatewayCase.config.replace(
            "drain_seconds = 2", "drain_seconds = 2\nmax_body_mib = 0.01"
        )
        + '\n[[clients]]\nname = "c"\nkey = "secret"\n'
    )

    async def ask(self, path: str, body: object, key: str = "secret") -> Answer:
        return await self.post(path, body, {"X-Api-Key": key})

    def anthropic(self, answer: Answer, status: int, kind: str) -> str:
        """The message of an error in Anthropic's shape, and nothing but that."""
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["content-type"], "application/json; charset=utf-8")
        message: str = answer.json["error"]["message"]
        self.assertEqual(
            answer.json, {"type": "error", "error": {"type": kind, "message": message}}
        )
        return message

    def ollama(self, answer: Answer, status: int) -> str:
        """The text of an error in Ollama's shape, and nothing but that."""
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(list(answer.json), ["error"])
        text: str = answer.json["error"]
        self.assertIsInstance(text, str)
        return text

    def openai(self, answer: Answer, status: int, kind: str) -> str:
        """The message of an error in llama-server's shape, and nothing but that."""
        self.assertEqual(answer.status, status, answer.body)
        message: str = answer.json["error"]["message"]
        error = {"message": message, "type": kind, "code": status}
        self.assertEqual(answer.json, {"error": error})
        return message

    async def test_a_wrong_key(self) -> None:
        for path in ("/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"):
            answer = await self.ask(path, {}, "wrong")
            self.assertEqual(self.anthropic(answer, 401, "authentication_error"), "Invalid API Key")
        for path in ("/api/chat", "/api/show", "/api/pull"):
            answer = await self.ask(path, {}, "wrong")
            self.assertEqual(self.ollama(answer, 401), "Invalid API Key")
        answer = await self.ask(CHAT, {}, "wrong")
        self.assertEqual(self.openai(answer, 401, "authentication_error"), "Invalid API Key")
        answer = await self.ask("/api/sessions/clear", {}, "wrong")
        self.openai(answer, 401, "authentication_error")

    async def test_a_body_that_is_too_large(self) -> None:
        body = "x" * 20_000
        self.anthropic(await self.ask("/v1/messages", body), 413, "request_too_large")
        self.ollama(await self.ask("/api/chat", body), 413)
        self.openai(await self.ask(CHAT, body), 413, "invalid_request_error")

    async def test_a_body_that_is_no_object(self) -> None:
        self.anthropic(await self.ask("/v1/messages", [1]), 400, "invalid_request_error")
        self.openai(await self.ask(CHAT, [1]), 400, "invalid_request_error")

    async def test_a_server_that_is_down(self) -> None:
        await self.llama.stop()
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            message = self.anthropic(await self.ask(path, body), 502, "api_error")
            self.assertIn("connection refused", message)
        self.openai(await self.ask(CHAT, body), 502, "server_error")
