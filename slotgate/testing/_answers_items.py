"""
The two generation endpoints whose answers are made of items, OpenAI's ``/v1/responses`` and
Anthropic's ``/v1/messages``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from slotgate.testing._answers import Asked, LlamaError, event, templated, text_of
from slotgate.testing._engine import Progress
from slotgate.testing._slots import tokenize


def _named(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])


class Responses:
    """
    ``/v1/responses``: no ``[DONE]``, ``timings`` in ``response.completed`` only.
    """

    takes_id_slot: ClassVar[bool] = True

    def prompt(self, body: dict[str, Any]) -> list[int]:
        if body.get("previous_response_id"):
            raise LlamaError(400, "llama.cpp does not support 'previous_response_id'.")
        given = body.get("input")
        if given is None:
            raise LlamaError(400, "'input' is required")
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        if body.get("instructions"):
            messages.insert(0, {"role": "system", "content": body["instructions"]})
        return tokenize(templated(messages))

    def _item(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return {
            "content": [self._part(progress)],
            "id": self._item_id(asked),
            "role": "assistant",
            "status": "completed",
            "type": "message",
        }

    def _part(self, progress: Progress) -> dict[str, Any]:
        return {
            "type": "output_text",
            "annotations": [],
            "logprobs": [],
            "text": progress.text,
        }

    def _item_id(self, asked: Asked) -> str:
        return f"msg_{asked.number:032d}"

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return {
            "completed_at": asked.created,
            "created_at": asked.created,
            "id": f"resp_{asked.number:032d}",
            "model": asked.model,
            "object": "response",
            "output": [self._item(asked, progress)],
            "status": "completed",
            "usage": {
                "input_tokens": progress.prompt_tokens,
                "output_tokens": progress.predicted,
                "total_tokens": progress.prompt_tokens + progress.predicted,
                "input_tokens_details": {"cached_tokens": progress.cached},
            },
        }

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        begun = {"id": f"resp_{asked.number:032d}", "object": "response", "status": "in_progress"}
        yield _named({"type": "response.created", "response": begun})
        yield _named({"type": "response.in_progress", "response": begun})
        item = {
            "content": [],
            "id": self._item_id(asked),
            "role": "assistant",
            "status": "in_progress",
            "type": "message",
        }
        yield _named({"type": "response.output_item.added", "item": item})
        yield _named(
            {
                "type": "response.content_part.added",
                "item_id": self._item_id(asked),
                "part": {"type": "output_text", "text": ""},
            }
        )

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        if text:
            item_id = self._item_id(asked)
            yield _named({"type": "response.output_text.delta", "item_id": item_id, "delta": text})

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        item_id = self._item_id(asked)
        text = progress.text
        yield _named({"type": "response.output_text.done", "item_id": item_id, "text": text})
        part = self._part(progress)
        yield _named({"type": "response.content_part.done", "item_id": item_id, "part": part})
        yield _named({"type": "response.output_item.done", "item": self._item(asked, progress)})
        whole = self.whole(asked, progress)
        del whole["completed_at"]
        yield _named(
            {"type": "response.completed", "response": whole, "timings": progress.timings()}
        )


class Messages:
    """
    ``/v1/messages``: Anthropic's, without ``timings``; its input tokens exclude the cached ones.
    """

    takes_id_slot: ClassVar[bool] = False

    def prompt(self, body: dict[str, Any]) -> list[int]:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise LlamaError(500, "'messages' is required", "server_error")
        if body.get("system"):
            messages = [{"role": "system", "content": text_of(body["system"])}, *messages]
        return tokenize(templated(messages))

    def _message(self, asked: Asked, progress: Progress, **changed: object) -> dict[str, Any]:
        return {
            "id": asked.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": progress.text}],
            "model": asked.model,
            "stop_reason": self._reason(progress),
            "stop_sequence": None,
            "usage": {
                "cache_read_input_tokens": progress.cached,
                "input_tokens": progress.prompt_tokens - progress.cached,
                "output_tokens": progress.predicted,
            },
            **changed,
        }

    def _reason(self, progress: Progress) -> str:
        return "max_tokens" if progress.stopped_by_limit else "end_turn"

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return self._message(asked, progress)

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        begun = self._message(asked, progress, content=[], stop_reason=None)
        yield _named({"type": "message_start", "message": begun})
        block = {"type": "text", "text": ""}
        yield _named({"type": "content_block_start", "index": 0, "content_block": block})

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        if text:
            delta = {"type": "text_delta", "text": text}
            yield _named({"type": "content_block_delta", "index": 0, "delta": delta})

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        yield _named({"type": "content_block_stop", "index": 0})
        yield _named(
            {
                "type": "message_delta",
                "delta": {"stop_reason": self._reason(progress), "stop_sequence": None},
                "usage": {"output_tokens": progress.predicted},
            }
        )
        yield _named({"type": "message_stop"})
