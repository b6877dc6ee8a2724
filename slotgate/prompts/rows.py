"""
Two prompts side by side: what became of each message.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from attrs import field, frozen

from slotgate.prompts.comparison import Change, Comparison
from slotgate.prompts.outline import Outline
from slotgate.prompts.parts import Agreement, Identity, agreement

#: Two sequences are the same at places in the one and the other.
_Pair: TypeAlias = tuple[int, int]

_NOTHING = Agreement(0, exact=True)

#: How often what lies between messages that are the same is looked at once more.
_DEPTH = 8


class Status(enum.Enum):
    """What became of a message."""

    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    DELETED = "deleted"


@frozen
class Row:
    """A message of the new prompt, of the old one, or of both."""

    status: Status
    role: str
    #: Which message it is in each prompt, from 1, and 0: the tools; ``None``: it is not in it.
    number: int | None
    old_number: int | None
    #: Whether a server has to read it again: it was in the earlier prompt too, and stands behind
    #: the first difference.
    read_again: bool
    #: Its length, in the new prompt if it is there, and how far the two are the same.
    characters: int
    same: Agreement
    #: Only where prompts are kept; the old one where it is another text.
    text: str | None = field(default=None, repr=False)
    old_text: str | None = field(default=None, repr=False)


def rows_of(comparison: Comparison) -> list[Row]:
    """The messages of two prompts, in the order of the new one."""
    old, new = comparison.old, comparison.new
    same = comparison.same_parts
    gap = same, len(old.parts), same, len(new.parts)
    pairs: list[_Pair] = [(at, at) for at in range(same)]
    if comparison.change is Change.START_MOVED:
        # those that stand where they stood are taken from further behind as well as from there
        begin, gone = old.head, comparison.moved
        pairs = [(at, at) for at in range(begin)]
        pairs += ((begin + gone + at, begin + at) for at in range(comparison.kept))
        behind = begin + gone + comparison.kept, begin + comparison.kept
        gap = behind[0], len(old.parts), behind[1], len(new.parts)
    a, b = _numbers(old, new)
    pairs += _aligned(a, b, gap)
    rows: list[Row] = []
    before = (0, 0)
    for i, j in [*pairs, (len(old.parts), len(new.parts))]:
        rows += _between(comparison, before[0], i, before[1], j)
        if i < len(old.parts) and j < len(new.parts):
            rows.append(_both(comparison, i, j))
        before = i + 1, j + 1
    return rows


def rows_of_first(new: Outline) -> list[Row]:
    """The messages of a prompt that there is none to compare with."""
    return [_added(new, at) for at in range(len(new.parts))]


def _between(comparison: Comparison, i: int, i_end: int, j: int, j_end: int) -> Iterator[Row]:
    """
    Rows of what is not the same: a message that has another one of its role in its place has
    changed.
    """
    old, new = comparison.old.parts, comparison.new.parts
    while i < i_end or j < j_end:
        both = i < i_end and j < j_end
        if both and old[i].role == new[j].role:
            yield _both(comparison, i, j)
            i, j = i + 1, j + 1
        elif i < i_end and (not both or i_end - i > j_end - j):
            yield _deleted(comparison.old, i)
            i += 1
        elif j < j_end and (not both or j_end - j > i_end - i):
            yield _added(comparison.new, j)
            j += 1
        else:
            yield _deleted(comparison.old, i)
            yield _added(comparison.new, j)
            i, j = i + 1, j + 1


def _both(comparison: Comparison, i: int, j: int) -> Row:
    old, new = comparison.old, comparison.new
    was, now = old.parts[i], new.parts[j]
    same = was.identity == now.identity
    return Row(
        status=Status.SAME if same else Status.CHANGED,
        role=now.role,
        number=new.number(j),
        old_number=old.number(i),
        read_again=j >= comparison.same_parts,
        characters=now.length,
        same=agreement(was, now),
        text=now.text,
        old_text=None if same else was.text,
    )


def _added(new: Outline, j: int) -> Row:
    part = new.parts[j]
    return Row(
        Status.ADDED, part.role, new.number(j), None, False, part.length, _NOTHING, part.text
    )


def _deleted(old: Outline, i: int) -> Row:
    part = old.parts[i]
    return Row(
        Status.DELETED,
        part.role,
        None,
        old.number(i),
        False,
        part.length,
        _NOTHING,
        old_text=part.text,
    )


def _numbers(old: Outline, new: Outline) -> tuple[list[int], list[int]]:
    known: dict[Identity, int] = {}
    a, b = (
        [known.setdefault(part.identity, len(known)) for part in outline.parts]
        for outline in (old, new)
    )
    return a, b


def _aligned(
    a: Sequence[int], b: Sequence[int], gap: tuple[int, int, int, int], depth: int = _DEPTH
) -> list[_Pair]:
    """
    Places where two sequences are the same, in rising order.

    From both ends, then around what each of them has once (patience): in about linear time
    however many are alike.

    :param gap: from where to where in the one, and in the other.
    """
    i, i_end, j, j_end = gap
    begin: list[_Pair] = []
    while i < i_end and j < j_end and a[i] == b[j]:
        begin.append((i, j))
        i, j = i + 1, j + 1
    end: list[_Pair] = []
    while i < i_end and j < j_end and a[i_end - 1] == b[j_end - 1]:
        i_end, j_end = i_end - 1, j_end - 1
        end.append((i_end, j_end))
    middle: list[_Pair] = []
    if i < i_end and j < j_end and depth:
        at = (i, j)
        anchors = _anchors(a, b, (i, i_end, j, j_end))
        for anchor in [*anchors, (i_end, j_end)] if anchors else ():
            middle += _aligned(a, b, (at[0], anchor[0], at[1], anchor[1]), depth - 1)
            if anchor[0] < i_end:
                middle.append(anchor)
            at = anchor[0] + 1, anchor[1] + 1
    return [*begin, *middle, *reversed(end)]


def _anchors(a: Sequence[int], b: Sequence[int], gap: tuple[int, int, int, int]) -> list[_Pair]:
    """The longest rising sequence of pairs of what each has once."""
    i, i_end, j, j_end = gap
    counts, others = Counter(a[i:i_end]), Counter(b[j:j_end])
    places = {b[at]: at for at in range(j, j_end) if others[b[at]] == 1}
    tops: list[int] = []
    chains: list[tuple[_Pair, int]] = []
    ends: list[int] = []
    for at in range(i, i_end):
        if counts[a[at]] != 1 or a[at] not in places:
            continue
        place = places[a[at]]
        length = bisect_left(tops, place)
        chains.append(((at, place), ends[length - 1] if length else -1))
        tops[length : length + 1] = [place]
        ends[length : length + 1] = [len(chains) - 1]
    found: list[_Pair] = []
    link = ends[-1] if ends else -1
    while link >= 0:
        pair, link = chains[link]
        found.append(pair)
    return found[::-1]
