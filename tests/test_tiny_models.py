from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from slotgate.testing.models import ExtraMissing, write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions, ServerDidNotStart


async def read(server: RealServer, prompt: str, **extra: object) -> dict[str, int]:
    """
    Let the model read a prompt and say one token; the timings of it.
    """
    response = await treq.post(
        f"{server.url}/completion",
        json={"prompt": prompt, "n_predict": 1, "temperature": 0, **extra},
        persistent=False,
    )
    answer: dict[str, Any] = await treq.json_content(response)
    timings: dict[str, int] = answer["timings"]
    return timings


def model_path(test: TestCase) -> Path:
    """
    Where a test may write a model.
    """
    folder = TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return Path(folder.name) / "tiny.gguf"


class TinyModelTests(TestCase):
    """
    The real server takes the models we write, and they cache as big ones do.
    """

    timeout = 20

    async def served(self, **model: int) -> RealServer:
        path = model_path(self)
        write_tiny_model(path, **model)
        server = RealServer(reactor, RealServerOptions(path, alias="tiny", threads=1))
        self.addCleanup(server.stop)
        await server.start()
        return server

    async def test_one_token_per_byte(self) -> None:
        server = await self.served()
        timings = await read(server, "naïve")
        self.assertEqual(timings["prompt_n"], len("naïve".encode()) + 1)

    async def test_dense_cache_can_be_cut_anywhere(self) -> None:
        server = await self.served()
        await read(server, "a" * 300 + "b" * 300)
        timings = await read(server, "a" * 300 + "c")
        self.assertEqual((timings["cache_n"], timings["prompt_n"]), (301, 1))

    async def test_sliding_window_forgets_what_has_left_the_window(self) -> None:
        server = await self.served(sliding_window=64)
        await read(server, "a" * 300 + "b" * 3000)
        timings = await read(server, "a" * 300 + "c")
        self.assertEqual((timings["cache_n"], timings["prompt_n"]), (0, 302))

    def test_missing_packages_are_one_clear_error(self) -> None:
        with (
            patch.dict(sys.modules, {"gguf": None}),
            self.assertRaisesRegex(ExtraMissing, r"slotgate\[test\]"),
        ):
            write_tiny_model(model_path(self))


class RealServerTests(TestCase):
    """
    A real server starts, ends and comes back at its address when told to.
    """

    timeout = 20

    def setUp(self) -> None:
        self.model = model_path(self)
        write_tiny_model(self.model)

    def server(self, **options: Any) -> RealServer:
        server = RealServer(reactor, RealServerOptions(self.model, threads=1, **options))
        self.addCleanup(server.stop)
        return server

    async def test_listens_on_loopback_when_started(self) -> None:
        server = self.server()
        await server.start()
        self.assertEqual(server.url, f"http://127.0.0.1:{server.port}")
        self.assertTrue(server.running)
        self.assertEqual((await read(server, "hello"))["prompt_n"], 6)

    async def test_killed_it_is_gone_and_restarted_at_the_same_port_it_has_empty_slots(
        self,
    ) -> None:
        server = self.server()
        await server.start()
        port, pid = server.port, server.pid
        await read(server, "hello")
        await server.kill()
        self.assertFalse(server.running)
        self.assertIsNone(server.pid)
        await server.start()
        self.assertEqual(server.port, port)
        self.assertNotEqual(server.pid, pid)
        self.assertEqual((await read(server, "hello"))["cache_n"], 0)

    async def test_restart_is_kill_and_start(self) -> None:
        server = self.server()
        await server.start()
        port, pid = server.port, server.pid
        await server.restart()
        self.assertEqual(server.port, port)
        self.assertNotEqual(server.pid, pid)

    async def test_a_process_that_ends_is_noticed(self) -> None:
        server = self.server()
        await server.start()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await server.ended()
        self.assertFalse(server.running)

    async def test_failing_start_tells_what_llama_cpp_said(self) -> None:
        lines: list[str] = []
        missing = RealServerOptions(model_path(self))
        server = RealServer(reactor, missing, progress=lines.append)
        with self.assertRaisesRegex(ServerDidNotStart, "failed to load model"):
            await server.start()
        self.assertFalse(server.running)
        self.assertTrue([line for line in lines if "failed to load model" in line])

    async def test_start_takes_a_bounded_time_and_leaves_no_process(self) -> None:
        server = RealServer(reactor, RealServerOptions(self.model), start_seconds=0.001)
        with self.assertRaisesRegex(ServerDidNotStart, r"not ready after 0\.001 s"):
            await server.start()
        self.assertFalse(server.running)

    async def test_two_servers_do_not_share_a_port(self) -> None:
        first = self.server()
        await first.start()
        second = self.server(port=first.port)
        with self.assertRaises(ServerDidNotStart):
            await second.start()

    async def test_ends_when_its_starter_is_killed(self) -> None:
        """
        A starter that dies by SIGKILL cannot say goodbye; the closed pipe says it.
        """
        command = RealServerOptions(self.model, threads=1).command()
        starter = Starter()
        reactor.spawnProcess(
            starter, sys.executable, [sys.executable, "-c", STARTER, *command], env=None
        )
        self.assertIn(b'"url"', await starter.said)
        starter.transport.signalProcess("KILL")  # type: ignore[union-attr]
        # the server holds the starter's stdout too: it closes when both have ended
        await starter.ended


STARTER = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
server.wait()
"""


class Starter(ProcessProtocol):
    """
    A process that starts the server and waits for it.
    """

    def __init__(self) -> None:
        self.said: Deferred[bytes] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.said.callback(data)

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)
