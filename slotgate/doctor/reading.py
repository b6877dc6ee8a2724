"""
A completion of the doctor's own: a prompt that is read in one slot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from slotgate.llama import errors
from slotgate.llama.bodies import BodyLost, body_of
from slotgate.llama.calls import MOST_BYTES, Calls
from slotgate.llama.upstream import UpstreamError

_TIMINGS = ("cache_n", "prompt_n", "prompt_ms")
_DATA = b"data:"


async def read_prompt(
    calls: Calls, model: str, slot: int, prompt: list[int], seconds: float
) -> Mapping[str, float] | None:
    """
    Let a slot read a prompt. Cancelled, it closes the connection.

    The answer is streamed with its progress: a server that has something to send after each batch
    notices that we are gone, where it reads on to the end without (b11434 and b11549: 2 s instead
    of 26 s for a prompt of 30,000 tokens).

    :param model: the id by which a router knows it; empty: the only one.
    :param seconds: how long it may take.
    :returns: llama-server's timings; ``None``: there are none in its answer.
    :raises ControlError: there is no answer, or a refusal.
    """
    body = {
        "prompt": prompt,
        "id_slot": slot,
        "n_predict": 1,
        "cache_prompt": True,
        "temperature": 0,
        "stream": True,
        "return_progress": True,
    }
    target = "/completion"
    if model:
        target, body = f"{target}?autoload=false", {"model": model, **body}
    headers = calls.headers("text/event-stream, application/json")
    headers.addRawHeader("Content-Type", "application/json")
    whole = Deferred.fromCoroutine(_exchange(calls, target, headers, json.dumps(body).encode()))
    whole.addTimeout(seconds, calls.clock, onTimeoutCancel=_late)
    try:
        status, content = await whole
    except (UpstreamError, BodyLost) as error:
        raise errors.Unreachable(str(error)) from error
    if status != 200:
        raise errors.Refused(status, f"{status} {_message(content)}".strip())
    return timings_in(content)


async def _exchange(calls: Calls, target: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
    response = await calls.server_side.request(b"POST", target.encode(), headers, body)
    return response.code, await body_of(response, MOST_BYTES)


def _late(_: object, limit: float) -> NoReturn:
    raise errors.Unreachable(f"no answer within {limit:g} s")


def timings_in(content: bytes) -> Mapping[str, float] | None:
    """The timings of an answer, streamed or not: those of its last piece that has some."""
    pieces = [line.removeprefix(_DATA) for line in content.splitlines() if line.startswith(_DATA)]
    for piece in reversed(pieces or [content]):
        answer = _object(piece)
        timings = answer.get("timings")
        if isinstance(timings, dict) and all(
            isinstance(timings.get(name), int | float) for name in _TIMINGS
        ):
            return {name: timings[name] for name in _TIMINGS}
    return None


def _message(content: bytes) -> str:
    error = _object(content).get("error")
    return str(error.get("message") or "") if isinstance(error, dict) else ""


def _object(content: bytes) -> Mapping[str, object]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
