"""The doctor when it is ended in the middle: what was in a slot is in it again, no file is left."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from doctor_case import CONFIG, DoctorCase
from gateway import CLOCK
from processes import Program, Signal
from twisted.internet.defer import CancelledError, Deferred

from slotgate._config.loading import parse_config
from slotgate.doctor import slot_files
from slotgate.doctor.command import examine
from slotgate.doctor.findings import Level
from slotgate.doctor.reading import timings_in
from slotgate.doctor.stopping import Loose, whole
from slotgate.testing.fake import FakeLlamaServer, Speed
from slotgate.testing.faults import Hang


class StoppingCase(DoctorCase):
    """With a fake server whose slot holds something."""

    async def start(self, **options: Any) -> FakeLlamaServer:
        """Start a server with a held slot."""
        fake = FakeLlamaServer(CLOCK, **{"slot_save_path": self.slots, "batch": 100, **options})
        self.addCleanup(fake.stop)
        await fake.listen(CLOCK)
        body = {"prompt": "x" * 300, "id_slot": 0, "n_predict": 1, "cache_prompt": True}
        headers = {"Authorization": f"Bearer {fake.api_key}"}
        answer = await self.post("/completion", body, headers, base=fake.url)
        self.assertEqual(answer.status, 200)
        self.held = list(fake.engine.slots[0].tokens)
        fake.calls.clear()
        return fake

    def text_of(self, url: str, server: str = "") -> str:
        """A configuration."""
        return CONFIG.format(url=url, slots=self.slots, server=server, route="")

    def assert_as_before(self, fake: FakeLlamaServer) -> None:
        """Nothing is different."""
        self.assertEqual(fake.engine.slots[0].tokens, self.held)
        self.assertEqual(self.files(), [])


class CancelledTests(StoppingCase):
    """Cancelled in this process, at each of its steps."""

    async def cancelled_at(self, fake: FakeLlamaServer, **where: Any) -> Loose:
        """Measure, and cancel when the server was asked this and has not answered yet."""
        hang = Hang()
        fake.plan(hang, **where)
        config = parse_config(self.text_of(fake.url), {}, self.folder)
        loose = Loose()
        asked = fake.seen(**where)
        work = Deferred.fromCoroutine(examine(CLOCK, config, 500, loose=loose))
        await asked
        work.cancel()
        hang.release()
        with self.assertRaises(CancelledError):
            await work
        return loose

    async def test_at_each_step(self) -> None:
        for where in (
            {"action": "save"},
            {"path": "/tokenize"},
            {"path": "/completion"},
            {"action": "erase"},
            {"action": "restore"},
        ):
            fake = await self.start()
            loose = await self.cancelled_at(fake, **where)
            self.assert_as_before(fake)
            self.assertEqual(list(loose), [], where)

    async def test_at_each_save(self) -> None:
        # the look whether there is a folder, the probe, the copy, the measurement
        for number in range(4):
            fake = await self.start()
            config = parse_config(self.text_of(fake.url), {}, self.folder)
            loose = Loose()
            work = Deferred.fromCoroutine(examine(CLOCK, config, 500, loose=loose))
            for _ in range(number + 1):
                await fake.seen(action="save")
                fake.calls.clear()
            work.cancel()
            with self.assertRaises(CancelledError):
                await work
            self.assert_as_before(fake)
            self.assertEqual(list(loose), [])

    async def test_while_files_are_seen_to(self) -> None:
        ended: list[str] = []

        async def work(step: Deferred[None]) -> None:
            await step
            ended.append("whole")

        step: Deferred[None] = Deferred()
        doing = Deferred.fromCoroutine(whole(work(step)))
        doing.cancel()
        self.assertNoResult(doing)
        step.callback(None)
        self.assertEqual(ended, ["whole"])
        self.failureResultOf(doing, CancelledError)


class SignalTests(StoppingCase):
    """``slotgate doctor`` as a process."""

    async def measuring(self, fake: FakeLlamaServer, server: str = "") -> Program:
        """A doctor, when the server reads its prompt."""
        (self.folder / "slotgate.toml").write_text(self.text_of(fake.url, server))
        arguments = ("--config", "slotgate.toml", "--measure", "500")
        program = Program(sys.executable, "-m", "slotgate.doctor", *arguments)
        asked = fake.seen(path="/completion")
        program.start(self.folder)
        self.addCleanup(program.kill)
        await asked
        while fake.engine.slots[0].tokens == self.held:
            await self.pause(0.01)
        return program

    async def test_each_signal_puts_back_what_was_there(self) -> None:
        names: list[tuple[Signal, int]] = [("INT", 130), ("TERM", 143), ("HUP", 129)]
        for name, status in names:
            # 6 batches, 0.2 s each
            fake = await self.start(notices_disconnect=True)
            fake.speed = Speed(prefill=500)
            program = await self.measuring(fake)
            program.send(name)
            self.assertEqual(await program.exited, status, program.printed)
            await program.gone
            self.assert_as_before(fake)
            last = program.errors.splitlines()[-1]
            self.assertEqual(last, f"slotgate doctor: ended by SIG{name}; all is as it was")

    async def test_a_server_that_reads_on_is_waited_for(self) -> None:
        fake = await self.start()
        fake.speed = Speed(prefill=500)
        program = await self.measuring(fake)
        program.send("TERM")
        self.assertEqual(await program.exited, 143, program.printed)
        await program.gone
        self.assert_as_before(fake)

    async def test_the_second_signal_ends_it_and_tells_how_to_go_on(self) -> None:
        fake = await self.start(api_key="very-secret")
        # it reads for 2 s more
        fake.speed = Speed(prefill=250)
        program = await self.measuring(fake, 'api_key = "very-secret"')
        fake.calls.clear()
        slots = fake.seen(path="/slots")
        program.send("INT")
        # it has noticed, and waits for the slot
        await slots
        program.send("INT")
        self.assertEqual(await program.exited, 130, program.printed)
        await program.gone
        (file,) = self.files()
        told = program.errors.splitlines()[-1]
        self.assertIn(f"the {len(self.held)} tokens of slot 0 of local are in", told)
        self.assertNotIn("very-secret", told)
        command = shlex.split(told[told.index("curl ") :])
        self.assertEqual(command[1], f"{fake.url}/slots/0?action=restore")
        self.assertEqual(json.loads(command[-1]), {"filename": file})
        # as it says
        headers = {"Authorization": "Bearer very-secret"}
        await self.post("/slots/0?action=restore", json.loads(command[-1]), headers, base=fake.url)
        self.assertEqual(fake.engine.slots[0].tokens, self.held)

    async def test_a_slot_that_was_empty_is_told_of_too(self) -> None:
        fake = await self.start()
        fake.engine.slots[0].tokens.clear()
        self.held = []
        fake.speed = Speed(prefill=250)
        program = await self.measuring(fake)
        fake.calls.clear()
        slots = fake.seen(path="/slots")
        program.send("INT")
        await slots
        program.send("INT")
        self.assertEqual(await program.exited, 130, program.printed)
        await program.gone
        last = program.errors.splitlines()[-1]
        self.assertIn("slot 0 of local was empty, and can hold a prompt of the doctor's now", last)


class LeftTests(StoppingCase):
    """What a killed doctor has left."""

    async def test_it_is_told_and_not_deleted(self) -> None:
        self.patch(slot_files, "LEFT_SECONDS", -10.0)
        fake = await self.start()
        file = slot_files.probe_name()
        (self.slots / file).write_bytes(b"x" * 2000)
        await self.ask(fake.url)
        self.assert_finds(
            "folder", Level.ADVICE, "1 file (2000 bytes) of a slotgate doctor", f"{file}"
        )
        self.assertEqual(self.files(), [file])
        self.assert_exit(1)


def test_timings_are_those_of_the_last_piece() -> None:
    timings = {"cache_n": 1, "prompt_n": 2, "prompt_ms": 3.5, "predicted_n": 1}
    whole_answer = json.dumps({"timings": timings}).encode()
    expected = {"cache_n": 1, "prompt_n": 2, "prompt_ms": 3.5}
    assert timings_in(whole_answer) == expected
    pieces = b'data: {"prompt_progress": {}}\n\ndata: ' + whole_answer + b"\n\ndata: [DONE]\n\n"
    assert timings_in(pieces) == expected
    for junk in (b"", b"[]", b"{}", b"data: {", b'{"timings": {"cache_n": "1"}}', b"[" * 99999):
        assert timings_in(junk) is None


def test_a_file_is_loose_for_as_long_as_nobody_has_looked_after_it() -> None:
    loose = Loose()
    with loose.file("a"):
        assert len(list(loose)) == 1
    assert list(loose) == []
