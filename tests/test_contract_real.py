"""
The real llama-server, with a tiny model, keeps the contract that slotgate and the fake rely on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import contract
from attrs import evolve

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServerOptions


class Shared:
    """
    One llama-server process for a whole class of tests.

    Not a ``RealServer``: trial wants the reactor empty after each test.
    """

    def __init__(self, options: RealServerOptions) -> None:
        self.options = options
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.options.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.options.environment(),
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.url: str = told["url"]
        self.options = evolve(self.options, port=told["port"])

    def end(self) -> None:
        self.process.kill()
        with self.process:
            pass


class RealServed(contract.Served):
    """
    Serves a contract with one real server for the class.

    :cvar sliding_window: that of the model, 0 for a dense one.
    """

    __test__ = True
    sliding_window: ClassVar[int] = 0
    shared: ClassVar[Shared]
    base: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.base = Path(tempfile.mkdtemp())
        folder = cls.base / "slots"
        folder.mkdir()
        write_tiny_model(cls.base / "tiny.gguf", sliding_window=cls.sliding_window)
        started = cls.started
        cls.shared = Shared(
            RealServerOptions(
                cls.base / "tiny.gguf",
                alias="tiny",
                slot_save_path=folder if started.slot_files else "",
                slots_endpoint=started.slots_endpoint,
                context=started.context * started.parallel,
                parallel=started.parallel,
                api_key=started.api_key,
                sleep_idle_seconds=started.sleep_idle_seconds or -1,
                batch=contract.CHUNK,
                threads=1,
            )
        )

    @classmethod
    def tearDownClass(cls) -> None:
        cls.shared.end()
        shutil.rmtree(cls.base)

    async def setUp(self) -> None:  # type: ignore[override]
        self.url = self.shared.url
        self.folder = self.base / "slots"
        for path in self.folder.iterdir():
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
        await super().setUp()

    async def restart(self) -> None:
        self.shared.end()
        self.shared.start()

    def other_models_file(self) -> bytes:
        return other_models_file(self.base)


def other_models_file(folder: Path) -> bytes:
    """
    A slot file of the other kind of model, by a server of its own.
    """
    import urllib.request

    write_tiny_model(folder / "other.gguf", sliding_window=64)
    server = Shared(RealServerOptions(folder / "other.gguf", slot_save_path=folder, threads=1))

    def post(path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(server.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request):
            pass

    try:
        post("/completion", {"prompt": "other" * 60, "n_predict": 1})
        post("/slots/0?action=save", {"filename": "other.bin"})
        return (folder / "other.bin").read_bytes()
    finally:
        server.end()


class OneSlotTests(RealServed, contract.OneSlotContract):
    """
    One slot.
    """


class TwoSlotTests(RealServed, contract.TwoSlotContract):
    """
    Two slots.
    """


class KeyTests(RealServed, contract.KeyContract):
    """
    With a key.
    """


class WithoutSlotsTests(RealServed, contract.WithoutSlotsContract):
    """
    Without slots.
    """


class SleepTests(RealServed, contract.SleepContract):
    """
    Sleeping.
    """


class SlidingWindowTests(RealServed, contract.Contract):
    """
    What is different with a sliding window; the fake knows dense models only.
    """

    sliding_window = 64

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await self.acted("erase")

    async def test_a_restored_snapshot_saves_reading_most_of_the_prompt(self) -> None:
        prompt = "a" * 3000
        await self.read(prompt)
        await self.acted("save", "a.bin")
        await self.read("b" * 3000)
        await self.acted("restore", "a.bin")
        cached, read = await self.read(prompt + "more")
        self.assertEqual(cached + read, 3005)
        self.assertLess(read, 300)

    async def test_a_redundant_restore_costs_little(self) -> None:
        await self.read("a" * 3000)
        await self.acted("save", "a.bin")
        await self.acted("restore", "a.bin")
        cached, read = await self.read("a" * 3000 + "more")
        self.assertEqual(cached + read, 3005)
        self.assertLess(read, 300)

    async def test_a_cut_cache_is_refused(self) -> None:
        await self.read("a" * 3000)
        saved = await self.acted("save", "a.bin")
        os.truncate(self.folder / "a.bin", saved["n_written"] // 2)
        answer = await self.act("restore", "a.bin")
        await self.refused(answer, 400, "invalid_request_error", contract.CANNOT_RESTORE)

    async def test_a_cut_appendix_of_checkpoints_is_no_error(self) -> None:
        await self.read("a" * 3000)
        saved = await self.acted("save", "a.bin")
        os.truncate(self.folder / "a.bin", saved["n_written"] - 1)
        answer = await self.acted("restore", "a.bin")
        self.assertEqual(answer["n_restored"], saved["n_saved"])
        self.assertLess(answer["n_read"], saved["n_written"])
