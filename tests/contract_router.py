"""
What slotgate relies on in a llama-server in router mode, as tests that run unchanged against the
fake and the real one: what it tells, and how models are loaded and unloaded.

Mixed as those of :mod:`contract` are, with a class that serves: see :class:`RouterServed`. What
requests and slots do is in :mod:`contract_router_slots`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from urllib.parse import quote

import contract
from attrs import frozen
from router_watch import Watch
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

ALPHA, BETA, GAMMA = "alpha", "beta", "gamma"
BROKEN = "broken"
"""A model whose file is none."""
ODD = "org/ö dd:Q4"
ALIASES = ["first", "openai/first"]
"""Other names of alpha."""
MODELS = [ALPHA, BETA, BROKEN, GAMMA, ODD]

LONG = 7000
"""So many tokens that writing them takes seconds: no test waits for the end."""

NOT_LOADED = "model is not loaded"
NAME_MISSING = "model name is missing from the request"
CUT = b"proxy error: Failed to read connection"
NOT_CONNECTED = b"proxy error: Could not establish connection"


@frozen
class RouterStarted(contract.Started):
    """
    How a contract wants its router started; what it inherits is for each model.
    """

    models_max: int = 2
    autoload: bool = True
    stop_timeout: int = 1


class RouterServed(contract.Contract):
    """
    A router started as the contract wants it, and how the contracts speak to it.

    What serves it gives ``setUp`` (``url`` and ``folder`` are set and no model is loaded) and
    :meth:`crash`. It serves the models of :data:`MODELS`, alpha with :data:`ALIASES`, all with the
    same weights, which read :data:`contract.CHUNK` tokens in one go.

    :cvar started: how.
    """

    started: RouterStarted = RouterStarted()

    async def crash(self, model: str) -> None:
        """
        Kill the process that serves a model.
        """
        raise NotImplementedError

    async def model(self, name: str) -> dict[str, Any]:
        """
        A model as ``/models`` tells of it.
        """
        models = {model["id"]: model for model in (await self.get("/models"))["data"]}
        found: dict[str, Any] = models[name]
        return found

    async def status(self, name: str) -> str:
        value: str = (await self.model(name))["status"]["value"]
        return value

    async def running(self) -> list[str]:
        """
        The models that are not unloaded.
        """
        models = (await self.get("/models"))["data"]
        return [model["id"] for model in models if model["status"]["value"] != "unloaded"]

    async def until(self, name: str, status: str) -> dict[str, Any]:
        """
        Wait until a model has a status, and give what ``/models`` then tells of it.
        """
        while (found := await self.model(name))["status"]["value"] != status:
            await deferLater(reactor, 0.01)
        return found

    async def watch(self) -> Watch:
        """
        Listen to what happens from now on.
        """
        response = await self.client().get(self.url + "/models/sse")
        self.assertEqual(response.code, 200)
        (kind,) = response.headers.getRawHeaders("content-type")
        self.assertTrue(kind.startswith("text/event-stream"), kind)
        watch = Watch()
        response.deliverBody(watch)

        async def leave() -> None:
            if not watch.ended.called:
                assert watch.transport is not None
                watch.transport.loseConnection()
                await watch.ended

        self.addCleanup(lambda: Deferred.fromCoroutine(leave()))
        return watch

    async def say(self, model: str, prompt: str = "hello", tokens: int = 1) -> contract.Answer:
        """
        Let a model go on with a prompt, always with the same words.
        """
        body = {"model": model, "prompt": prompt, "n_predict": tokens, **contract.STEADY}
        return await self.post("/completion", body)

    async def turn(self, model: str, prompt: str = "hello") -> tuple[int, int]:
        """
        How many tokens of a prompt came from the cache, and how many were read.
        """
        answer = await self.say(model, prompt)
        self.assertEqual(answer.code, 200, answer.body)
        timings = answer.json["timings"]
        return timings["cache_n"], timings["prompt_n"]

    async def loaded(self, *names: str) -> None:
        """
        Have these models loaded, and used in this order.
        """
        for name in names:
            await self.turn(name)

    async def ask_slots(self, model: str, autoload: bool = False) -> contract.Answer:
        suffix = "" if autoload else "&autoload=false"
        return await self.ask("GET", f"/slots?model={quote(model, safe='')}{suffix}")

    async def slot_of(self, model: str, number: int = 0) -> dict[str, Any]:
        answer = await self.ask_slots(model)
        self.assertEqual(answer.code, 200, answer.body)
        slot: dict[str, Any] = answer.json[number]
        return slot

    async def do(
        self, action: str, model: str, filename: str = "", *, autoload: bool = False
    ) -> contract.Answer:
        """
        A slot action.
        """
        body = {"model": model, **({"filename": filename} if filename else {})}
        suffix = "" if autoload else "&autoload=false"
        return await self.post(f"/slots/0?action={action}{suffix}", body)

    async def done(self, action: str, model: str, filename: str = "") -> dict[str, Any]:
        answer = await self.do(action, model, filename)
        self.assertEqual(answer.code, 200, answer.body)
        result: dict[str, Any] = answer.json
        return result

    async def unload(self, model: str) -> contract.Answer:
        return await self.post("/models/unload", {"model": model})

    async def unloaded(self, model: str) -> dict[str, Any]:
        """
        Unload a model and wait until it is gone.
        """
        answer = await self.unload(model)
        self.assertEqual((answer.code, answer.json), (200, {"success": True}))
        return await self.until(model, "unloaded")

    async def stream(self, model: str, tokens: int = LONG) -> contract.Line:
        """
        Start a long streamed answer; gives its connection once the answer has begun.
        """
        line = await self.send(
            "/completion", model=model, prompt="tell", n_predict=tokens, stream=True
        )
        await line.heard
        return line

    async def plain(self, model: str, tokens: int = LONG) -> contract.Line:
        """
        Start a long answer that is not streamed; gives its connection once the slot is at work.
        """
        line = await self.send("/completion", model=model, prompt="tell", n_predict=tokens)
        while True:
            answer = await self.ask_slots(model)
            if answer.code == 200 and answer.json[0]["is_processing"]:
                return line
            self.assertFalse(line.heard.called, line.data)

    async def wrong(self, answer: contract.Answer, code: int, message: str) -> None:
        """
        Check that an answer is an error in the one shape that all of the router's own have.
        """
        kind = {400: "invalid_request_error", 404: "not_found_error", 500: "server_error"}[code]
        self.assertEqual(
            (answer.code, answer.json),
            (code, {"error": {"code": code, "message": message, "type": kind}}),
        )


def options_of(model: dict[str, Any]) -> dict[str, str]:
    """
    The options in a model's command line that have a value.
    """
    return {
        name.removeprefix("--"): value
        for name, value in pairwise(model["status"]["args"])
        if name.startswith("--")
    }


class TellingContract(RouterServed):
    """
    What a router tells of itself and its models.
    """

    started = RouterStarted(parallel=2)

    async def test_it_is_well_without_a_model(self) -> None:
        self.assertEqual(await self.get("/health"), {"status": "ok"})

    async def test_props_tell_that_it_is_a_router_and_its_limit(self) -> None:
        props = await self.get("/props")
        self.assertTrue(props.pop("build_info"))
        self.assertEqual(
            props,
            {
                "role": "router",
                "max_instances": 2,
                "models_autoload": True,
                "model_alias": "llama-server",
                "model_path": "none",
                "default_generation_settings": {"params": None, "n_ctx": 0},
                "ui_settings": {},
                "cors_proxy_enabled": False,
            },
        )

    async def test_props_of_a_loaded_model_are_those_of_a_server(self) -> None:
        await self.loaded(ALPHA)
        props = await self.get("/props?model=alpha&autoload=false")
        self.assertEqual(props["total_slots"], 2)
        self.assertFalse(props["is_sleeping"])
        self.assertTrue(props["model_path"])
        self.assertNotIn("role", props)
        self.assertEqual(props["model_alias"], ALPHA)

    async def test_props_of_a_model_load_it_unless_told_not_to(self) -> None:
        answer = await self.ask("GET", "/props?model=alpha&autoload=false")
        await self.wrong(answer, 400, NOT_LOADED)
        self.assertEqual(await self.running(), [])
        await self.get("/props?model=alpha")
        self.assertEqual(await self.status(ALPHA), "loaded")

    async def test_models_are_told_in_the_order_of_their_names(self) -> None:
        answer = await self.get("/models")
        self.assertEqual(answer["object"], "list")
        self.assertEqual([model["id"] for model in answer["data"]], MODELS)
        for model in answer["data"]:
            self.assertIsInstance(model.pop("created"), int)
            self.assertEqual(model["status"].pop("value"), "unloaded")
            self.assertEqual(set(model.pop("status")), {"args", "preset"})
            self.assertEqual(
                model,
                {
                    "id": model["id"],
                    "aliases": ALIASES if model["id"] == ALPHA else [],
                    "tags": [],
                    "object": "model",
                    "owned_by": "llamacpp",
                    "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                    "source": "preset",
                    "can_remove": False,
                },
            )

    async def test_both_lists_are_one(self) -> None:
        lists = [await self.get(path) for path in ("/models", "/v1/models")]
        for models in lists:
            for model in models["data"]:
                del model["created"]
        self.assertEqual(*lists)

    async def test_arguments_are_told_before_a_model_is_loaded(self) -> None:
        for name in (ALPHA, ODD):
            options = options_of(await self.model(name))
            self.assertEqual(options["alias"], name)
            self.assertEqual(options["port"], "0")
            self.assertEqual(options["parallel"], "2")
            self.assertEqual(options["ctx-size"], str(2 * self.started.context))
            self.assertEqual(options["cache-ram"], "0")
            self.assertEqual(options["slot-save-path"].rstrip("/"), str(self.folder))
            self.assertNotIn("sleep-idle-seconds", options)

    async def test_a_loaded_model_tells_its_port_and_shape(self) -> None:
        await self.loaded(ALPHA)
        model = await self.model(ALPHA)
        self.assertGreater(int(options_of(model)["port"]), 0)
        self.assertLessEqual(
            {"n_vocab", "n_ctx", "n_ctx_train", "n_embd", "n_params", "size", "ftype"},
            set(model["meta"]),
        )
        self.assertEqual(model["meta"]["n_ctx"], self.started.context)
        self.assertNotIn("meta", await self.unloaded(ALPHA))


class KeyContract(RouterServed):
    """
    A router that asks for a key.
    """

    started = RouterStarted(api_key="secret")

    async def test_all_but_health_needs_it(self) -> None:
        self.assertEqual(await self.get("/health"), {"status": "ok"})
        for path in ("/props", "/models", "/v1/models", "/models/sse", "/slots?model=alpha"):
            answer = await self.ask("GET", path)
            self.assertEqual((answer.code, path), (401, path))
            self.assertEqual(answer.json["error"]["type"], "authentication_error")
        for path in ("/completion", "/slots/0?action=erase", "/models/load", "/models/unload"):
            answer = await self.post(path, {"model": ALPHA, "prompt": "a"})
            self.assertEqual((answer.code, path), (401, path))

    async def test_who_has_it_is_served(self) -> None:
        headers = {"Authorization": "Bearer secret"}
        body = {"model": ALPHA, "prompt": "a", "n_predict": 1}
        answer = await self.ask("POST", "/completion", json=body, headers=headers)
        self.assertEqual(answer.code, 200, answer.body)


class LoadingContract(RouterServed):
    """
    Loading and unloading, and how they are told.
    """

    # what is told

    async def test_nothing_is_told_of_what_was_before(self) -> None:
        await self.loaded(ALPHA)
        watch = await self.watch()
        await self.loaded(BETA)
        self.assertEqual({event["model"] for event in watch.events()}, {BETA})

    async def test_a_load_is_told(self) -> None:
        watch = await self.watch()
        await self.loaded(ALPHA)
        await watch.until(ALPHA, "loaded")
        first, *between, last = watch.events()
        loading = {"model": ALPHA, "event": "model_status", "data": {"status": "loading"}}
        self.assertEqual(first, loading)
        for event in between:
            self.assertEqual(event["event"], "status_change")
            self.assertEqual(event["data"]["status"], "loading")
            self.assertIn("progress", event["data"])
        self.assertEqual((last["model"], last["event"]), (ALPHA, "status_change"))
        self.assertEqual(last["data"]["info"]["meta"], (await self.model(ALPHA))["meta"])

    async def test_an_unload_is_told_by_the_real_name(self) -> None:
        await self.loaded(ODD, ALPHA)
        watch = await self.watch()
        await self.unload("first")
        self.assertEqual(
            await watch.until(ALPHA, "unloaded"),
            {
                "model": ALPHA,
                "event": "status_change",
                "data": {"status": "unloaded", "exit_code": 0},
            },
        )
        await self.unload(ODD)
        await watch.until(ODD, "unloaded")

    async def test_a_failure_is_told(self) -> None:
        watch = await self.watch()
        await self.say(BROKEN)
        event = await watch.until(BROKEN, "unloaded")
        self.assertEqual(event["data"], {"status": "unloaded", "exit_code": 1})
        self.assertEqual(watch.statuses(BROKEN), ["loading", "unloaded"])

    async def test_a_crash_is_told(self) -> None:
        await self.loaded(ALPHA)
        watch = await self.watch()
        await self.crash(ALPHA)
        event = await watch.until(ALPHA, "unloaded")
        self.assertEqual(event["data"], {"status": "unloaded", "exit_code": 1})

    async def test_everybody_is_told(self) -> None:
        watches = [await self.watch() for _ in range(3)]
        await self.loaded(ALPHA)
        for watch in watches:
            await watch.until(ALPHA, "loaded")
            self.assertEqual(watch.statuses(), ["alpha loading", "alpha loaded"])

    # load

    async def load(self, model: str) -> contract.Answer:
        return await self.post("/models/load", {"model": model})

    async def test_load_is_answered_and_done_later(self) -> None:
        for name in ("openai/first", ODD):
            answer = await self.load(name)
            self.assertEqual((answer.code, answer.json), (200, {"success": True}))
        await self.until(ALPHA, "loaded")
        await self.until(ODD, "loaded")

    async def test_a_model_that_runs_cannot_be_loaded(self) -> None:
        await self.load(ALPHA)
        await self.wrong(await self.load(ALPHA), 400, "model is already running")
        await self.until(ALPHA, "loaded")
        await self.wrong(await self.load(ALPHA), 400, "model is already running")

    async def test_a_model_that_is_not_known_cannot_be_loaded(self) -> None:
        for body in ({"model": "nope"}, {}):
            answer = await self.post("/models/load", body)
            await self.wrong(answer, 404, "File Not Found")

    async def test_a_failed_load_was_answered_well_and_stays_told(self) -> None:
        self.assertEqual((await self.load(BROKEN)).code, 200)
        status = (await self.until(BROKEN, "unloaded"))["status"]
        self.assertEqual((status["failed"], status["exit_code"]), (True, 1))

    async def test_at_the_limit_load_unloads_the_one_used_longest_ago_first(self) -> None:
        await self.loaded(ALPHA, BETA)
        watch = await self.watch()
        self.assertEqual((await self.load(GAMMA)).code, 200)
        await watch.until(GAMMA, "loaded")
        self.assertEqual(watch.statuses(), ["alpha unloaded", "gamma loading", "gamma loaded"])

    async def test_at_the_limit_load_fails_when_all_work(self) -> None:
        await self.stream(ALPHA)
        await self.stream(BETA)
        await self.wrong(await self.load(GAMMA), 500, "model limit reached, try again later")

    # unload

    async def test_an_unloaded_model_has_not_failed(self) -> None:
        await self.loaded(ALPHA)
        status = (await self.unloaded(ALPHA))["status"]
        self.assertEqual(set(status), {"value", "args", "preset"})

    async def test_what_does_not_run_cannot_be_unloaded(self) -> None:
        await self.wrong(await self.unload(ALPHA), 400, "model is not running")
        for body in ({"model": "nope"}, {}):
            answer = await self.post("/models/unload", body)
            await self.wrong(answer, 400, "model is not found")

    async def test_a_loading_model_can_be_unloaded(self) -> None:
        watch = await self.watch()
        await self.load(ALPHA)
        await self.unload(ALPHA)
        await watch.until(ALPHA, "unloaded")
        self.assertEqual(await self.turn(ALPHA), (0, 6))

    async def test_the_next_load_clears_a_failure(self) -> None:
        await self.loaded(ALPHA)
        await self.crash(ALPHA)
        status = (await self.until(ALPHA, "unloaded"))["status"]
        self.assertEqual((status["failed"], status["exit_code"]), (True, 1))
        await self.loaded(ALPHA)
        self.assertEqual(set((await self.model(ALPHA))["status"]), {"value", "args", "preset"})

    async def test_an_unload_cuts_a_stream(self) -> None:
        line = await self.stream(ALPHA)
        await self.unload(ALPHA)
        await line.closed
        self.assertTrue(line.data.startswith(b"HTTP/1.1 200 "))
        self.assertIn(CUT, line.data[-80:])
        self.assertTrue(line.data.endswith(b"\r\n0\r\n\r\n"), line.data[-80:])

    async def test_an_unload_cuts_an_answer_that_has_not_begun(self) -> None:
        line = await self.plain(ALPHA)
        await self.unload(ALPHA)
        await line.closed
        self.assertTrue(line.data.startswith(b"HTTP/1.1 500 "), line.data)
        self.assertIn(CUT, line.data)
        await self.until(ALPHA, "unloaded")

    async def test_a_busy_model_takes_its_time_and_is_not_to_be_reached(self) -> None:
        line = await self.stream(ALPHA)
        await self.unload(ALPHA)
        # Mostly it is killed after its stop timeout, sometimes it goes at once.
        while (answer := await self.ask_slots(ALPHA)).code != 400:
            if answer.code != 200:  # else it has not heard of it yet
                self.assertEqual((answer.code, answer.body[:13]), (500, b"proxy error: "))
        await self.wrong(answer, 400, NOT_LOADED)
        await line.closed

    async def test_a_request_at_an_unload_waits_and_loads_the_model_again(self) -> None:
        await self.stream(ALPHA)
        watch = await self.watch()
        await self.unload(ALPHA)
        self.assertEqual(await self.turn(ALPHA, "a" * 100), (0, 101))
        self.assertEqual(watch.statuses(ALPHA), ["unloaded", "loading", "loaded"])
