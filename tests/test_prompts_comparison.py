"""Where two prompts differ, found by comparing them as whole texts would be."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_pairs import LONG, PAIRS, SYSTEM, TALK, TURNS, chat, said, tool, words

from slotgate.prompts.comparison import Change, Comparison, compare
from slotgate.prompts.outline import Outline, outline_of
from slotgate.prompts.parts import BLOCK
from slotgate.prompts.rows import Row, Status, rows_of
from slotgate.prompts.sentences import about_last, reusable, sentence


def outline(fields: Any, previous: Outline | None = None, *, keep_text: bool = False) -> Outline:
    found = outline_of(fields, previous=previous, keep_text=keep_text)
    assert found is not None
    return found


def compared(old: Any, new: Any, *, keep_text: bool = False) -> Comparison:
    before = outline(old, keep_text=keep_text)
    return compare(before, outline(new, before, keep_text=keep_text))


def talk(*texts: str, system: str = "terse") -> Any:
    """A system message, then the user and the assistant in turn."""
    turns = [said(("user", "assistant")[n % 2], text) for n, text in enumerate(texts)]
    return chat(*([said("system", system)] if system else []), *turns)


# properties

#: Few different ones, some longer than a block, so that prompts have much in common.
TEXTS = st.sampled_from(["ok", "go on", "", "é☃", words("a", 130), words("a", 140), "b" * 64])
MESSAGES = st.lists(
    st.builds(said, st.sampled_from(["system", "user", "assistant", "tool"]), TEXTS),
    min_size=1,
    max_size=12,
)
CHATS = st.builds(
    lambda messages, tools: chat(*messages, **({"tools": tools} if tools else {})),
    MESSAGES,
    st.none() | st.just([tool("Sunny")]) | st.just([tool("Rain")]),
)


@given(CHATS, st.booleans())
def test_a_prompt_is_the_same_as_itself(fields: Any, keep_text: bool) -> None:
    found = compared(fields, fields, keep_text=keep_text)
    assert found.change is Change.SAME
    assert found.same_characters == found.characters
    assert {row.status for row in rows_of(found)} == {Status.SAME}
    assert reusable(found, 1000) == (1000 if found.characters else 0)


@given(CHATS, CHATS)
def test_as_many_characters_are_the_same_as_of_the_texts(old: Any, new: Any) -> None:
    exact = compared(old, new, keep_text=True)
    texts = [[(p.role, p.text or "") for p in one.parts] for one in (exact.old, exact.new)]
    wanted = naive(*texts)
    assert (exact.same_characters, exact.exact) == (wanted, True)
    bound = compared(old, new)
    assert bound.change is exact.change or bound.first is not None
    if bound.exact:
        assert bound.same_characters == wanted
    else:
        assert bound.same_characters <= wanted < bound.same_characters + BLOCK


def naive(old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> int:
    """How many characters two prompts begin with alike, one at a time."""
    same = 0
    for (was, before), (now, after) in zip(old, new, strict=False):
        if was != now:
            break
        for one, other in zip(before, after, strict=False):
            if one != other:
                break
            same += 1
        if before != after:
            break
    return same


@given(CHATS, CHATS, st.booleans())
def test_the_rows_are_both_prompts(old: Any, new: Any, keep_text: bool) -> None:
    found = compared(old, new, keep_text=keep_text)
    rows = rows_of(found)
    for outlined, numbers in (
        (found.new, [row.number for row in rows]),
        (found.old, [row.old_number for row in rows]),
    ):
        wanted = [outlined.number(at) for at in range(len(outlined.parts))]
        assert [number for number in numbers if number is not None] == wanted
    for row in rows:
        check(row, found)


def check(row: Row, found: Comparison) -> None:
    old = None if row.old_number is None else found.old.parts[row.old_number - found.old.number(0)]
    new = None if row.number is None else found.new.parts[row.number - found.new.number(0)]
    match row.status:
        case Status.ADDED:
            assert old is None
        case Status.DELETED:
            assert new is None
            assert not row.read_again
        case status:
            assert old is not None
            assert new is not None
            assert (old.identity == new.identity) == (status is Status.SAME)
    if new is not None:
        assert row.text == new.text
        at = found.new.parts.index(new)
        again = at >= found.same_parts and row.status is not Status.ADDED
        assert row.read_again is again or found.new.parts.count(new) > 1


@given(MESSAGES, MESSAGES)
def test_what_only_grows_is_called_grown(old: Any, more: Any) -> None:
    found = compared(chat(*old), chat(*old, *more))
    assert (found.change, found.first) == (Change.GROWN, None)
    assert compared(chat(*old, *more), chat(*old)).change is Change.CUT


@given(
    st.lists(st.sampled_from(["ok", "continue"]), min_size=6, max_size=20),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_a_start_that_moved_is_found_among_many_that_are_alike(
    users: list[str], turns: int, grows: bool, rewritten: bool
) -> None:
    texts = [text for n, user in enumerate(users) for text in (user, f"answer {n}")][:-1]
    old, new = [*texts], texts[2 * turns :]
    if rewritten:
        old[-1] = "task"
    if grows:
        new = [*new, "an answer", "ok"]
    found = compared(talk(*old), talk(*new))
    assert (found.change, found.moved) == (Change.START_MOVED, 2 * turns)
    gone = [row.old_number for row in rows_of(found) if row.status is Status.DELETED]
    assert gone[: 2 * turns] == list(range(2, 2 + 2 * turns))


# single cases


def test_an_odd_number_of_messages_that_are_gone() -> None:
    for gone in (1, 2, 3, 4, 5):
        found = compared(LONG, chat(SYSTEM, *TURNS[gone:11]))
        assert (found.change, found.moved) == (Change.START_MOVED, gone)
        statuses = [row.status for row in rows_of(found)]
        assert statuses == [Status.SAME, *[Status.DELETED] * gone, *[Status.SAME] * (11 - gone)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # one answer is another one, and the same short question follows
        (("ok", "one", "ok"), ("ok", "two", "ok")),
        # a conversation that begins with what was said in the middle of the last one
        (("hello", "one", "ok", "two", "and?"), ("ok",)),
        (("hello", "one", "ok", "two", "and?"), ("ok", "three", "so?")),
        # gone from the middle
        (("a", "b", "c", "d", "e", "f", "g"), ("a", "b", "e", "f", "g")),
    ],
)
def test_what_is_no_start_that_moved(old: Sequence[str], new: Sequence[str]) -> None:
    found = compared(talk(*old), talk(*new))
    assert (found.change, found.moved) == (Change.MIDDLE, 0)


def test_a_start_that_moved_without_a_system_message_and_with_tools() -> None:
    texts = [f"text {n}" for n in range(9)]
    found = compared(talk(*texts, system=""), talk(*texts[2:], system=""))
    assert (found.change, found.moved) == (Change.START_MOVED, 2)
    tools = [tool("Sunny")]
    found = compared({**talk(*texts), "tools": tools}, {**talk(*texts[4:]), "tools": tools})
    assert (found.change, found.moved) == (Change.START_MOVED, 4)
    assert found.first is not None
    assert (found.first.number, found.same_messages) == (2, 1)


def test_a_start_that_moved_and_an_end_that_was_cut() -> None:
    found = compared(LONG, chat(SYSTEM, *TURNS[2:9]))
    assert (found.change, found.moved, found.kept) == (Change.START_MOVED, 2, 7)


def test_a_start_that_moved_past_the_last_user_message() -> None:
    steps = [
        message
        for n in range(5)
        for message in (said("assistant", f"call {n}"), said("tool", f"result {n}"))
    ]
    found = compared(
        chat(SYSTEM, said("user", "Go."), *steps[:8]), chat(SYSTEM, *steps[2:], said("user", "Go."))
    )
    assert (found.change, found.moved, found.kept) == (Change.START_MOVED, 3, 6)
    # something else follows before all of the last prompt was said
    other = chat(SYSTEM, *steps[2:6], said("assistant", "Done."))
    found = compared(chat(SYSTEM, said("user", "Go."), *steps[:8]), other)
    assert found.change is Change.MIDDLE


def test_short_messages_that_are_alike_by_chance_do_not_say_what_is_gone() -> None:
    found = compared(
        talk("a", "b", "c", "d", "e", "ok", "f", "g", "h"),
        talk("a", "b", "c", "ok", "other", "things", "follow"),
    )
    assert (found.change, found.gone, found.put_in) == (Change.MIDDLE, 0, 0)


def test_a_system_message_in_the_middle_is_no_beginning() -> None:
    note = said("system", "A note.")
    found = compared(
        chat(*TALK[:4], note, *TALK[4:]), chat(*TALK, TURNS[5], note, said("user", "And?"))
    )
    assert found.change is Change.MIDDLE
    assert found.first is not None
    assert (found.first.number, found.first.role, found.first.old_role) == (
        5,
        "assistant",
        "system",
    )


def test_only_what_came_after_the_last_user_message_is_an_answer() -> None:
    assert compared(chat(*TALK, TURNS[5]), chat(*TALK)).only_answer_cut
    assert not compared(chat(*TALK, *TURNS[5:7]), chat(*TALK)).only_answer_cut
    assert not compared(chat(*TALK), chat(*TALK[:5])).only_answer_cut


def test_statuses_of_an_edit_and_a_turn() -> None:
    new = chat(SYSTEM, TURNS[0], said("assistant", "Else."), *TURNS[2:7])
    rows = rows_of(compared(chat(*TALK), new, keep_text=True))
    assert [row.status.value for row in rows] == [
        *("same", "same", "changed", "same", "same", "same"),
        *("added", "added"),
    ]
    assert [row.read_again for row in rows] == [False, False, *[True] * 4, False, False]
    changed, same = rows[2], rows[3]
    assert (changed.text, changed.old_text) == ("Else.", TURNS[1]["content"])
    assert (same.text, same.old_text) == (TURNS[2]["content"], None)


def test_the_last_messages() -> None:
    lore = words("lore", 640)
    old = chat(*TALK[:5], said("user", lore + "task"))
    new = chat(*TALK[:5], TURNS[4], TURNS[5], said("user", lore + "else"))
    assert about_last(compared(old, new)) == (
        "the last messages are the same for at least their first 640 of 644 characters"
    )
    assert about_last(compared(old, old)) == "the last messages are the same: 644 characters"
    short = chat(said("user", "task")), chat(said("user", "else"))
    assert about_last(compared(*short)) == "the last messages differ within their 4 characters"


def test_how_many_tokens_can_be_reused() -> None:
    half = compared({"prompt": "a" * 640 + "b" * 640}, {"prompt": "a" * 640 + "c" * 640})
    assert reusable(half, 300) == 150
    assert reusable(compared(chat(*TALK), chat(said("user", "Hello"))), 300) == 0
    assert reusable(compared(chat(said("user", "")), chat(said("user", ""))), 3) == 0
    for pair in PAIRS:
        assert 0 <= reusable(compared(pair.old, pair.new), 100) <= 100


# time


def best_of(work: Callable[[], object], times: int = 9) -> float:
    """The shortest of some runs, in seconds of this thread: other programs take no part in it."""
    gc.collect()
    taken = []
    for _ in range(times):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken)


@pytest.mark.parametrize("letters", ["word", "wörd"])
@pytest.mark.parametrize("moved", [0, 4])
def test_a_thousand_messages_of_2_kb_take_less_than_20_ms(letters: str, moved: int) -> None:
    def prompt(begin: int, end: int) -> Any:
        return talk(*(words(f"{letters} {n}", 2000) for n in range(begin, end)))

    before = outline(prompt(0, 1001))
    later = prompt(moved, 1003)
    after = outline(later, before)
    assert compare(before, after).change is (Change.START_MOVED if moved else Change.GROWN)
    assert best_of(lambda: compare(before, outline(later, before))) < 0.020


@pytest.mark.parametrize("different", [1, 2, 7, 20_000])
def test_many_messages_that_are_alike_take_no_seconds(different: int) -> None:
    def prompt(first: str, shift: int) -> Any:
        texts = (str((n + shift) % different) for n in range(19_990))
        return chat(said("user", first), *(said("user", text) for text in texts))

    before = outline(prompt("x", 0))
    later = prompt("y", 3)

    def all_of_it() -> None:
        found = compare(before, outline(later, before))
        sentence(found)
        rows_of(found)

    assert best_of(all_of_it, 2) < 1.0


def test_a_beginning_by_chance_is_not_nothing() -> None:
    old, new = {"prompt": "The sea is blue."}, {"prompt": "The night was long."}
    assert sentence(compared(old, new, keep_text=True)) == (
        "19 characters, the last prompt had 16: nothing but the first 4 characters in common"
    )
