"""
The Anthropic surface: where it says the system prompt, and llama-server's errors as its own.

llama-server speaks it itself, but for errors, which it gives in OpenAI's shape (b11549).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import define, field, frozen

from slotgate.surfaces.errors import is_anthropic, reshaped
from slotgate.surfaces.openai import text_of
from slotgate.surfaces.translation import Rewriting, Translated, Translation

_EVENT_STREAM = "text/event-stream"
_JSON = "application/json; charset=utf-8"


def system(fields: Mapping[str, object]) -> str:
    """The ``system`` field of ``/v1/messages``: a string or text blocks."""
    return text_of(fields.get("system"))


#: A line of Claude Code's before 2.1.181, another one in each request; the part that changes.
_BILLING = re.compile(rb'(["\n]x-anthropic-billing-header:[^"\\\n]{0,200}?\bcch=)[^;"\\\s]{1,64}')


def normalised(raw: bytes) -> bytes:
    """
    A request with what changes in its system prompt from one to the next made the same.

    :param raw: the body as it came; nothing else of it changes.
    """
    return _BILLING.sub(rb"\g<1>00000", raw, count=1)


def translation_of(path: str) -> Translation | None:
    """What the answer to a request for this path becomes; ``None``: it stays as it is."""
    return _Errors(path) if is_anthropic(path) else None


@frozen
class _Errors:
    """Errors, and nothing else, become Anthropic's."""

    path: str

    def rewriting(self, status: int, streams: bool) -> Rewriting | None:
        """As :class:`Translation` says."""
        return _ErrorEvents(self.path) if streams and status == 200 else None

    def takes_whole(self, status: int, streams: bool) -> bool:
        """As :class:`Translation` says."""
        return status >= 400

    def whole(self, status: int, body: bytes) -> Translated:
        """As :class:`Translation` says."""
        return Translated(status, _JSON, reshaped(self.path, status, body))


@define
class _ErrorEvents:
    """Passes events on as they are, but for the data of errors."""

    _path: str
    content_type: str = field(default=_EVENT_STREAM, init=False)
    _rest: bytes = field(default=b"", init=False)

    def feed(self, data: bytes) -> bytes:
        """As :class:`Rewriting` says. An event is passed on once its lines are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._line(line) + b"\n" for line in lines)

    def end(self, why: str = "") -> bytes:
        """As :class:`Rewriting` says."""
        rest, self._rest = self._rest, b""
        if not why:
            return self._line(rest)
        # what is left of a line is no event any more
        told = reshaped(self._path, 502, f"the server's answer broke off: {why}".encode())
        return b"\n\nevent: error\ndata: " + told + b"\n\n"

    def _line(self, line: bytes) -> bytes:
        name, _, data = line.partition(b":")
        if name != b"data" or not data.lstrip().startswith(b'{"error"'):
            return line
        return b"data: " + reshaped(self._path, 500, data.strip())
