"""
Errors in Ollama's shape, ``{"error": "text"}``, and in its words where clients know them.
"""

from __future__ import annotations

import json
import re

from slotgate.surfaces.ollama._json import dump

#: Enough of an answer that is no error object, such as the page of a proxy.
_MOST_CHARACTERS = 500

_NOT_FOUND = re.compile(r"model '(.*)' not found", re.DOTALL)


class OllamaError(Exception):
    """
    Why a request is not served.

    :ivar status: the HTTP status.
    :ivar message: for the person who reads the client's error.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def body(self) -> bytes:
        """The JSON of it."""
        return error_body(self.message)


def error_body(message: str) -> bytes:
    """The JSON of an error: of a whole answer, and, with a line feed, of a stream's last line."""
    return dump({"error": message})


def model_not_found(model: str) -> OllamaError:
    """
    The error for a model that nobody serves; clients that can pull look for its status.

    :param model: the name as the client said it.
    """
    return OllamaError(404, f"model '{model}' not found")


def not_supported(what: str) -> OllamaError:
    """
    The error of an endpoint that changes models.

    :param what: its path.
    """
    message = f"{what} is not supported: models are managed where llama-server runs"
    return OllamaError(501, message)


def upstream_error(status: int, body: bytes) -> OllamaError:
    """
    What llama-server refuses, in Ollama's shape.

    A router knows an unknown model for a bad request; Ollama's clients expect 404.

    :param status: of its answer, 400 to 599.
    :param body: its error object, or whatever stands there.
    """
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    message = message_of(error) if error is not None else ""
    if not message:
        message = body.decode("utf-8", "replace").strip()[:_MOST_CHARACTERS]
    if status == 400 and _NOT_FOUND.fullmatch(message):
        status = 404
    return OllamaError(status, message or f"the server answered {status} and no reason")


def message_of(error: object) -> str:
    """The text of llama-server's ``error``, an object or a string."""
    message = error.get("message") if isinstance(error, dict) else error
    if isinstance(message, str) and message.strip():
        return message.strip()
    return json.dumps(error)[:_MOST_CHARACTERS] if error else ""
