"""
What a surface needs so that a server's answer can become one of its own.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen


@frozen
class Translated:
    """A whole answer in a surface's own shape."""

    status: int
    content_type: str
    body: bytes


class Rewriting(Protocol):
    """
    An answer that is rewritten piece by piece.
    """

    #: What the pieces are, for the client.
    content_type: str

    def feed(self, data: bytes) -> bytes:
        """What a piece of the server's answer becomes, often nothing."""

    def end(self, why: str = "") -> bytes:
        """
        What still has to be said.

        :param why: why the server's answer broke off; empty: it came to its end.
        """


class Translation(Protocol):
    """How a surface takes the server's answer to one request."""

    def rewriting(self, status: int, streams: bool) -> Rewriting | None:
        """
        What rewrites an answer while it passes; ``None``: nothing does.

        :param streams: it is a stream of events.
        """

    def takes_whole(self, status: int, streams: bool) -> bool:
        """Whether an answer that is not rewritten is to be translated once it is there."""

    def whole(self, status: int, body: bytes) -> Translated:
        """What a whole answer becomes."""
