"""
The fake server keeps the contract.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import contract
from twisted.internet import reactor

from slotgate.testing._slot_files import SlotFileFormat
from slotgate.testing.fake import FakeLlamaServer, Speed


class FakeServed(contract.Served):
    """
    Serves a contract with the fake: a new one for each test.
    """

    __test__ = True

    async def setUp(self) -> None:  # type: ignore[override]
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        started = self.started
        self.fake = FakeLlamaServer(
            reactor,
            slot_save_path=self.folder if started.slot_files else None,
            total_slots=started.parallel,
            api_key=started.api_key,
            slots_endpoint=started.slots_endpoint,
            sleep_idle_seconds=started.sleep_idle_seconds or None,
            context=started.context,
            batch=contract.CHUNK,
            notices_disconnect=self.notices_disconnect,
            speed=Speed(prefill=30_000),
        )
        self.addCleanup(self.fake.stop)
        await self.fake.listen(reactor)
        self.url = self.fake.url
        await super().setUp()

    async def restart(self) -> None:
        await self.fake.restart()

    def other_models_file(self) -> bytes:
        return SlotFileFormat("another").encode([1] * 300)


class OneSlotTests(FakeServed, contract.OneSlotContract):
    """
    One slot.
    """


class NoticingTests(FakeServed, contract.OneSlotContract):
    """
    One slot of a server that notices when a client goes away.
    """

    notices_disconnect = True


class TwoSlotTests(FakeServed, contract.TwoSlotContract):
    """
    Two slots.
    """


class KeyTests(FakeServed, contract.KeyContract):
    """
    With a key.
    """


class WithoutSlotsTests(FakeServed, contract.WithoutSlotsContract):
    """
    Without slots.
    """


class SleepTests(FakeServed, contract.SleepContract):
    """
    Sleeping.
    """
