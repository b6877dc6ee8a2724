"""
Parts of prompts: what is remembered of one, and how far two of them are the same.
"""

from __future__ import annotations

import secrets
import sys
from array import array
from bisect import bisect_left
from typing import TypeAlias

from attrs import field, frozen
from xxhash import xxh3_64_intdigest

#: Characters of a block: how far two texts are the same is known to so many.
BLOCK = 64

#: Of this process only: nobody can try out what a digest stands for.
_SEED = secrets.randbits(64)

#: A role, a digest and a length.
Identity: TypeAlias = tuple[str, int, int]


@frozen(eq=False, weakref_slot=False)
class Part:
    """
    A message, the tools, or a prompt that is one text, as digests; its text is not kept.
    """

    #: ``tools``, ``system``, ``user``, ``assistant``, ``tool``, ``prompt``, …
    role: str
    #: In characters.
    length: int
    #: Of all of it.
    digest: int
    #: Digests of its whole blocks, four bytes each.
    blocks: bytes = field(repr=False)
    #: Only where prompts are to be kept.
    text: str | None = field(default=None, repr=False)
    #: Length and digest of the earlier part that it begins with all of, where that is known.
    begins: tuple[int, int] | None = None

    @property
    def identity(self) -> Identity:
        """What two parts have in common that are the same."""
        return self.role, self.digest, self.length

    @property
    def size(self) -> int:
        """How much memory it takes, in bytes."""
        values = (self, self.length, self.digest, self.blocks, self.text, self.begins)
        # None and small numbers are nobody's; the numbers in a pair are
        size = sum(sys.getsizeof(value) for value in values if value is not None)
        return size if self.begins is None else size + 64


def digest_of(text: str) -> int:
    """A digest of a text, lone surrogates and all."""
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), _SEED)


def part_of(role: str, text: str, digest: int, *, keep_text: bool) -> Part:
    """
    What is remembered of a text.

    :param digest: :func:`digest_of` it.
    """
    return Part(role, len(text), digest, _blocks(text), text if keep_text else None)


def _blocks(text: str) -> bytes:
    whole = range(0, len(text) - BLOCK + 1, BLOCK)
    digests = array("I")
    if text.isascii():
        view = memoryview(text.encode("ascii"))
        digests.extend(xxh3_64_intdigest(view[at : at + BLOCK], _SEED) & 0xFFFFFFFF for at in whole)
    else:
        # the same bytes for a block without other characters, whatever comes after it
        for at in whole:
            block = text[at : at + BLOCK].encode("utf-8", "surrogatepass")
            digests.append(xxh3_64_intdigest(block, _SEED) & 0xFFFFFFFF)
    return digests.tobytes()


@frozen
class Agreement:
    """How far two parts are the same from their beginning."""

    characters: int
    #: ``False``: it may be up to :data:`BLOCK` characters more.
    exact: bool


def agreement(old: Part, new: Part) -> Agreement:
    """How far two parts are the same; parts of different roles are not from the beginning on."""
    if old.role != new.role:
        return Agreement(0, exact=True)
    if old is new or old.identity == new.identity:
        return Agreement(new.length, exact=True)
    if old.text is not None and new.text is not None:
        return Agreement(_in_common(old.text, new.text), exact=True)
    for longer, shorter in ((new, old), (old, new)):
        if longer.begins == (shorter.length, shorter.digest):
            return Agreement(shorter.length, exact=True)
    least = min(old.length, new.length)
    blocks = _in_common(memoryview(old.blocks).cast("I"), memoryview(new.blocks).cast("I"))
    # nothing is left that could be the same
    return Agreement(blocks * BLOCK, exact=blocks * BLOCK == least)


def _in_common(one: str | memoryview, other: str | memoryview) -> int:
    """How many items two sequences begin with alike: slices are compared fast, items are not."""
    # the first length at which they are not the same
    least = min(len(one), len(other))
    return bisect_left(range(1, least + 1), True, key=lambda n: one[:n] != other[:n])
