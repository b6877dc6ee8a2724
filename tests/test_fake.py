"""
What the fake server can do that the real one cannot: live on a clock, misbehave, remember.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import treq
from treq.client import HTTPClient
from treq.testing import StubTreq
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent, ResponseFailed
from twisted.web.http import PotentialDataLoss

from slotgate.testing.fake import FakeLlamaServer, Speed
from slotgate.testing.faults import (
    Abort,
    Answer,
    Close,
    Die,
    EndEarly,
    Fault,
    Hang,
    NotHttp,
    Refuse,
)

CHAT = "/v1/chat/completions"


def chat(text: str = "hello", **extra: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 3, **extra}


class OnAClockTests(SynchronousTestCase):
    """
    Without sockets, on a clock that the test moves.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def serve(self, **options: Any) -> FakeLlamaServer:
        fake = FakeLlamaServer(self.clock, slot_save_path=self.folder, **options)
        self.treq: Any = StubTreq(fake.resource())
        return fake

    def ask(self, method: str, path: str, **options: Any) -> Deferred[Any]:
        """
        Ask; fires with status and body.
        """

        async def asking() -> tuple[int, bytes]:
            response = await self.treq.request(method, f"http://fake{path}", **options)
            return response.code, await self.treq.content(response)

        return Deferred.fromCoroutine(asking())

    def answered(self, asked: Deferred[Any]) -> Any:
        self.treq.flush()
        code, body = self.successResultOf(asked)
        self.assertEqual(code, 200, body)
        return json.loads(body)

    def get(self, path: str) -> Any:
        return self.answered(self.ask("GET", path))

    def post(self, path: str, body: object) -> Deferred[Any]:
        return self.ask("POST", path, json=body)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.treq.flush()

    def test_answers_at_once_by_default(self) -> None:
        self.serve()
        answer = self.answered(self.post(CHAT, chat()))
        self.assertEqual(answer["choices"][0]["message"]["content"], "Cer")

    def test_says_what_it_is_told_and_stops(self) -> None:
        self.serve(says="Yes.")
        answer = self.answered(self.post(CHAT, chat(max_tokens=None)))
        choice = answer["choices"][0]
        self.assertEqual(choice["message"]["content"], "Yes.")
        self.assertEqual(choice["finish_reason"], "stop")

    def test_what_it_said_is_a_start_for_the_next_turn(self) -> None:
        self.serve(says="Yes.")
        self.answered(self.post(CHAT, chat("one", max_tokens=None)))
        messages = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "two"},
        ]
        answer = self.answered(self.post(CHAT, {"messages": messages}))
        self.assertEqual(answer["timings"]["prompt_n"], len("\nuser: two\nassistant: "))

    def test_reads_and_writes_at_its_speed(self) -> None:
        self.serve(speed=Speed(prefill=10, generation=2), batch=10)
        asked = self.post("/completion", {"prompt": "x" * 29, "n_predict": 2})
        for second in range(3):
            self.assertEqual(self.get("/slots")[0]["n_prompt_tokens"], 10 * (second + 1))
            self.assertEqual(self.get("/slots")[0]["n_prompt_tokens_processed"], 10 * second)
            self.advance(1)
        self.advance(0.5)
        self.assertNoResult(asked)
        self.advance(0.5)
        timings = self.answered(asked)["timings"]
        self.assertEqual((timings["prompt_ms"], timings["predicted_ms"]), (3000, 1000))

    def test_saves_and_restores_at_its_speed(self) -> None:
        self.serve(speed=Speed(slot_file_seconds=2))
        saved = self.post("/slots/0?action=save", {"filename": "a.bin"})
        self.advance(1.9)
        self.assertNoResult(saved)
        self.assertFalse((self.folder / "a.bin").exists())
        self.advance(0.1)
        self.answered(saved)
        self.assertTrue((self.folder / "a.bin").exists())

    def test_falls_asleep_when_idle_and_forgets(self) -> None:
        self.serve(sleep_idle_seconds=60)
        self.answered(self.post(CHAT, chat()))
        self.advance(59)
        self.get("/slots")  # which keeps it awake
        self.advance(59)
        self.assertFalse(self.get("/props")["is_sleeping"])
        self.advance(1)
        self.assertTrue(self.get("/props")["is_sleeping"])
        self.assertNotIn("id_task", self.get("/slots")[0])

    def test_keeps_a_long_queue_in_order(self) -> None:
        fake = self.serve()
        hang = Hang()
        fake.plan(hang, path=CHAT)
        self.post(CHAT, chat())
        waiting = [
            self.post("/completion", {"prompt": "x", "n_predict": 1, "seed": number})
            for number in range(300)
        ]
        hang.release()
        self.treq.flush()
        ids = [json.loads(self.successResultOf(asked)[1])["tokens_predicted"] for asked in waiting]
        self.assertEqual(ids, [1] * 300)
        answered = [call.json().get("seed") for call in fake.calls if call.answered_at is not None]
        self.assertEqual(answered, [None, *range(300)])

    def test_loading_is_503_everywhere(self) -> None:
        fake = self.serve(loading=True)
        for path in ("/health", "/slots", "/props", "/nowhere"):
            code, body = self.successResultOf(self.ask("GET", path))
            self.assertEqual(code, 503)
            self.assertEqual(
                json.loads(body)["error"],
                {"message": "Loading model", "type": "unavailable_error", "code": 503},
            )
        fake.loading = False
        self.assertEqual(self.get("/health"), {"status": "ok"})

    def test_a_full_disk_fails_the_save_and_leaves_a_deadly_file(self) -> None:
        fake = self.serve()
        self.answered(self.post(CHAT, chat()))
        fake.disk_full_after = 5000
        code, body = self.successResultOf(
            self.post("/slots/0?action=save", {"filename": "full.bin"})
        )
        self.assertEqual(code, 500)
        self.assertEqual(json.loads(body)["error"]["message"], "Unable to save slot")
        self.assertEqual((self.folder / "full.bin").stat().st_size, 5000)
        self.failureResultOf(self.post("/slots/0?action=restore", {"filename": "full.bin"}))
        self.assertTrue(fake.died)

    def test_remembers_what_it_was_asked(self) -> None:
        fake = self.serve()
        self.clock.advance(5)
        self.answered(self.ask("POST", CHAT, json=chat(), headers={"X-Session-ID": "abc"}))
        self.answered(self.post("/slots/0?action=erase", {"model": "m"}))
        request, erase = fake.calls
        self.assertEqual((request.method, request.path, request.at), ("POST", CHAT, 5))
        self.assertEqual(request.headers["x-session-id"], "abc")
        self.assertEqual(request.json(), chat())
        self.assertEqual(request.answered_at, 5)
        self.assertIsNone(request.aborted_at)
        self.assertEqual(fake.control_calls, [erase])
        self.assertEqual((erase.action, erase.json()), ("erase", {"model": "m"}))

    def test_counts_the_tokens_it_read(self) -> None:
        fake = self.serve()
        self.answered(self.post("/completion", {"prompt": "x" * 50, "n_predict": 1}))
        self.answered(self.post("/completion", {"prompt": "x" * 59, "n_predict": 1}))
        self.assertEqual(fake.tokens_read, 60)

    def test_a_control_call_can_be_refused_and_is_then_not_carried_out(self) -> None:
        fake = self.serve()
        fake.plan(Refuse(500, "no"), action="save")
        body = {"filename": "a.bin"}
        code, answer = self.successResultOf(self.post("/slots/0?action=save", body))
        self.assertEqual((code, json.loads(answer)["error"]["message"]), (500, "no"))
        self.assertFalse((self.folder / "a.bin").exists())
        self.answered(self.post("/slots/0?action=save", body))
        self.assertTrue((self.folder / "a.bin").exists())

    def test_a_fault_meets_only_what_it_is_planned_for_and_so_often(self) -> None:
        fake = self.serve()
        fake.plan(Answer(418, b"tea"), method="GET", path="/slots", times=2)
        self.get("/props")
        self.answered(self.post("/slots/0?action=erase", {}))
        for _ in range(2):
            self.assertEqual(self.successResultOf(self.ask("GET", "/slots")), (418, b"tea"))
        self.get("/slots")

    def test_hangs_before_the_headers_with_its_slot_busy_until_released(self) -> None:
        fake = self.serve()
        hang = Hang()
        fake.plan(hang, path=CHAT)
        asked = self.post(CHAT, chat())
        self.treq.flush()
        self.assertNoResult(asked)
        self.assertTrue(self.get("/slots")[0]["is_processing"])
        hang.release()
        self.assertEqual(self.answered(asked)["timings"]["predicted_n"], 3)
        self.assertFalse(self.get("/slots")[0]["is_processing"])

    def test_hangs_in_mid_stream_until_released(self) -> None:
        fake = self.serve()
        hang = Hang(after=100)
        fake.plan(hang, path=CHAT)
        response = self.successResultOf(
            self.treq.post(f"http://fake{CHAT}", json=chat(stream=True))
        )
        got: list[bytes] = []
        whole = self.treq.collect(response, got.append)
        self.treq.flush()
        self.assertEqual(len(b"".join(got)), 100)
        self.assertTrue(self.get("/slots")[0]["is_processing"])
        hang.release()
        self.treq.flush()
        self.successResultOf(whole)
        self.assertTrue(b"".join(got).endswith(b"data: [DONE]\n\n"))

    def test_a_stream_that_ends_early_looks_complete(self) -> None:
        fake = self.serve()
        fake.plan(EndEarly(after=100), path=CHAT)
        code, body = self.successResultOf(self.post(CHAT, chat(stream=True)))
        self.assertEqual((code, len(body)), (200, 100))

    def test_junk_is_not_json(self) -> None:
        fake = self.serve()
        fake.plan(Answer())
        code, body = self.successResultOf(self.ask("GET", "/slots"))
        self.assertEqual(code, 200)
        self.assertRaises(ValueError, json.loads, body)

    def test_a_new_model_path_makes_the_old_files_another_models(self) -> None:
        fake = self.serve()
        self.answered(self.post(CHAT, chat()))
        self.answered(self.post("/slots/0?action=save", {"filename": "a.bin"}))
        fake.model_path = "/models/other.gguf"
        code, _ = self.successResultOf(self.post("/slots/0?action=restore", {"filename": "a.bin"}))
        self.assertEqual(code, 400)


class OnASocketTests(TestCase):
    """
    On a real port, where a connection can break.
    """

    timeout = 20

    async def setUp(self) -> None:  # type: ignore[override]
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.fake = FakeLlamaServer(reactor, slot_save_path=self.folder)
        self.addCleanup(self.fake.stop)
        await self.fake.listen(reactor)

    async def ask(self, method: str, path: str, **options: Any) -> bytes:
        client = HTTPClient(Agent(reactor))
        response = await client.request(method, self.fake.url + path, **options)
        body: bytes = await treq.content(response)
        return body

    async def stream(self) -> bytes:
        return await self.ask("POST", CHAT, json=chat(stream=True))

    async def broken(self, fault: Fault, *errors: type[Exception]) -> None:
        self.fake.plan(fault, path=CHAT)
        with self.assertRaises(errors or ResponseFailed):
            await self.stream()

    async def test_drops_the_connection_before_the_headers(self) -> None:
        await self.broken(Abort())

    async def test_drops_the_connection_in_mid_stream(self) -> None:
        await self.broken(Abort(after=100))

    async def test_closes_in_mid_stream(self) -> None:
        await self.broken(Close(after=100))

    async def test_closes_in_the_middle_of_a_body_of_known_length(self) -> None:
        self.fake.plan(Close(after=20), path="/props")
        with self.assertRaises((ResponseFailed, PotentialDataLoss)):
            await self.ask("GET", "/props")

    async def test_answers_what_is_not_http(self) -> None:
        await self.broken(NotHttp())

    async def test_dies_in_mid_stream_and_comes_back_empty_at_its_port(self) -> None:
        await self.stream()
        await self.broken(Die(after=100))
        self.assertTrue(self.fake.died)
        with self.assertRaises(ConnectError):
            await self.ask("GET", "/health")
        port = self.fake.port
        self.assertEqual(await self.fake.restart(), port)
        (slot,) = json.loads(await self.ask("GET", "/slots"))
        self.assertNotIn("id_task", slot)

    async def test_death_drops_whoever_waits(self) -> None:
        hang = Hang()
        self.fake.plan(hang, path=CHAT)
        running = Deferred.fromCoroutine(self.stream())
        await self.fake.seen(path=CHAT)
        waiting = Deferred.fromCoroutine(
            self.ask("POST", "/slots/0?action=save", json={"filename": "a.bin"})
        )
        await self.fake.seen(action="save")
        self.fake.die()
        for request in (running, waiting):
            with self.assertRaises(ResponseFailed):
                await request

    async def test_a_request_that_hangs_ends_with_its_client(self) -> None:
        self.fake.plan(Hang(), path=CHAT)
        request = Deferred.fromCoroutine(self.stream())
        call = await self.fake.seen(path=CHAT)
        request.cancel()
        with self.assertRaises((CancelledError, ResponseFailed)):
            await request
        while json.loads(await self.ask("GET", "/slots"))[0]["is_processing"]:
            pass
        self.assertIsNotNone(call.aborted_at)
        self.assertIsNone(call.answered_at)


def test_the_package_names_its_things_without_installing_a_reactor() -> None:
    program = """
import sys
import slotgate.testing
assert "klein" not in sys.modules
assert "twisted.internet.reactor" not in sys.modules
from slotgate.testing import FakeLlamaServer, RealServer, Speed, write_tiny_model
try:
    slotgate.testing.nothing
except AttributeError:
    print("done")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert ran.stdout == "done\n", ran.stderr
