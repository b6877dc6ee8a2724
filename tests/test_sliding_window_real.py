"""A model with a sliding window: its restores help where the build saves checkpoints."""

from __future__ import annotations

from gateway import GatewayCase
from twisted.internet import reactor

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions


class SlidingWindowTests(GatewayCase):
    """b11549 saves context checkpoints with a slot, so a restored session reads little."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        model = self.folder / "tiny.gguf"
        write_tiny_model(model, sliding_window=64)
        self.llama = RealServer(
            reactor,
            RealServerOptions(
                model=model, slot_save_path=f"{self.slots}/", context=8192, threads=1
            ),
        )
        self.addCleanup(self.llama.stop)
        await self.llama.start()
        self.start_gateway(self.llama.url)

    async def test_restores_are_used_and_go_on(self) -> None:
        chats = [self.chat(name) for name in "AB"]
        for chat in chats:
            await chat.turn()
        for _ in range(4):
            for chat in chats:
                answer = await chat.turn()
                self.assertEqual(answer.cache, "restored")
                self.assertLess(answer.share_read, 0.05)

    async def test_the_resident_session_is_not_restored(self) -> None:
        # a restore of what is in the slot already would throw its checkpoints away
        chat = self.chat("A")
        await chat.turn()
        for _ in range(3):
            answer = await chat.turn()
            self.assertEqual(answer.cache, "resident")
            self.assertLess(answer.share_read, 0.05)
