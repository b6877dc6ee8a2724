"""
What is remembered of a request's prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from attrs import evolve, field, frozen

from slotgate.prompts.parts import Identity, Part, digest_of, part_of
from slotgate.prompts.texts import SYSTEM, TOOLS, Said, chat_of, plain_of


@frozen(eq=False, weakref_slot=False)
class Outline:
    """The parts of a prompt, in their order."""

    parts: tuple[Part, ...] = field(repr=False)
    #: Whether the first part is the tools.
    tools: bool
    #: How many parts are the tools and the system messages that the prompt begins with.
    head: int
    #: Whether it is a chat; else a plain completion.
    chat: bool
    #: Of all parts.
    characters: int

    @property
    def messages(self) -> int:
        """How many messages there are; the system prompt is one, the tools are none."""
        return len(self.parts) - self.tools

    def number(self, index: int) -> int:
        """What a part is called: messages are counted from 1, and the tools are 0."""
        return index if self.tools else index + 1


#: Longer prompts are not compared: it would take too long for those who wait meanwhile.
MOST_CHARACTERS = 8 * 1024 * 1024


def outline_of(
    fields: Mapping[str, object], *, previous: Outline | None = None, keep_text: bool = False
) -> Outline | None:
    """
    What is to be remembered of a request's prompt: lengths and digests.

    Without the texts it can be told later how far two prompts are the same to a multiple of
    :data:`~slotgate.prompts.parts.BLOCK` characters.

    :param fields: the request's JSON, of any surface.
    :param previous: the session's last prompt: parts that are the same are taken from it.
    :param keep_text: keep the texts too.
    :returns: ``None``: there is no prompt in it, or one that is too long to be compared in
        passing.
    """
    try:
        chat = chat_of(fields)
        said = plain_of(fields) if chat is None else chat
    except (RecursionError, ValueError):
        # nested too deeply, or a number of thousands of digits: the server will have something to
        # say about that
        return None
    if sum(len(text) for _, text in said or ()) > MOST_CHARACTERS:
        return None
    if said is None or (chat is None and ("messages" in fields or "input" in fields)):
        return None
    parts = _parts(said, previous.parts if previous else (), keep_text)
    tools = parts[0].role == TOOLS
    head = int(tools)
    while head < len(parts) and parts[head].role == SYSTEM:
        head += 1
    characters = sum(part.length for part in parts)
    return Outline(parts, tools, head, chat is not None, characters)


def _parts(said: list[Said], before: tuple[Part, ...], keep_text: bool) -> tuple[Part, ...]:
    known: dict[Identity, Part] = {
        part.identity: part for part in before if (part.text is not None) == keep_text
    }
    parts: list[Part] = []
    same = True
    for (role, text), old in zip_longest(said, before[: len(said)]):
        digest = digest_of(text)
        identity = (role, digest, len(text))
        part = known.get(identity)
        if part is None:
            part = part_of(role, text, digest, keep_text=keep_text)
        if same and old is not None and old.identity != identity:
            # the first that differs: whether it goes on after all of the last one can only be
            # told as long as there is its text
            same = False
            longer = old.role == role and old.length < len(text)
            if longer and digest_of(text[: old.length]) == old.digest:
                part = evolve(part, begins=(old.length, old.digest))
        known[identity] = part
        parts.append(part)
    return tuple(parts)
