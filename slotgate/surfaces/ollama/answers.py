"""
Answers of ``/api/chat`` and ``/api/generate``: from llama-server's, whole or as they stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from slotgate.surfaces.ollama._calls import Calls
from slotgate.surfaces.ollama._events import Events, TooLong
from slotgate.surfaces.ollama._json import dump, is_number
from slotgate.surfaces.ollama._pieces import Piece, Unusable, piece_of
from slotgate.surfaces.ollama.asked import Asked
from slotgate.surfaces.ollama.clocks import Watch, nanoseconds
from slotgate.surfaces.ollama.errors import OllamaError, error_body

STREAM_TYPE = "application/x-ndjson"
WHOLE_TYPE = "application/json; charset=utf-8"

_ENDED_EARLY = "the server's answer broke off"


@frozen
class _Shape:
    """How answers to a request look."""

    asked: Asked
    watch: Watch

    def part(
        self,
        text: str = "",
        thinking: str = "",
        calls: list[dict[str, object]] | None = None,
        logprobs: list[dict[str, object]] | None = None,
    ) -> dict[str, object]:
        """What a line of a stream says that is not the last one."""
        answer: dict[str, object] = {
            "model": self.asked.model,
            "created_at": self.watch.created_at(),
        }
        more: dict[str, object] = {}
        if thinking:
            more["thinking"] = thinking
        if calls:
            more["tool_calls"] = calls
        if self.asked.chats:
            answer["message"] = {"role": "assistant", "content": text, **more}
        else:
            answer |= {"response": text, **more}
        answer["done"] = False
        if logprobs:
            answer["logprobs"] = logprobs
        return answer

    def last(self, piece: Piece) -> dict[str, object]:
        """What the last line says besides, and a whole answer."""
        return {
            "done": True,
            "done_reason": piece.reason,
            **self.watch.durations(),
            **counts(piece.timings),
        }

    def logprobs(self, piece: Piece) -> list[dict[str, object]]:
        """The log probabilities of a piece, with alternatives where they were asked for."""
        found = []
        for one in piece.logprobs:
            if (said := _logprob(one)) is None:
                continue
            if self.asked.alternatives:
                others = one.get("top_logprobs")
                several = others if isinstance(others, list) else []
                said["top_logprobs"] = [
                    other for each in several if (other := _logprob(each)) is not None
                ]
            found.append(said)
        return found


def _logprob(said: object) -> dict[str, object] | None:
    if not isinstance(said, Mapping):
        return None
    token, value = said.get("token"), said.get("logprob")
    if not isinstance(token, str) or not is_number(value):
        return None
    found: dict[str, object] = {"token": token, "logprob": value}
    written = said.get("bytes")
    if isinstance(written, list) and all(type(byte) is int for byte in written):
        found["bytes"] = written
    return found


def counts(timings: Mapping[str, object]) -> dict[str, int]:
    """
    Tokens read and written, and the time that took.

    Tokens of the prompt that were in the cache are counted, as Ollama does, their time is none.
    """
    return {
        "prompt_eval_count": int(_number(timings, "cache_n") + _number(timings, "prompt_n")),
        "prompt_eval_duration": nanoseconds(_number(timings, "prompt_ms") / 1000),
        "eval_count": int(_number(timings, "predicted_n")),
        "eval_duration": nanoseconds(_number(timings, "predicted_ms") / 1000),
    }


def _number(timings: Mapping[str, object], name: str) -> float:
    value = timings.get(name)
    if not isinstance(value, int | float) or not is_number(value):
        return 0
    return min(max(value, 0), 1e15)


def whole(asked: Asked, watch: Watch, body: bytes) -> bytes:
    """
    The answer to a request that does not stream.

    :param body: llama-server's answer, of status 200.
    :raises OllamaError: it is none.
    """
    shape = _Shape(asked, watch)
    calls = Calls()
    try:
        piece = piece_of(body)
        if not piece.reason:
            raise Unusable("the server's answer has no end")
        calls.add(piece.calls)
        called = calls.whole(cut=piece.reason == "length")
    except Unusable as error:
        raise OllamaError(502, str(error)) from None
    answer = shape.part(piece.text, piece.thinking, called, shape.logprobs(piece))
    return dump(answer | shape.last(piece))


def without_prompt(asked: Asked, watch: Watch) -> bytes:
    """The answer to a request to load or unload a model, one object even if it streams."""
    answer = _Shape(asked, watch).part()
    return dump(answer | {"done": True, "done_reason": asked.purpose.value}) + b"\n"


@define
class Streaming:
    """
    Turns llama-server's events into the lines of an answer.

    What the server says after the end, or after an error, is not passed on.
    """

    _asked: Asked
    _watch: Watch
    _shape: _Shape = field(init=False)
    _events: Events = field(factory=Events, init=False)
    _calls: Calls = field(factory=Calls, init=False)
    #: The piece with the reason, until the timings come.
    _ending: Piece | None = field(default=None, init=False)
    #: Whether the last line was said.
    over: bool = field(default=False, init=False)
    #: Whether the last line was an error.
    failed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._shape = _Shape(self._asked, self._watch)

    def feed(self, data: bytes) -> bytes:
        """
        The lines that some bytes of the server's stream make, often none.
        """
        if self.over:
            return b""
        lines: list[bytes] = []
        try:
            for event in self._events.feed(data):
                lines += self._lines(event)
                if self.over:
                    break
        except Unusable as error:
            lines.append(self._error(str(error)))
        except TooLong:
            lines.append(self._error("an event of the server's answer has no end"))
        return b"".join(line + b"\n" for line in lines)

    def end(self, why: str = _ENDED_EARLY) -> bytes:
        """
        The last line, where it was not said yet: an error, if the server did not come to its end.

        :param why: what to say of an answer that has none.
        """
        if self.over:
            return b""
        try:
            lines = self._lines(b"[DONE]")
        except Unusable as error:
            lines = [self._error(str(error))]
        if not self.over:
            lines.append(self._error(why))
        return b"".join(line + b"\n" for line in lines)

    def _lines(self, event: bytes | None) -> list[bytes]:
        """
        :raises Unusable: the event is an error, or no event of llama-server's.
        """
        if event is None:
            # a sign of life: an empty line would be no JSON, which clients expect of each
            return [dump(self._shape.part())]
        if event.strip() == b"[DONE]":
            return self._last(self._ending) if self._ending is not None else []
        piece = piece_of(event)
        lines = []
        self._calls.add(piece.calls)
        logprobs = self._shape.logprobs(piece)
        if piece.text or piece.thinking or logprobs:
            lines.append(dump(self._shape.part(piece.text, piece.thinking, logprobs=logprobs)))
        if piece.reason:
            self._ending = piece
        if self._ending is not None and piece.timings:
            lines += self._last(Piece(reason=self._ending.reason, timings=piece.timings))
        return lines

    def _last(self, piece: Piece) -> list[bytes]:
        lines = []
        if called := self._calls.whole(cut=piece.reason == "length"):
            lines.append(dump(self._shape.part(calls=called)))
        self.over = True
        return [*lines, dump(self._shape.part() | self._shape.last(piece))]

    def _error(self, message: str) -> bytes:
        self.over = self.failed = True
        return error_body(message)
