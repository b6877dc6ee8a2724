"""Why a request read what it read, in words."""

from __future__ import annotations

from itertools import product

import pytest

from slotgate.llama.wire import Usage
from slotgate.slots.choice import Verdict
from slotgate.slots.reasons import Cause, Reason, cause_of
from slotgate.snapshots.fates import Fate
from slotgate.telemetry.explanations import FEW_TOKENS, Finding, Reuse, explain

#: All of the last prompt is in this one.
GROWN = Reuse(possible=1900, differs_at=None)


def found(
    verdict: Verdict,
    usage: Usage | None,
    reuse: Reuse | None = GROWN,
    fate: Fate | None = Fate.IN_SLOT,
) -> str:
    reason = Reason.NO_SNAPSHOT if verdict is Verdict.COLD else Reason.NONE
    return explain(verdict, Cause(reason, fate), usage, reuse).finding_text


@pytest.mark.parametrize("verdict", [Verdict.RESIDENT, Verdict.RESTORED, Verdict.FORKED])
def test_a_cache_that_was_used_needs_no_more_words(verdict: Verdict) -> None:
    assert found(verdict, Usage(1900, 100)) == ""


def test_a_prompt_that_differs_early_explains_what_was_read() -> None:
    differs = Reuse(possible=300, differs_at=2, role="user")
    explained = explain(Verdict.RESTORED, Cause(Reason.NONE), Usage(300, 1700), differs)
    assert explained.finding is Finding.PROMPT_DIFFERS
    assert explained.finding_text == "prompt differs at message 2"
    assert explained.sentence == (
        "its snapshot was restored; the prompt differs from the last one at message 2 (user), and"
        " what follows is read again"
    )


def test_a_restore_that_did_not_help_names_the_sliding_window() -> None:
    explained = explain(Verdict.RESTORED, Cause(Reason.NONE), Usage(0, 2000), GROWN)
    assert explained.finding is Finding.NOT_HELPFUL
    assert explained.finding_text == "restore did not help (sliding window or hybrid model?)"
    assert "2000 of 2000 tokens were read, though about 1900 are the same" in explained.sentence
    assert "--swa-full" in explained.sentence


def test_a_resident_cache_that_was_not_used_was_not_restored() -> None:
    assert found(Verdict.RESIDENT, Usage(0, 2000)).startswith("cache not reused")


def test_a_difference_that_a_sliding_window_can_not_go_back_to_is_told_too() -> None:
    # half of the prompt is the same and nothing was reused
    differs = Reuse(possible=1000, differs_at=9)
    assert found(Verdict.RESTORED, Usage(0, 2000), differs).startswith("restore did not help")


def test_few_tokens_are_read_in_any_case() -> None:
    differs = Reuse(possible=10, differs_at=1)
    assert found(Verdict.RESTORED, Usage(0, FEW_TOKENS), differs) == ""
    assert found(Verdict.RESTORED, Usage(0, FEW_TOKENS + 1), differs) != ""


def test_a_branch_differs_by_its_nature() -> None:
    differs = Reuse(possible=300, differs_at=2, role="user")
    assert found(Verdict.FORKED, Usage(300, 1700), differs) == ""


def test_where_characters_do_not_tell_nothing_is_accused() -> None:
    assert found(Verdict.RESTORED, Usage(0, 2000), Reuse(None, None)) == ""


@pytest.mark.parametrize("fate", [Fate.RESTARTED, Fate.OVERWRITTEN, Fate.EMPTIED])
def test_what_happened_is_said_once(fate: Fate) -> None:
    cold = explain(Verdict.COLD, cause_of(fate), None, None).sentence
    assert cold.startswith(cause_of(fate).meaning)
    assert "since" not in cold
    restored = explain(Verdict.RESTORED, Cause(Reason.NONE, fate), None, None).sentence
    assert "since the last request" in restored


@pytest.mark.parametrize("verdict", [Verdict.RESTORED, Verdict.COLD])
def test_a_server_that_was_restarted(verdict: Verdict) -> None:
    assert found(verdict, Usage(0, 2000), fate=Fate.RESTARTED) == "server restarted"


def test_a_slot_that_somebody_else_used() -> None:
    words = found(Verdict.RESTORED, Usage(1900, 100), fate=Fate.OVERWRITTEN)
    assert words == "used by another client"


def test_a_resident_session_was_not_lost_whatever_happened_before() -> None:
    assert found(Verdict.RESIDENT, Usage(1900, 100), fate=Fate.RESTARTED) == ""


def test_without_counts_or_another_prompt_nothing_is_claimed() -> None:
    assert found(Verdict.RESTORED, None) == ""
    assert found(Verdict.RESTORED, Usage(0, 2000), None) == ""


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        (Fate.IN_SLOT, "it was not saved before its slot was used for something else"),
        (Fate.UNLOADED, "its model was unloaded, fell asleep or crashed before it was saved"),
        (Fate.DELETED, "its snapshot was deleted by a client"),
    ],
)
def test_a_missing_snapshot_has_its_story(fate: Fate, said: str) -> None:
    assert explain(Verdict.COLD, cause_of(fate), None, None).sentence == said


def test_a_side_request_says_what_it_is() -> None:
    explained = explain(Verdict.BYPASS, Cause(Reason.SIDE_REQUEST), None, None, "title")
    assert explained.sentence.endswith("(title)")


def test_every_course_has_one_sentence() -> None:
    for verdict, reason, fate in product(Verdict, Reason, [None, *Fate]):
        sentence = explain(verdict, Cause(reason, fate), Usage(0, 2000), GROWN).sentence
        assert "\n" not in sentence
        if reason is not Reason.NONE or verdict in (Verdict.RESIDENT, Verdict.RESTORED):
            assert sentence, (verdict, reason, fate)
