"""The doctor on real servers, and as the command that people run."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from doctor_case import CONFIG, DoctorCase
from gateway import CLOCK
from processes import Program

from slotgate.doctor.findings import Level
from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions
from slotgate.testing.router import RealRouter, RealRouterOptions

OK, ADVICE, PROBLEM = Level.OK, Level.ADVICE, Level.PROBLEM
#: A prompt of so many tokens in a slot.
HELD = 700


class RealCase(DoctorCase):
    """With a real server, b11549."""

    async def start(self, window: int = 0, **options: Any) -> RealServer:
        """Start a server that stops with the test."""
        model = self.folder / "tiny.gguf"
        write_tiny_model(model, sliding_window=window)
        values = {"slot_save_path": self.slots, "context": 8192, "threads": 1, **options}
        server = RealServer(CLOCK, RealServerOptions(model=model, **values))
        self.addCleanup(server.stop)
        await server.start()
        return server

    async def complete(self, server: RealServer, **fields: Any) -> dict[str, Any]:
        """Let a slot hold something; the timings."""
        body = {"prompt": "y" * HELD, "id_slot": 0, "n_predict": 1, "temperature": 0, **fields}
        answer = await self.post("/completion", body, base=server.url)
        timings: dict[str, Any] = answer.json["timings"]
        return timings


class SingleTests(RealCase):
    """A server with one model."""

    async def test_all_is_well_and_nothing_is_different_afterwards(self) -> None:
        server = await self.start()
        await self.complete(server)
        before = (await self.get("/slots", server.url)).json
        await self.ask(server.url)
        self.assert_exit(0)
        self.assert_finds("window", OK, "the model (llama) has no sliding window")
        self.assert_finds("save", OK, "slot 0 was saved to try it")
        self.assertEqual((await self.get("/slots", server.url)).json, before)
        self.assertEqual(self.files(), [])
        self.assertGreater((await self.complete(server))["cache_n"], HELD - 10)

    async def test_no_slot_path(self) -> None:
        server = await self.start(slot_save_path="")
        await self.ask(server.url)
        self.assert_finds("save", PROBLEM, "without --slot-save-path")
        self.assert_exit(2)

    async def test_wrong_folder(self) -> None:
        server = await self.start(slot_save_path=self.new_slots("theirs"))
        await self.ask(server.url)
        self.assert_finds("folder", PROBLEM, f"not in {self.slots}")
        self.assert_exit(2)

    async def test_keys(self) -> None:
        server = await self.start(api_key="right-one")
        await self.ask(server.url)
        self.assert_finds("key", PROBLEM, "wants a key")
        await self.ask(server.url, server='api_key = "wrong-one"')
        self.assert_finds("key", PROBLEM, "does not accept our key")
        self.assert_exit(2)
        await self.ask(server.url, server='api_key = "right-one"')
        self.assert_exit(0)

    async def test_auto_slots(self) -> None:
        server = await self.start(parallel=-1)
        await self.ask(server.url)
        self.assert_finds("parallel", ADVICE, "there are 4 slots", "-np 1")
        self.assert_exit(1)

    async def test_no_slots_endpoint(self) -> None:
        server = await self.start(slots_endpoint=False)
        await self.ask(server.url)
        self.assert_finds("slots", ADVICE, "not shown", "--slots")
        self.assert_exit(1)

    async def test_a_sleeping_server_sleeps_on(self) -> None:
        server = await self.start(sleep_idle_seconds=1)
        while not (await self.get("/props", server.url)).json["is_sleeping"]:
            await self.pause(0.1)
        await self.ask(server.url)
        self.assertTrue((await self.get("/props", server.url)).json["is_sleeping"])
        self.assert_finds("sleep", ADVICE, "a look would wake it")
        self.assertEqual(self.files(), [])

    async def test_a_switch_is_measured(self) -> None:
        server = await self.start()
        await self.ask(server.url, measure=2000)
        self.assert_finds("measure", OK, "2000 tokens were read in")
        self.assert_finds("restore", OK, "a restore helps (of 2016 tokens")
        self.assertEqual((await self.get("/slots", server.url)).json[0]["n_prompt_tokens"], 0)
        self.assertEqual(self.files(), [])

    async def test_what_the_slot_held_is_there_after_measuring(self) -> None:
        server = await self.start()
        await self.complete(server)
        await self.ask(server.url, measure=2000)
        self.assert_finds("measure", OK, "are in it again")
        self.assertGreater((await self.complete(server))["cache_n"], HELD - 10)
        self.assertEqual(self.files(), [])

    async def test_checkpoints_help_a_sliding_window(self) -> None:
        server = await self.start(window=64)
        await self.ask(server.url)
        self.assert_finds("window", ADVICE, "a sliding window of 64 tokens", "--measure")
        await self.ask(server.url, measure=2000)
        self.assert_finds("restore", OK, "a restore helps")
        self.assert_exit(0)


@pytest.mark.router
class RouterTests(DoctorCase):
    """A real router, b11434."""

    timeout = 60

    async def start(self, window: int = 0, **options: Any) -> RealRouter:
        """Start a router that stops with the test."""
        models = {}
        for name in ("alpha", "beta"):
            models[name] = self.folder / f"{name}.gguf"
            write_tiny_model(models[name], sliding_window=window)
        values = {"slot_save_path": self.slots, "context": 8192, "threads": 1, **options}
        router = RealRouter(CLOCK, RealRouterOptions(models=models, **values))
        self.addCleanup(router.stop)
        await router.start()
        return router

    async def load(self, router: RealRouter) -> None:
        """Load alpha by asking it something."""
        body = {"model": "alpha", "prompt": "y" * HELD, "n_predict": 1}
        await self.post("/completion", body, base=router.url)

    async def statuses(self, router: RealRouter) -> list[str]:
        """What the models do."""
        models = (await self.get("/models", router.url)).json["data"]
        return [model["status"]["value"] for model in models]

    async def test_all_is_well(self) -> None:
        router = await self.start()
        await self.load(router)
        slots = "/slots?model=alpha&autoload=false"
        before = (await self.get(slots, router.url)).json
        await self.ask(router.url)
        self.assert_exit(0)
        self.assert_finds("reach", OK, "as a router with 2 models, at most 2 of them at once")
        self.assert_finds("save", OK, "alpha: slot 0 was saved to try it")
        self.assert_finds("window", OK, "alpha, beta: the model (llama) has no sliding window")
        self.assertEqual((await self.get(slots, router.url)).json, before)
        self.assertEqual(await self.statuses(router), ["loaded", "unloaded"])
        self.assertEqual(self.files(), [])

    async def test_nothing_is_loaded_for_it(self) -> None:
        router = await self.start()
        await self.ask(router.url)
        self.assertEqual(await self.statuses(router), ["unloaded", "unloaded"])
        self.assert_finds("save", ADVICE, "no model is loaded")
        self.assert_exit(1)

    async def test_no_slot_path(self) -> None:
        router = await self.start(slot_save_path="")
        await self.ask(router.url)
        self.assert_finds("save", PROBLEM, "alpha, beta: it saves no slots")
        self.assert_exit(2)

    async def test_another_folder(self) -> None:
        theirs = self.new_slots("theirs")
        router = await self.start(slot_save_path=theirs)
        await self.load(router)
        await self.ask(router.url)
        self.assert_finds("folder", PROBLEM, f"it was in {theirs}", f'slot_save_path = "{theirs}"')
        self.assertEqual(list(theirs.iterdir()), [])

    async def test_a_sleeping_model_sleeps_on(self) -> None:
        router = await self.start(sleep_idle_seconds=1)
        await self.load(router)
        while "sleeping" not in await self.statuses(router):
            await self.pause(0.1)
        await self.ask(router.url)
        self.assertEqual(await self.statuses(router), ["sleeping", "unloaded"])
        self.assert_finds("sleep", OK, "asleep after 1 idle seconds")

    async def test_a_sliding_window_without_checkpoints_is_read_again(self) -> None:
        router = await self.start(window=64)
        await self.load(router)
        await self.ask(router.url)
        self.assert_finds("window", ADVICE, "a sliding window of 64 tokens")
        await self.ask(router.url, measure=2000)
        self.assert_finds("restore", PROBLEM, "alpha: a restore does not help", "--swa-full")
        self.assert_exit(2)
        self.assertEqual(self.files(), [])

    async def test_all_of_a_sliding_window_kept(self) -> None:
        router = await self.start(window=64, extra={"alpha": {"swa-full": "true"}})
        await self.load(router)
        await self.ask(router.url, measure=2000)
        self.assert_finds("restore", OK, "alpha: a restore helps")
        self.assert_finds("window", ADVICE, "beta: the model (gemma3) has a sliding window")


class CommandTests(RealCase):
    """``slotgate doctor`` as a process."""

    async def run_doctor(self, config: str, *arguments: str) -> Program:
        """Run it to its end."""
        (self.folder / "slotgate.toml").write_text(config)
        program = Program(
            sys.executable, "-m", "slotgate.doctor", "--config", "slotgate.toml", *arguments
        )
        program.start(self.folder)
        self.status = await program.exited
        await program.gone
        return program

    def text_of(self, url: str, **values: Any) -> str:
        """A configuration."""
        return CONFIG.format(
            **{"url": url, "slots": self.slots, "server": "", "route": "", **values}
        )

    async def test_all_is_well(self) -> None:
        server = await self.start()
        program = await self.run_doctor(self.text_of(server.url))
        self.assertEqual((self.status, program.errors), (0, ""), program.printed)
        lines = program.output.splitlines()
        self.assertIn("local", lines)
        self.assertTrue(lines[-1].startswith("All is well. ("), lines[-1])

    async def test_advice(self) -> None:
        server = await self.start(parallel=4)
        program = await self.run_doctor(self.text_of(server.url))
        self.assertEqual(self.status, 1)
        self.assertIn("           change: llama-server … -np 1\n", program.output)

    async def test_json(self) -> None:
        server = await self.start(slot_save_path="")
        program = await self.run_doctor(self.text_of(server.url), "--json", "--measure", "100")
        self.assertEqual(self.status, 2)
        told = json.loads(program.output)
        self.assertEqual(told["exit"], 2)
        self.assertEqual([server["name"] for server in told["servers"]], ["local"])
        for finding in told["servers"][0]["findings"]:
            self.assertEqual(sorted(finding), ["change", "check", "level", "text"])

    async def test_nobody_there(self) -> None:
        program = await self.run_doctor(self.text_of("http://127.0.0.1:9"))
        self.assertEqual(self.status, 2)
        self.assertIn("connection refused", program.output)

    async def test_mistakes_in_the_configuration(self) -> None:
        wrong = self.text_of("http://127.0.0.1:9", server="poll_secnds = 1")
        program = await self.run_doctor(wrong)
        self.assertEqual((self.status, program.output), (2, ""))
        self.assertIn('did you mean "poll_seconds"', program.errors)
        program = await self.run_doctor(wrong, "--json")
        told = json.loads(program.output)
        self.assertEqual((self.status, told["exit"]), (2, 2))
        self.assertIn("poll_secnds", told["findings"][0]["text"])

    async def test_arguments(self) -> None:
        program = await self.run_doctor("", "--measure", "1")
        self.assertEqual(self.status, 2)
        self.assertIn("must be 64 to 1000000", program.errors)
