"""Why a session found its cache as it did: the word that people see."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from attrs import evolve
from slot_case import SlotCase, want
from twisted.internet.defer import Deferred

from slotgate.llama.errors import Refused, Unreachable, Unsupported
from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.reasons import Cause, Reason, cause_of
from slotgate.slots.steps import Action, Result, Step
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.fates import MOST, Fate, Fates
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index


class ReasonTests(SlotCase):
    """Each way to start cold has its own word."""

    def reason(self, wanted: Want | str) -> tuple[Verdict, Reason]:
        """What a session's next request is told; the server never gets it."""
        lease = self.lease(wanted)
        lease.release(End.UNSENT)
        return lease.verdict, lease.cause.reason

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

    def story(self, name: str) -> tuple[Reason, Fate | None]:
        """Why a session's next request is cold."""
        lease = self.lease(name)
        self.assertEqual(lease.verdict, Verdict.COLD)
        lease.release(End.UNSENT)
        return lease.cause.reason, lease.cause.fate

    def test_a_session_that_could_not_be_saved(self) -> None:
        self.turn("A")
        self.faults("save", Refused(500, "disk full"))
        self.turn("B")
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.FAILED))

    def test_a_server_that_saves_nothing(self) -> None:
        self.faults("save", Unsupported("no folder"))
        for name in "ABC":
            self.turn(name)
        # of the first by what it said, of the second because it said so before
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.UNSUPPORTED))
        self.assertEqual(self.story("B"), (Reason.NO_SNAPSHOT, Fate.UNSUPPORTED))

    def test_a_disk_without_room(self) -> None:
        self.in_folder(min_free_bytes=2**60)
        self.turn("A")
        self.turn("B")
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.NO_ROOM))

    def test_a_short_session_on_a_server_that_does_not_show_its_slots(self) -> None:
        self.faults("look", *[Unsupported("no /slots")] * 20)
        self.turn("A", tokens=63)
        self.turn("B", tokens=63)
        self.assertEqual(self.story("A"), (Reason.TOO_SHORT, Fate.TOO_SHORT))

    def test_a_session_that_was_not_saved_because_restores_do_not_help(self) -> None:
        for name in "ABABABAB":
            lease = self.lease(name)
            self.llama.request(name)
            lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.turn("C")
        self.turn("D")
        self.assertEqual(self.story("C"), (Reason.NOT_HELPFUL, Fate.NOT_HELPFUL))

    def test_one_of_many_single_questions(self) -> None:
        self.turn(want("A", passing=True))
        self.turn("B")
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.PASSING))

    def test_a_session_that_a_client_deleted_while_it_was_only_in_the_slot(self) -> None:
        self.turn("A")
        self.successResultOf(self.slot.forget(SessionKey(None, "*", "A")))
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.DELETED))

    def test_a_slot_that_a_client_cleared(self) -> None:
        self.turn("A")
        self.successResultOf(self.slot.erase())
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.CLEARED))

    def test_a_slot_that_the_server_emptied(self) -> None:
        self.turn("A")
        self.llama.content, self.llama.tokens = None, 0
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.EMPTIED))

    def test_a_stranger_between_our_answer_and_our_look(self) -> None:
        lease = self.lease("A")
        self.llama.request("A", 100)
        self.llama.request("stranger", 300)
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.OVERWRITTEN))

    def test_a_first_request_that_the_server_never_got(self) -> None:
        self.turn("B")
        self.lease("A").release(End.CUT)
        self.assertEqual(self.story("A"), (Reason.NEW_SESSION, None))

    def test_an_index_that_does_not_answer(self) -> None:
        self.turn("A")
        self.turn("B")
        self.patch(Index, "find", Mock(side_effect=IndexAway()))
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.INDEX_AWAY))

    def test_a_folder_that_is_not_mounted(self) -> None:
        path = self.in_folder()
        self.turn("A")
        self.turn("B")
        shutil.move(path, f"{path}-away")
        self.addCleanup(shutil.move, f"{path}-away", path)
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.FOLDER_AWAY))

    def test_a_fork_that_loses_contact_is_cold(self) -> None:
        self.turn("A")
        self.faults("save", Unreachable("gone"))
        child = evolve(want("B"), parent=want("A").session)
        self.assertEqual(self.reason(child), (Verdict.COLD, Reason.SERVER_AWAY))

    def test_what_was_saved_before_contact_was_lost_is_not_lost(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.faults("restore", Unreachable("gone"))
        self.lease("B").release(End.UNSENT)
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.cause.fate), (Verdict.RESTORED, Fate.SAVED))
        lease.release(End.UNSENT)

    def test_a_server_that_comes_back_with_another_model(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.llama.restart()
        self.llama.model = "/models/b.gguf"
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.OTHER_MODEL))

    def test_a_session_that_went_with_the_server(self) -> None:
        self.turn("A")
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual(
            (lease.cause.reason, lease.cause.fate), (Reason.NO_SNAPSHOT, Fate.RESTARTED)
        )
        lease.release(End.UNSENT)

    def test_a_server_that_died_during_the_answer(self) -> None:
        lease = self.lease("A")
        self.llama.request("A")
        self.faults("look", Unreachable("refused"))
        lease.release(End.CUT)
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual(
            (lease.cause.reason, lease.cause.fate), (Reason.NO_SNAPSHOT, Fate.RESTARTED)
        )
        lease.release(End.UNSENT)

    def test_a_slot_that_somebody_else_used(self) -> None:
        self.turn("A")
        self.llama.request("stranger")
        lease = self.lease("A")
        self.assertEqual(
            (lease.cause.reason, lease.cause.fate), (Reason.NO_SNAPSHOT, Fate.OVERWRITTEN)
        )
        lease.release(End.UNSENT)

    def test_a_restored_session_knows_what_had_happened_to_it(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.llama.restart()
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.cause.fate), (Verdict.RESTORED, Fate.RESTARTED))
        lease.release(End.UNSENT)

    def test_what_happened_is_told_once(self) -> None:
        self.turn("A")
        self.llama.restart()
        self.turn("A")
        lease = self.lease("A")
        self.assertEqual((lease.verdict, lease.cause.fate), (Verdict.RESIDENT, Fate.IN_SLOT))
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
        self.assertEqual(self.story("A"), (Reason.NO_SNAPSHOT, Fate.MISSING))

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
        self.assertEqual(self.reason("A"), (Verdict.COLD, Reason.SERVER_AWAY))

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
    for reason in Reason:
        assert bool(Cause(reason).meaning) is (reason is not Reason.NONE)


def test_every_fate_has_its_own_story() -> None:
    told = [cause_of(fate).meaning for fate in (None, *Fate)]
    assert len(set(told)) == len(told)


def test_fates_are_bounded_and_the_oldest_go_first() -> None:
    fates = Fates()
    for number in range(MOST + 1):
        fates.note(SessionKey(None, "*", str(number)), Fate.IN_SLOT)
    assert fates.of(SessionKey(None, "*", "0")) is None
    assert fates.of(SessionKey(None, "*", "1")) is Fate.IN_SLOT
