"""
Server-sent events out of bytes that come in pieces cut anywhere.
"""

from __future__ import annotations

from attrs import define, field

#: llama-server's events are tokens; the last one repeats a prompt, which can have megabytes.
MOST_BYTES = 256 * 1024 * 1024


class TooLong(Exception):
    """A line has no end."""


@define
class Events:
    """
    Cuts a stream into the data of its events and its comments. The names of events are left out.
    """

    _pieces: list[bytes] = field(factory=list, init=False)
    _size: int = field(default=0, init=False)
    _data: list[bytes] = field(factory=list, init=False)

    def feed(self, data: bytes) -> list[bytes | None]:
        """
        The data of each event that ended, and ``None`` for each comment: a sign of life.

        :raises TooLong: of a line more than :data:`MOST_BYTES` came.
        """
        *ended, rest = data.split(b"\n")
        found: list[bytes | None] = []
        if ended:
            ended[0] = b"".join((*self._pieces, ended[0]))
            self._pieces, self._size = [], 0
            for line in ended:
                self._line(line.removesuffix(b"\r"), found)
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
            if self._size > MOST_BYTES:
                raise TooLong
        return found

    def _line(self, line: bytes, found: list[bytes | None]) -> None:
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b":"):
            found.append(None)
        else:
            name, _, value = line.partition(b":")
            # older servers end a broken stream with an event "error:" of its own
            if name in (b"data", b"error"):
                self._data.append(value if name == b"data" else b'{"error":%b}' % value)
