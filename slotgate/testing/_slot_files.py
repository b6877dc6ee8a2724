"""
Slot files as llama-server writes them: their layout, and what becomes of a bad one.

The layout, and so the size, is that of b11549 with the dense tiny model: a header, the tokens, one
cell per token, then the cache. Only the tokens mean anything here; the cache is zeros.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from attrs import frozen

_MAGIC = b"qsgg"
_VERSION = 4
_VOCABULARY = 263
_CELL = 12
_MODEL = 64


class BadSlotFile(Exception):
    """
    The server refuses the file: 400.
    """


class DeadlySlotFile(Exception):
    """
    The server reads past the end of the file and aborts.
    """


@frozen
class SlotFileFormat:
    """
    What a file of one model looks like.

    :ivar model: whatever tells the models apart whose files do not fit each other.
    :ivar bytes_per_token: the cache of one token; 512 are those of the tiny model.
    """

    model: str
    bytes_per_token: int = 512

    def encode(self, tokens: Sequence[int]) -> bytes:
        """
        Write the file of a slot; 36 bytes when it is empty.
        """
        count = len(tokens)
        head = struct.pack(
            f"<4sII iII {count}i I", _MAGIC, _VERSION, count + 4, -1, 1, count, *tokens, 0
        )
        cells = struct.pack("<II", 1, count)
        if not count:
            return head + cells
        cells += b"".join(struct.pack("<iII", position, 1, 0) for position in range(count))
        return head + cells + self._fingerprint() + bytes(self.bytes_per_token * count)

    def decode(self, data: bytes) -> tuple[int, ...]:
        """
        Read the tokens of a file.

        :raises BadSlotFile: junk, another model's, cut before the cache, or unknown tokens.
        :raises DeadlySlotFile: cut within the cache (facts: a truncated file aborts the server).
        """
        if len(data) < 24 or data[:8] != struct.pack("<4sI", _MAGIC, _VERSION):
            raise BadSlotFile("not a slot file")
        (count,) = struct.unpack_from("<I", data, 20)
        start = 24 + 4 * count + 4 + 8
        if len(data) < start:
            raise BadSlotFile("cut within its tokens")
        tokens = struct.unpack_from(f"<{count}i", data, 24)
        if not all(0 <= token < _VOCABULARY for token in tokens):
            raise BadSlotFile("unknown tokens")
        if not count:
            return ()
        start += _CELL * count
        if data[start : start + _MODEL] != self._fingerprint():
            raise BadSlotFile("cut before its cache, or another model's")
        if len(data) < start + _MODEL + self.bytes_per_token * count:
            raise DeadlySlotFile
        return tokens

    def _fingerprint(self) -> bytes:
        return hashlib.sha512(self.model.encode()).digest()
