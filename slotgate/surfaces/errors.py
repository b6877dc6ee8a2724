"""
Errors in the shape of the surface that was asked, ours and the server's: Anthropic's, Ollama's, and
otherwise what llama-server gives on every surface,
``{"error": {"message": ..., "type": ..., "code": ...}}`` (OpenAI's error object with the HTTP
status as ``code``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from slotgate.surfaces.ollama.errors import error_body as ollama_body
from slotgate.surfaces.ollama.errors import upstream_error

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}

#: https://docs.claude.com/en/api/errors, which has "invalid_request_error" for all other 4xx. It
#: has no 503: ours is a full queue or a model that loads, so what 529 says there.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_ANTHROPIC = "/v1/messages"
_OLLAMA = frozenset(
    f"/api/{name}"
    for name in (
        *("chat", "generate", "embed", "embeddings", "tags", "show", "ps", "version"),
        *("pull", "push", "create", "copy", "delete", "blobs"),
    )
)


def error_body(status: int, message: str, path: str = "") -> bytes:
    """
    The JSON of an error answer.

    :param status: the HTTP status, 400 to 599; it decides ``type``.
    :param message: one sentence for the person who reads the client's error.
    :param path: what was asked for; it decides the shape.
    """
    if is_anthropic(path):
        # no request_id: there is no request of Anthropic's that it could be the id of
        error = {"type": _type(_ANTHROPIC_TYPES, "api_error", status), "message": message}
        return json.dumps({"type": "error", "error": error}).encode("ascii")
    if _is_ollama(path):
        return ollama_body(message)
    told = {"message": message, "type": _type(_TYPES, "server_error", status), "code": status}
    return json.dumps({"error": told}, ensure_ascii=False).encode("utf-8", "replace")


def reshaped(path: str, status: int, body: bytes) -> bytes:
    """
    What llama-server answers to a bad request, in the shape of the surface that was asked.

    Its messages stay as they are. What is no error object becomes the message itself, as far as
    somebody would read it. One line of ASCII, so it can be the data of a stream's event too.

    :param path: what was asked for; on all but Anthropic's and Ollama's paths nothing changes.
    :param status: of the answer, or the ``code`` in a stream's event, 400 to 599.
    :param body: of the answer, or the data of the event.
    """
    if not (is_anthropic(path) or _is_ollama(path)) or _has_shape(path, body):
        return body
    return error_body(status, upstream_error(status, body).message, path)


def is_anthropic(path: str) -> bool:
    """Whether a path is one of Anthropic's surface."""
    return path == _ANTHROPIC or path.startswith(_ANTHROPIC + "/")


def _is_ollama(path: str) -> bool:
    return path in _OLLAMA or path.startswith("/api/blobs/")


def _has_shape(path: str, body: bytes) -> bool:
    """Whether an error is the surface's own already."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    error = answer.get("error") if isinstance(answer, dict) else None
    if _is_ollama(path):
        return isinstance(error, str)
    return isinstance(error, dict) and answer.get("type") == "error"


def _type(types: Mapping[int, str], otherwise: str, status: int) -> str:
    return types.get(status) or (otherwise if status >= 500 else "invalid_request_error")
