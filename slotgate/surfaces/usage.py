"""
How many tokens a response says were read and reused, from the two ends of its body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

from attrs import define, evolve, field

from slotgate.llama.wire import Usage

#: Enough for the last event of a stream, or the end of a whole answer, where the counts are.
TAIL_BYTES = 16 * 1024
#: Enough for the first event of an Anthropic stream, the only one that tells what was cached.
HEAD_BYTES = 2 * 1024

#: A day: what takes longer was not measured.
_MOST_MS = 86_400_000

# inside a JSON string the quotes would be escaped, so a match is a field and never a model's prose
_TIMINGS = re.compile(rb'(?<!\\)"timings"\s*:\s*(?=\{)')
_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_ERROR = re.compile(rb'(?<!\\)"error"\s*:\s*(?=\{)')


@define
class Ends:
    """The beginning and the end of a body that passes by in chunks, at little cost per chunk."""

    _head: bytes = field(default=b"", init=False)
    _chunks: list[bytes] = field(factory=list, init=False)
    _size: int = field(default=0, init=False)

    def __call__(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        # joined only now and then, so that a token costs an append and an addition
        if self._size > 4 * TAIL_BYTES:
            joined = b"".join(self._chunks)
            self._head = self._head or joined[:HEAD_BYTES]
            kept = joined[-TAIL_BYTES:]
            self._chunks, self._size = [kept], len(kept)

    def usage(self) -> Usage | None:
        """The token counts of what passed by."""
        return usage_in(b"".join((self._head, *self._chunks)))

    def failed(self) -> bool:
        """
        Whether a body without counts has an error at its end, as a stream that breaks off has.
        """
        return any(True for _ in _objects(_ERROR, b"".join(self._chunks)))


def usage_in(body: bytes) -> Usage | None:
    """
    The counts that llama-server put into a response, ``None`` where it put none.

    ``timings`` where there are some (chat, completions, the stream of responses), else
    ``usage`` in the shapes of OpenAI's and Anthropic's surfaces.
    """
    for timings in _objects(_TIMINGS, body):
        reused, read = _count(timings, "cache_n"), _count(timings, "prompt_n")
        if reused is not None and read is not None:
            read_ms = _milliseconds(timings, "prompt_ms")
            return Usage(reused, read, _count(timings, "predicted_n"), read_ms)
    generated = None
    for usage in _objects(_USAGE, body):
        if (found := _from_usage(usage)) is not None:
            # an Anthropic stream says at its end how much was generated, and only that
            return found if generated is None else evolve(found, generated=generated)
        generated = generated or _count(usage, "output_tokens")
    return None


def _objects(name: re.Pattern[bytes], body: bytes) -> Iterator[dict[str, object]]:
    """The JSON objects that are values of a field, the last one first."""
    decoder = json.JSONDecoder()
    for match in reversed(list(name.finditer(body))):
        # a character that the cut went through lies before the match, or ends in an error
        text = body[match.end() :].decode("utf-8", "replace")
        try:
            value, _ = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _count(values: object, name: str) -> int | None:
    value = values.get(name) if isinstance(values, dict) else None
    return value if type(value) is int else None


def _milliseconds(values: dict[str, object], name: str) -> float | None:
    value = values.get(name)
    if type(value) not in (int, float):
        return None
    # a server's NaN compares as false
    return float(cast(float, value)) if 0 <= cast(float, value) < _MOST_MS else None


def _from_usage(usage: dict[str, object]) -> Usage | None:
    # Anthropic: input_tokens leaves out what was cached; OpenAI: the totals include it
    cached = _count(usage, "cache_read_input_tokens")
    fresh = _count(usage, "input_tokens")
    if cached is not None and fresh is not None:
        return Usage(cached, fresh, _count(usage, "output_tokens"))
    for total_name, details_name, generated_name in (
        ("prompt_tokens", "prompt_tokens_details", "completion_tokens"),
        ("input_tokens", "input_tokens_details", "output_tokens"),
    ):
        total = _count(usage, total_name)
        cached = _count(usage.get(details_name), "cached_tokens")
        if total is not None and cached is not None:
            return Usage(cached, total - cached, _count(usage, generated_name))
    return None
