"""Why a session found its cache as it did: the word that people see."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from attrs import evolve
from slot_case import SlotCase, want
from twisted.internet.defer import Deferred

from slotgate.llama.errors import Refused, Unreachable
from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.reasons import MEANINGS, Reason
from slotgate.slots.steps import Action, Result, Step
from slotgate.snapshots.fates import MOST, Fate, Fates
from slotgate.snapshots.files import Folder


class ReasonTests(SlotCase):
    """Each way to start cold has its own word."""

    def reason(self, wanted: Want | str) -> tuple[Verdict, Reason]:
        """What a session's next request is told; the server never gets it."""
        lease = self.lease(wanted)
        lease.release(End.UNSENT)
        return lease.verdict, lease.reason

    def in_folder(self, **settings: Any) -> Path:
        """A slot whose folder is seen."""
        path = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, path)
        self.llama.folder = Folder(path)
        self.slot = self.new_slot(Folder(path), **settings)
        return path

    def test_the_first_request_of_a_session(self) -> None:
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.NEW_SESSION))

    def test_a_cache_that_is_there_needs_no_reason(self) -> None:
        self.turn("A")
        self.assertEqual(self.reason("A"), (Verdict.RESIDENT, Reason.NONE))
        self.turn("B")
        self.assertEqual(self.reason("A"), (Verdict.RESTORED, Reason.NONE))

    def test_a_session_that_was_too_short_for_a_file(self) -> None:
        self.turn("A", tokens=63)
        self.turn("B")
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.TOO_SHORT))

    def test_a_session_that_could_not_be_saved(self) -> None:
        self.turn("A")
        self.faults("save", Refused(500, "disk full"))
        self.turn("B")
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.NO_SNAPSHOT))

    def test_a_session_that_went_with_the_server(self) -> None:
        self.turn("A")
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual((lease.reason, lease.fate), (Reason.NO_SNAPSHOT, Fate.RESTARTED))
        lease.release(End.UNSENT)

    def test_a_server_that_died_during_the_answer(self) -> None:
        lease = self.lease("A")
        self.llama.request("A")
        self.faults("look", Unreachable("refused"))
        lease.release(End.CUT)
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual((lease.reason, lease.fate), (Reason.NO_SNAPSHOT, Fate.RESTARTED))
        lease.release(End.UNSENT)

    def test_a_slot_that_somebody_else_used(self) -> None:
        self.turn("A")
        self.llama.request("stranger")
        lease = self.lease("A")
        self.assertEqual((lease.reason, lease.fate), (Reason.NO_SNAPSHOT, Fate.OVERWRITTEN))
        lease.release(End.UNSENT)

    def test_a_restored_session_knows_what_had_happened_to_it(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.fate), (Verdict.RESTORED, Fate.RESTARTED))
        lease.release(End.UNSENT)

    def test_what_happened_is_told_once(self) -> None:
        self.turn("A")
        self.llama.restart()
        self.turn("A")
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.fate), (Verdict.RESIDENT, Fate.UNSAVED))
        lease.release(End.UNSENT)

    def test_a_snapshot_over_the_limits_of_its_route(self) -> None:
        self.in_folder()
        for name in "ABC":
            self.turn(want(name, max_files=1))
        self.assertEqual(self.reason(want("A", max_files=1)), (Verdict.COLD, Reason.EVICTED))

    def test_a_file_of_another_size(self) -> None:
        path = self.in_folder()
        self.turn("A")
        self.turn("B")
        (file,) = path.iterdir()
        file.write_bytes(b"short")
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.DAMAGED))

    def test_a_file_that_somebody_deleted(self) -> None:
        path = self.in_folder()
        self.turn("A")
        self.turn("B")
        for file in path.iterdir():
            file.unlink()
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.reason), (Verdict.COLD, Reason.NO_SNAPSHOT))
        lease.release(End.UNSENT)

    def test_a_file_that_the_server_refuses(self) -> None:
        self.turn("A")
        self.turn("B")
        self.faults("restore", Refused(400, "does not fit"))
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.DAMAGED))

    def test_a_snapshot_of_another_model(self) -> None:
        self.turn("A")
        self.turn("B")
        self.llama.restart()
        self.llama.model = "/models/b.gguf"
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.OTHER_MODEL))

    def test_a_snapshot_that_the_slot_has_no_room_for(self) -> None:
        self.turn("A")
        self.turn("B")
        self.llama.n_ctx = 99
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.TOO_LONG))

    def test_restores_that_do_not_help(self) -> None:
        for name in "ABABABAB":
            lease = self.lease(name)
            self.llama.request(name)
            lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.NOT_HELPFUL))

    def test_a_server_that_does_not_answer(self) -> None:
        self.faults("look", Unreachable("refused"))
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.AWAY))

    def test_a_request_of_no_session(self) -> None:
        self.assertEqual(self.reason(Want(None)), (Verdict.BYPASS, Reason.NO_SESSION))

    def test_a_fork_is_no_cold_start(self) -> None:
        self.turn("A")
        parent = want("A").session
        self.assertEqual(
            self.reason(evolve(want("B"), parent=parent)), (Verdict.FORKED, Reason.NONE)
        )

    def test_a_fork_whose_parent_can_not_be_restored_is_a_new_session(self) -> None:
        self.turn("A")
        self.turn("B")
        self.faults("restore", Refused(400, "does not fit"))
        child = evolve(want("C"), parent=want("A").session)
        self.assertEqual(self.reason(child), (Verdict.COLD, Reason.NEW_SESSION))

    def test_what_does_not_go_on_where_clients_are_kept_apart(self) -> None:
        self.turn(want("A", client="me"))
        other = evolve(want("A", client="me"), anew=True)
        self.assertEqual(self.reason(other), (Verdict.COLD, Reason.ISOLATED))


class StepTests(SlotCase):
    """Every save, restore and erase is told, with what it cost."""

    def setUp(self) -> None:
        super().setUp()
        self.steps: list[Step] = []
        self.slot._stepping = evolve(self.slot._stepping, tell=self.steps.append)
        self.slot._switch._stepping = self.slot._stepping

    def told(self) -> list[tuple[Action, Result, str | None, int, int]]:
        return [
            (one.action, one.result, one.session.id if one.session else None, one.tokens, one.bytes)
            for one in self.steps
        ]

    def test_a_switch_tells_of_its_save_and_its_restore(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.assertEqual(
            self.told(),
            [
                (Action.SAVE, Result.OK, "A", 100, 136),
                (Action.SAVE, Result.OK, "B", 100, 136),
                (Action.RESTORE, Result.OK, "A", 100, 136),
            ],
        )

    def test_what_the_server_refused_and_what_it_did_not_answer(self) -> None:
        self.turn("A")
        self.faults("save", Refused(500, "disk full"), Unreachable("gone"))
        self.turn("B")
        self.turn("A")
        self.assertEqual(
            [(one.action, one.result) for one in self.steps],
            [(Action.SAVE, Result.REFUSED), (Action.SAVE, Result.LOST)],
        )

    def test_an_erase_tells_how_many_tokens_went(self) -> None:
        self.turn("A")
        self.successResultOf(self.slot.erase())
        self.assertEqual(self.told(), [(Action.ERASE, Result.OK, None, 100, 0)])

    def test_how_long_it_took(self) -> None:
        self.turn("A")
        gate: Deferred[None] = Deferred()
        self.llama.gates["save"] = gate
        waiting = self.slot.lease(want("B"))
        self.clock.advance(2.5)
        gate.callback(None)
        lease = self.successResultOf(waiting)
        self.assertEqual((self.steps[0].began, self.steps[0].seconds), (0.0, 2.5))
        self.assertEqual(lease.switched, 2.5)
        lease.release(End.UNSENT)


def test_every_reason_is_explained() -> None:
    assert set(MEANINGS) == set(Reason)
    assert all(MEANINGS[reason] for reason in Reason if reason is not Reason.NONE)


def test_fates_are_bounded_and_the_oldest_go_first() -> None:
    fates = Fates()
    for number in range(MOST + 1):
        fates.note(SessionKey(None, "*", str(number)), Fate.UNSAVED)
    assert fates.of(SessionKey(None, "*", "0")) is None
    assert fates.of(SessionKey(None, "*", "1")) is Fate.UNSAVED
