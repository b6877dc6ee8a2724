"""The Ollama surface through the whole gateway: clients that leave, servers that do not answer."""

from __future__ import annotations

from gateway import FakeGatewayCase

from slotgate.testing.faults import Hang


class SilentTests(FakeGatewayCase):
    """The server takes calls and says nothing."""

    async def test_a_client_that_leaves_while_models_are_asked_for_is_no_fault(self) -> None:
        # a fault would be logged, and fail the test
        hang = Hang()
        self.llama.plan(hang, path="/v1/models")
        caller = await self.connect()
        caller.post("/api/show", {"model": "tiny"})
        await self.llama.seen(path="/v1/models")
        await caller.leave()
        hang.release()
        self.assertEqual((await self.get("/api/version")).status, 200)

    async def test_a_list_does_not_wait_for_it_for_long(self) -> None:
        hang = Hang()
        self.addCleanup(hang.release)
        self.llama.plan(hang, path="/v1/models")
        self.assertEqual((await self.get("/api/tags")).json, {"models": []})

    async def test_a_server_that_is_down_is_not_a_model_that_is_not_there(self) -> None:
        self.llama.die()
        answer = await self.post("/api/show", {"model": "tiny"})
        self.assertEqual(answer.status, 502)
        self.assertIn("does not answer", answer.json["error"])
