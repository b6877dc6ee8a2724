"""The sentence that each pair of prompts gets, on each surface."""

from __future__ import annotations

import pytest
from attrs import evolve
from prompt_pairs import NAMED, PAIRS, Fields, Pair, anthropic, responses

from slotgate.prompts.comparison import Comparison, compare
from slotgate.prompts.outline import outline_of
from slotgate.prompts.sentences import sentence

#: Each pair on each surface that it can be said on.
CASES = [
    pytest.param(old, new, pair, id=f"{pair.name} ({shape.__name__})")
    for pair in PAIRS
    for shape in (dict, anthropic, responses)
    if (old := shape(pair.old)) is not None and (new := shape(pair.new)) is not None
]


def compared(old: Fields, new: Fields, *, keep_text: bool) -> Comparison:
    before = outline_of(old, keep_text=keep_text)
    assert before is not None
    after = outline_of(new, previous=before, keep_text=keep_text)
    assert after is not None
    return compare(before, after)


@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.parametrize(("old", "new", "pair"), CASES)
def test_sentence(old: Fields, new: Fields, pair: Pair, keep_text: bool) -> None:
    found = compared(old, new, keep_text=keep_text)
    wanted = (pair.kept or pair.sentence) if keep_text else pair.sentence
    assert (found.change.value, sentence(found)) == (pair.change, wanted)


def test_a_surface_changes_nothing() -> None:
    for pair in NAMED[1:8]:
        for shape in (anthropic, responses):
            new = shape(pair.new)
            assert new is not None
            assert compared(pair.new, new, keep_text=True).characters > 0
            assert compared(pair.new, new, keep_text=False).change.value == "same"


def test_where_the_sentence_names_a_parent() -> None:
    found = compared(NAMED[5].old, NAMED[5].new, keep_text=False)
    assert sentence(evolve(found, of_parent=True)) == (
        "8 messages, the prompt it begins as had 6: the first 6 are the same: 2 new messages follow"
    )
