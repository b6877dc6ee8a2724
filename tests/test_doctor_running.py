"""The doctor while slotgate runs: only slotgate touches its slots, and nobody else is accused."""

from __future__ import annotations

from typing import Any

from doctor_case import CONFIG, DoctorCase
from gateway import CLOCK
from relay_gateway import self_signed
from twisted.internet.defer import Deferred

from slotgate.doctor.findings import Level
from slotgate.state import StateFolder
from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.faults import Hang
from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions

OK, ADVICE, PROBLEM = Level.OK, Level.ADVICE, Level.PROBLEM


class RunningCase(DoctorCase):
    """With a gateway in front of a fake server."""

    async def start(self, **options: Any) -> FakeLlamaServer:
        """Start a server; both stop with the test."""
        fake = FakeLlamaServer(CLOCK, **{"slot_save_path": self.slots, **options})
        self.addCleanup(fake.stop)
        await fake.listen(CLOCK)
        return fake

    async def start_both(self, listen: str = "tcp:0:interface=127.0.0.1") -> FakeLlamaServer:
        """Start a server and a gateway."""
        fake = await self.start()
        self.config = self.config.replace("tcp:0:interface=127.0.0.1", listen)
        self.start_gateway(fake.url)
        await self.recalled()
        return fake

    def saves(self, fake: FakeLlamaServer) -> list[str]:
        """The files that were saved to, without the one that never is."""
        bodies = [call.body.decode() for call in fake.control_calls]
        return [body for body in bodies if '"/"' not in body]


class LeaseTests(RunningCase):
    """A running slotgate owns its slots."""

    async def test_nothing_is_measured_in_a_slot_of_a_slotgate_that_runs(self) -> None:
        fake = await self.start_both()
        chat = self.chat("a")
        await chat.turn()
        held, calls = list(fake.engine.slots[0].tokens), len(self.saves(fake))
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", ADVICE, "not measured: a slotgate with this configuration")
        self.assert_finds("measure", ADVICE, "stop it first, or measure on another server")
        self.assertEqual(fake.engine.slots[0].tokens, held)
        self.assertEqual(len(self.saves(fake)), calls)
        self.assertEqual(self.told, [])
        # slotgate knows it for its own still
        self.assertEqual((await chat.turn()).cache.split()[0], "resident")

    async def test_a_look_saves_nothing_in_it_either(self) -> None:
        fake = await self.start_both()
        await self.ask(fake.url)
        self.assertEqual(self.saves(fake), [])
        self.assert_finds("save", OK, "it has a --slot-save-path, and no save was tried: slotgate")
        self.assert_finds("folder", ADVICE, f"go to {self.slots}, for no save was tried", "stop")
        self.assert_exit(1)

    async def test_a_server_without_a_folder_is_found_out_without_a_save(self) -> None:
        fake = await self.start_both()
        fake.slot_save_path = None
        await self.ask(fake.url)
        self.assert_finds("save", PROBLEM, "without --slot-save-path")

    async def test_a_slotgate_that_is_started_while_we_measure_has_the_slot(self) -> None:
        fake = await self.start()
        state = StateFolder(self.folder / "state")
        self.addCleanup(state.close)
        fake.seen(path="/completion").addCallback(lambda _: state.open())
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", ADVICE, "not measured: a slotgate with this configuration")
        self.assertNotIn("erase", [call.query["action"] for call in fake.control_calls])
        self.assertEqual(self.files(), [])

    async def test_a_slot_that_somebody_took_before_anything_was_changed_is_theirs(self) -> None:
        fake = await self.start()
        await self.post("/completion", {"prompt": "x" * 300, "id_slot": 0}, base=fake.url)
        held = list(fake.engine.slots[0].tokens)

        def take(_: object) -> None:
            fake.engine.slots[0].task = 999

        fake.seen(path="/tokenize").addCallback(take)
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", ADVICE, "not measured: somebody else used slot 0 meanwhile")
        self.assertEqual(fake.engine.slots[0].tokens, held)
        self.assertEqual(self.files(), [])

    async def test_a_slot_that_is_busy_since_the_first_looks_is_not_saved(self) -> None:
        fake = await self.start()
        hang = Hang()
        fake.plan(hang, path="/completion")
        answers: list[Deferred[Any]] = []

        def work(_: object) -> Deferred[Any]:
            body = {"prompt": "x" * 300, "id_slot": 0, "n_predict": 1}
            answers.append(Deferred.fromCoroutine(self.post("/completion", body, base=fake.url)))
            return fake.seen(path="/completion")

        # the doctor is answered when the slot is busy
        hold = Hang()
        fake.plan(hold, action="save")
        fake.seen(action="save").addCallback(work).addCallback(lambda _: hold.release())
        await self.ask(fake.url)
        self.assert_finds("save", ADVICE, "every slot is busy")
        self.assertEqual(self.saves(fake), [])
        hang.release()
        await answers[0]


class KnownTests(RunningCase):
    """A slotgate that runs is known, wherever it listens."""

    async def accused(self, fake: FakeLlamaServer, listen: str, state: str) -> None:
        """Ask while the slot is busy."""
        hang = Hang()
        fake.plan(hang, path="/completion")
        body = {"prompt": "x" * 300, "id_slot": 0, "n_predict": 1}
        answer = Deferred.fromCoroutine(self.post("/completion", body, base=fake.url))
        await fake.seen(path="/completion")
        config = CONFIG.replace("tcp:1:interface=127.0.0.1", listen.replace("\\", "\\\\"))
        await self.ask(fake.url, config=config.replace('"state"', f'"{state}"'))
        hang.release()
        await answer
        self.assert_finds("traffic", OK, "by the slotgate that runs")

    async def test_by_its_lock(self) -> None:
        # at a port that only its start has decided
        fake = await self.start_both()
        await self.accused(fake, "tcp:0:interface=127.0.0.1", "state")

    async def test_by_its_port_in_any_order_of_the_options(self) -> None:
        fake = await self.start_both()
        port = self.base.rpartition(":")[2]
        await self.accused(fake, f"tcp:interface=127.0.0.1:port={port}", "elsewhere")

    async def test_at_another_interface(self) -> None:
        fake = await self.start_both("tcp:0:interface=127.0.0.2")
        port = self.base.rpartition(":")[2]
        await self.accused(fake, f"tcp:{port}:interface=127.0.0.2", "elsewhere")

    async def test_at_an_ipv6_address(self) -> None:
        fake = await self.start_both(r"tcp6:0:interface=\\:\\:1")
        port = self.base.rpartition(":")[2]
        await self.accused(fake, rf"tcp6:{port}:interface=\:\:1", "elsewhere")

    async def test_behind_tls(self) -> None:
        (self.folder / "tls.pem").write_bytes(b"".join(self_signed()))
        tls = f"privateKey={self.folder}/tls.pem:interface=127.0.0.1"
        fake = await self.start_both(f"ssl:0:{tls}")
        port = self.base.rpartition(":")[2]
        await self.accused(fake, f"ssl:{port}:{tls}", "elsewhere")

    async def test_at_a_unix_socket(self) -> None:
        # the first address is the one that start_gateway asks at
        listen = f'tcp:0:interface=127.0.0.1", "unix:{self.folder}/s.sock'
        fake = await self.start_both(listen)
        await self.accused(fake, f"unix:{self.folder}/s.sock", "elsewhere")


class RealTests(DoctorCase):
    """With a real server, b11549."""

    async def test_a_sessions_cache_outlasts_the_doctor(self) -> None:
        model = self.folder / "tiny.gguf"
        write_tiny_model(model)
        options = RealServerOptions(model=model, slot_save_path=self.slots, context=8192, threads=1)
        server = RealServer(CLOCK, options)
        self.addCleanup(server.stop)
        await server.start()
        self.start_gateway(server.url)
        await self.recalled()
        chat = self.chat("a", 100)
        await chat.turn()
        await self.ask(server.url, measure=500)
        self.assert_finds("measure", ADVICE, "stop it first, or measure on another server")
        answer = await chat.turn()
        self.assertEqual(answer.cache.split()[0], "resident")
        self.assertLess(answer.share_read, 0.2)
