"""
Where two prompts differ, and what that looks like. A server can use its cache up to there.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from attrs import field, frozen

from slotgate.prompts.outline import Outline
from slotgate.prompts.parts import BLOCK, Agreement, Identity, Part, agreement
from slotgate.prompts.texts import ASSISTANT, TOOL, TOOLS, USER


class Change(enum.Enum):
    """What became of a prompt."""

    #: The same prompt again.
    SAME = "same"
    #: Something follows after all of it.
    GROWN = "grown"
    #: Its end is missing.
    CUT = "cut"
    TOOLS = "tools"
    SYSTEM = "system"
    #: A message before the last user message.
    MIDDLE = "middle"
    #: The oldest messages are gone.
    START_MOVED = "start moved"
    #: Only the last user message is another one.
    LAST_USER = "last user message"
    #: A plain completion goes on otherwise.
    TEXT = "text"
    #: It is another prompt.
    OTHER = "other"


@frozen
class Difference:
    """The first part that is not the same."""

    #: Which message it is, from 1; 0: the tools.
    number: int
    role: str
    #: The role of what was there.
    old_role: str
    #: How far the two are the same, and their lengths, in characters.
    same: Agreement
    characters: int
    old_characters: int


@frozen
class Comparison:
    """A prompt beside an earlier one. Lengths are in characters."""

    old: Outline = field(repr=False)
    new: Outline = field(repr=False)
    change: Change
    #: How many parts are the same from the beginning.
    same_parts: int
    #: ``None``: one of the two is the beginning of the other, maybe within its last message.
    first: Difference | None
    #: How far the two prompts are the same.
    same_characters: int
    #: Whether it is exactly so far, or may be up to a block further.
    exact: bool
    #: How far the last messages are the same.
    last: Agreement
    #: How many of the oldest messages are gone, where the start moved, and how many after them
    #: are the same.
    moved: int = 0
    kept: int = 0
    #: How many messages are gone from the middle, or new in it, where nothing else changed there.
    gone: int = 0
    put_in: int = 0
    #: The earlier prompt is that of the session that this one begins as.
    of_parent: bool = False

    @property
    def characters(self) -> int:
        """How long the prompt is."""
        return self.new.characters

    @property
    def same_messages(self) -> int:
        """How many messages are the same from the beginning."""
        return self.same_parts - (self.new.tools and self.same_parts > 0)

    @property
    def only_answer_cut(self) -> bool:
        """Whether what is missing at the end is the answer to the last user message."""
        end = self.old.parts[self.same_parts :]
        return (
            self.change is Change.CUT
            and self.new.parts[-1].role == USER
            and all(part.role in (ASSISTANT, TOOL) for part in end)
        )


def compare(old: Outline, new: Outline) -> Comparison:
    """
    Compare a prompt with an earlier one, in time proportional to their numbers of messages.
    """
    same = _same_parts(old.parts, new.parts)
    agreed, first = Agreement(0, exact=True), None
    if same < min(len(old.parts), len(new.parts)):
        was, now = old.parts[same], new.parts[same]
        agreed = agreement(was, now)
        number, role = new.number(same), now.role
        if TOOLS in (was.role, now.role):
            number, role = 0, TOOLS
        first = Difference(number, role, was.role, agreed, now.length, was.length)
    moved = kept = gone = put_in = 0
    if first is None:
        change = _change_of_length(old, new)
    else:
        change = _change_at(old, new, same, agreed)
        if change in (Change.GROWN, Change.CUT):
            first = None
        if change in (Change.MIDDLE, Change.OTHER) and (found := _moved(old, new, same)):
            change, (moved, kept) = Change.START_MOVED, found
        if change is Change.MIDDLE:
            gone = _skipped(old.parts[same:], new.parts[same:])
            put_in = 0 if gone else _skipped(new.parts[same:], old.parts[same:])
    return Comparison(
        old,
        new,
        change,
        same,
        first,
        sum(part.length for part in new.parts[:same]) + agreed.characters,
        agreed.exact,
        agreement(old.parts[-1], new.parts[-1]),
        moved,
        kept,
        gone,
        put_in,
    )


def _same_parts(old: Sequence[Part], new: Sequence[Part]) -> int:
    same = 0
    for was, now in zip(old, new, strict=False):
        if was is not now and was.identity != now.identity:
            break
        same += 1
    return same


def _change_of_length(old: Outline, new: Outline) -> Change:
    """What it is when one of the two is the beginning of the other."""
    if len(old.parts) == len(new.parts):
        return Change.SAME
    return Change.GROWN if len(old.parts) < len(new.parts) else Change.CUT


def _change_at(old: Outline, new: Outline, at: int, agreed: Agreement) -> Change:
    """
    What it is when two parts are not the same.

    :param at: which ones.
    :param agreed: how far they are.
    """
    was, now = old.parts[at], new.parts[at]
    if old.chat != new.chat:
        return Change.OTHER
    if not new.chat:
        return _change_of_text(old, new, at, agreed)
    alike = agreed.characters >= BLOCK or _have_common(old.parts[at:], new.parts[at:])
    if at < max(old.head, new.head):
        if not alike and not at:
            return Change.OTHER
        return Change.TOOLS if TOOLS in (was.role, now.role) else Change.SYSTEM
    after = old.parts[at + 1 :]
    put_in = was.identity in {part.identity for part in new.parts[at + 1 :]}
    if at == _last_user(old.parts) and (at or alike) and not put_in:
        if _same_parts(after, new.parts[at + 1 :]) == len(after):
            return Change.LAST_USER
    elif not after and was.length == agreed.characters > 0:
        return Change.GROWN
    if at == old.head and not alike:
        return Change.OTHER
    return Change.MIDDLE


def _change_of_text(old: Outline, new: Outline, at: int, agreed: Agreement) -> Change:
    was, now = old.parts[at], new.parts[at]
    if at == len(old.parts) - 1 and agreed.characters == was.length:
        return Change.GROWN
    if len(old.parts) == len(new.parts) == at + 1 and agreed.characters == now.length:
        return Change.CUT
    return Change.TEXT if at or agreed.characters >= BLOCK else Change.OTHER


def _have_common(old: Sequence[Part], new: Sequence[Part]) -> bool:
    return not {part.identity for part in old}.isdisjoint(part.identity for part in new)


def _last_user(parts: Sequence[Part]) -> int:
    """Which part is the last user message; -1: none is."""
    return next((at for at in reversed(range(len(parts))) if parts[at].role == USER), -1)


def _moved(old: Outline, new: Outline, at: int) -> tuple[int, int] | None:
    """
    How many messages are gone at the start of a conversation, and how many after them are the
    same; ``None``: it is not that.

    All that is left of the old prompt must be the beginning of the new one, but for its last user
    message, which clients write anew, and what followed it. That holds for the number of messages
    at which most of them are the same, however many say no more than "ok".

    :param at: the first that differs.
    """
    if old.head != new.head or old.head > at:
        return None
    numbers: dict[Identity, int] = {}
    was, now = (
        [numbers.setdefault(part.identity, len(numbers)) for part in outline.parts[old.head :]]
        for outline in (old, new)
    )
    last, tail = _last_user(old.parts) - old.head, old.parts[old.head :]
    matches = _matches(now, was)
    best: tuple[int, int] | None = None
    for gone in range(1, len(was)):
        kept = matches[gone]
        reached = gone + kept
        ends = reached == len(was) or gone <= last <= reached or kept == len(now) > 1
        # one short message, "continue" for one, is the same by chance
        ends = ends and (kept > 1 or (kept == 1 and tail[gone].length >= BLOCK))
        # more must be explained by it than by what is the same where it was
        if ends and kept > max(best[1] if best else 0, at - old.head):
            best = gone, kept
    return best


def _skipped(longer: Sequence[Part], shorter: Sequence[Part]) -> int:
    """How many parts have to be left out of one prompt to go on as another one does; 0: none."""
    sought = [part.identity for part in shorter[:2]]
    places = (at for at in range(1, len(longer)) if longer[at].identity == sought[0])
    for at in places:
        # one alone can be the same by chance, if more follow it
        if [part.identity for part in longer[at : at + 2]] == sought:
            return at
    return 0


def _matches(sought: Sequence[int], text: Sequence[int]) -> list[int]:
    """
    How many items of ``sought`` each place of ``text`` begins with (the Z algorithm: linear).
    """
    joined = [*sought, -1, *text]
    z = [0] * len(joined)
    left = right = 0
    for at in range(1, len(joined)):
        length = min(right - at, z[at - left]) if at < right else 0
        while at + length < len(joined) and joined[length] == joined[at + length]:
            length += 1
        z[at] = length
        if at + length > right:
            left, right = at, at + length
    return z[len(sought) + 1 :]
