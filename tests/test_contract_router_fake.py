"""
The fake router keeps the contract.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import contract
import contract_router
import contract_router_slots
from twisted.internet import reactor

from slotgate.testing.fake import Speed
from slotgate.testing.fake_router import FakeModel, FakeRouter


class FakeRouterServed(contract_router.RouterServed):
    """
    Serves a contract with the fake: a new one for each test.
    """

    __test__ = True

    async def setUp(self) -> None:  # type: ignore[override]
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        started = self.started
        self.router = FakeRouter(
            reactor,
            {
                name: FakeModel(
                    model_path="/models/tiny.gguf",
                    aliases=contract_router.ALIASES if name == contract_router.ALPHA else [],
                    broken=name == contract_router.BROKEN,
                    total_slots=started.parallel,
                    context=started.context,
                    sleep_idle_seconds=started.sleep_idle_seconds or None,
                    batch=contract.CHUNK,
                    speed=Speed(prefill=30_000, generation=2_000),
                    says="x" * 2 * contract_router.LONG,
                )
                for name in contract_router.MODELS
            },
            slot_save_path=self.folder,
            models_max=started.models_max,
            api_key=started.api_key,
            autoload=started.autoload,
            stop_seconds=started.stop_timeout,
        )
        self.addCleanup(self.router.stop)
        await self.router.listen(reactor)
        self.url = self.router.url
        await super().setUp()

    async def crash(self, model: str) -> None:
        self.router.crash(model)


class TellingTests(FakeRouterServed, contract_router.TellingContract):
    """
    What it tells.
    """


class KeyTests(FakeRouterServed, contract_router.KeyContract):
    """
    With a key.
    """


class LoadingTests(FakeRouterServed, contract_router.LoadingContract):
    """
    Loading and unloading.
    """


class RequestTests(FakeRouterServed, contract_router_slots.RequestContract):
    """
    Requests and slot calls.
    """


class TwoSlotTests(FakeRouterServed, contract_router_slots.TwoSlotContract):
    """
    Two slots.
    """


class VictimTests(FakeRouterServed, contract_router_slots.VictimContract):
    """
    Which model gives way.
    """


class NoLimitTests(FakeRouterServed, contract_router_slots.NoLimitContract):
    """
    Without a limit.
    """


class NoAutoloadTests(FakeRouterServed, contract_router_slots.NoAutoloadContract):
    """
    Loaded by hand.
    """


class FailureTests(FakeRouterServed, contract_router_slots.FailureContract):
    """
    Broken models and crashes.
    """


class SleepTests(FakeRouterServed, contract_router_slots.SleepContract):
    """
    Sleeping.
    """
