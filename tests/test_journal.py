"""What happened lately, and the totals."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import End, Verdict
from slotgate.slots.reasons import Reason
from slotgate.slots.steps import Action, Result, Step
from slotgate.telemetry.events import Served, Telemetry
from slotgate.telemetry.explanations import Explanation, Finding
from slotgate.telemetry.journal import MOST_REQUESTS, MOST_SPANS, Journal, Kind

SLOT = Address("local", "", 0)
ME = SessionKey(None, "*", "me")


def served(**values: Any) -> Served:
    request = Served(
        began=1000.0,
        seconds=10.0,
        waited=2.0,
        switched=1.0,
        first_byte=5.0,
        surface="openai",
        server="local",
        route="*",
        model="m",
        address=SLOT,
        session=ME,
        source="history",
        verdict=Verdict.RESTORED,
        reason=Reason.NONE,
        end=End.COMPLETE,
        usage=Usage(900, 100, 50, 2000.0),
        explanation=Explanation(Finding.NONE, "", ""),
    )
    return evolve(request, **values)


def step(action: Action = Action.SAVE, result: Result = Result.OK) -> Step:
    return Step(action, result, SLOT, ME, 1000.0, 0.5, tokens=100, bytes=4096)


def test_totals_count_what_was_read_and_what_was_not() -> None:
    journal = Journal()
    journal.served(served())
    journal.served(served(verdict=Verdict.COLD, usage=Usage(0, 1000, 10, 20000.0)))
    journal.served(served(verdict=Verdict.BYPASS, usage=None))
    totals = journal.totals
    assert (totals.requests, totals.hits, totals.misses) == (3, 1, 1)
    assert (totals.tokens_read, totals.tokens_reused, totals.tokens_generated) == (1100, 900, 60)
    assert totals.hit_ratio == 0.45


def test_nothing_read_is_no_ratio() -> None:
    assert Journal().totals.hit_ratio is None


def test_seconds_saved_are_what_reading_would_have_taken_without_the_switch() -> None:
    journal = Journal()
    # 50 tokens a second
    journal.served(served(usage=Usage(900, 100, 50, 2000.0), switched=1.0))
    assert journal.totals.seconds_saved == 18.0 - 1.0
    assert journal.tokens_per_second("local", "") == 50.0


def test_a_switch_that_saved_nothing_costs() -> None:
    journal = Journal()
    journal.served(served(usage=Usage(0, 100, 50, 2000.0), switched=3.0))
    assert journal.totals.seconds_saved == -3.0


def test_a_few_tokens_tell_nothing_of_the_speed() -> None:
    journal = Journal()
    journal.served(served(usage=Usage(0, 1000, 1, 10_000.0), switched=0.0))
    for _ in range(5):
        # most of it is overhead
        journal.served(served(usage=Usage(100, 1, 1, 100.0), switched=0.0))
    assert journal.totals.seconds_saved == pytest.approx(5.0)


def test_the_speed_of_one_model_says_nothing_of_another() -> None:
    journal = Journal()
    slow, other = Address("local", "slow", 0), Address("local", "other", 0)
    journal.served(served(address=slow, usage=Usage(0, 100, 1, 10_000.0), switched=0.0))
    journal.served(served(address=other, usage=Usage(1000, 0, 1, None), switched=0.0))
    assert journal.totals.seconds_saved == 0.0
    assert journal.tokens_per_second("local", "slow") == 10.0
    assert journal.tokens_per_second("local", "other") is None


def test_names_that_clients_make_up_are_no_models() -> None:
    journal = Journal()
    for number in range(1000):
        usage = Usage(0, 100, 1, 2000.0)
        journal.served(served(model=f"made-up-{number}", usage=usage))
        journal.served(served(model=f"nowhere-{number}", address=None, usage=usage))
    assert len(journal._speeds) == 1
    assert journal.tokens_per_second("local", "") == 50.0


def test_what_was_reused_without_a_slot_is_not_our_doing() -> None:
    journal = Journal()
    journal.served(served(usage=Usage(0, 100, 1, 2000.0), switched=0.0))
    journal.served(served(address=None, usage=Usage(1000, 100, 1, 2000.0), switched=0.0))
    assert journal.totals.seconds_saved == 0.0
    assert journal.totals.tokens_reused == 1000


def test_saves_and_restores_count_when_they_succeed() -> None:
    journal = Journal()
    for action in Action:
        for result in Result:
            journal.stepped(step(action, result))
    totals = journal.totals
    assert (totals.saves, totals.restores) == (1, 1)
    assert (totals.bytes_written, totals.bytes_read) == (4096, 4096)
    assert [span.failed for span in journal.spans(0)].count(True) == 6


def test_what_was_not_answered_and_what_was_not_taken() -> None:
    journal = Journal()
    journal.failed("local", "silent")
    journal.rejected(503)
    assert (journal.totals.upstream_errors, journal.totals.rejected) == (1, 1)


def test_a_request_is_a_span_of_reading_and_one_of_generating() -> None:
    journal = Journal()
    journal.served(served())
    spans = [(span.kind, span.began, span.ended, span.tokens) for span in journal.spans(0)]
    # it waited until 1002 and read for two seconds, as the answer says
    assert spans == [
        (Kind.READ, 1002.0, 1004.0, 100),
        (Kind.GENERATE, 1004.0, 1010.0, 50),
    ]


def test_without_timings_the_first_byte_parts_them() -> None:
    journal = Journal()
    journal.served(served(usage=Usage(900, 100, 50)))
    assert [span.ended for span in journal.spans(0)] == [1005.0, 1010.0]


def test_what_never_began_or_used_no_slot_is_no_span() -> None:
    journal = Journal()
    journal.served(served(first_byte=None))
    journal.served(served(address=None))
    assert journal.spans(0) == []


def test_the_latest_come_first_and_the_oldest_go() -> None:
    journal = Journal()
    for number in range(MOST_REQUESTS + 5):
        journal.served(served(began=float(number)))
    assert [request.began for request in journal.requests][:2] == [204.0, 203.0]
    assert len(journal.requests) == MOST_REQUESTS
    for _ in range(MOST_SPANS + 5):
        journal.stepped(step())
    assert len(journal.spans(0)) == MOST_SPANS


def test_spans_from_before_are_left_out() -> None:
    journal = Journal()
    journal.stepped(step())
    assert journal.spans(since=1000.6) == []
    assert len(journal.spans(since=1000.5)) == 1


class TelemetryTests(SynchronousTestCase):
    """A listener that fails takes nothing with it."""

    def test_the_others_are_told(self) -> None:
        journal = Journal()

        class Broken(Journal):
            def served(self, served: Served) -> None:
                raise ZeroDivisionError

        Telemetry((Broken(), journal)).served(served())
        self.assertEqual(journal.totals.requests, 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
