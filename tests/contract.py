"""
What slotgate relies on in a llama-server, as tests that run unchanged against the fake and the
real one.

Each class is for a server started in one way. It is mixed with a class that serves it: see
:class:`Served` for what that one gives.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import treq
from attrs import frozen
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, ResponseFailed

CHUNK = 64
"""Tokens that the served servers read in one go."""

SLOW_PROMPT = "y" * 4000
"""So much that reading it takes far longer than asking for ``/slots``."""


@frozen
class Started:
    """
    How a contract wants its server started.
    """

    parallel: int = 1
    api_key: str = ""
    slots_endpoint: bool = True
    slot_files: bool = True
    sleep_idle_seconds: int = 0
    context: int = 8192


@frozen
class Answer:
    """
    A whole answer.
    """

    code: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[tuple[str, Any]]:
        """
        The server-sent events: name and data, which is the text itself where it is not JSON.
        """
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in lines:
                data = lines["data"]
                found.append((lines.get("event", ""), json.loads(data) if data[0] == "{" else data))
        return found


class Line(Protocol):
    """
    A connection to the server.

    :ivar data: what came.
    :ivar heard: fires when something came.
    :ivar closed: fires when it is closed.
    """

    def __init__(self) -> None:
        self.data = b""
        self.heard: Deferred[None] = Deferred()
        self.closed: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        if not self.heard.called:
            self.heard.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    async def leave(self) -> None:
        """
        Go away at once.
        """
        if not self.closed.called:
            assert self.transport is not None
            self.transport.abortConnection()  # type: ignore[attr-defined]
            await self.closed


class Served(TestCase):
    """
    A server started as the contract wants it.

    :cvar started: how.
    :cvar notices_disconnect: whether it notices that a client has gone away, as b11434 does, or
        carries out what it was asked, as b11549 does.
    :ivar url: where it listens.
    :ivar folder: its folder of slot files.
    """

    __test__ = False  # until it is mixed with what serves it
    timeout = 60
    started = Started()
    notices_disconnect: ClassVar[bool] = False
    url: str
    folder: Path

    async def setUp(self) -> None:  # type: ignore[override]
        """
        Serve, if need be, and make the slots empty.
        """

    async def restart(self) -> None:
        """
        Bring the server up again at its address, whether it lives or not, with empty slots.
        """
        raise NotImplementedError

    def other_models_file(self) -> bytes:
        """
        A slot file of a model that is not the served one.
        """
        raise NotImplementedError


class Contract(Served):
    """
    How the contracts speak to the server.
    """

    def client(self) -> HTTPClient:
        return HTTPClient(Agent(reactor))

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        response = await self.client().request(method, self.url + path, **options)
        body = await treq.content(response)
        headers = {
            name.decode().lower(): values[0].decode()
            for name, values in response.headers.getAllRawHeaders()
        }
        return Answer(response.code, body, headers)

    async def get(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        self.assertEqual(answer.code, 200, answer.body)
        return answer.json

    async def post(self, path: str, body: object) -> Answer:
        return await self.ask("POST", path, json=body)

    async def slot(self, number: int = 0) -> dict[str, Any]:
        slots = await self.get("/slots")
        slot: dict[str, Any] = slots[number]
        return slot

    async def act(self, action: str, filename: str = "", slot: object = 0) -> Answer:
        body = {"filename": filename} if filename else {}
        return await self.post(f"/slots/{slot}?action={action}", body)

    async def acted(self, action: str, filename: str = "") -> dict[str, Any]:
        answer = await self.act(action, filename)
        self.assertEqual(answer.code, 200, answer.body)
        result: dict[str, Any] = answer.json
        return result

    async def complete(self, prompt: str, tokens: int = 1, **extra: object) -> dict[str, Any]:
        """
        Let the model go on with a prompt, always with the same words.
        """
        body = {"prompt": prompt, "n_predict": tokens, **STEADY, **extra}
        answer = await self.post("/completion", body)
        self.assertEqual(answer.code, 200, answer.body)
        result: dict[str, Any] = answer.json
        return result

    async def read(self, prompt: str, **extra: object) -> tuple[int, int]:
        """
        How many tokens of a prompt came from the cache, and how many were read.
        """
        timings = (await self.complete(prompt, 1, **extra))["timings"]
        return timings["cache_n"], timings["prompt_n"]

    async def refused(self, answer: Answer, code: int, kind: str, message: str) -> None:
        self.assertEqual(answer.code, code, answer.body)
        error = answer.json["error"]
        self.assertEqual((error["code"], error["type"]), (code, kind))
        self.assertIn(message, error["message"])

    async def send(self, path: str, **body: object) -> Line:
        """
        Send a request and keep its connection in hand.
        """
        line = await self.connect()
        content = json.dumps({**STEADY, **body}).encode()
        line.write(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        return line

    async def connect(self) -> Line:
        host, _, port = self.url.removeprefix("http://").partition(":")
        endpoint = TCP4ClientEndpoint(reactor, host, int(port))
        line: Line = await connectProtocol(endpoint, Line())
        self.addCleanup(line.leave)
        return line

    async def gauge(self, name: str) -> int:
        answer = await self.ask("GET", "/metrics")
        values = dict(
            line.split(" ") for line in answer.body.decode().splitlines() if line[:1] != "#"
        )
        return int(values[f"llamacpp:{name}"])

    async def deferred(self, count: int) -> None:
        """
        Wait until so many requests wait for a slot.
        """
        while await self.gauge("requests_deferred") != count:
            pass

    async def busy(self, slot: int = 0) -> dict[str, Any]:
        """
        The slot as soon as it works on something.
        """
        while not (found := await self.slot(slot))["is_processing"]:
            pass
        return found

    async def idle(self, slot: int = 0) -> dict[str, Any]:
        """
        The slot as soon as it does not.
        """
        while (found := await self.slot(slot))["is_processing"]:
            await deferLater(reactor, 0.01)
        return found


STEADY = {"temperature": 0, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "Hello there"}]
MESSAGES_TOKENS = len("user: Hello there\nassistant: ") + 1
CANNOT_RESTORE = "Unable to restore slot"


class OneSlotContract(Contract):
    """
    One slot and a folder for slot files, as slotgate wants its server.
    """

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await self.acted("erase")

    # what it tells of itself

    async def test_health(self) -> None:
        self.assertEqual(await self.get("/health"), {"status": "ok"})

    async def test_an_idle_connection_may_be_kept_for_five_seconds(self) -> None:
        line = await self.connect()
        line.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await line.heard
        self.assertIn(b"Keep-Alive: timeout=5, max=100\r\n", line.data)

    async def test_props_tell_what_fits_this_server(self) -> None:
        props = await self.get("/props")
        self.assertEqual(props["total_slots"], 1)
        self.assertFalse(props["is_sleeping"])
        self.assertTrue(props["model_path"])
        self.assertTrue(props["build_info"])
        self.assertNotIn("role", props)

    async def test_models_tell_the_shape_of_the_model(self) -> None:
        (model,) = (await self.get("/v1/models"))["data"]
        self.assertEqual(model["id"], "tiny")
        self.assertLessEqual(
            {"n_vocab", "n_ctx", "n_ctx_train", "n_embd", "n_params", "size", "ftype"},
            set(model["meta"]),
        )
        self.assertEqual(model["meta"]["n_ctx"], self.started.context)

    async def test_models_can_be_asked_with_head(self) -> None:
        answer = await self.ask("HEAD", "/v1/models")
        self.assertEqual((answer.code, answer.body), (200, b""))

    async def test_tokenize_is_a_token_per_byte(self) -> None:
        answer = await self.post("/tokenize", {"content": "a é"})
        self.assertEqual(len(answer.json["tokens"]), 4)

    async def test_metrics_count_the_tokens_really_read(self) -> None:
        before = await self.gauge("prompt_tokens_total")
        await self.read("a" * 100)
        await self.read("a" * 100 + "b" * 10)
        self.assertEqual(await self.gauge("prompt_tokens_total") - before, 101 + 10)

    # slots

    async def test_a_fresh_slot_tells_least(self) -> None:
        await self.restart()
        self.assertEqual(
            await self.slot(),
            {
                "id": 0,
                "n_ctx": self.started.context,
                "speculative": False,
                "is_processing": False,
            },
        )

    async def test_a_served_slot_tells_its_task_and_tokens(self) -> None:
        await self.complete("hello", tokens=3)
        slot = await self.slot()
        self.assertIsInstance(slot["id_task"], int)
        # the last token written is not read back
        self.assertEqual(slot["n_prompt_tokens"], 1 + len("hello") + 3 - 1)
        self.assertEqual(slot["params"]["n_predict"], 3)

    async def test_each_request_is_another_task(self) -> None:
        await self.complete("hello")
        first = (await self.slot())["id_task"]
        await self.complete("hello")
        self.assertNotEqual((await self.slot())["id_task"], first)

    async def test_control_calls_leave_the_task(self) -> None:
        await self.complete("hello")
        task = (await self.slot())["id_task"]
        await self.acted("save", "task.bin")
        await self.acted("erase")
        await self.acted("restore", "task.bin")
        await self.ask("GET", "/metrics")
        self.assertEqual((await self.slot())["id_task"], task)

    # slot files

    async def test_save_tells_tokens_and_bytes_and_the_file_has_them(self) -> None:
        await self.complete("hello", tokens=3)
        answer = await self.acted("save", "hello.bin")
        self.assertIn("save_ms", answer.pop("timings"))
        self.assertEqual(
            answer,
            {
                "id_slot": 0,
                "filename": "hello.bin",
                "n_saved": (await self.slot())["n_prompt_tokens"],
                "n_written": (self.folder / "hello.bin").stat().st_size,
            },
        )

    async def test_restore_tells_tokens_and_bytes_and_the_slot_has_them(self) -> None:
        await self.complete("hello", tokens=3)
        saved = await self.acted("save", "hello.bin")
        await self.acted("erase")
        answer = await self.acted("restore", "hello.bin")
        self.assertIn("restore_ms", answer.pop("timings"))
        self.assertEqual(
            answer,
            {
                "id_slot": 0,
                "filename": "hello.bin",
                "n_restored": saved["n_saved"],
                "n_read": saved["n_written"],
            },
        )
        self.assertEqual((await self.slot())["n_prompt_tokens"], saved["n_saved"])

    async def test_erase_tells_tokens_and_empties(self) -> None:
        await self.complete("hello")
        self.assertEqual(await self.acted("erase"), {"id_slot": 0, "n_erased": 6})
        self.assertEqual((await self.slot())["n_prompt_tokens"], 0)
        self.assertEqual(await self.acted("erase"), {"id_slot": 0, "n_erased": 0})

    async def test_a_restored_slot_that_never_served_does_not_tell_its_tokens(self) -> None:
        await self.complete("hello")
        await self.acted("save", "hello.bin")
        await self.restart()
        await self.acted("restore", "hello.bin")
        self.assertNotIn("n_prompt_tokens", await self.slot())
        self.assertEqual(await self.read("hello"), (5, 1))

    async def test_saving_an_empty_slot_is_a_good_answer_and_destroys_the_file(self) -> None:
        await self.complete("hello")
        await self.acted("save", "good.bin")
        await self.acted("erase")
        answer = await self.acted("save", "good.bin")
        self.assertEqual((answer["n_saved"], answer["n_written"]), (0, 36))
        self.assertEqual((self.folder / "good.bin").stat().st_size, 36)

    async def test_restoring_an_empty_slots_file_empties(self) -> None:
        await self.acted("save", "empty.bin")
        await self.complete("hello")
        answer = await self.acted("restore", "empty.bin")
        self.assertEqual((answer["n_restored"], answer["n_read"]), (0, 36))
        self.assertEqual((await self.slot())["n_prompt_tokens"], 0)

    async def test_save_is_written_in_place(self) -> None:
        await self.complete("hello")
        await self.acted("save", "place.bin")
        os.link(self.folder / "place.bin", self.folder / "same.bin")
        await self.complete("hello, again")
        saved = await self.acted("save", "place.bin")
        self.assertEqual((self.folder / "same.bin").stat().st_size, saved["n_written"])

    async def test_a_save_that_cannot_be_written_is_an_error(self) -> None:
        (self.folder / "folder.bin").mkdir()
        await self.complete("hello")
        answer = await self.act("save", "folder.bin")
        await self.refused(answer, 500, "server_error", "Unable to save slot")
        self.assertEqual((await self.slot())["n_prompt_tokens"], 6)

    async def good_file(self) -> bytes:
        await self.complete("hello" * 40)
        await self.acted("save", "good.bin")
        return (self.folder / "good.bin").read_bytes()

    async def check_failing_restore(self, data: bytes | None) -> None:
        """
        A file, or none, that cannot be restored: 400, and the slot is empty.
        """
        await self.complete("hello" * 40)
        if data is not None:
            (self.folder / "bad.bin").write_bytes(data)
        answer = await self.act("restore", "bad.bin")
        await self.refused(answer, 400, "invalid_request_error", CANNOT_RESTORE)
        self.assertEqual((await self.slot())["n_prompt_tokens"], 0)
        self.assertEqual(await self.read("hello" * 40), (0, 201))

    async def test_restoring_no_file_empties(self) -> None:
        await self.check_failing_restore(None)

    async def test_restoring_zero_bytes_empties(self) -> None:
        await self.check_failing_restore(b"")

    async def test_restoring_junk_empties(self) -> None:
        await self.check_failing_restore(b"This is no slot file at all.\n" * 100)

    async def test_restoring_another_models_file_empties(self) -> None:
        await self.check_failing_restore(self.other_models_file())

    async def test_restoring_unknown_tokens_empties(self) -> None:
        data = bytearray(await self.good_file())
        data[28:32] = b"\xff\xff\xff\x7f"
        await self.check_failing_restore(bytes(data))

    async def test_restoring_a_file_cut_within_its_tokens_empties(self) -> None:
        await self.check_failing_restore((await self.good_file())[:400])

    async def test_restoring_a_file_cut_before_its_cache_empties(self) -> None:
        await self.check_failing_restore((await self.good_file())[:2000])

    async def test_a_damaged_cache_is_restored_all_the_same(self) -> None:
        data = bytearray(await self.good_file())
        data[-100:] = bytes(byte ^ 0xFF for byte in data[-100:])
        (self.folder / "damaged.bin").write_bytes(data)
        self.assertEqual((await self.acted("restore", "damaged.bin"))["n_restored"], 201)

    async def check_deadly(self, keep: float) -> None:
        data = await self.good_file()
        (self.folder / "cut.bin").write_bytes(data[: int(len(data) * keep)])
        with self.assertRaises(ResponseFailed):
            await self.act("restore", "cut.bin")
        with self.assertRaises(Exception):  # noqa: B017 - refused, or reset while it dies
            await self.ask("GET", "/health")
        await self.restart()
        self.assertEqual((await self.acted("restore", "good.bin"))["n_restored"], 201)

    async def test_a_file_cut_by_a_hundredth_kills_the_server(self) -> None:
        await self.check_deadly(0.99)

    async def test_a_file_cut_by_half_kills_the_server(self) -> None:
        await self.check_deadly(0.5)

    async def test_slot_ids_wrap_around_and_come_back_as_they_were(self) -> None:
        await self.complete("hello")
        for number in (7, 99, -1):
            answer = await self.act("save", "wrapped.bin", slot=number)
            self.assertEqual(answer.code, 200)
            self.assertEqual((answer.json["id_slot"], answer.json["n_saved"]), (number, 6))

    async def test_a_slot_id_may_end_in_anything_but_must_begin_with_a_number(self) -> None:
        self.assertEqual((await self.act("erase", slot="0abc")).json["id_slot"], 0)
        answer = await self.act("erase", slot="abc")
        await self.refused(answer, 400, "invalid_request_error", "Invalid slot ID")

    async def test_bad_file_names_are_refused(self) -> None:
        bad = ["a/b", "a\\b", "a:b", "a*b", "a?b", 'a"b', "a<b", "a>b", "a|b", "a\nb", "a\x7fb"]
        bad += ["..", "a..b", ".", " a", "a ", "a.", "x" * 256, "é" * 128]
        for name in bad:
            for action in ("save", "restore"):
                answer = await self.act(action, name)
                await self.refused(answer, 400, "invalid_request_error", "Invalid filename")
        empty = await self.post("/slots/0?action=save", {"filename": ""})
        await self.refused(empty, 400, "invalid_request_error", "Invalid filename")

    async def test_other_file_names_are_taken(self) -> None:
        for name in ("a b", "é", ".hidden", "x" * 255, "route-1234abcd_00ff.12.bin"):
            await self.acted("save", name)
            self.assertTrue((self.folder / name).exists())

    async def test_control_calls_need_an_action_and_a_name(self) -> None:
        kind = "invalid_request_error"
        await self.refused(await self.act("bogus"), 400, kind, "Invalid action")
        await self.refused(await self.post("/slots/0", {}), 400, kind, "Invalid action")
        await self.refused(await self.act("save"), 400, kind, "key 'filename' not found")
        number = await self.post("/slots/0?action=save", {"filename": 3})
        await self.refused(number, 400, kind, "type must be string")
        junk = await self.ask("POST", "/slots/0?action=save", data=b"junk")
        await self.refused(junk, 400, kind, "parse_error")

    # what the cache is worth

    async def test_the_same_prompt_again_reads_one_token(self) -> None:
        self.assertEqual(await self.read("a" * 300), (0, 301))
        self.assertEqual(await self.read("a" * 300), (300, 1))

    async def test_a_longer_prompt_reads_what_is_new(self) -> None:
        await self.read("a" * 300)
        self.assertEqual(await self.read("a" * 300 + "b" * 20), (301, 20))

    async def test_another_conversation_takes_the_slot_and_a_restore_gives_it_back(self) -> None:
        await self.read("a" * 300)
        await self.acted("save", "a.bin")
        self.assertEqual(await self.read("b" * 300), (1, 300))
        self.assertEqual(await self.read("a" * 300), (1, 300))
        await self.read("b" * 300)
        await self.acted("restore", "a.bin")
        self.assertEqual(await self.read("a" * 300 + "b"), (301, 1))

    async def test_a_file_gives_its_beginning_to_another_conversation(self) -> None:
        await self.read("s" * 300 + "a" * 50)
        await self.acted("save", "a.bin")
        await self.acted("erase")
        await self.acted("restore", "a.bin")
        self.assertEqual(await self.read("s" * 300 + "b" * 50), (301, 50))

    async def test_cache_prompt_false_reads_all(self) -> None:
        await self.read("a" * 300)
        self.assertEqual(await self.read("a" * 300, cache_prompt=False), (0, 301))

    # a busy slot

    async def test_a_busy_slot_shows_its_progress(self) -> None:
        line = await self.send("/completion", prompt=SLOW_PROMPT, n_predict=3)
        slot = await self.busy()
        self.assertIsInstance(slot["id_task"], int)
        self.assertLess(slot["n_prompt_tokens"], len(SLOW_PROMPT))
        await line.closed
        self.assertEqual((await self.slot())["n_prompt_tokens"], len(SLOW_PROMPT) + 3)

    async def test_a_busy_slot_keeps_a_save_waiting(self) -> None:
        await self.send("/completion", prompt=SLOW_PROMPT, n_predict=3)
        await self.busy()
        # had it not waited, it would have saved less
        self.assertEqual((await self.acted("save", "a.bin"))["n_saved"], len(SLOW_PROMPT) + 3)

    async def test_a_busy_slot_keeps_a_request_waiting(self) -> None:
        await self.send("/completion", prompt=SLOW_PROMPT, n_predict=1)
        await self.busy()
        self.assertEqual(await self.read(SLOW_PROMPT + "b"), (len(SLOW_PROMPT) + 1, 1))

    async def test_a_streams_headers_come_before_its_prompt_is_read(self) -> None:
        line = await self.send("/completion", prompt=SLOW_PROMPT, n_predict=1, stream=True)
        await line.heard
        self.assertTrue(line.data.startswith(b"HTTP/1.1 200 OK"))
        self.assertNotIn(b"data: ", line.data)
        self.assertTrue((await self.slot())["is_processing"])
        await line.closed
        self.assertIn(b"data: ", line.data)

    async def test_a_waiting_streams_headers_wait_too(self) -> None:
        await self.send("/completion", prompt=SLOW_PROMPT, n_predict=1)
        await self.busy()
        line = await self.send("/completion", prompt="b", n_predict=1, stream=True)
        await self.deferred(1)
        self.assertFalse(line.data)
        await line.closed
        self.assertIn(b"data: ", line.data)

    async def test_a_waiting_save_whose_client_left(self) -> None:
        await self.send("/completion", prompt=SLOW_PROMPT, n_predict=3)
        await self.busy()
        line = await self.send("/slots/0?action=save", filename="left.bin")
        await self.deferred(1)
        await line.leave()
        if self.notices_disconnect:
            await self.deferred(0)
            await self.idle()
            self.assertFalse((self.folder / "left.bin").exists())
        else:
            await self.idle()
            await self.deferred(0)
            self.assertTrue((self.folder / "left.bin").exists())

    async def left(self, path: str, **body: object) -> int:
        """
        Go away while the prompt is read; how much more than the prompt the slot then holds.
        """
        line = await self.send(path, prompt=SLOW_PROMPT, **body)
        await self.busy()
        if "stream" in body:
            await line.heard  # the headers: else sending them would fail at once
        await line.leave()
        if not self.notices_disconnect:
            self.assertTrue((await self.slot())["is_processing"])
        tokens: int = (await self.idle())["n_prompt_tokens"]
        return tokens - len(SLOW_PROMPT) - 1

    async def test_a_stream_whose_client_left_ends_with_the_prompt(self) -> None:
        more = await self.left("/completion", n_predict=3000, stream=True)
        if self.notices_disconnect:
            self.assertLess(more, 0)
        else:
            # at a token that could not be sent, long before the last
            self.assertIn(more, range(2000))

    async def test_a_waiting_stream_whose_client_left_is_not_read(self) -> None:
        await self.send("/completion", prompt=SLOW_PROMPT, n_predict=1)
        await self.busy()
        line = await self.send("/completion", prompt="z" * 4000, n_predict=1, stream=True)
        await self.deferred(1)
        await line.leave()
        await self.deferred(0)
        await self.idle()
        cached, _ = await self.read("z" * 4000)
        self.assertLess(cached, 4000)

    async def test_an_answer_in_one_piece_whose_client_left(self) -> None:
        more = await self.left("/completion", n_predict=20)
        if self.notices_disconnect:
            self.assertLess(more, 0)
        else:
            self.assertEqual(more, 20 - 1)

    async def test_a_slot_whose_client_left_serves_the_next(self) -> None:
        await self.left("/completion", n_predict=5)
        self.assertEqual(sum(await self.read(SLOW_PROMPT)), len(SLOW_PROMPT) + 1)

    # the shapes of answers

    async def test_chat(self) -> None:
        answer = (await self.chat("/v1/chat/completions")).json
        self.assertEqual(answer["object"], "chat.completion")
        (choice,) = answer["choices"]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(answer["timings"]["prompt_n"], MESSAGES_TOKENS)
        self.assertEqual(answer["timings"]["predicted_n"], 4)
        usage = answer["usage"]
        self.assertEqual(usage["prompt_tokens"], MESSAGES_TOKENS)
        self.assertEqual(usage["completion_tokens"], 4)
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 0})

    async def chat(self, path: str, **extra: object) -> Answer:
        answer = await self.post(path, {"messages": MESSAGES, "max_tokens": 4, **STEADY, **extra})
        self.assertEqual(answer.code, 200, answer.body)
        return answer

    async def test_chat_stream_has_timings_in_its_last_chunk(self) -> None:
        answer = await self.chat("/v1/chat/completions", stream=True)
        self.assertEqual(answer.headers["content-type"], "text/event-stream")
        *chunks, (_, done) = answer.events()
        self.assertEqual(done, "[DONE]")
        self.assertEqual(chunks[0][1]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual(["timings" in chunk for _, chunk in chunks][-1], True)
        self.assertFalse(["usage" for _, chunk in chunks if "usage" in chunk])
        last = chunks[-1][1]
        self.assertEqual(last["choices"][0]["finish_reason"], "length")
        self.assertEqual(last["timings"]["prompt_n"], MESSAGES_TOKENS)
        self.assertFalse([c for _, c in chunks[:-1] if "timings" in c])

    async def test_chat_stream_with_usage_has_both_in_a_chunk_without_choices(self) -> None:
        answer = await self.chat(
            "/v1/chat/completions", stream=True, stream_options={"include_usage": True}
        )
        *_, (_, finish), (_, last), (_, done) = answer.events()
        self.assertEqual(done, "[DONE]")
        self.assertEqual(finish["choices"][0]["finish_reason"], "length")
        self.assertEqual(last["choices"], [])
        self.assertEqual(last["usage"]["prompt_tokens"], MESSAGES_TOKENS)
        self.assertIn("timings", last)

    async def test_chat_without_v1(self) -> None:
        self.assertIn("timings", (await self.chat("/chat/completions")).json)

    async def test_text_completion(self) -> None:
        answer = await self.post("/v1/completions", {"prompt": "hello", "max_tokens": 4, **STEADY})
        body = answer.json
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["choices"][0]["finish_reason"], "length")
        self.assertEqual(body["usage"]["prompt_tokens"], 6)
        self.assertEqual(body["timings"]["prompt_n"], 6)

    async def test_text_completion_stream_has_usage_and_timings_in_its_last_chunk(self) -> None:
        body = {"prompt": "hello", "max_tokens": 4, "stream": True, **STEADY}
        *_, (_, last), (_, done) = (await self.post("/v1/completions", body)).events()
        self.assertEqual(done, "[DONE]")
        self.assertEqual(last["usage"]["prompt_tokens"], 6)
        self.assertEqual(last["timings"]["prompt_n"], 6)

    async def test_native_completion(self) -> None:
        for path in ("/completion", "/completions"):
            await self.acted("erase")
            body = {"prompt": "hello", "n_predict": 4, **STEADY}
            answer = (await self.post(path, body)).json
            self.assertTrue(answer["stop"])
            self.assertEqual((answer["id_slot"], answer["stop_type"]), (0, "limit"))
            self.assertEqual((answer["tokens_evaluated"], answer["tokens_predicted"]), (6, 4))
            self.assertEqual(answer["timings"]["prompt_n"], 6)

    async def test_native_stream_ends_with_stop_and_without_done(self) -> None:
        body = {"prompt": "hello", "n_predict": 4, "stream": True, **STEADY}
        events = (await self.post("/completion", body)).events()
        last = events[-1][1]
        self.assertTrue(last["stop"])
        self.assertEqual(last["timings"]["prompt_n"], 6)
        self.assertFalse([e for _, e in events[:-1] if e["stop"] or "timings" in e])

    async def test_a_prompt_of_tokens_is_taken_as_it_is(self) -> None:
        answer = await self.post("/completion", {"prompt": [1, 107, 108], "n_predict": 1})
        self.assertEqual(answer.json["tokens_evaluated"], 3)

    async def test_responses_in_one_piece_have_no_timings(self) -> None:
        for path in ("/v1/responses", "/responses"):
            await self.acted("erase")
            body = {"input": "Hello there", "max_output_tokens": 4, **STEADY}
            answer = (await self.post(path, body)).json
            self.assertEqual((answer["object"], answer["status"]), ("response", "completed"))
            self.assertNotIn("timings", answer)
            self.assertEqual(answer["usage"]["input_tokens"], MESSAGES_TOKENS)
            self.assertEqual(answer["usage"]["input_tokens_details"], {"cached_tokens": 0})

    async def test_responses_stream_has_timings_in_its_last_event(self) -> None:
        body = {"input": "Hello there", "max_output_tokens": 4, "stream": True, **STEADY}
        events = (await self.post("/v1/responses", body)).events()
        for name, data in events:
            self.assertEqual(name, data["type"])
        names = list(dict.fromkeys(name for name, _ in events))
        self.assertEqual(
            names,
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ],
        )
        last = events[-1][1]
        self.assertEqual(last["timings"]["prompt_n"], MESSAGES_TOKENS)
        self.assertEqual(last["response"]["usage"]["input_tokens"], MESSAGES_TOKENS)

    async def test_messages_count_input_without_the_cached(self) -> None:
        await self.chat("/v1/messages")
        answer = (await self.chat("/v1/messages")).json
        self.assertEqual((answer["type"], answer["stop_reason"]), ("message", "max_tokens"))
        self.assertNotIn("timings", answer)
        usage = answer["usage"]
        self.assertEqual(usage["cache_read_input_tokens"], MESSAGES_TOKENS - 1)
        self.assertEqual(usage["input_tokens"], 1)
        self.assertEqual(usage["output_tokens"], 4)

    async def test_messages_stream_counts_input_in_its_first_event(self) -> None:
        events = (await self.chat("/v1/messages", stream=True)).events()
        for name, data in events:
            self.assertEqual(name, data["type"])
        names = list(dict.fromkeys(name for name, _ in events))
        self.assertEqual(
            names,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ],
        )
        usage = events[0][1]["message"]["usage"]
        self.assertEqual(
            (usage["cache_read_input_tokens"], usage["input_tokens"]), (0, MESSAGES_TOKENS)
        )
        self.assertEqual(events[-2][1]["usage"], {"output_tokens": 4})

    async def test_count_tokens(self) -> None:
        answer = await self.post("/v1/messages/count_tokens", {"messages": MESSAGES})
        self.assertEqual(answer.json, {"input_tokens": MESSAGES_TOKENS})

    async def test_infill(self) -> None:
        body = {"input_prefix": "a" * 20, "input_suffix": "b" * 9, "n_predict": 4, **STEADY}
        answer = await self.post("/infill", body)
        self.assertEqual(answer.code, 200, answer.body)
        self.assertEqual(answer.json["timings"]["prompt_n"], 20 + 9 + 4)
        answer = await self.post("/infill", {**body, "input_suffix": "c" * 9})
        self.assertEqual(answer.json["timings"]["prompt_n"], 9 + 1)

    # errors

    async def test_an_unknown_path_is_not_found_without_a_hint(self) -> None:
        for method, path in (("GET", "/api/tags"), ("POST", "/api/chat"), ("PUT", "/slots")):
            answer = await self.ask(method, path)
            await self.refused(answer, 404, "not_found_error", "File Not Found")

    async def test_requests_without_what_they_need_are_refused(self) -> None:
        kind = "invalid_request_error"
        for path, message in (
            ("/v1/chat/completions", "'messages' is required"),
            ("/completion", "key 'prompt' not found"),
            ("/v1/completions", "key 'prompt' not found"),
            ("/v1/responses", "'input' is required"),
        ):
            await self.refused(await self.post(path, {}), 400, kind, message)
            answer = await self.ask("POST", path, data=b"junk")
            await self.refused(answer, 400, kind, "parse_error")

    async def test_messages_refuse_with_500(self) -> None:
        answer = await self.post("/v1/messages", {})
        await self.refused(answer, 500, "server_error", "'messages' is required")

    async def test_a_previous_response_is_refused(self) -> None:
        answer = await self.post("/v1/responses", {"input": "a", "previous_response_id": "x"})
        await self.refused(answer, 400, "invalid_request_error", "does not support")

    async def test_limits_are_checked(self) -> None:
        for value in (-5, "x"):
            answer = await self.chat_error(max_tokens=value)
            await self.refused(answer, 400, "invalid_request_error", "Field 'max_tokens'")

    async def chat_error(self, **extra: object) -> Answer:
        return await self.post("/v1/chat/completions", {"messages": MESSAGES, **extra})

    async def test_a_prompt_longer_than_the_context_is_refused_with_its_length(self) -> None:
        prompt = "x" * self.started.context
        for stream in (False, True):
            answer = await self.post("/completion", {"prompt": prompt, "stream": stream})
            kind = "exceed_context_size_error"
            await self.refused(answer, 400, kind, "exceeds the available context size")
            error = answer.json["error"]
            self.assertEqual(error["n_prompt_tokens"], self.started.context + 1)
            self.assertEqual(error["n_ctx"], self.started.context)


class TwoSlotContract(Contract):
    """
    Two slots: which one a request gets.
    """

    started = Started(parallel=2, context=8192)

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        for number in (0, 1):
            await self.act("erase", slot=number)

    async def test_a_request_gets_the_slot_it_asks_for_which_wraps_around(self) -> None:
        for asked, given in ((0, 0), (1, 1), (2, 0), (5, 1), (-2, 0), (-3, 1), (1.0, 1), (True, 1)):
            answer = await self.complete("hello", id_slot=asked)
            self.assertEqual(answer["id_slot"], given, asked)

    async def test_a_slot_asked_for_by_a_string_is_ignored(self) -> None:
        await self.complete("hello", id_slot=0)
        answer = await self.complete("hello", id_slot="1")
        self.assertEqual(answer["id_slot"], 0)

    async def test_every_openai_endpoint_takes_id_slot(self) -> None:
        for path, body in (
            ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}),
            ("/v1/completions", {"prompt": "hello", "max_tokens": 1}),
            ("/v1/responses", {"input": "hello", "max_output_tokens": 1}),
        ):
            for number in (0, 1):
                await self.complete("x", id_slot=number)
                before = (await self.slot(number))["id_task"]
                answer = await self.post(path, {**body, **STEADY, "id_slot": number})
                self.assertEqual(answer.code, 200, answer.body)
                self.assertNotEqual((await self.slot(number))["id_task"], before)

    async def test_messages_drop_id_slot(self) -> None:
        prompt = "user: Hello there\n"
        await self.complete("x", id_slot=1)
        await self.complete(prompt, id_slot=0)
        task = (await self.slot(1))["id_task"]
        body = {"messages": MESSAGES, "max_tokens": 1, "id_slot": 1}
        answer = await self.post("/v1/messages", body)
        # it went where its beginning is
        self.assertGreater(answer.json["usage"]["cache_read_input_tokens"], len(prompt) - 1)
        self.assertEqual((await self.slot(1))["id_task"], task)

    async def test_a_request_without_a_slot_goes_where_its_beginning_is(self) -> None:
        await self.complete("a" * 100, id_slot=0)
        await self.complete("b" * 100, id_slot=1)
        self.assertEqual((await self.complete("a" * 100 + "c"))["id_slot"], 0)
        self.assertEqual((await self.complete("b" * 100 + "c"))["id_slot"], 1)

    async def test_a_request_like_no_other_takes_the_slot_used_least_recently(self) -> None:
        await self.complete("a" * 100, id_slot=1)
        await self.complete("b" * 100, id_slot=0)
        self.assertEqual((await self.complete("c" * 100))["id_slot"], 1)
        self.assertEqual((await self.complete("d" * 100))["id_slot"], 0)

    async def test_control_calls_wrap_around_too(self) -> None:
        for number, held in ((0, 0), (1, 6), (2, 0), (3, 6), (-1, 6), (-2, 0)):
            await self.act("erase", slot=0)
            await self.complete("hello", id_slot=1)
            answer = (await self.act("erase", slot=number)).json
            self.assertEqual(answer, {"id_slot": number, "n_erased": held})

    async def test_a_busy_slot_leaves_the_other_free(self) -> None:
        slow = Deferred.fromCoroutine(self.read(SLOW_PROMPT, id_slot=1))
        await self.busy(1)
        self.assertEqual((await self.complete("hello"))["id_slot"], 0)
        self.assertTrue((await self.slot(1))["is_processing"])
        await slow


class KeyContract(Contract):
    """
    A server with a key.
    """

    started = Started(api_key="secret")

    async def test_everything_but_health_wants_the_key(self) -> None:
        for path in ("/props", "/slots", "/v1/models", "/metrics", "/nowhere"):
            answer = await self.ask("GET", path)
            await self.refused(answer, 401, "authentication_error", "Invalid API Key")
        for path in ("/slots/0?action=erase", "/v1/chat/completions"):
            answer = await self.post(path, {})
            await self.refused(answer, 401, "authentication_error", "Invalid API Key")
        self.assertEqual((await self.ask("GET", "/health")).code, 200)

    async def test_the_key_is_taken_in_two_ways(self) -> None:
        for name, value in (("Authorization", "Bearer secret"), ("X-Api-Key", "secret")):
            answer = await self.ask("GET", "/slots", headers={name: value})
            self.assertEqual(answer.code, 200)
        answer = await self.ask("GET", "/slots", headers={"Authorization": "Bearer other"})
        self.assertEqual(answer.code, 401)


class WithoutSlotsContract(Contract):
    """
    A server started with ``--no-slots`` and without ``--slot-save-path``.
    """

    started = Started(slots_endpoint=False, slot_files=False)

    async def test_slots_are_not_shown(self) -> None:
        answer = await self.ask("GET", "/slots")
        await self.refused(answer, 501, "not_supported_error", "--slots")

    async def test_slots_are_not_saved_nor_erased(self) -> None:
        for action in ("save", "restore", "erase"):
            answer = await self.act(action, "a.bin")
            await self.refused(answer, 501, "not_supported_error", "--slot-save-path")


class SleepContract(Contract):
    """
    A server that unloads its model when idle.
    """

    started = Started(sleep_idle_seconds=1)

    async def asleep(self) -> None:
        await self.complete("hello")
        while not (await self.get("/props"))["is_sleeping"]:
            await deferLater(reactor, 0.05)

    async def test_only_some_requests_wake_it(self) -> None:
        await self.asleep()
        for path in ("/health", "/v1/models"):
            await self.get(path)
        await self.ask("GET", "/metrics")
        self.assertTrue((await self.get("/props"))["is_sleeping"])
        slot = await self.slot()
        self.assertFalse((await self.get("/props"))["is_sleeping"])
        self.assertNotIn("id_task", slot)

    async def test_a_save_wakes_it_and_destroys_the_file(self) -> None:
        await self.complete("hello")
        await self.acted("save", "good.bin")
        await self.asleep()
        answer = await self.acted("save", "good.bin")
        self.assertEqual((answer["n_saved"], answer["n_written"]), (0, 36))
