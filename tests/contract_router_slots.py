"""
What slotgate relies on in a llama-server in router mode, continued from :mod:`contract_router`:
requests and slots, which model gives way to another, what fails and what sleeps.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import contract
from contract_router import (
    ALPHA,
    BETA,
    BROKEN,
    CUT,
    GAMMA,
    LONG,
    NAME_MISSING,
    NOT_CONNECTED,
    NOT_LOADED,
    ODD,
    RouterServed,
    RouterStarted,
)
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

GENERATIONS: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "hello", "n_predict": 1},
    "/v1/completions": {"prompt": "hello", "max_tokens": 1},
    "/v1/chat/completions": {"messages": contract.MESSAGES, "max_tokens": 1},
    "/v1/responses": {"input": "hello", "max_output_tokens": 1},
    "/v1/messages": {"messages": contract.MESSAGES, "max_tokens": 1},
}


class RequestContract(RouterServed):
    """
    Requests and slot calls: which model they reach, and how.
    """

    async def at_rest(self, model: str) -> dict[str, Any]:
        """
        The model's slot as soon as it does not work.
        """
        while (found := await self.slot_of(model))["is_processing"]:
            await deferLater(reactor, 0.01)
        return found

    # names

    async def test_all_surfaces_reach_the_model_in_the_body(self) -> None:
        for path, body in GENERATIONS.items():
            answer = await self.post(path, {"model": GAMMA, **body})
            self.assertEqual((path, answer.code), (path, 200), answer.body)
            self.assertEqual(answer.json["model"], GAMMA)
        self.assertEqual(await self.running(), [GAMMA])

    async def test_a_model_that_is_not_known_is_one_error_on_all_surfaces(self) -> None:
        for path, body in GENERATIONS.items():
            answer = await self.post(path, {"model": "nope", **body})
            await self.wrong(answer, 400, "model 'nope' not found")
        await self.wrong(await self.ask_slots("nope"), 400, "model 'nope' not found")
        await self.wrong(await self.do("erase", "nope"), 400, "model 'nope' not found")

    async def test_only_the_body_names_the_model(self) -> None:
        for path, body in GENERATIONS.items():
            for named in ({}, {"model": None}, {"model": 5}, {"model": ""}):
                answer = await self.post(path + "?model=alpha", {**body, **named})
                await self.wrong(answer, 400, NAME_MISSING)
        answer = await self.post("/slots/0?action=save&model=alpha", {"filename": "a.bin"})
        await self.wrong(answer, 400, NAME_MISSING)

    async def test_only_the_query_names_the_model_whose_slots_are_asked_for(self) -> None:
        await self.wrong(await self.ask("GET", "/slots"), 400, NAME_MISSING)

    async def test_metrics_are_those_of_a_model(self) -> None:
        await self.wrong(await self.ask("GET", "/metrics"), 400, NAME_MISSING)
        await self.turn(ALPHA, "a" * 100)
        answer = await self.ask("GET", "/metrics?model=alpha&autoload=false")
        self.assertIn(b"\nllamacpp:prompt_tokens_total 101\n", answer.body)

    async def test_an_erase_without_a_body_is_refused(self) -> None:
        answer = await self.ask("POST", "/slots/0?action=erase")
        self.assertEqual(answer.code, 400)
        self.assertIn("parse error", answer.json["error"]["message"])

    async def test_an_alias_is_the_same_model_and_slot(self) -> None:
        prompt = "a" * 300
        await self.turn(ALPHA, prompt)
        self.assertEqual(await self.turn("openai/first", prompt + "b"), (301, 1))
        self.assertEqual((await self.say("first")).json["model"], ALPHA)
        self.assertEqual(await self.slot_of("first"), await self.slot_of(ALPHA))
        self.assertEqual(await self.running(), [ALPHA])

    async def test_odd_names_work_everywhere(self) -> None:
        await self.turn(ODD, "a" * 100)
        saved = await self.done("save", ODD, "odd.bin")
        self.assertEqual(saved["n_saved"], 101)
        self.assertEqual((await self.slot_of(ODD))["n_prompt_tokens"], 101)
        answer = await self.ask("GET", f"/props?model={quote(ODD)}&autoload=false")
        self.assertEqual(answer.json["model_alias"], ODD)
        await self.unloaded(ODD)

    # what passes through

    async def test_answers_are_chunked(self) -> None:
        line = await self.send("/completion", model=ALPHA, prompt="a", n_predict=1)
        await line.closed
        head, _, _ = line.data.lower().partition(b"\r\n\r\n")
        self.assertIn(b"\r\ncontent-type: application/json", head)
        self.assertIn(b"\r\ntransfer-encoding: chunked", head)
        self.assertNotIn(b"content-length", head)

    async def test_a_stream_is_the_servers(self) -> None:
        body = {"model": ALPHA, "messages": contract.MESSAGES, "max_tokens": 2, "stream": True}
        answer = await self.post("/v1/chat/completions", {**contract.STEADY, **body})
        self.assertTrue(answer.headers["content-type"].startswith("text/event-stream"))
        *_, (_, last), (_, end) = answer.events()
        self.assertEqual(end, "[DONE]")
        self.assertEqual(last["timings"]["prompt_n"], contract.MESSAGES_TOKENS)

    async def test_a_body_may_come_in_chunks(self) -> None:
        line = await self.connect()
        content = json.dumps({"model": ALPHA, "prompt": "a", "n_predict": 1}).encode()
        line.write(
            b"POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for part in (content[:9], content[9:]):
            line.write(b"%x\r\n%b\r\n" % (len(part), part))
        line.write(b"0\r\n\r\n")
        await line.closed
        self.assertTrue(line.data.startswith(b"HTTP/1.1 200 "), line.data)

    async def test_the_servers_errors_pass(self) -> None:
        await self.loaded(ALPHA)
        answer = await self.do("restore", ALPHA, "none.bin")
        await self.refused(answer, 400, "invalid_request_error", contract.CANNOT_RESTORE)
        await self.wrong(await self.do("frob", ALPHA), 400, "Invalid action")

    async def test_a_stream_whose_client_goes_away_is_stopped(self) -> None:
        line = await self.stream(ALPHA)
        await line.leave()
        self.assertLess((await self.at_rest(ALPHA))["n_prompt_tokens"], LONG)

    async def test_an_answer_whose_client_goes_away_is_written_to_its_end(self) -> None:
        line = await self.plain(ALPHA, tokens=2000)
        await line.leave()
        self.assertGreaterEqual((await self.at_rest(ALPHA))["n_prompt_tokens"], 2000)

    # loading by request

    async def test_requests_that_must_not_load_do_not(self) -> None:
        paths = [*GENERATIONS, "/tokenize", "/slots/0", "/v1/messages/count_tokens"]
        for path in paths:
            for query in ("autoload=false", "action=save&autoload=0"):
                body = {"model": ALPHA, "filename": "a.bin", **GENERATIONS.get(path, {})}
                await self.wrong(await self.post(f"{path}?{query}", body), 400, NOT_LOADED)
        for path in ("/slots", "/props", "/metrics"):
            answer = await self.ask("GET", f"{path}?model=alpha&autoload=false")
            await self.wrong(answer, 400, NOT_LOADED)
        self.assertEqual(await self.running(), [])

    async def test_slot_calls_that_may_load_do_and_destroy_the_file(self) -> None:
        await self.turn(ALPHA, "a" * 100)
        self.assertEqual((await self.done("save", ALPHA, "good.bin"))["n_saved"], 101)
        await self.unloaded(ALPHA)
        answer = await self.do("save", ALPHA, "good.bin", autoload=True)
        self.assertEqual((answer.json["n_saved"], answer.json["n_written"]), (0, 36))
        self.assertEqual((self.folder / "good.bin").stat().st_size, 36)
        self.assertEqual(await self.status(ALPHA), "loaded")
        answer = await self.ask_slots(BETA, autoload=True)
        self.assertNotIn("n_prompt_tokens", answer.json[0])
        self.assertEqual(await self.running(), [ALPHA, BETA])

    async def test_a_loading_model_cannot_be_reached_without_waiting(self) -> None:
        await self.post("/models/load", {"model": ALPHA})
        while (answer := await self.ask_slots(ALPHA)).code != 200:
            if answer.code == 503:
                self.assertEqual(answer.json["error"]["message"], "Loading model")
            else:
                self.assertEqual((answer.code, answer.body), (500, NOT_CONNECTED))

    async def test_requests_for_one_model_load_it_once(self) -> None:
        watch = await self.watch()
        answers = await gatherResults(
            [Deferred.fromCoroutine(self.say(name)) for name in (ALPHA, "first", ALPHA, ALPHA)]
        )
        self.assertEqual([answer.code for answer in answers], [200] * 4)
        self.assertEqual(watch.statuses(), ["alpha loading", "alpha loaded"])

    async def test_a_saved_slot_survives_an_unload(self) -> None:
        prompt = "a" * 1000
        await self.turn(ALPHA, prompt)
        await self.done("save", ALPHA, "a.bin")
        await self.unloaded(ALPHA)
        await self.wrong(await self.do("restore", ALPHA, "a.bin"), 400, NOT_LOADED)
        await self.post("/models/load", {"model": ALPHA})
        await self.until(ALPHA, "loaded")
        await self.done("restore", ALPHA, "a.bin")
        self.assertEqual(await self.turn(ALPHA, prompt), (1000, 1))


class TwoSlotContract(RouterServed):
    """
    Models with two slots each.
    """

    started = RouterStarted(parallel=2)

    async def test_id_slot_is_heard(self) -> None:
        for number in (1, 0):
            body = {"model": ALPHA, "prompt": "a" * 50, "n_predict": 1, "id_slot": number}
            self.assertEqual((await self.post("/completion", body)).json["id_slot"], number)
        tokens = [(await self.slot_of(ALPHA, number))["n_prompt_tokens"] for number in (0, 1)]
        self.assertEqual(tokens, [51, 51])


class VictimContract(RouterServed):
    """
    Which model gives way when another one is asked for.
    """

    async def after(self, name: str) -> list[str]:
        """
        What runs once a model was asked for.
        """
        await self.loaded(name)
        return await self.running()

    async def asked(self, path: str) -> None:
        """
        Ask for something, until the router has closed the connection: only then, a moment after
        the answer, does it no longer count the request as one in flight.
        """
        line = await self.connect()
        line.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        await line.closed
        self.assertTrue(line.data.startswith(b"HTTP/1.1 200 "), line.data)

    async def test_it_is_the_one_used_longest_ago(self) -> None:
        await self.loaded(ALPHA, BETA)
        self.assertEqual(await self.after(GAMMA), [BETA, GAMMA])
        await self.loaded(BETA)
        self.assertEqual(await self.after(ODD), [BETA, ODD])

    async def test_it_is_gone_before_the_other_one_is_loaded(self) -> None:
        await self.loaded(ALPHA, BETA)
        watch = await self.watch()
        await self.loaded(GAMMA)
        await watch.until(GAMMA, "loaded")
        self.assertEqual(watch.statuses(), ["alpha unloaded", "gamma loading", "gamma loaded"])

    async def test_saving_a_slot_is_a_use(self) -> None:
        await self.loaded(ALPHA, BETA)
        await self.done("save", ALPHA, "a.bin")
        self.assertEqual(await self.after(GAMMA), [ALPHA, GAMMA])

    async def test_every_post_is_a_use(self) -> None:
        for path, body in (
            ("/tokenize", {"content": "a"}),
            ("/slots/0?action=erase", {}),
            ("/slots/0?action=restore", {"filename": "none.bin"}),
        ):
            await self.loaded(ALPHA, BETA)
            await self.post(path, {"model": ALPHA, **body})
            self.assertEqual((path, await self.after(GAMMA)), (path, [ALPHA, GAMMA]))
            await self.unloaded(GAMMA)

    async def test_asking_is_no_use(self) -> None:
        await self.loaded(ALPHA, BETA)
        for path in ("/slots", "/props", "/metrics"):
            await self.asked(f"{path}?model=alpha&autoload=false")
        self.assertEqual(await self.after(GAMMA), [BETA, GAMMA])

    async def test_loading_is_a_use(self) -> None:
        await self.loaded(BETA)
        await self.post("/models/load", {"model": ALPHA})
        await self.until(ALPHA, "loaded")
        self.assertEqual(await self.after(GAMMA), [ALPHA, GAMMA])

    async def test_a_model_at_work_does_not_give_way(self) -> None:
        await self.loaded(ALPHA)
        line = await self.stream(ALPHA)
        await self.loaded(BETA)
        self.assertEqual(await self.after(GAMMA), [ALPHA, GAMMA])
        self.assertFalse(line.closed.called)

    async def test_a_model_works_for_a_client_that_went_away_too(self) -> None:
        await self.loaded(ALPHA)
        line = await self.plain(ALPHA)
        await line.leave()
        await self.loaded(BETA)
        self.assertEqual(await self.after(GAMMA), [ALPHA, GAMMA])
        self.assertTrue((await self.slot_of(ALPHA))["is_processing"])

    async def test_when_all_work_the_first_to_end_gives_way_at_once(self) -> None:
        lines = {name: await self.stream(name) for name in (ALPHA, BETA)}
        watch = await self.watch()
        waiting = Deferred.fromCoroutine(self.turn(GAMMA))
        for _ in range(20):
            await self.running()
        self.assertFalse(waiting.called)
        await lines[BETA].leave()
        await waiting
        self.assertEqual(watch.statuses(), ["beta unloaded", "gamma loading", "gamma loaded"])
        self.assertFalse(lines[ALPHA].closed.called)

    async def test_who_waits_and_goes_away_stands_in_nobodys_way(self) -> None:
        lines = [await self.stream(name) for name in (ALPHA, BETA)]
        gone = await self.send("/completion", model=GAMMA, prompt="a", n_predict=1)
        await self.running()
        await gone.leave()
        waiting = Deferred.fromCoroutine(self.turn(ODD))
        await lines[0].leave()
        await waiting
        self.assertEqual(await self.running(), [BETA, ODD])
        self.assertFalse(lines[1].closed.called)


class NoLimitContract(RouterServed):
    """
    A router that may load all of its models.
    """

    started = RouterStarted(models_max=0)

    async def test_none_gives_way(self) -> None:
        self.assertEqual((await self.get("/props"))["max_instances"], 0)
        await self.loaded(ALPHA, BETA, GAMMA, ODD)
        self.assertEqual(await self.running(), [ALPHA, BETA, GAMMA, ODD])


class NoAutoloadContract(RouterServed):
    """
    A router whose models are loaded by hand.
    """

    started = RouterStarted(autoload=False)

    async def test_requests_load_nothing_unless_they_say_so(self) -> None:
        self.assertFalse((await self.get("/props"))["models_autoload"])
        await self.wrong(await self.say(ALPHA), 400, NOT_LOADED)
        body = {"model": ALPHA, "prompt": "a", "n_predict": 1}
        for value in ("true", "1"):
            answer = await self.post(f"/completion?autoload={value}", body)
            self.assertEqual(answer.code, 200, answer.body)
            await self.unloaded(ALPHA)


class FailureContract(RouterServed):
    """
    Models that cannot be loaded, and those that die.
    """

    started = RouterStarted(models_max=1)

    async def test_a_broken_model_is_an_error_each_time(self) -> None:
        for path, body in GENERATIONS.items():
            answer = await self.post(path, {"model": BROKEN, **body})
            await self.wrong(answer, 500, "model name=broken failed to load")
        status = (await self.model(BROKEN))["status"]
        self.assertEqual((status["value"], status["failed"]), ("unloaded", True))
        self.assertEqual(await self.turn(ALPHA), (0, 6))

    async def test_a_broken_model_costs_another_one_its_place(self) -> None:
        await self.loaded(ALPHA)
        await self.say(BROKEN)
        self.assertEqual(await self.running(), [])

    async def test_a_crash_ends_a_stream_as_if_it_were_whole(self) -> None:
        line = await self.stream(ALPHA)
        await self.crash(ALPHA)
        await line.closed
        self.assertIn(CUT, line.data[-80:])
        self.assertTrue(line.data.endswith(b"\r\n0\r\n\r\n"), line.data[-80:])

    async def test_a_crash_before_an_answer_is_an_error_without_json(self) -> None:
        line = await self.plain(ALPHA)
        await self.crash(ALPHA)
        await line.closed
        head, _, body = line.data.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 500 "), head)
        self.assertIn(CUT, body)

    async def test_after_a_crash_the_model_is_loaded_again(self) -> None:
        await self.turn(ALPHA, "a" * 100)
        await self.crash(ALPHA)
        # at first the router may not have noticed
        while (answer := await self.say(ALPHA, "a" * 100)).code != 200:
            self.assertIn((answer.code, answer.body), ((500, NOT_CONNECTED), (500, CUT)))
        self.assertEqual(answer.json["timings"]["prompt_n"], 101)

    async def test_a_crashed_model_frees_its_place(self) -> None:
        await self.stream(ALPHA)
        waiting = Deferred.fromCoroutine(self.turn(BETA))
        await self.running()
        await self.crash(ALPHA)
        self.assertEqual(await waiting, (0, 6))


class SleepContract(RouterServed):
    """
    Models that sleep when idle for a second.
    """

    started = RouterStarted(sleep_idle_seconds=1)

    async def asleep(self, *names: str) -> None:
        await self.loaded(*names)
        for name in names:
            await self.until(name, "sleeping")

    async def test_it_is_told(self) -> None:
        watch = await self.watch()
        await self.asleep(ALPHA)
        event = await watch.until(ALPHA, "sleeping")
        self.assertEqual(
            event,
            {"model": ALPHA, "event": "status_change", "data": {"status": "sleeping"}},
        )
        self.assertIn("meta", await self.model(ALPHA))
        await self.turn(ALPHA)
        awake = await watch.until(ALPHA, "loaded")
        self.assertEqual(awake["data"], {"status": "loaded"})
        self.assertEqual(
            watch.statuses(ALPHA), ["loading", "loaded", "sleeping", "loading", "loaded"]
        )
        names = [event["event"] for event in watch.events()]
        self.assertEqual(names.count("model_status"), 1)

    async def test_asking_for_props_or_models_wakes_nothing(self) -> None:
        await self.asleep(ALPHA)
        for path in ("/props?model=alpha", "/props?model=alpha&autoload=false"):
            self.assertTrue((await self.get(path))["is_sleeping"])
        await self.ask("GET", "/metrics?model=alpha")
        answer = await self.post("/models/load", {"model": ALPHA})
        await self.wrong(answer, 400, "model is already running")
        self.assertEqual(await self.status(ALPHA), "sleeping")

    async def test_asking_for_slots_wakes_and_they_are_empty(self) -> None:
        await self.asleep(ALPHA)
        self.assertNotIn("n_prompt_tokens", await self.slot_of(ALPHA))
        self.assertEqual(await self.status(ALPHA), "loaded")

    async def test_a_save_wakes_and_destroys_the_file(self) -> None:
        await self.loaded(ALPHA)
        await self.done("save", ALPHA, "good.bin")
        await self.until(ALPHA, "sleeping")
        saved = await self.done("save", ALPHA, "good.bin")
        self.assertEqual((saved["n_saved"], saved["n_written"]), (0, 36))
        self.assertEqual((self.folder / "good.bin").stat().st_size, 36)

    async def test_for_a_request_that_must_not_load_it_is_loaded(self) -> None:
        await self.asleep(ALPHA)
        body = {"model": ALPHA, "prompt": "hello", "n_predict": 1}
        answer = await self.post("/completion?autoload=false", body)
        self.assertEqual(answer.json["timings"]["prompt_n"], 6)

    async def test_it_takes_a_place_and_gives_way_as_others_do(self) -> None:
        await self.asleep(ALPHA, BETA)
        await self.loaded(GAMMA)
        self.assertEqual(await self.running(), [BETA, GAMMA])

    async def test_it_can_be_unloaded(self) -> None:
        await self.asleep(ALPHA)
        self.assertNotIn("failed", (await self.unloaded(ALPHA))["status"])

    async def test_it_can_crash(self) -> None:
        await self.asleep(ALPHA)
        await self.crash(ALPHA)
        self.assertTrue((await self.until(ALPHA, "unloaded"))["status"]["failed"])
