"""
Text of others, made safe to show: in a line of the log, in a table on a terminal.
"""

from __future__ import annotations

import io
import unicodedata
from typing import TextIO


def printable(text: str) -> str:
    """
    The text with everything escaped that is not printable: line ends, what a terminal would obey,
    what would turn the direction of writing, half a surrogate pair.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def cells(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def cut(text: str, most: int) -> str:
    """A printable text in at most so many columns, with an ellipsis where it was longer."""
    if cells(text) <= most:
        return text
    if most < 1:
        return ""
    kept, used = [], 1
    for character in text:
        used += _width(character)
        if used > most:
            break
        kept.append(character)
    return "".join(kept) + "…"


def tolerant(stream: TextIO) -> None:
    """Let a stream write an escape for what its encoding does not have, rather than raise."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
