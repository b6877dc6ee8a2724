"""A slot whose model a router unloads, or lets sleep, or loses."""

from __future__ import annotations

import pytest
from admission_case import World
from router_double import ScriptedRouter, slot_of
from slot_case import want
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.errors import (
    ControlError,
    Loading,
    NotLoaded,
    ProcessLost,
    Refused,
    Unreachable,
    Unsupported,
)
from slotgate.llama.wire import Usage
from slotgate.sessions import Policy
from slotgate.slots.choice import End, Verdict, idle_seconds
from slotgate.slots.lease import Lease
from slotgate.slots.slot import Slot


class RouterSlotCase(SynchronousTestCase):
    """Slot 0 of model "alpha"."""

    def setUp(self) -> None:
        self.router = ScriptedRouter()
        self.world = World(self.router)
        self.clock, self.slot = self.world.clock, self.world.slot("alpha")
        self.process = self.router.process["alpha"]
        self.router.begin("alpha")

    def lease(self, session: str = "A", slot: Slot | None = None) -> Lease:
        lease: Lease = self.successResultOf((slot or self.slot).lease(want(session)))
        return lease

    def turn(self, session: str = "A", tokens: int = 100, slot: Slot | None = None) -> Verdict:
        lease = self.lease(session, slot)
        self.process.request(session, tokens)
        reused = 0 if lease.verdict is Verdict.COLD else tokens // 2
        lease.release(End.COMPLETE, Usage(reused, tokens - 7 - reused, 8))
        return lease.verdict

    def faults(self, action: str, *errors: ControlError) -> None:
        self.process.faults[action] = list(errors)

    def remembered(self) -> object:
        """What a slotgate after us would believe of the slot."""
        index = self.world.kept.index
        return self.successResultOf(Deferred.fromCoroutine(index.left_in("local", "alpha", 0)))


class LoseTests(RouterSlotCase):
    """The model went away by itself."""

    def test_what_was_in_the_slot_is_gone(self) -> None:
        self.turn()
        self.slot.lose()
        self.assertEqual(self.slot.state, "gone")
        self.assertIsNone(self.slot.tenant)

    def test_it_is_gone_whatever_was_in_it(self) -> None:
        self.assertEqual(self.slot.state, "unknown")
        self.slot.lose()
        self.assertEqual(self.slot.state, "gone")
        self.slot.lose()
        self.assertEqual(self.slot.state, "gone")

    def test_the_next_process_is_not_taken_for_the_one_that_held_it(self) -> None:
        self.turn()
        self.router.crash("alpha")
        self.assertEqual(self.slot.state, "gone")
        self.router.begin("alpha")
        # the same id_task and as many tokens, of somebody else
        self.process.request("stranger", 100)
        self.assertEqual(self.turn("B"), Verdict.COLD)
        self.assertEqual(self.process.calls, [])

    def test_a_session_that_was_saved_is_restored_into_the_next_process(self) -> None:
        self.turn()
        self.successResultOf(self.slot.save())
        self.router.crash("alpha")
        self.router.begin("alpha")
        self.assertEqual(self.turn(), Verdict.RESTORED)

    def test_one_that_was_not_starts_cold_and_no_empty_file_takes_the_place_of_its_old_one(
        self,
    ) -> None:
        self.turn(tokens=100)
        self.successResultOf(self.slot.save())
        self.turn(tokens=200)
        self.router.crash("alpha")
        self.successResultOf(self.slot.save())
        self.router.begin("alpha")
        self.assertEqual(self.process.calls, ["save A"])
        self.assertEqual(self.turn(tokens=220), Verdict.RESTORED)

    def test_a_slotgate_after_us_believes_nothing_of_it(self) -> None:
        self.turn()
        self.assertIsNotNone(self.remembered())
        self.slot.lose()
        self.assertIsNone(self.remembered())

    def test_a_running_lease_finds_it_out_by_itself(self) -> None:
        lease = self.lease()
        self.process.request("A", 100)
        self.slot.lose()
        self.assertEqual(self.slot.state, "leased")
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.assertEqual(self.slot.state, "dirty")

    def test_a_lease_whose_model_went_away_leaves_the_slot_gone(self) -> None:
        lease = self.lease()
        self.router.crash("alpha")
        lease.release(End.CUT)
        self.assertEqual(self.slot.state, "gone")

    def test_the_task_numbers_of_the_next_process_begin_anew(self) -> None:
        for _ in range(5):
            self.turn()
        self.slot.lose()
        self.process.restart()
        self.turn("A", tokens=120)
        self.assertEqual(self.turn("A", tokens=140), Verdict.RESIDENT)

    def test_restores_that_do_not_help_are_given_up_though_the_model_was_unloaded_in_between(
        self,
    ) -> None:
        verdicts = []
        for _ in range(5):
            lease = self.lease()
            verdicts.append(lease.verdict)
            self.process.request("A", 100)
            lease.release(End.COMPLETE, Usage(0, 93, 8))
            self.successResultOf(self.slot.save())
            self.router.finish_ending("alpha", 0)
            self.router.begin("alpha")
        self.assertEqual(verdicts, [Verdict.COLD, *[Verdict.RESTORED] * 3, Verdict.COLD])


class VacateTests(RouterSlotCase):
    """We unload the model."""

    def vacate(self) -> tuple[Deferred[None], Deferred[bool]]:
        gone: Deferred[bool] = Deferred()
        return self.slot.vacate(gone), gone

    def test_what_is_in_the_slot_is_saved_first(self) -> None:
        self.turn()
        gate: Deferred[None] = Deferred()
        self.process.gates["save"] = gate
        kept, _ = self.vacate()
        self.assertNoResult(kept)
        gate.callback(None)
        self.successResultOf(kept)
        self.assertEqual(self.process.calls, ["save A"])

    def test_what_is_saved_already_is_not_saved_again(self) -> None:
        self.turn()
        self.successResultOf(self.slot.save())
        self.successResultOf(self.vacate()[0])
        self.assertEqual(self.process.calls, ["save A"])

    def test_nobody_gets_the_slot_until_the_model_has_gone(self) -> None:
        self.turn()
        kept, gone = self.vacate()
        self.successResultOf(kept)
        lease = self.slot.lease(want("B"))
        self.assertNoResult(lease)
        self.router.finish_ending("alpha", 0)
        gone.callback(True)
        self.clock.advance(0)
        self.assertTrue(self.successResultOf(lease).lost)
        self.assertEqual(self.process.calls, ["save A"])

    def test_then_the_slot_is_gone(self) -> None:
        self.turn()
        _, gone = self.vacate()
        gone.callback(True)
        self.assertEqual(self.slot.state, "gone")
        self.assertIsNone(self.remembered())

    def test_the_event_of_its_end_may_come_before(self) -> None:
        self.turn()
        _, gone = self.vacate()
        self.slot.lose()
        gone.callback(True)
        self.assertEqual(self.slot.state, "gone")

    def test_in_a_model_that_stays_the_session_is_resident(self) -> None:
        self.turn()
        _, gone = self.vacate()
        gone.callback(False)
        self.assertEqual(self.slot.state, "saved")
        self.assertEqual(self.turn(), Verdict.RESIDENT)

    def test_a_running_lease_ends_first(self) -> None:
        lease = self.lease()
        kept, _ = self.vacate()
        self.assertNoResult(kept)
        self.process.request("A", 100)
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.clock.advance(0)
        self.successResultOf(kept)
        self.assertEqual(self.process.calls, ["save A"])

    def test_somebody_elses_request_is_not_waited_for(self) -> None:
        self.turn()
        self.process.busy = True
        kept, gone = self.vacate()
        self.successResultOf(kept)
        gone.callback(False)
        self.assertEqual(self.process.calls, [])
        self.assertEqual(self.slot.state, "dirty")

    def test_what_somebody_else_left_is_not_saved(self) -> None:
        self.turn()
        self.process.request("stranger")
        self.successResultOf(self.vacate()[0])
        self.assertEqual(self.process.calls, [])

    def test_a_model_that_sleeps_is_not_waked(self) -> None:
        self.turn()
        self.router.streams.clear()
        self.router.fall_asleep("alpha")
        looks = self.process.looks
        self.successResultOf(self.vacate()[0])
        self.assertEqual((self.process.looks, self.router.done("wake")), (looks, []))

    def test_no_refusal_holds_anybody_up(self) -> None:
        for action in ("props", "look", "save"):
            for error in (
                Unreachable("no answer"),
                NotLoaded("400 model is not loaded"),
                ProcessLost("500 proxy error"),
                Refused(500, "disk full"),
                Loading("503"),
            ):
                self.turn()
                self.faults(action, error)
                kept, gone = self.vacate()
                self.successResultOf(kept)
                gone.callback(False)
                self.process.faults.clear()

    def test_a_fault_of_ours_holds_nobody_up(self) -> None:
        self.turn()
        self.patch(self.world.kept.__class__, "next_save", lambda *_: 1 / 0)
        kept, gone = self.vacate()
        self.successResultOf(kept)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.slot.state, "unknown")
        self.lease("B")
        gone.callback(True)


class LostTests(RouterSlotCase):
    """A lease without a slot."""

    def test_a_model_that_is_not_loaded_is_told_and_not_loaded_for_a_look(self) -> None:
        self.router.finish_ending("alpha", 0)
        lease = self.lease()
        self.assertTrue(lease.lost)
        self.assertIs(lease.verdict, Verdict.COLD)
        self.assertEqual(self.router.done("load"), [])
        lease.release(End.UNSENT)
        self.assertEqual(self.slot.state, "gone")

    def test_a_process_that_was_lost_is_told(self) -> None:
        self.faults("look", ProcessLost("500 proxy error: Failed to read connection"))
        self.assertTrue(self.lease().lost)

    def test_one_that_is_lost_during_a_restore_is_told(self) -> None:
        self.turn("A")
        self.turn("B")
        self.faults("restore", ProcessLost("500 proxy error: Failed to read connection"))
        self.assertTrue(self.lease("A").lost)

    def test_another_failure_is_none_of_the_model(self) -> None:
        for error in (Unreachable("no answer"), Refused(500, "no"), Unsupported("501")):
            self.faults("look", error)
            lease = self.lease()
            self.assertFalse(lease.lost, error)
            lease.release(End.UNSENT)

    def test_a_lease_that_found_its_slot_is_not_lost(self) -> None:
        self.assertFalse(self.lease().lost)

    def test_the_next_lease_of_a_model_that_is_back_is_as_any(self) -> None:
        self.turn()
        self.successResultOf(self.slot.save())
        self.router.finish_ending("alpha", 0)
        self.lease().release(End.UNSENT)
        self.router.begin("alpha")
        lease = self.lease()
        self.assertEqual((lease.lost, lease.verdict), (False, Verdict.RESTORED))

    def test_a_client_that_leaves_while_its_model_is_looked_at_holds_nothing(self) -> None:
        self.router.answer = lambda _: deferLater(self.clock, 1)
        waiting = self.slot.lease(want("A"))
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.clock.pump([1] * 9)
        self.router.answer = ScriptedRouter().answer
        self.assertFalse(self.lease("B").lost)


class IdleTests(RouterSlotCase):
    """A model that falls asleep is saved before."""

    def sleepy(self, sleep_seconds: float) -> Slot:
        return slot_of(
            self.router, "alpha", self.clock, self.world.kept, sleep_seconds=sleep_seconds
        )

    def test_a_slot_is_saved_in_the_middle_of_the_time_until_its_model_sleeps(self) -> None:
        slot = self.sleepy(10)
        self.turn(slot=slot)
        self.clock.advance(4.9)
        self.assertIsNone(slot.save_if_idle())
        self.clock.advance(0.1)
        saved = slot.save_if_idle()
        assert saved is not None
        self.successResultOf(saved)
        self.assertEqual(self.process.calls, ["save A"])
        self.assertIsNone(slot.save_if_idle())

    def test_one_whose_model_never_sleeps_is_saved_when_it_is_needed(self) -> None:
        self.turn()
        self.clock.advance(1e6)
        self.assertIsNone(self.slot.save_if_idle())

    def test_one_that_is_leased_is_not_idle(self) -> None:
        slot = self.sleepy(10)
        self.turn(slot=slot)
        self.lease(slot=slot)
        self.clock.advance(100)
        self.assertIsNone(slot.save_if_idle())


@pytest.mark.parametrize(
    ("configured", "sleep", "seconds"),
    [
        (0, None, None),
        (30, None, 30),
        (0, 60, 30),
        (10, 60, 10),
        (40, 60, 30),
        (0, 0, 0),
    ],
)
def test_when_an_idle_slot_is_saved(
    configured: float, sleep: float | None, seconds: float | None
) -> None:
    assert idle_seconds(Policy(idle_seconds=configured), sleep) == seconds
