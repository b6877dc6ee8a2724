"""
The answers of llama-server as Ollama's, for the relay.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen

from slotgate.surfaces.ollama.answers import STREAM_TYPE, WHOLE_TYPE, Streaming, whole
from slotgate.surfaces.ollama.asked import Asked
from slotgate.surfaces.ollama.clocks import Watch
from slotgate.surfaces.ollama.errors import OllamaError, upstream_error
from slotgate.surfaces.translation import Rewriting, Translated


@define
class _Lines:
    """A stream of events as lines."""

    _streaming: Streaming
    content_type: str = field(default=STREAM_TYPE, init=False)

    def feed(self, data: bytes) -> bytes:
        """As :class:`Rewriting` says."""
        return self._streaming.feed(data)

    def end(self, why: str = "") -> bytes:
        """As :class:`Rewriting` says."""
        return (
            self._streaming.end(f"the server's answer broke off: {why}")
            if why
            else (self._streaming.end())
        )


@frozen
class AnswerTranslation:
    """Answers to ``/api/chat`` and ``/api/generate``."""

    asked: Asked
    watch: Watch

    def rewriting(self, status: int, streams: bool) -> Rewriting | None:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        if status != 200 or not streams:
            return None
        return _Lines(Streaming(self.asked, self.watch))

    def takes_whole(self, status: int, streams: bool) -> bool:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        return True

    def whole(self, status: int, body: bytes) -> Translated:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        if status != 200:
            return refused(upstream_error(status, body))
        try:
            return Translated(200, WHOLE_TYPE, whole(self.asked, self.watch, body))
        except OllamaError as error:
            return refused(error)


@frozen
class WholeTranslation:
    """Answers that never stream."""

    #: Makes the answer of llama-server's, of status 200; may raise :class:`OllamaError`.
    translate: Callable[[bytes], bytes]
    #: Makes the error of llama-server's.
    refuse: Callable[[int, bytes], OllamaError] = upstream_error

    def rewriting(self, status: int, streams: bool) -> Rewriting | None:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        return None

    def takes_whole(self, status: int, streams: bool) -> bool:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        return True

    def whole(self, status: int, body: bytes) -> Translated:
        """As :class:`~slotgate.surfaces.translation.Translation` says."""
        if status != 200:
            return refused(self.refuse(status, body))
        try:
            return Translated(200, WHOLE_TYPE, self.translate(body))
        except OllamaError as error:
            return refused(error)


def refused(error: OllamaError) -> Translated:
    """An error as an answer."""
    return Translated(error.status, WHOLE_TYPE, error.body())
