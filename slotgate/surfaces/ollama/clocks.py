"""
Times as Ollama writes them: points as RFC 3339, durations as integer nanoseconds, and the Go
durations of ``keep_alive``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

from attrs import frozen

#: As Go's ``time.ParseDuration`` knows them, in seconds; the micro sign and the Greek letter.
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(rf"[+-]?({_PART.pattern})+", re.ASCII)

#: Of a duration that somebody means; matching takes the square of it.
_MOST_CHARACTERS = 64

#: What ``datetime`` and Ollama's clients can still read.
_LAST = 253402300799


@frozen
class Watch:
    """
    When a request came and when its turn was, for the durations of its answer.

    :ivar began: when it came, in seconds since the epoch.
    :ivar loaded: when it had its slot, with its session in it.
    :ivar now: the clock.
    """

    began: float
    loaded: float
    now: Callable[[], float]

    def durations(self) -> dict[str, int]:
        """``total_duration`` until now, and of it ``load_duration``."""
        return {
            "total_duration": nanoseconds(self.now() - self.began),
            "load_duration": nanoseconds(self.loaded - self.began),
        }

    def created_at(self) -> str:
        """Now."""
        return rfc3339(self.now())


def nanoseconds(seconds: float) -> int:
    """A duration; a clock that was set back makes none below 0."""
    return max(0, round(seconds * 1e9))


def rfc3339(seconds: float) -> str:
    """
    A point in time with nanoseconds, of which a float of today holds the first seven digits.

    :param seconds: since the epoch.
    """
    whole = math.floor(seconds)
    fraction = round((seconds - whole) * 1e9)
    if fraction == 10**9:
        whole, fraction = whole + 1, 0
    moment = datetime.fromtimestamp(min(max(whole, 0), _LAST), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def go_duration(text: str) -> float:
    """
    Seconds of a Go duration, such as ``1h30m`` or ``-1s``; ``0`` needs no unit.

    :raises ValueError: it is none; the message is Go's.
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    if len(text) > _MOST_CHARACTERS or not _DURATION.fullmatch(text):
        if len(text) <= _MOST_CHARACTERS and re.fullmatch(
            r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII
        ):
            raise ValueError(f'time: missing unit in duration "{text}"')
        raise ValueError(f'time: invalid duration "{text[:_MOST_CHARACTERS]}"')
    seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds
