"""Snapshots that can be trusted: what wrote them, whether they help, and what is left over."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

from slot_case import SlotCase, want
from twisted.logger import capturedLogs, formatEvent

from slotgate.llama.errors import Loading, Refused, Unreachable
from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.choice import End, Verdict
from slotgate.slots.idle import IdleSaver
from slotgate.snapshots.files import Folder


class FolderCase(SlotCase):
    """The slot's files are real, in a folder that we see."""

    settings: ClassVar[dict[str, Any]] = {}

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="slotgate-test-")
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        self.llama.folder = Folder(self.path)
        self.slot = self.new_slot(self.llama.folder, **self.settings)

    def files(self) -> dict[str, str | None]:
        """Who is in which file."""
        return {file.name: self.llama.files[file.name][0] for file in self.path.iterdir()}

    def file_of(self, session: str) -> Path:
        """The file of a session."""
        (name,) = [name for name, content in self.files().items() if content == session]
        return self.path / name


class FingerprintTests(FolderCase):
    """A snapshot goes only to what wrote it."""

    def test_another_model_behind_the_address_gets_none_of_the_old_snapshots(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.model = "/models/other.gguf"
        self.llama.restart()
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)
        self.assertEqual(self.files(), {})

    def test_another_file_at_the_same_path_is_another_model(self) -> None:
        model = self.path.with_suffix(".gguf")
        self.addCleanup(model.unlink)
        model.write_bytes(b"weights")
        self.llama.model = str(model)
        for name in "AB":
            self.turn(name)
        model.write_bytes(b"other weights")
        self.llama.restart()
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)

    def test_another_build_is_tried_once_and_dropped_if_it_refuses(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.build = "b2"
        self.llama.restart()
        self.faults("restore", Refused(400, "400 Unable to restore slot"))
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertEqual(self.llama.calls.count("restore A"), 1)
        self.assertEqual(self.files(), {})

    def test_more_tokens_than_the_slot_holds_are_not_sent_and_not_thrown_away(self) -> None:
        self.turn("A", tokens=1000)
        self.turn("B")
        self.llama.n_ctx = 512
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)
        self.turn("B")
        self.llama.n_ctx = 4096
        self.llama.restart()
        self.assertEqual(self.turn("A"), Verdict.RESTORED)

    def test_a_server_that_does_not_tell_its_model_restores_nothing(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.restart()
        self.faults("props", Unreachable("no answer within 15 s"))
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)

    def test_the_fingerprint_is_asked_for_once_while_nothing_changes(self) -> None:
        for name in "ABABAB":
            self.turn(name)
        self.assertEqual(self.llama.asked, 1)


class UsefulnessTests(SlotCase):
    """Restores that do not help are noticed, and given up."""

    def useless(self, name: str) -> Verdict:
        """A turn that reads everything again."""
        lease = self.lease(name)
        self.llama.request(name, 100)
        lease.release(End.COMPLETE, Usage(reused=0, read=93, generated=8))
        return lease.verdict

    def test_after_three_in_a_row_no_more_are_tried(self) -> None:
        verdicts = [self.useless(name) for name in "ABABABAB"]
        self.assertEqual(verdicts.count(Verdict.RESTORED), 3)
        self.assertEqual(verdicts[-1], Verdict.COLD)
        # and nothing more is written that nobody would read
        calls = len(self.llama.calls)
        self.useless("A")
        self.assertEqual(len(self.llama.calls), calls)

    def test_one_that_helps_begins_the_count_anew(self) -> None:
        for name in "ABAB":
            self.useless(name)
        lease = self.lease("A")
        self.llama.request("A", 100)
        lease.release(End.COMPLETE, Usage(reused=90, read=3, generated=8))
        verdicts = [self.useless(name) for name in "BAB"]
        self.assertEqual(verdicts, [Verdict.RESTORED] * 3)

    def test_a_restart_of_the_server_or_another_build_is_tried_again(self) -> None:
        for name in "ABABABAB":
            self.useless(name)
        self.llama.restart()
        self.assertEqual(self.useless("A"), Verdict.RESTORED)
        for name in "BABAB":
            self.useless(name)
        self.llama.build = "b2"
        self.llama.request("stranger")
        self.assertEqual(self.useless("A"), Verdict.RESTORED)

    def test_a_prompt_that_begins_otherwise_says_nothing_about_restores(self) -> None:
        from attrs import evolve

        for number in range(8):
            wanted = want("AB"[number % 2])
            assert wanted.session is not None
            other = evolve(wanted, session=evolve(wanted.session, beginning=str(number)))
            lease = self.lease(other)
            self.llama.request("AB"[number % 2], 100)
            lease.release(End.COMPLETE, Usage(reused=0, read=93, generated=8))
        self.assertEqual(lease.verdict, Verdict.RESTORED)


class LoadingTests(SlotCase):
    """A server that is loading is neither a miss nor a refusal."""

    def test_the_request_waits_and_is_switched_as_usual(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.restart()
        self.faults("look", *[Loading("503 Loading model")] * 5)
        leasing = self.slot.lease(want("A"))
        self.clock.pump([1.0] * 4)
        self.assertNoResult(leasing)
        self.clock.advance(1.0)
        self.assertEqual(self.successResultOf(leasing).verdict, Verdict.RESTORED)

    def test_after_load_wait_seconds_the_request_goes_to_the_server(self) -> None:
        self.faults("look", *[Loading("503 Loading model")] * 999)
        leasing = self.slot.lease(want("A"))
        self.clock.pump([1.0] * 119)
        self.assertNoResult(leasing)
        self.clock.pump([1.0] * 2)
        self.successResultOf(leasing).release(End.REFUSED)

    def test_a_client_that_leaves_meanwhile_holds_nobody_up(self) -> None:
        self.faults("look", *[Loading("503 Loading model")] * 2)
        leaving, waiting = self.slot.lease(want("A")), self.slot.lease(want("B"))
        leaving.cancel()
        leaving.addErrback(lambda _: None)
        self.clock.pump([1.0, 1.0, 0.0])
        self.successResultOf(waiting)


class LateDamageTests(FolderCase):
    """A file can change while the switch waits."""

    def test_it_is_looked_at_right_before_the_restore(self) -> None:
        for name in "AB":
            self.turn(name)
        file = self.file_of("A")
        self.llama.request("stranger")
        self.llama.busy = True
        leasing = self.slot.lease(want("A"))
        file.write_bytes(file.read_bytes()[:50])
        self.llama.busy = False
        self.clock.advance(1.0)
        self.assertEqual(self.successResultOf(leasing).verdict, Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)


class IdleTests(SlotCase):
    """A slot that nobody uses is saved."""

    def setUp(self) -> None:
        super().setUp()
        self.saver = IdleSaver([self.slot], self.clock)
        self.saver.startService()
        self.addCleanup(self.saver.stopService)

    def test_it_is_saved_after_so_long_and_once(self) -> None:
        self.turn(want("A", idle_seconds=4))
        self.clock.pump([0.5] * 7)
        self.assertEqual(self.llama.calls, [])
        self.clock.pump([0.5] * 40)
        self.assertEqual(self.llama.calls, ["save A"])
        self.turn("B")
        self.assertEqual(self.llama.calls, ["save A"])

    def test_a_request_starts_the_wait_over(self) -> None:
        for _ in range(5):
            self.turn(want("A", idle_seconds=4))
            self.clock.pump([0.5] * 7)
        self.assertEqual(self.llama.calls, [])

    def test_a_route_without_the_setting_is_saved_when_it_is_needed(self) -> None:
        self.turn("A")
        self.clock.pump([0.5] * 100)
        self.assertEqual(self.llama.calls, [])

    def test_a_running_lease_is_not_idle(self) -> None:
        self.turn(want("A", idle_seconds=4))
        lease = self.lease(want("A", idle_seconds=4))
        self.clock.pump([0.5] * 40)
        self.assertEqual(self.llama.calls, [])
        lease.release(End.UNSENT)

    def test_a_server_that_sleeps_is_left_asleep(self) -> None:
        self.turn(want("A", idle_seconds=4))
        looks = self.llama.looks
        self.llama.sleeping = True
        self.clock.pump([0.5] * 40)
        self.assertEqual((self.llama.looks, self.llama.calls), (looks, []))
        self.assertEqual(self.slot.state, "gone")

    def test_a_slot_that_somebody_else_keeps_busy_holds_nobody_up(self) -> None:
        self.turn(want("A", idle_seconds=4))
        self.llama.busy = True
        self.clock.pump([0.5] * 40)
        self.assertEqual(self.llama.calls, [])
        self.saver.stopService()
        self.llama.busy = False
        self.successResultOf(self.slot.stop())
        self.assertEqual(self.llama.calls, ["save A"])
        self.saver.startService()

    def test_a_save_that_fails_does_not_end_the_looking(self) -> None:
        self.turn(want("A", idle_seconds=4))
        self.faults("save", Refused(500, "500 Unable to save slot"))
        self.clock.pump([0.5] * 40)
        self.assertEqual(self.llama.calls[-1], "save A")
        self.assertEqual(self.slot.state, "saved")


class FolderAwayTests(FolderCase):
    """The folder is away for a moment: unmounted, renamed."""

    def test_the_session_is_cold_and_its_snapshot_waits(self) -> None:
        for name in "AB":
            self.turn(name)
        away = self.path.rename(self.path.with_name(f"{self.path.name}-away"))
        self.assertEqual(self.turn("A"), Verdict.COLD)
        away.rename(self.path)
        self.turn(want("C", min_tokens=999))
        self.assertEqual(self.turn("A"), Verdict.RESTORED)


class StrangerTests(SlotCase):
    """Somebody else's request behind ours, with exactly as many tokens."""

    def test_the_task_tells(self) -> None:
        for name in "AB":
            self.turn(name)
        lease = self.lease("A")
        self.works(lease, "A")
        self.llama.request("stranger", 100)
        lease.release(End.COMPLETE, Usage(reused=50, read=43, generated=8))
        self.llama.calls.clear()
        self.turn("B")
        self.assertNotIn("save stranger", self.llama.calls)


class RestartTests(SlotCase):
    """A restart of the server is nobody's fault."""

    def test_nobody_is_accused_of_using_a_slot_that_is_new(self) -> None:
        self.turn("A")
        self.llama.restart()
        self.llama.task = None
        with capturedLogs() as logs:
            self.turn("A")
        said = "\n".join(formatEvent(event) for event in logs)
        self.assertIn("the server was started anew", said)
        self.assertNotIn("somebody else", said)

    def test_but_whoever_uses_it_is(self) -> None:
        self.turn("A")
        self.llama.request("stranger")
        with capturedLogs() as logs:
            self.turn("A")
        self.assertIn("somebody else used it", "\n".join(formatEvent(event) for event in logs))


class MemoryTests(SlotCase):
    """After our restart a slot that still holds what we left is not restored."""

    def test_it_is_resident(self) -> None:
        self.turn("A")
        self.slot = self.new_slot()
        self.assertEqual(self.turn("A"), Verdict.RESIDENT)
        self.assertEqual(self.llama.calls, [])

    def test_it_is_known_before_the_first_request(self) -> None:
        self.turn("A")
        self.slot = self.new_slot()
        self.successResultOf(self.slot.recall())
        self.assertEqual(self.slot.state, "dirty")

    def test_a_server_that_sleeps_is_not_woken_for_it(self) -> None:
        self.turn("A")
        looks, self.llama.sleeping = self.llama.looks, True
        self.slot = self.new_slot()
        self.successResultOf(self.slot.recall())
        self.assertEqual((self.slot.state, self.llama.looks), ("gone", looks))

    def test_what_was_not_on_disk_is_saved_later(self) -> None:
        self.turn("A")
        self.slot = self.new_slot()
        self.turn("B")
        self.assertEqual(self.llama.calls, ["save A"])

    def test_not_when_somebody_used_it_meanwhile(self) -> None:
        for name in "AB":
            self.turn(name)
        self.llama.request("stranger")
        self.slot = self.new_slot()
        self.assertEqual(self.turn("A"), Verdict.RESTORED)
        self.assertEqual(self.llama.calls, ["save A", "restore A"])

    def test_not_when_we_died_during_a_request(self) -> None:
        self.turn("A")
        self.lease("B")
        self.llama.request("B", 100)
        self.slot = self.new_slot()
        self.turn("C")
        self.assertEqual(self.llama.calls, ["save A"])


class ForgettingTests(FolderCase):
    """A session that is deleted does not come back."""

    def test_neither_from_the_disk_nor_from_the_slot(self) -> None:
        for name in "ABA":
            self.turn(name)
        self.successResultOf(self.slot.forget(SessionKey(None, "*", "A")))
        self.llama.calls.clear()
        self.turn("B")
        self.assertEqual(self.llama.calls, ["restore B"])
        self.assertEqual(self.turn("A"), Verdict.COLD)

    def test_it_waits_for_the_lease_of_the_session(self) -> None:
        lease = self.lease("A")
        forgetting = self.slot.forget(SessionKey(None, "*", "A"))
        self.assertNoResult(forgetting)
        self.llama.request("A")
        lease.release(End.COMPLETE, Usage(0, 93, 8))
        self.clock.advance(0)
        self.successResultOf(forgetting)
        self.turn("B")
        self.assertEqual(self.llama.calls, [])

    def test_an_erased_slot_is_empty(self) -> None:
        self.turn("A")
        self.successResultOf(self.slot.erase())
        self.assertEqual((self.llama.calls, self.slot.state), (["erase A"], "empty"))


class EvictionTests(FolderCase):
    """Snapshots beyond the limits of their route go, the one used longest ago first."""

    def turns(self, names: str, **policy: Any) -> None:
        for name in names:
            self.turn(want(name, **policy))
            self.clock.advance(1)

    def test_a_restore_counts_as_use(self) -> None:
        self.turns("ABCAD", max_files=3)
        # A was restored after B was saved; D is in the slot
        self.assertEqual(set(self.files().values()), {"A", "B", "C"})
        self.turns("E", max_files=3)
        self.assertEqual(set(self.files().values()), {"A", "C", "D"})

    def test_neither_the_one_just_saved_nor_the_one_to_restore_goes(self) -> None:
        self.turns("ABABAB", max_files=1)
        self.assertEqual(set(self.files().values()), {"A", "B"})
        self.assertEqual(self.turn(want("A", max_files=1)), Verdict.RESTORED)

    def test_bytes_are_limited_too(self) -> None:
        # each file has 36 + 100 bytes
        self.turns("ABCDE", max_bytes=136 * 2)
        self.assertEqual(set(self.files().values()), {"C", "D"})

    def test_one_that_is_over_the_limit_alone_stays(self) -> None:
        self.turns("AB", max_bytes=10)
        self.assertEqual(set(self.files().values()), {"A"})

    def test_other_routes_and_other_files_stay(self) -> None:
        (self.path / "notes.bin").write_text("mine")
        self.llama.files["notes.bin"] = ("notes", 0)
        self.turns("ABCD", max_files=1)
        self.assertEqual(set(self.files().values()), {"notes", "C"})


class NoSpaceTests(FolderCase):
    """A disk that is nearly full."""

    settings: ClassVar = {"min_free_bytes": 1 << 60}

    def test_nothing_is_saved_and_the_request_goes_on(self) -> None:
        for name in "ABA":
            self.assertEqual(self.turn(name), Verdict.COLD)
        self.assertEqual(self.llama.calls, [])


class ChecksumTests(FolderCase):
    """verify = "xxh3": a flipped byte is a miss."""

    settings: ClassVar = {"verify": "xxh3"}

    def test_a_flipped_byte_is_noticed_before_the_restore(self) -> None:
        for name in "AB":
            self.turn(name)
        file = self.file_of("A")
        content = bytearray(file.read_bytes())
        content[50] ^= 1
        file.write_bytes(content)
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)
        self.assertFalse(file.exists())

    def test_a_whole_file_is_restored(self) -> None:
        for name in "AB":
            self.turn(name)
        self.assertEqual(self.turn("A"), Verdict.RESTORED)


class DamageTests(FolderCase):
    """Files that are not what their records say are never sent."""

    def damage(self, how: Any) -> None:
        for name in "AB":
            self.turn(name)
        file = self.file_of("A")
        how(file)
        self.assertEqual(self.turn("A"), Verdict.COLD)
        self.assertNotIn("restore A", self.llama.calls)

    def test_cut_by_a_byte(self) -> None:
        self.damage(lambda file: file.write_bytes(file.read_bytes()[:-1]))

    def test_empty(self) -> None:
        self.damage(lambda file: file.write_bytes(b""))

    def test_gone(self) -> None:
        self.damage(lambda file: file.unlink())

    def test_a_link(self) -> None:
        def link(file: Path) -> None:
            other = self.path.with_suffix(".real")
            self.addCleanup(other.unlink)
            file.rename(other)
            file.symlink_to(other)

        self.damage(link)

    def test_a_folder(self) -> None:
        def folder(file: Path) -> None:
            file.unlink()
            file.mkdir()

        self.damage(folder)
