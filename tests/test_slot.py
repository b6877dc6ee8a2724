"""One slot: its queue, its leases, and the switch from one session to another."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import pytest
from slot_case import SlotCase, want
from twisted.internet.defer import CancelledError, Deferred

from slotgate.llama.errors import (
    Junk,
    KeyRefused,
    Refused,
    Unreachable,
    Unsupported,
)
from slotgate.llama.wire import Usage
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.lease import Lease, LeaseReleased, QueueFull, Stopping
from slotgate.slots.view import IDLE_WAIT_SECONDS
from slotgate.snapshots.files import Folder


class SwitchTests(SlotCase):
    """Every session finds its own cache again."""

    def test_a_session_that_comes_back_is_restored(self) -> None:
        verdicts = [self.turn(name) for name in "ABA"]
        self.assertEqual(verdicts, [Verdict.COLD, Verdict.COLD, Verdict.RESTORED])
        self.assertEqual(self.llama.calls, ["save A", "save B", "restore A"])

    def test_two_turns_of_one_session_need_no_control_call(self) -> None:
        self.turn("A")
        self.assertEqual(self.turn("A"), Verdict.RESIDENT)
        self.assertEqual(self.llama.calls, [])

    def test_a_new_session_starts_from_what_is_in_the_slot(self) -> None:
        self.turn("A")
        self.turn("B")
        self.assertNotIn("erase A", self.llama.calls)

    def test_what_is_on_disk_unchanged_is_not_written_again(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.lease("B").release(End.UNSENT)
        self.llama.calls.clear()
        self.turn("A")
        self.assertEqual(self.llama.calls, ["restore A"])

    def test_a_request_without_session_keeps_the_sessions_cache(self) -> None:
        self.turn("A")
        self.assertEqual(self.turn(Want(None)), Verdict.BYPASS)
        self.assertEqual(self.turn("A"), Verdict.RESTORED)
        self.assertEqual(self.llama.calls, ["save A", "restore A"])

    def test_a_cache_below_min_tokens_is_not_worth_a_file(self) -> None:
        self.turn("A", tokens=63)
        self.turn("B", tokens=64)
        self.turn("A", tokens=63)
        self.assertEqual(self.llama.calls, ["save B"])


class TrustTests(SlotCase):
    """Nothing is saved that is not known to be the session's."""

    def test_a_restarted_server_is_noticed_and_the_old_snapshot_restored(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.llama.restart()
        self.llama.calls.clear()
        self.assertEqual(self.turn("A"), Verdict.RESTORED)
        self.assertEqual(self.llama.calls, ["restore A"])

    def test_another_clients_use_is_noticed_and_not_saved(self) -> None:
        self.turn("A")
        self.llama.request("stranger")
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_another_client_with_as_many_tokens_is_noticed_by_the_task(self) -> None:
        self.turn("A", tokens=100)
        self.llama.request("stranger", tokens=100)
        self.assertEqual(self.turn("A"), Verdict.COLD)

    def test_an_erase_behind_our_back_is_noticed_by_the_tokens(self) -> None:
        self.turn("A")
        self.llama.content, self.llama.tokens = None, 0
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_a_stranger_between_our_answer_and_our_look_is_noticed_by_the_counts(self) -> None:
        lease = self.lease("A")
        self.llama.request("A", 100)
        self.llama.request("stranger", 300)
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_a_refused_request_leaves_the_tokens_that_were_there_and_they_are_not_saved(
        self,
    ) -> None:
        # a prompt over the context: a new id_task, and the tokens from before
        self.turn("A")
        lease = self.lease("B")
        self.llama.task = 77
        lease.release(End.REFUSED)
        self.turn("C")
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_request_that_never_reached_the_slot_changes_nothing(self) -> None:
        self.turn("A")
        for end in (End.UNSENT, End.REFUSED, End.CUT):
            self.lease("A").release(end)
        self.assertEqual(self.turn("A"), Verdict.RESIDENT)

    def test_part_of_a_prompt_does_not_replace_a_longer_snapshot(self) -> None:
        self.turn("A", tokens=1000)
        self.turn("B")
        lease = self.lease("A")
        self.llama.request("A", 300)
        lease.release(End.CUT)
        self.llama.calls.clear()
        self.turn("B")
        self.assertEqual(self.turn("A"), Verdict.RESTORED)
        self.assertEqual(self.llama.calls, ["restore B", "save B", "restore A"])
        self.assertEqual(self.llama.tokens, 100)

    def test_what_a_disconnected_client_had_read_is_kept_where_it_is_more(self) -> None:
        lease = self.lease("A")
        self.works(lease, "A", 300)
        lease.release(End.CUT)
        self.turn("B")
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_stranger_behind_a_client_that_left_is_not_saved(self) -> None:
        # A's client leaves, and the server begins what waited behind it
        lease = self.lease("A")
        self.works(lease, "A", 300)
        self.llama.request("stranger", 2000)
        lease.release(End.CUT)
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_nor_where_nobody_saw_which_request_was_ours(self) -> None:
        lease = self.lease("A")
        self.llama.request("stranger", 2000)
        lease.release(End.CUT)
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_a_session_whose_client_left_goes_on_with_what_is_in_the_slot(self) -> None:
        for name in "ABA":
            self.turn(name, tokens=1000)
        lease = self.lease("A")
        self.llama.request("A", 2000)
        lease.release(End.CUT)
        self.llama.calls.clear()
        self.assertEqual(self.turn("A", tokens=2100), Verdict.RESIDENT)
        self.assertEqual(self.llama.calls, [])

    def test_a_stranger_with_fewer_tokens_than_an_answer_may_have_is_noticed(self) -> None:
        lease = self.lease("A")
        self.llama.request("stranger", 300)
        lease.release(End.COMPLETE, Usage(reused=0, read=50, generated=2000))
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_a_call_that_leaves_no_mark_is_noticed_by_the_tokens(self) -> None:
        # somebody restores another file while A's request is refused
        self.turn("A")
        for end in (End.REFUSED, End.UNSENT, End.CUT):
            lease = self.lease("A")
            self.llama.content, self.llama.tokens = "stranger", 777
            lease.release(end)
            self.turn("B")
            self.assertEqual(self.llama.calls, [])
            self.llama.request("A", 100)

    def test_nor_is_it_taken_for_what_was_restored(self) -> None:
        for name in "AB":
            self.turn(name)
        lease = self.lease("A")
        self.llama.content, self.llama.tokens = "stranger", 777
        lease.release(End.UNSENT)
        self.llama.calls.clear()
        self.assertEqual(self.turn("A"), Verdict.RESTORED)

    def test_a_call_of_a_client_to_the_slot_leaves_it_unknown(self) -> None:
        self.turn("A")
        self.lease(Want(None)).release(End.TOUCHED)
        self.llama.calls.clear()
        self.turn("A")
        self.assertEqual(self.llama.calls, ["restore A"])


class FaultTests(SlotCase):
    """The request goes on, whatever the cache does."""

    def test_every_failure_of_a_look_gives_a_lease(self) -> None:
        for error in (
            Unreachable("gone"),
            KeyRefused("401"),
            Junk("not JSON"),
            Refused(500, "500"),
        ):
            self.faults("look", error)
            self.assertEqual(self.turn("A"), Verdict.COLD)

    def test_a_save_that_fails_keeps_the_old_snapshot(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.faults("save", Refused(500, "Unable to save slot"))
        self.turn("B")
        self.assertEqual(self.turn("A"), Verdict.RESTORED)

    def test_the_name_of_a_save_without_answer_is_not_used_again(self) -> None:
        # llama-server may carry it out later, over whatever bears the name by then
        with tempfile.TemporaryDirectory() as path:
            self.llama.folder = Folder(Path(path))
            self.slot = self.new_slot(self.llama.folder)
            self.turn("A")
            self.faults("save", Unreachable("no answer within 120 s"))
            self.turn("B")
            self.turn("A")
            self.turn("B")
            (name,) = [name for name, held in self.llama.files.items() if held[0] == "A"]
            self.assertIn(".2.bin", name)

    def test_without_the_folder_nothing_is_saved_over_a_save_without_answer(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.faults("save", Unreachable("no answer within 120 s"))
        self.turn("B")
        saves = self.llama.calls.count("save A")
        self.llama.faults["look"] = []
        for name in "AB":
            self.turn(name)
        # contact was lost meanwhile, and with it what the server had pending
        self.assertEqual(self.llama.calls.count("save A"), saves + 1)

    def test_a_save_of_fewer_tokens_than_were_seen_is_not_kept(self) -> None:
        self.turn("A")
        gate: Deferred[None] = Deferred()
        self.llama.gates["save"] = gate
        leasing = self.slot.lease(want("B"))
        self.llama.tokens = 0
        gate.callback(None)
        self.successResultOf(leasing).release(End.UNSENT)
        self.llama.gates.clear()
        self.assertEqual(self.turn("A"), Verdict.COLD)

    def test_a_refused_restore_drops_the_snapshot_and_is_not_tried_again(self) -> None:
        for name in "AB":
            self.turn(name)
        self.faults("restore", Refused(400, "400 Unable to restore slot"))
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.turn("B")
        self.assertEqual(self.llama.calls, ["save A", "save B", "restore A", "save A", "restore B"])

    def test_other_errors_of_a_restore_cost_no_snapshot(self) -> None:
        for name in "AB":
            self.turn(name)
        self.faults("restore", Refused(502, "502 Bad Gateway"))
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.turn("B")
        self.assertEqual(self.turn("A"), Verdict.RESTORED)

    def test_a_file_that_the_server_died_of_is_never_restored_again(self) -> None:
        for name in "AB":
            self.turn(name)
        self.faults("restore", Unreachable("it closed the connection", sent=True))
        self.lease("A").release(End.CUT)
        self.llama.restart()
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertEqual(self.llama.calls.count("restore A"), 1)

    def test_where_its_size_is_seen_it_gets_a_second_chance(self) -> None:
        with tempfile.TemporaryDirectory() as path:
            self.llama.folder = Folder(Path(path))
            self.slot = self.new_slot(self.llama.folder)
            for name in "AB":
                self.turn(name)
            for chance in (1, 2):
                self.faults("restore", Unreachable("it closed the connection", sent=True))
                self.lease("A").release(End.CUT)
                self.assertEqual(self.llama.calls.count("restore A"), chance)
                self.llama.restart()
            self.assertEqual(self.turn("A"), Verdict.COLD)
            self.assertEqual(self.llama.calls.count("restore A"), 2)

    def test_a_server_that_was_never_reached_costs_no_snapshot(self) -> None:
        for name in "AB":
            self.turn(name)
        self.faults("restore", Unreachable("connection refused", sent=False))
        self.lease("A").release(End.CUT)
        self.assertEqual(self.turn("A"), Verdict.RESTORED)

    def test_a_restore_of_other_tokens_than_were_saved_is_not_trusted(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.files = {name: (held[0], 5) for name, held in self.llama.files.items()}
        self.assertEqual(self.turn("A"), Verdict.COLD)

    def test_a_server_without_slot_files_is_asked_once(self) -> None:
        self.faults("save", Unsupported("501 This server does not support slots action"))
        for name in "ABAB":
            self.turn(name)
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_server_that_hides_its_slots_still_saves_and_restores(self) -> None:
        self.llama.faults["look"] = [Unsupported("501")] * 99
        verdicts = [self.turn(name) for name in "ABAA"]
        self.assertEqual(verdicts, [Verdict.COLD, Verdict.COLD, Verdict.RESTORED, Verdict.RESIDENT])

    def test_without_slots_the_answers_counts_tell_a_strangers_tokens(self) -> None:
        self.llama.faults["look"] = [Unsupported("501")] * 99
        self.turn("A")
        self.llama.request("stranger", 300)
        self.turn("B")
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore stranger", self.llama.calls)

    def test_without_slots_a_number_that_is_none_of_the_servers_is_left_alone(self) -> None:
        # llama-server would wrap it around and save or restore another slot
        self.llama.faults["look"] = [Unsupported("501")] * 99
        self.llama.total_slots = 0
        for name in "ABA":
            self.turn(name)
        self.assertEqual(self.llama.calls, [])

    def test_without_slots_a_cut_request_leaves_nothing_to_save(self) -> None:
        self.llama.faults["look"] = [Unsupported("501")] * 99
        self.turn("A", end=End.CUT)
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_a_fault_of_the_index_costs_the_cache_and_not_the_request(self) -> None:
        self.turn("A")

        self.database.connection.close()
        self.assertEqual(self.turn("B"), Verdict.COLD)
        self.assertTrue(self.flushLoggedErrors(sqlite3.ProgrammingError))


class BusyTests(SlotCase):
    """A control call is sent to an idle slot only."""

    def test_the_switch_waits_until_the_slot_is_idle(self) -> None:
        self.turn("A")
        self.turn("B")
        self.llama.request("stranger")
        self.llama.busy = True
        leasing = self.slot.lease(want("A"))
        self.clock.pump([0.5] * 20)
        self.assertNoResult(leasing)
        self.llama.busy = False
        self.clock.advance(1.0)
        self.assertEqual(self.successResultOf(leasing).verdict, Verdict.RESTORED)
        # the stranger's tokens are nobody's
        self.assertEqual(self.llama.calls, ["save A", "restore A"])

    def test_the_next_session_waits_for_a_slot_that_works_for_nobody(self) -> None:
        lease = self.lease("A")
        self.works(lease, "A", 300)
        self.llama.busy = True
        lease.release(End.CUT)
        leasing = self.slot.lease(want("B"))
        self.assertEqual(self.slot.state, "draining")
        self.clock.pump([0.1] * 30)
        self.assertNoResult(leasing)
        self.llama.busy = False
        # at most a poll later
        self.clock.advance(1.0)
        self.clock.advance(0)
        self.successResultOf(leasing)
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_slot_that_was_idle_soon_is_noticed_soon(self) -> None:
        lease = self.lease("A")
        self.works(lease, "A")
        self.llama.busy = True
        lease.release(End.CUT)
        self.llama.busy = False
        self.clock.advance(0.02)
        self.assertEqual(self.slot.state, "dirty")

    def test_after_an_hour_the_request_goes_on_without_the_cache(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.request("stranger")
        self.llama.busy = True
        leasing = self.slot.lease(want("A"))
        self.clock.pump([1.0] * int(IDLE_WAIT_SECONDS))
        self.assertNoResult(leasing)
        self.clock.pump([1.0] * 5)
        self.assertEqual(self.successResultOf(leasing).verdict, Verdict.COLD)
        self.assertEqual(self.llama.calls, ["save A"])


class QueueTests(SlotCase):
    """One lease at a time, in order, and a bounded queue."""

    def test_leases_are_given_in_the_order_they_were_asked_for(self) -> None:
        served: list[str] = []
        first = self.lease("A")
        for name in "BCD":
            self.slot.lease(want(name)).addCallback(self.serve, served)
        first.release(End.UNSENT)
        self.clock.pump([0] * 10)
        self.assertEqual(served, ["B", "C", "D"])

    def test_a_full_queue_refuses_and_the_others_are_served(self) -> None:
        self.slot = self.new_slot(max_queue=1)
        first = self.lease("A")
        second = self.slot.lease(want("B"))
        self.failureResultOf(self.slot.lease(want("C")), QueueFull)
        first.release(End.UNSENT)
        self.clock.advance(0)
        self.successResultOf(second)

    def test_our_look_after_a_request_is_nobody_who_waits(self) -> None:
        self.slot = self.new_slot(max_queue=0)
        lease = self.lease("A")
        self.llama.request("A")
        gate: Deferred[None] = Deferred()
        self.llama.gates["look"] = gate
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        following = self.slot.lease(want("A"))
        self.llama.gates.clear()
        gate.callback(None)
        self.clock.advance(0)
        self.successResultOf(following)

    def test_who_leaves_the_queue_is_not_served(self) -> None:
        first = self.lease("A")
        second, third = self.slot.lease(want("B")), self.slot.lease(want("C"))
        second.cancel()
        self.failureResultOf(second, CancelledError)
        first.release(End.UNSENT)
        self.clock.advance(0)
        self.successResultOf(third)

    def test_a_thousand_that_end_at_once_do_not_lock_the_slot(self) -> None:
        # DeferredLock recurses when its waiters end synchronously (twisted#9304)
        self.slot = self.new_slot(max_queue=1000)
        self.llama.faults["look"] = [Unreachable("connection refused", sent=False)] * 9999
        first = self.lease("A")
        done: list[str] = []
        for number in range(1000):
            self.slot.lease(want(str(number))).addCallback(self.serve, done)
        first.release(End.CUT)
        self.clock.pump([0] * 1001)
        self.assertEqual(len(done), 1000)
        self.lease("A")

    def test_a_client_that_leaves_during_the_switch_frees_the_slot_after_the_step(self) -> None:
        for name in "AB":
            self.turn(name)
        gate: Deferred[None] = Deferred()
        self.llama.gates["save"] = gate
        leaving, next_one = self.slot.lease(want("A")), self.slot.lease(want("C"))
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        self.clock.advance(0)
        self.assertNoResult(next_one)
        gate.callback(None)
        self.clock.advance(0)
        self.successResultOf(next_one)
        # the restore that nobody waits for was not begun, and B is on disk once
        self.assertEqual(self.llama.calls, ["save A", "save B"])

    def test_a_released_lease_can_not_be_used(self) -> None:
        lease = self.lease("A")
        lease.release(End.UNSENT)
        lease.release(End.COMPLETE)
        with self.assertRaises(LeaseReleased):
            _ = lease.slot_id


class IsolationTests(SlotCase):
    """Clients with keys do not start from each other's tokens."""

    def test_another_clients_tokens_are_erased_after_they_were_saved(self) -> None:
        self.turn(want("A", client="ann"))
        self.llama.calls.clear()
        self.turn(want("A", client="bob"))
        self.assertEqual(self.llama.calls, ["save A", "erase A"])
        self.assertEqual(self.turn(want("A", client="ann")), Verdict.RESTORED)

    def test_tokens_of_nobody_known_are_erased(self) -> None:
        self.llama.request("stranger")
        self.turn(want("A", client="ann"))
        self.assertEqual(self.llama.calls, ["erase stranger"])

    def test_where_the_erase_is_not_certain_the_request_reuses_nothing(self) -> None:
        self.turn(want("A", client="ann"))
        self.faults("erase", Junk("not JSON"))
        lease = self.lease(want("A", client="bob"))
        self.assertFalse(lease.may_reuse)
        self.assertTrue(self.another(lease).may_reuse)

    def another(self, lease: Lease) -> Lease:
        """The next lease of the same session."""
        assert lease.want.session is not None
        self.llama.request(lease.want.session.key.id)
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        return self.lease(lease.want)

    def test_ones_own_tokens_are_a_start(self) -> None:
        self.turn(want("A", client="ann"))
        self.llama.calls.clear()
        self.turn(want("B", client="ann"))
        self.assertEqual(self.llama.calls, ["save A"])


class StopTests(SlotCase):
    """Nothing is lost by our stop."""

    def test_what_is_dirty_is_saved_and_what_is_saved_is_not(self) -> None:
        self.turn("A")
        self.successResultOf(self.slot.stop())
        self.assertEqual(self.llama.calls, ["save A"])
        self.failureResultOf(self.slot.lease(want("A")), Stopping)

    def test_the_running_lease_ends_first(self) -> None:
        lease = self.lease("A")
        stopping = self.slot.stop()
        self.assertNoResult(stopping)
        self.llama.request("A")
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.clock.advance(0)
        self.successResultOf(stopping)
        self.assertEqual(self.llama.calls, ["save A"])

    def test_those_that_wait_are_sent_away_and_leave_the_time_to_the_save(self) -> None:
        lease = self.lease("A")
        waiting = [self.slot.lease(want(name)) for name in "BCD"]
        stopping = self.slot.stop()
        self.llama.request("A")
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.clock.pump([0] * 5)
        for deferred in waiting:
            self.failureResultOf(deferred, Stopping)
        self.successResultOf(stopping)
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_stop_that_has_no_time_left_forgets_nothing(self) -> None:
        self.turn("A")
        self.llama.gates["save"] = Deferred()
        stopping = self.slot.stop()
        stopping.cancel()
        self.failureResultOf(stopping, CancelledError)
        self.llama.gates.clear()
        self.slot = self.new_slot()
        self.assertEqual(self.turn("A"), Verdict.RESIDENT)

    def test_a_server_that_is_down_does_not_hold_up_the_stop(self) -> None:
        self.turn("A")
        self.llama.faults["look"] = [Unreachable("connection refused", sent=False)]
        self.successResultOf(self.slot.stop())
        self.assertEqual(self.llama.calls, [])


@pytest.mark.parametrize("visible", [True, False])
def test_old_generations_do_not_pile_up(tmp_path: Path, visible: bool) -> None:
    case = SlotCase("setUp")
    case.setUp()
    folder = Folder(tmp_path)
    case.llama.folder = folder
    case.slot = case.new_slot(folder if visible else None)
    for _ in range(5):
        for name in "AB":
            case.turn(name)
    # without the folder nothing can be deleted, so two names take turns
    assert len(list(tmp_path.iterdir())) == (2 if visible else 4)
