"""
The real llama-server in router mode, with tiny models, keeps the contract that slotgate and the
fake rely on.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import contract
import contract_router
import contract_router_slots
import pytest
from twisted.internet import reactor

from slotgate.testing.models import write_tiny_model
from slotgate.testing.router import RealRouter, RealRouterOptions

pytestmark = pytest.mark.router


class RealRouterServed(contract_router.RouterServed):
    """
    Serves a contract with a real router: a new one for each test.
    """

    __test__ = True

    async def setUp(self) -> None:  # type: ignore[override]
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        base = Path(folder.name)
        self.folder = base / "slots"
        self.folder.mkdir()
        write_tiny_model(base / "tiny.gguf")
        (base / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
        started = self.started
        self.router = RealRouter(
            reactor,
            RealRouterOptions(
                {
                    name: base / ("broken.gguf" if name == contract_router.BROKEN else "tiny.gguf")
                    for name in contract_router.MODELS
                },
                aliases={contract_router.ALPHA: contract_router.ALIASES},
                slot_save_path=self.folder,
                models_max=started.models_max,
                autoload=started.autoload,
                context=started.context * started.parallel,
                parallel=started.parallel,
                api_key=started.api_key,
                sleep_idle_seconds=started.sleep_idle_seconds or -1,
                stop_timeout=started.stop_timeout,
                batch=contract.CHUNK,
                threads=1,
            ),
        )
        await self.router.start()
        self.addCleanup(self.router.stop)
        self.url = self.router.url
        await super().setUp()

    async def crash(self, model: str) -> None:
        pid = self.router.child_pid(model)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


class TellingTests(RealRouterServed, contract_router.TellingContract):
    """
    What it tells.
    """


class KeyTests(RealRouterServed, contract_router.KeyContract):
    """
    With a key.
    """


class LoadingTests(RealRouterServed, contract_router.LoadingContract):
    """
    Loading and unloading.
    """


class RequestTests(RealRouterServed, contract_router_slots.RequestContract):
    """
    Requests and slot calls.
    """


class TwoSlotTests(RealRouterServed, contract_router_slots.TwoSlotContract):
    """
    Two slots.
    """


class VictimTests(RealRouterServed, contract_router_slots.VictimContract):
    """
    Which model gives way.
    """


class NoLimitTests(RealRouterServed, contract_router_slots.NoLimitContract):
    """
    Without a limit.
    """


class NoAutoloadTests(RealRouterServed, contract_router_slots.NoAutoloadContract):
    """
    Loaded by hand.
    """


class FailureTests(RealRouterServed, contract_router_slots.FailureContract):
    """
    Broken models and crashes.
    """


class SleepTests(RealRouterServed, contract_router_slots.SleepContract):
    """
    Sleeping.
    """
