"""
What llama-server's generation endpoints take and answer: their prompts, bodies, events and errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from attrs import field, frozen

from slotgate.testing._engine import Job, Progress
from slotgate.testing._slots import GAP, detokenize, tokenize

FINGERPRINT = "b0-unknown"
"""``build_info`` of the server in the xllamacpp wheel."""


@frozen
class LlamaError(Exception):
    """
    An error as llama-server words it, the same on every surface.
    """

    status: int
    message: str
    kind: str = "invalid_request_error"
    extra: Mapping[str, Any] = field(factory=dict)

    def body(self) -> bytes:
        """
        The JSON of it.
        """
        error = {"code": self.status, "message": self.message, "type": self.kind, **self.extra}
        return encode({"error": error})


def encode(value: object) -> bytes:
    """
    JSON as nlohmann writes it: no spaces, UTF-8.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: object, name: str = "") -> bytes:
    """
    One server-sent event.
    """
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


@frozen
class Asked:
    """
    A request as its answer needs it.

    :ivar number: makes ids; two answers of one server never share one.
    """

    body: dict[str, Any]
    model: str
    number: int
    created: int

    @property
    def id(self) -> str:
        return f"chatcmpl-{self.number:032d}"

    @property
    def head(self) -> dict[str, Any]:
        return {"created": self.created, "model": self.model, "system_fingerprint": FINGERPRINT}


class Surface(Protocol):
    """
    One kind of generation endpoint.

    :cvar takes_id_slot: whether a request can ask for a slot here.
    """

    takes_id_slot: ClassVar[bool]

    def prompt(self, body: dict[str, Any]) -> list[int]:
        """
        The tokens of a request.

        :raises LlamaError: when it has none.
        """

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        """
        The answer in one piece.
        """

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        """
        The events before the first token.
        """

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        """
        The events of one token.
        """

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        """
        The events after the last token.
        """


def job(surface: Surface, body: dict[str, Any]) -> Job:
    """
    Read what a request asks for.

    :raises LlamaError: for what the real one refuses too.
    """
    prompt = surface.prompt(body)
    limit = -1
    for name in ("n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"):
        if body.get(name) is not None:
            limit = _limit(name, body[name])
    id_slot = body.get("id_slot") if surface.takes_id_slot else None
    return Job(
        prompt=prompt,
        limit=limit,
        # floats and booleans are numbers to it, strings are not
        id_slot=int(id_slot) if isinstance(id_slot, (int, float)) else -1,
        stream=body.get("stream") is True,
        reuse=body.get("cache_prompt") is not False,
        params={"max_tokens": limit, "n_predict": limit, "stream": body.get("stream") is True},
    )


def too_long(tokens: int, context: int) -> LlamaError:
    """
    The refusal of a prompt that does not fit.
    """
    return LlamaError(
        400,
        f"request ({tokens} tokens) exceeds the available context size ({context} tokens), "
        "try increasing it",
        "exceed_context_size_error",
        {"n_prompt_tokens": tokens, "n_ctx": context},
    )


def _limit(name: str, value: object) -> int:
    if not isinstance(value, (int, float)):
        raise LlamaError(
            400,
            f"Field '{name}': [json.exception.type_error.302] type must be number, "
            f"but is {_json_type(value)}",
        )
    if not -1 <= value <= 2147483647:
        raise LlamaError(
            400,
            f"Field '{name}': Value must be between -1 <= value <= 2147483647, "
            f"but got {int(value)}",
        )
    return int(value)


def _json_type(value: object) -> str:
    names = {str: "string", list: "array", dict: "object", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def usage(progress: Progress) -> dict[str, Any]:
    """
    OpenAI's token counts.
    """
    return {
        "completion_tokens": progress.predicted,
        "prompt_tokens": progress.prompt_tokens,
        "total_tokens": progress.predicted + progress.prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": progress.cached},
    }


def templated(messages: object) -> str:
    """
    The prompt of some messages by the tiny models' template.
    """
    if not isinstance(messages, list):
        raise LlamaError(400, "'messages' is required")
    lines = [f"{m.get('role', '')}: {text_of(m.get('content'))}\n" for m in messages]
    return "".join(lines) + "assistant: "


def text_of(content: object) -> str:
    """
    The text of a message's content, a string or a list of parts.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def finish_reason(progress: Progress) -> str:
    """
    Why the answer ended, in OpenAI's words.
    """
    return "length" if progress.stopped_by_limit else "stop"


class Chat:
    """
    ``/v1/chat/completions``.
    """

    takes_id_slot: ClassVar[bool] = True

    def prompt(self, body: dict[str, Any]) -> list[int]:
        return tokenize(templated(body.get("messages")))

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        message = {"role": "assistant", "content": progress.text}
        choice = {"finish_reason": finish_reason(progress), "index": 0, "message": message}
        return {
            "choices": [choice],
            **asked.head,
            "object": "chat.completion",
            "usage": usage(progress),
            "id": asked.id,
            "timings": progress.timings(),
        }

    def _chunk(self, asked: Asked, *choices: dict[str, Any], **extra: object) -> bytes:
        kind = "chat.completion.chunk"
        return event({"choices": choices, **asked.head, "id": asked.id, "object": kind, **extra})

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        delta = {"role": "assistant", "content": None}
        yield self._chunk(asked, {"finish_reason": None, "index": 0, "delta": delta})

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        if text:
            delta = {"content": text}
            yield self._chunk(asked, {"finish_reason": None, "index": 0, "delta": delta})

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        last = {"finish_reason": finish_reason(progress), "index": 0, "delta": {}}
        timings = progress.timings()
        options = asked.body.get("stream_options") or {}
        if options.get("include_usage"):
            yield self._chunk(asked, last)
            yield self._chunk(asked, usage=usage(progress), timings=timings)
        else:
            yield self._chunk(asked, last, timings=timings)
        yield DONE


def given_prompt(body: dict[str, Any]) -> list[int]:
    """
    The tokens of a request with a ready prompt: a text, or tokens as they are.
    """
    if "prompt" not in body:
        raise LlamaError(400, "[json.exception.out_of_range.403] key 'prompt' not found")
    prompt = body["prompt"]
    if isinstance(prompt, list) and prompt:
        return [int(token) for token in prompt]
    return tokenize(str(prompt))


class Text:
    """
    ``/v1/completions``: OpenAI's text completion.
    """

    takes_id_slot: ClassVar[bool] = True

    def prompt(self, body: dict[str, Any]) -> list[int]:
        return given_prompt(body)

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return {
            **self._piece(asked, progress.text, finish_reason(progress)),
            "usage": usage(progress),
            "timings": progress.timings(),
        }

    def _piece(self, asked: Asked, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        return {"choices": [choice], **asked.head, "object": "text_completion", "id": asked.id}

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        yield from ()

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        if text:
            yield event(self._piece(asked, text, None))

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        piece = self._piece(asked, "", finish_reason(progress))
        yield event({**piece, "usage": usage(progress), "timings": progress.timings()})
        yield DONE


class Native:
    """
    ``/completion``, llama.cpp's own.
    """

    takes_id_slot: ClassVar[bool] = True

    def prompt(self, body: dict[str, Any]) -> list[int]:
        return given_prompt(body)

    def whole(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return {**self._final(asked, progress), "content": progress.text}

    def _final(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        return {
            "index": 0,
            "content": "",
            "tokens": [],
            "id_slot": progress.slot_id,
            "stop": True,
            "model": asked.model,
            "tokens_predicted": progress.predicted,
            "tokens_evaluated": progress.prompt_tokens,
            "generation_settings": {},
            "prompt": "<s>" + detokenize(self.prompt(asked.body)),
            "has_new_line": "\n" in progress.text,
            "truncated": False,
            "stop_type": "limit" if progress.stopped_by_limit else "eos",
            "stopping_word": "",
            "tokens_cached": progress.prompt_tokens + progress.predicted - 1,
            "timings": progress.timings(),
        }

    def opening(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        yield from ()

    def token(self, asked: Asked, progress: Progress, text: str) -> Iterator[bytes]:
        if text:
            yield event(
                {
                    "index": 0,
                    "content": text,
                    "tokens": tokenize(text, begin=False),
                    "stop": False,
                    "id_slot": -1,
                    "tokens_predicted": progress.predicted,
                    "tokens_evaluated": progress.prompt_tokens,
                }
            )

    def closing(self, asked: Asked, progress: Progress) -> Iterator[bytes]:
        yield event(self._final(asked, progress))


class Infill(Native):
    """
    ``/infill``: the text before and after a gap.
    """

    def prompt(self, body: dict[str, Any]) -> list[int]:
        for name in ("input_prefix", "input_suffix"):
            if name not in body:
                raise LlamaError(400, f'"{name}" is required')
        before, after = str(body["input_prefix"]), str(body["input_suffix"])
        prefix, suffix, middle = GAP
        return [
            *(*tokenize("")[:1], prefix, *tokenize(before, begin=False)),
            *(suffix, *tokenize(after, begin=False), middle),
        ]
