"""
A comparison of two prompts in words.
"""

from __future__ import annotations

from slotgate.prompts.comparison import Change, Comparison, Difference
from slotgate.prompts.parts import BLOCK, Agreement
from slotgate.prompts.texts import ASSISTANT


def sentence(comparison: Comparison) -> str:
    """
    How far a prompt is the same as the one before, and what that looks like.

    Without the texts the number of characters that are the same is a lower bound, and called so.
    """
    told = [_sizes(comparison)]
    if comparison.change is not Change.OTHER:
        told += filter(None, [_how_far(comparison)])
    told.append(_what(comparison))
    return ": ".join(told)


def about_last(comparison: Comparison) -> str:
    """How far the last messages of the two prompts are the same, wherever they stand."""
    new, last = comparison.new.parts[-1], comparison.last
    if last.characters == new.length == comparison.old.parts[-1].length:
        return f"the last messages are the same: {_characters(new.length)}"
    return f"the last messages {_agreeing(last, new.length, many=True)}"


def reusable(comparison: Comparison, prompt_tokens: int) -> int:
    """
    About how many tokens of a prompt a server can take from its cache at the most: as many parts
    of it as of the characters.

    The answer to the last prompt is in the cache too, and what follows that prompt is taken for it
    where the model says it.
    """
    if not comparison.characters:
        return 0
    same, parts = comparison.same_characters, comparison.new.parts
    answer = comparison.same_parts
    if comparison.change is Change.GROWN and parts[answer].role == ASSISTANT:
        same = sum(part.length for part in parts[: answer + 1])
    return prompt_tokens * same // comparison.characters


def _sizes(comparison: Comparison) -> str:
    old, new = comparison.old, comparison.new
    whose = "the prompt it begins as" if comparison.of_parent else "the last prompt"
    if not new.chat:
        return f"{_characters(new.characters)}, {whose} had {old.characters}"
    return f"{_messages(new.messages)}, {whose} had {old.messages if old.chat else 'none'}"


def _how_far(comparison: Comparison) -> str:
    if not comparison.new.chat:
        return _how_far_in_text(comparison)
    same, count = comparison.same_messages, comparison.new.messages
    told = ""
    if comparison.change is Change.SAME or (same == count and comparison.change is Change.CUT):
        told = "all are the same" if count > 1 else "it is the same"
    elif same:
        told = f"the first {same} are the same" if same > 1 else "the first is the same"
    elif comparison.same_parts:
        told = "the tools are the same"
    tools_in_both = comparison.old.tools == comparison.new.tools
    differs = _difference(comparison.first) if comparison.first and tools_in_both else ""
    return ", ".join(filter(None, [told, differs]))


def _how_far_in_text(comparison: Comparison) -> str:
    if comparison.change is Change.SAME:
        return "all are the same"
    if not comparison.same_characters:
        return ""
    least = "" if comparison.exact else "at least "
    return f"{least}the first {comparison.same_characters} are the same"


def _difference(first: Difference) -> str:
    if first.role == first.old_role:
        what = f"message {first.number} ({first.role}) " if first.number else "the tools "
        return what + _agreeing(first.same, first.characters, many=not first.number)
    return (
        f"message {first.number} ({first.role}) has the place of one with another role"
        f" ({first.old_role})"
    )


def _agreeing(same: Agreement, characters: int, *, many: bool) -> str:
    """How far something is the same as something else."""
    its, verb, differ = ("their", "are", "differ") if many else ("its", "is", "differs")
    if not same.characters:
        if same.exact:
            return f"{differ} from {its} first character on"
        if characters <= BLOCK:
            return f"{differ} within {its} {_characters(characters)}"
        return f"{differ} within {its} first {BLOCK} of {_characters(characters)}"
    if same.characters == characters:
        return f"{verb} the same for all of {its} {_characters(characters)}"
    least = "" if same.exact else "at least "
    return f"{verb} the same for {least}{its} first {same.characters} of {_characters(characters)}"


def _what(comparison: Comparison) -> str:
    change = comparison.change
    match change:
        case Change.SAME:
            return "the same prompt again"
        case Change.GROWN:
            return _what_follows(comparison)
        case Change.CUT:
            return _what_is_cut(comparison)
        case Change.TOOLS:
            return _what_of_tools(comparison)
        case Change.SYSTEM:
            return _what_of_system(comparison)
        case Change.MIDDLE:
            return _what_of_middle(comparison)
        case Change.START_MOVED:
            gone = comparison.moved
            oldest = f"oldest {gone} messages are" if gone > 1 else "oldest message is"
            return f"the start of the conversation moved, its {oldest} gone"
        case Change.LAST_USER:
            return "only the last user message differs"
        case Change.TEXT:
            return "the text differs after them"
        case Change.OTHER:
            return _what_is_common(comparison)


def _what_follows(comparison: Comparison) -> str:
    if not comparison.new.chat:
        return "new text follows"
    goes_on = len(comparison.old.parts) - comparison.same_parts
    more = len(comparison.new.parts) - len(comparison.old.parts)
    new = f"{more} new message{'s follow' if more > 1 else ' follows'}" if more else ""
    if goes_on:
        number = comparison.new.number(comparison.same_parts)
        return " and ".join(filter(None, [f"message {number} goes on", new]))
    return new


def _what_is_cut(comparison: Comparison) -> str:
    if not comparison.new.chat:
        return "the end of the last prompt was cut"
    if comparison.only_answer_cut:
        return "the answer to the last user message was left out"
    count = len(comparison.old.parts) - comparison.same_parts
    return f"the end of the last prompt was cut ({_messages(count)})"


def _what_of_tools(comparison: Comparison) -> str:
    if not comparison.old.tools:
        return "there are tools now, and they come first"
    if not comparison.new.tools:
        return "the tools are gone, which came first"
    return "the tools changed, and they come first"


def _what_of_system(comparison: Comparison) -> str:
    if comparison.first and comparison.first.role == comparison.first.old_role:
        return "the system message changed"
    return (
        f"a system message {'is gone' if comparison.old.head > comparison.new.head else 'is new'}"
    )


def _what_of_middle(comparison: Comparison) -> str:
    at, gone, new = comparison.same_parts, comparison.gone, comparison.put_in
    if gone:
        return f"of the last prompt {_numbered(comparison.old.number(at), gone)} gone"
    if new:
        return f"{_numbered(comparison.new.number(at), new)} new there"
    if at == len(comparison.old.parts) - 1:
        return "the last message changed"
    return "a message in the middle changed"


def _numbered(number: int, count: int) -> str:
    if count == 1:
        return f"message {number} is"
    return f"messages {number} to {number + count - 1} are"


def _what_is_common(comparison: Comparison) -> str:
    same, new = comparison.same_parts, comparison.new
    common = ["the tools"] if new.tools and same else []
    if systems := same - len(common):
        common.append("the system message" if systems == 1 else f"{systems} system messages")
    if common:
        return f"nothing but {' and '.join(common)} in common"
    if comparison.same_characters:
        return f"nothing but the first {_characters(comparison.same_characters)} in common"
    return "nothing in common"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _characters(count: int) -> str:
    return f"{count} character{'' if count == 1 else 's'}"
