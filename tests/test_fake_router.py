"""
What the fake router does, on a clock and without sockets; what the real one does too is in the
contract.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import treq
from treq.client import HTTPClient
from treq.testing import StubTreq
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent, ResponseFailed

import slotgate.testing
from slotgate.testing.fake import Speed
from slotgate.testing.fake_router import FakeModel, FakeRouter
from slotgate.testing.faults import Abort, Answer, Die, Hang, Refuse

COMPLETION = "/completion"
LOST = b"proxy error: Failed to read connection"


def prompt(model: str, text: str = "hello", **extra: Any) -> dict[str, object]:
    return {"model": model, "prompt": text, "n_predict": 2, **extra}


class RouterCase(SynchronousTestCase):
    """
    Without sockets, on a clock that the test moves.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def serve(self, models: dict[str, FakeModel | str] | None = None, **options: Any) -> FakeRouter:
        names = {name: FakeModel() for name in ("alpha", "beta", "gamma")}
        self.router = FakeRouter(
            self.clock, models or names, slot_save_path=self.folder, **{"models_max": 2, **options}
        )
        self.treq: Any = StubTreq(self.router.resource())
        return self.router

    def ask(self, method: str, path: str, **options: Any) -> Deferred[tuple[int, bytes]]:
        async def asking() -> tuple[int, bytes]:
            response = await self.treq.request(method, f"http://fake{path}", **options)
            return response.code, await self.treq.content(response)

        return Deferred.fromCoroutine(asking())

    def got(self, asked: Deferred[tuple[int, bytes]]) -> tuple[int, bytes]:
        self.treq.flush()
        return self.successResultOf(asked)

    def answered(self, asked: Deferred[tuple[int, bytes]]) -> Any:
        code, body = self.got(asked)
        self.assertEqual(code, 200, body)
        return json.loads(body)

    def refused(self, asked: Deferred[tuple[int, bytes]]) -> tuple[int, str]:
        code, body = self.got(asked)
        error = json.loads(body)["error"]
        self.assertEqual(error["code"], code)
        return code, error["message"]

    def waits(self, asked: Deferred[Any]) -> None:
        self.treq.flush()
        self.assertNoResult(asked)

    def leave(self, asked: Deferred[Any]) -> None:
        asked.cancel()
        self.failureResultOf(asked, CancelledError, ResponseFailed)
        self.treq.flush()

    def get(self, path: str) -> Any:
        return self.answered(self.ask("GET", path))

    def post(self, path: str, body: object) -> Deferred[tuple[int, bytes]]:
        return self.ask("POST", path, json=body)

    def generate(self, model: str, text: str = "hello") -> Any:
        return self.answered(self.post(COMPLETION, prompt(model, text)))

    def hang(self, model: str) -> tuple[Hang, Deferred[tuple[int, bytes]]]:
        """
        Keep a model busy with a request until released.
        """
        hang = Hang()
        self.router.plan(hang, path=COMPLETION, model=model)
        return hang, self.post(COMPLETION, prompt(model))

    def save(
        self, model: str, name: str = "a.bin", *, autoload: str = "&autoload=false"
    ) -> Deferred[tuple[int, bytes]]:
        return self.post(f"/slots/0?action=save{autoload}", {"model": model, "filename": name})

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.treq.flush()

    def statuses(self) -> dict[str, str]:
        return {m["id"]: m["status"]["value"] for m in self.get("/models")["data"]}


class AddressTests(RouterCase):
    """
    What it tells of itself, and who is meant by a request.
    """

    def test_tells_that_it_is_a_router(self) -> None:
        self.serve(models_max=3, autoload=False)
        props = self.get("/props")
        self.assertEqual(
            (props["role"], props["max_instances"], props["models_autoload"]), ("router", 3, False)
        )
        self.assertNotIn("total_slots", props)
        self.assertEqual(self.get("/health"), {"status": "ok"})

    def test_tells_how_its_models_are_started(self) -> None:
        model = FakeModel(
            "/m/a.gguf",
            aliases=["z", "first"],
            total_slots=2,
            context=1024,
            sleep_idle_seconds=90,
            more_args=["--threads", "1"],
        )
        self.serve({"beta": "/m/b.gguf", "alpha": model})
        alpha, beta = self.get("/v1/models")["data"]
        self.assertEqual((alpha["id"], alpha["aliases"]), ("alpha", ["first", "z"]))
        args = alpha["status"]["args"]
        for option, value in (
            ("--alias", "alpha"),
            ("--port", "0"),
            ("--model", "/m/a.gguf"),
            ("--slot-save-path", f"{self.folder}/"),
            ("--parallel", "2"),
            ("--ctx-size", "2048"),
            ("--cache-ram", "0"),
            ("--sleep-idle-seconds", "90"),
            ("--threads", "1"),
        ):
            self.assertEqual(args[args.index(option) + 1], value)
        self.assertIn("model = /m/b.gguf\n", beta["status"]["preset"])
        self.assertNotIn("--sleep-idle-seconds", beta["status"]["args"])
        self.assertNotIn("meta", beta)

    def test_a_loaded_model_has_a_shape_and_a_port(self) -> None:
        self.serve()
        self.generate("beta")
        _, beta, _ = self.get("/models")["data"]
        self.assertEqual(beta["meta"]["n_ctx"], 4096)
        args = beta["status"]["args"]
        self.assertNotEqual(args[args.index("--port") + 1], "0")
        self.assertEqual(self.get("/props?model=beta")["model_path"], "/models/beta.gguf")

    def test_a_model_goes_by_its_aliases_too(self) -> None:
        router = self.serve({"alpha": FakeModel(aliases=["al/pha: ä"])})
        self.generate("al/pha: ä")
        (slot,) = self.get("/slots?model=al%2Fpha%3A%20%C3%A4")
        self.assertEqual(slot["id_task"], 0)
        self.answered(self.save("al/pha: ä"))
        self.answered(self.post("/models/unload", {"model": "al/pha: ä"}))
        self.assertEqual(self.statuses(), {"alpha": "unloaded"})
        self.assertEqual(len(router.calls_for("alpha")), 4)

    def test_a_post_names_its_model_in_the_body_and_a_get_in_the_query(self) -> None:
        self.serve()
        missing = (400, "model name is missing from the request")
        unknown = (400, "model 'nobody' not found")
        self.assertEqual(self.refused(self.post("/slots/0?action=erase&model=alpha", {})), missing)
        self.assertEqual(self.refused(self.post(COMPLETION, {"model": 7})), missing)
        self.assertEqual(self.refused(self.post(COMPLETION, [1])), missing)
        self.assertEqual(self.refused(self.ask("GET", "/slots")), missing)
        self.assertEqual(self.refused(self.post(COMPLETION, {"model": "nobody"})), unknown)
        self.assertEqual(self.refused(self.ask("GET", "/slots?model=nobody")), unknown)
        code, message = self.refused(self.ask("POST", COMPLETION, data=b"{"))
        self.assertEqual((code, message[:32]), (400, "[json.exception.parse_error.101]"))
        self.assertEqual(self.refused(self.ask("GET", "/nowhere?model=alpha"))[0], 404)
        self.assertEqual(self.router.loads, [])

    def test_asks_for_its_key(self) -> None:
        self.serve(api_key="secret")
        for path in ("/models", "/props", "/models/sse", "/slots?model=alpha"):
            self.assertEqual(self.refused(self.ask("GET", path)), (401, "Invalid API Key"))
        self.get("/health")
        headers = {"Authorization": "Bearer secret"}
        self.answered(self.ask("POST", COMPLETION, json=prompt("alpha"), headers=headers))

    def test_answers_of_a_model_come_without_a_length(self) -> None:
        self.serve()
        response = self.successResultOf(
            self.treq.post(f"http://fake{COMPLETION}", json=prompt("alpha"))
        )
        self.assertFalse(response.headers.hasHeader("Content-Length"))
        self.assertEqual(response.headers.getRawHeaders("X-Accel-Buffering"), ["no"])


class LoadingTests(RouterCase):
    """
    Who is loaded, and when.
    """

    def test_anything_that_names_a_model_loads_it(self) -> None:
        for number, asked in enumerate(
            [
                lambda: self.post(COMPLETION, prompt("alpha")),
                lambda: self.post("/slots/0?action=erase", {"model": "alpha"}),
                lambda: self.ask("GET", "/slots?model=alpha"),
                lambda: self.ask("GET", "/props?model=alpha"),
            ]
        ):
            with self.subTest(number):
                self.serve()
                self.answered(asked())
                self.assertEqual(self.router.loads, ["alpha"])
                self.assertEqual(self.router.status("alpha"), "loaded")

    def test_nothing_loads_it_when_told_so(self) -> None:
        self.serve()
        no = (400, "model is not loaded")
        self.assertEqual(self.refused(self.save("alpha")), no)
        self.assertEqual(self.refused(self.ask("GET", "/slots?model=alpha&autoload=false")), no)
        asked = self.post(f"{COMPLETION}?autoload=0", prompt("alpha"))
        self.assertEqual(self.refused(asked), no)
        self.router.autoload = False
        self.assertEqual(self.refused(self.post(COMPLETION, prompt("alpha"))), no)
        self.answered(self.post(f"{COMPLETION}?autoload=1", prompt("alpha")))

    def test_a_late_save_loads_the_model_and_overwrites_the_file_with_36_bytes(self) -> None:
        self.serve(models_max=1)
        self.generate("alpha")
        self.assertGreater(self.answered(self.save("alpha"))["n_saved"], 0)
        self.generate("beta")
        late = self.answered(self.save("alpha", autoload=""))
        self.assertEqual((late["n_saved"], late["n_written"]), (0, 36))
        self.assertEqual((self.folder / "a.bin").stat().st_size, 36)
        self.assertEqual(self.router.unloads, ["alpha", "beta"])

    def test_loading_takes_its_time_and_is_done_once(self) -> None:
        self.serve({"alpha": FakeModel(load_seconds=3)})
        first, second = (self.post(COMPLETION, prompt("alpha")) for _ in range(2))
        self.waits(first)
        self.assertEqual(self.statuses(), {"alpha": "loading"})
        early = self.ask("GET", "/slots?model=alpha&autoload=false")
        self.assertEqual(self.refused(early), (503, "Loading model"))
        self.advance(3)
        self.answered(first)
        self.answered(second)
        self.assertEqual(self.router.loads, ["alpha"])

    def test_can_be_loaded_and_unloaded_by_hand(self) -> None:
        self.serve({"alpha": FakeModel(load_seconds=1, unload_seconds=1)})
        alpha = {"model": "alpha"}
        self.assertEqual(self.answered(self.post("/models/load", alpha)), {"success": True})
        self.assertEqual(
            self.refused(self.post("/models/load", alpha)), (400, "model is already running")
        )
        self.assertEqual(self.router.status("alpha"), "loading")
        self.advance(1)
        self.assertEqual(self.answered(self.post("/models/unload", alpha)), {"success": True})
        self.assertEqual(self.router.status("alpha"), "loaded")
        code, body = self.got(self.save("alpha"))
        self.assertEqual((code, body), (500, b"proxy error: Could not establish connection"))
        self.advance(1)
        self.assertEqual(self.router.status("alpha"), "unloaded")
        self.assertEqual(
            self.refused(self.post("/models/unload", alpha)), (400, "model is not running")
        )
        nobody = {"model": "nobody"}
        self.assertEqual(self.refused(self.post("/models/load", nobody))[0], 404)
        self.assertEqual(
            self.refused(self.post("/models/unload", nobody)), (400, "model is not found")
        )

    def test_a_request_for_a_model_that_goes_waits_until_it_is_loaded_anew(self) -> None:
        self.serve({"alpha": FakeModel(unload_seconds=1)})
        self.generate("alpha")
        self.router.unload("alpha")
        asked = self.post(COMPLETION, prompt("alpha"))
        self.waits(asked)
        self.advance(1)
        self.assertEqual(self.answered(asked)["timings"]["cache_n"], 0)
        self.assertEqual(self.router.loads, ["alpha", "alpha"])

    def test_one_that_is_unloaded_while_it_loads_is_killed(self) -> None:
        self.serve({"alpha": FakeModel(load_seconds=1)})
        asked = self.post(COMPLETION, prompt("alpha"))
        self.router.unload("alpha")
        self.assertEqual(self.refused(asked), (500, "model name=alpha failed to load"))
        (alpha,) = self.get("/models")["data"]
        self.assertEqual((alpha["status"]["failed"], alpha["status"]["exit_code"]), (True, 1))
        self.advance(1)
        self.assertEqual(self.router.status("alpha"), "unloaded")

    def test_a_broken_one_fails_whoever_waits_and_can_be_repaired(self) -> None:
        self.serve({"alpha": FakeModel(broken=True, load_seconds=1), "beta": FakeModel()})
        waiting = [self.post(COMPLETION, prompt("alpha")) for _ in range(2)]
        self.advance(1)
        for asked in waiting:
            self.assertEqual(self.refused(asked), (500, "model name=alpha failed to load"))
        alpha, _ = self.get("/models")["data"]
        self.assertEqual(alpha["status"]["exit_code"], 1)
        self.generate("beta")
        self.router.models["alpha"].broken = False
        asked = self.post(COMPLETION, prompt("alpha"))
        self.advance(1)
        self.answered(asked)
        self.assertNotIn("failed", self.get("/models")["data"][0]["status"])

    def test_who_goes_away_while_a_model_loads_asks_it_nothing(self) -> None:
        self.serve({"alpha": FakeModel(load_seconds=1)})
        asked = self.post(COMPLETION, prompt("alpha"))
        self.waits(asked)
        self.leave(asked)
        self.advance(1)
        self.assertEqual(self.router.child("alpha").calls, [])


class LimitTests(RouterCase):
    """
    Who has to go.
    """

    def test_the_least_recently_used_goes_with_its_slot(self) -> None:
        self.serve()
        for model in ("alpha", "beta", "alpha", "gamma"):
            self.generate(model)
        self.assertEqual(self.router.unloads, ["beta"])
        self.assertEqual(
            self.statuses(), {"alpha": "loaded", "beta": "unloaded", "gamma": "loaded"}
        )
        self.assertEqual(self.generate("beta")["timings"]["cache_n"], 0)
        self.assertEqual(self.router.unloads, ["beta", "alpha"])

    def test_a_save_is_a_use_so_that_another_one_goes(self) -> None:
        self.serve()
        self.generate("alpha")
        self.generate("beta")
        self.answered(self.save("alpha"))
        self.generate("gamma")
        self.assertEqual(self.router.unloads, ["beta"])

    def test_a_look_is_no_use(self) -> None:
        self.serve()
        self.generate("alpha")
        self.generate("beta")
        self.get("/slots?model=alpha")
        self.generate("gamma")
        self.assertEqual(self.router.unloads, ["alpha"])

    def test_a_busy_one_does_not_go(self) -> None:
        self.serve()
        hang, busy = self.hang("alpha")
        self.waits(busy)
        self.generate("beta")
        self.generate("gamma")
        self.assertEqual(self.router.unloads, ["beta"])
        hang.release()
        self.answered(busy)

    def test_while_all_are_busy_a_request_waits_and_takes_the_first_that_is_free(self) -> None:
        self.serve()
        _, alpha = self.hang("alpha")
        hang, beta = self.hang("beta")
        gamma = self.post(COMPLETION, prompt("gamma"))
        self.waits(gamma)
        by_hand = self.post("/models/load", {"model": "gamma"})
        self.assertEqual(self.refused(by_hand), (500, "model limit reached, try again later"))
        hang.release()
        self.answered(beta)
        self.answered(gamma)
        self.assertEqual(self.router.unloads, ["beta"])
        self.waits(alpha)

    def test_whoever_waits_is_served_in_order(self) -> None:
        names = [f"m{number}" for number in range(6)]
        self.serve({name: FakeModel(load_seconds=1) for name in names}, models_max=1)
        asked = [(name, self.post(COMPLETION, prompt(name))) for _ in range(3) for name in names]
        for _ in names:
            self.advance(1)
        for name, one in asked:
            self.assertEqual(self.answered(one)["model"], name)
        self.assertEqual(self.router.loads, names)

    def test_who_waits_and_goes_away_lets_the_next_one_in(self) -> None:
        self.serve(models_max=1)
        hang, alpha = self.hang("alpha")
        beta, gamma = (self.post(COMPLETION, prompt(name)) for name in ("beta", "gamma"))
        self.waits(gamma)
        self.leave(beta)
        hang.release()
        self.answered(alpha)
        self.answered(gamma)
        self.assertEqual(self.router.loads, ["alpha", "gamma"])

    def test_one_loaded_by_hand_takes_the_place_of_an_idle_one(self) -> None:
        self.serve()
        self.generate("alpha")
        self.generate("beta")
        self.answered(self.post("/models/load", {"model": "gamma"}))
        self.assertEqual(self.router.unloads, ["alpha"])

    def test_a_sleeping_one_takes_a_place(self) -> None:
        self.serve()
        self.generate("alpha")
        self.generate("beta")
        self.router.fall_asleep("alpha")
        self.generate("gamma")
        self.assertEqual(self.router.unloads, ["alpha"])

    def test_without_a_limit_nobody_goes(self) -> None:
        self.serve(models_max=0)
        for model in ("alpha", "beta", "gamma"):
            self.generate(model)
        self.assertEqual(self.router.unloads, [])

    def test_a_request_whose_client_has_gone_keeps_its_model_busy_to_its_end(self) -> None:
        slow = FakeModel(speed=Speed(generation=1))
        self.serve({"alpha": slow, "beta": FakeModel()}, models_max=1)
        gone = self.post(COMPLETION, prompt("alpha"))
        self.waits(gone)
        self.leave(gone)
        beta = self.post(COMPLETION, prompt("beta"))
        self.advance(1)
        self.waits(beta)
        self.advance(1)
        self.answered(beta)


class EndingTests(RouterCase):
    """
    A model that is gone behind somebody's back.
    """

    def running(self, **extra: Any) -> Deferred[tuple[int, bytes]]:
        slow = FakeModel(speed=Speed(generation=1))
        self.serve({"alpha": slow, "beta": FakeModel()})
        asked = self.post(COMPLETION, prompt("alpha", **extra))
        self.advance(1)
        return asked

    def failed(self) -> bool:
        alpha = self.get("/models")["data"][0]["status"]
        return "failed" in alpha and bool(alpha["exit_code"] == 1)

    def test_a_killed_one_loses_its_answer(self) -> None:
        asked = self.running()
        self.router.crash("alpha")
        self.assertEqual(self.got(asked), (500, LOST))
        self.assertTrue(self.failed())

    def test_a_killed_one_loses_the_rest_of_its_stream_which_ends_as_if_it_were_whole(self) -> None:
        asked = self.running(stream=True)
        self.router.crash("alpha")
        code, body = self.got(asked)
        self.assertEqual(code, 200)
        self.assertTrue(body.startswith(b"data: "))
        self.assertTrue(body.endswith(b"\n\n" + LOST))

    def test_a_busy_one_that_is_unloaded_keeps_its_client_waiting_until_it_is_killed(self) -> None:
        asked = self.running()
        self.router.stop_seconds = 10
        self.answered(self.post("/models/unload", {"model": "alpha"}))
        self.advance(9)
        self.waits(asked)
        self.assertEqual(self.router.status("alpha"), "loaded")
        self.advance(1)
        self.assertEqual(self.got(asked), (500, LOST))
        self.assertTrue(self.failed())

    def test_an_idle_one_that_is_unloaded_has_not_failed(self) -> None:
        self.serve()
        self.generate("alpha")
        self.router.unload("alpha")
        self.assertFalse(self.failed())

    def test_one_that_hangs_loses_its_answer_too(self) -> None:
        self.serve()
        hang, asked = self.hang("alpha")
        self.waits(asked)
        self.router.unload("alpha")
        self.assertEqual(self.got(asked), (500, LOST))
        hang.release()
        self.generate("alpha")

    def test_who_waits_for_its_slot_gets_an_error_too(self) -> None:
        self.running()
        saved = self.save("alpha")
        self.waits(saved)
        self.router.crash("alpha")
        self.assertEqual(self.got(saved), (500, LOST))
        self.assertFalse((self.folder / "a.bin").exists())

    def test_the_next_request_loads_it_again_empty(self) -> None:
        self.serve()
        self.generate("alpha")
        self.router.crash("alpha")
        self.assertEqual(self.generate("alpha")["timings"]["cache_n"], 0)
        self.assertEqual(self.router.loads, ["alpha", "alpha"])
        self.assertEqual(self.router.child("alpha").tokens_read, 2 * len("^hello"))

    def test_a_slot_file_survives_it(self) -> None:
        self.serve()
        self.generate("alpha", "a" * 100)
        self.answered(self.save("alpha"))
        self.router.unload("alpha")
        body = {"model": "alpha", "filename": "a.bin"}
        self.answered(self.post("/slots/0?action=restore", body))
        self.assertEqual(self.generate("alpha", "a" * 100)["timings"]["cache_n"], 100)

    def test_a_cut_slot_file_kills_only_its_model(self) -> None:
        self.serve()
        self.generate("alpha")
        self.answered(self.save("alpha"))
        file = self.folder / "a.bin"
        file.write_bytes(file.read_bytes()[:-10])
        body = {"model": "alpha", "filename": "a.bin"}
        restored = self.post("/slots/0?action=restore", body)
        self.assertEqual(self.got(restored), (500, LOST))
        self.assertEqual(self.statuses()["alpha"], "unloaded")
        self.assertFalse(self.router.died)

    def test_a_fault_of_a_models_server_is_an_error_of_the_proxy(self) -> None:
        self.serve()
        for fault in (Abort(), Die()):
            self.router.child("alpha").plan(fault, path=COMPLETION)
            self.assertEqual(self.got(self.post(COMPLETION, prompt("alpha"))), (500, LOST))
        self.assertEqual(self.router.status("alpha"), "unloaded")

    def test_a_fault_of_the_routers_is_not(self) -> None:
        self.serve()
        self.router.plan(Abort(), path=COMPLETION, model="alpha")
        asked = self.post(COMPLETION, prompt("alpha"))
        self.treq.flush()
        self.failureResultOf(asked)
        self.router.plan(Refuse(500, "no"), action="save", model="alpha")
        self.assertEqual(self.refused(self.save("alpha")), (500, "no"))
        self.assertEqual(self.router.status("alpha"), "loaded")
        self.router.plan(Answer(418, b"tea"), path="/models")
        self.assertEqual(self.got(self.ask("GET", "/models")), (418, b"tea"))


class SleepTests(RouterCase):
    """
    A model that sleeps.
    """

    def setUp(self) -> None:
        super().setUp()
        self.serve({"alpha": FakeModel(sleep_idle_seconds=60)})
        self.answered(self.post("/models/load", {"model": "alpha"}))

    def test_falls_asleep_when_idle_and_only_looking_does_not_wake_it(self) -> None:
        self.advance(60)
        self.assertEqual(self.statuses(), {"alpha": "sleeping"})
        self.assertTrue(self.get("/props?model=alpha")["is_sleeping"])
        self.assertIn("meta", self.get("/models")["data"][0])
        self.assertEqual(self.router.status("alpha"), "sleeping")

    def test_wakes_without_its_cache(self) -> None:
        self.generate("alpha")
        self.router.fall_asleep("alpha")
        saved = self.answered(self.save("alpha"))
        self.assertEqual((saved["n_saved"], saved["n_written"]), (0, 36))
        self.assertEqual(self.router.status("alpha"), "loaded")
        self.assertEqual(self.router.loads, ["alpha"])


class EventTests(RouterCase):
    """
    ``/models/sse``.
    """

    def listen(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.lost: list[Failure] = []

        def got(data: bytes) -> None:
            for block in data.decode().strip().split("\n\n"):
                self.events.append(json.loads(block.removeprefix("data: ")))

        response = self.successResultOf(self.treq.get("http://fake/models/sse"))
        self.assertEqual(response.headers.getRawHeaders("Content-Type"), ["text/event-stream"])
        self.treq.collect(response, got).addErrback(self.lost.append)

    def heard(self) -> list[tuple[str, str, str]]:
        self.treq.flush()
        events, self.events = self.events, []
        return [(e["model"], e["event"], e["data"]["status"]) for e in events]

    def load(self, model: str) -> list[tuple[str, str, str]]:
        return [
            (model, "model_status", "loading"),
            (model, "status_change", "loading"),
            (model, "status_change", "loading"),
            (model, "status_change", "loaded"),
        ]

    def test_tells_what_becomes_of_models(self) -> None:
        self.serve(models_max=1)
        self.listen()
        self.assertEqual(self.heard(), [])
        self.generate("alpha")
        self.assertEqual(self.heard(), self.load("alpha"))
        self.generate("beta")
        gone = ("alpha", "status_change", "unloaded")
        self.assertEqual(self.heard(), [gone, *self.load("beta")])
        self.router.fall_asleep("beta")
        self.assertEqual(self.heard(), [("beta", "status_change", "sleeping")])
        self.get("/slots?model=beta")
        self.assertEqual(self.heard(), self.load("beta")[1:])

    def test_tells_how_a_process_ended(self) -> None:
        self.serve({"alpha": FakeModel(broken=True)})
        self.listen()
        self.got(self.post(COMPLETION, prompt("alpha")))
        self.assertEqual(self.events[-1]["data"], {"status": "unloaded", "exit_code": 1})

    def test_who_was_cut_off_misses_what_happens(self) -> None:
        self.serve()
        self.listen()
        self.router.drop_events()
        self.treq.flush()
        self.assertEqual(len(self.lost), 1)
        self.generate("alpha")
        self.listen()
        self.generate("beta")
        self.assertEqual(self.heard(), self.load("beta"))

    def test_an_older_build_has_none(self) -> None:
        self.serve(sse=False)
        self.assertEqual(self.refused(self.ask("GET", "/models/sse"))[0], 404)


class OnASocketTests(TestCase):
    """
    On a real port.
    """

    timeout = 20

    async def setUp(self) -> None:  # type: ignore[override]
        self.router = FakeRouter(reactor, {"alpha": "/a.gguf", "beta": "/b.gguf"}, models_max=1)
        self.addCleanup(self.router.stop)
        await self.router.listen(reactor)

    async def ask(self, method: str, path: str, **options: Any) -> bytes:
        client = HTTPClient(Agent(reactor))
        response = await client.request(method, self.router.url + path, **options)
        body: bytes = await treq.content(response)
        return body

    async def test_dies_with_all_it_has_and_comes_back_empty_at_its_port(self) -> None:
        self.router.plan(Hang(), path=COMPLETION, model="alpha")
        running = Deferred.fromCoroutine(self.ask("POST", COMPLETION, json=prompt("alpha")))
        await self.router.seen(model="alpha")
        waiting = Deferred.fromCoroutine(self.ask("POST", COMPLETION, json=prompt("beta")))
        await self.router.seen(model="beta")
        events = Deferred.fromCoroutine(self.ask("GET", "/models/sse"))
        await self.router.seen(path="/models/sse")
        self.router.die()
        for request in (running, waiting, events):
            with self.assertRaises(ResponseFailed):
                await request
        with self.assertRaises(ConnectError):
            await self.ask("GET", "/models")
        port = self.router.port
        self.assertEqual(await self.router.restart(), port)
        self.assertEqual(self.router.status("alpha"), "unloaded")
        await self.ask("POST", COMPLETION, json=prompt("beta"))
        self.assertEqual(self.router.status("beta"), "loaded")

    async def test_a_stream_whose_client_goes_leaves_its_model_free(self) -> None:
        self.router.child("alpha").speed = Speed(generation=100)
        body = prompt("alpha", stream=True, n_predict=-1)
        client = HTTPClient(Agent(reactor))
        response = await client.post(self.router.url + COMPLETION, json=body, unbuffered=True)
        reader = Protocol()
        response.deliverBody(reader)
        assert reader.transport is not None
        reader.transport.loseConnection()
        await self.ask("POST", COMPLETION, json=prompt("beta"))
        self.assertEqual(self.router.unloads, ["alpha"])


def test_the_package_names_it() -> None:
    assert slotgate.testing.FakeRouter is FakeRouter
    assert slotgate.testing.FakeModel is FakeModel
