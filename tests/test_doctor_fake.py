"""The doctor on fake servers: right ones, wrong ones, and what is no llama-server at all."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from doctor_case import CONFIG, DoctorCase
from gateway import CLOCK
from relay_gateway import self_signed
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import KeyPair, PrivateCertificate
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from slotgate.doctor import reachable, server
from slotgate.doctor.findings import Level
from slotgate.snapshots.names import OURS
from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.fake_router import FakeModel, FakeRouter
from slotgate.testing.faults import Answer, Hang, NotHttp, Refuse

OK, ADVICE, PROBLEM = Level.OK, Level.ADVICE, Level.PROBLEM


class FakeCase(DoctorCase):
    """With a fake server."""

    async def start(self, **options: Any) -> FakeLlamaServer:
        """Start a fake that stops with the test."""
        fake = FakeLlamaServer(CLOCK, **{"slot_save_path": self.slots, **options})
        self.addCleanup(fake.stop)
        await fake.listen(CLOCK)
        return fake

    async def say(self, fake: FakeLlamaServer, slot: int = 0, length: int = 300) -> None:
        """Let a slot hold something."""
        body = {"prompt": "x" * length, "id_slot": slot, "n_predict": 1, "cache_prompt": True}
        await self.post("/completion", body, base=fake.url)

    async def held(self, fake: FakeLlamaServer, base: str) -> Deferred[Any]:
        """Keep a slot busy; fires when :attr:`hang` was released and the answer is there."""
        self.hang = Hang()
        fake.plan(self.hang, path="/completion")
        body = {"prompt": "x" * 300, "id_slot": 0, "n_predict": 1}
        answer = Deferred.fromCoroutine(self.post("/completion", body, base=base))
        await fake.seen(path="/completion")
        return answer

    async def slots_of(self, fake: FakeLlamaServer) -> Any:
        """The slots as the server shows them."""
        return (await self.get("/slots", fake.url)).json


class RightTests(FakeCase):
    """A server that is set up as it should be."""

    async def test_all_is_well(self) -> None:
        fake = await self.start()
        await self.ask(fake.url)
        self.assert_exit(0)
        self.assert_finds("reach", OK, "llama-server with one model, /models/tiny.gguf")
        self.assert_finds("save", OK, "slot 0 was saved to try it, 0 tokens")
        self.assert_finds("folder", OK, f"what it saves is in {self.slots}, and we can delete it")
        self.assert_finds("disk", OK, "MB/s")

    async def test_nothing_is_different_afterwards(self) -> None:
        fake = await self.start(total_slots=2)
        await self.say(fake)
        (self.slots / "somebody.bin").write_bytes(b"else")
        before = await self.slots_of(fake)
        await self.ask(fake.url)
        self.assertEqual(await self.slots_of(fake), before)
        self.assertEqual(self.files(), ["somebody.bin"])
        self.assertFalse((self.folder / "state").exists())

    async def test_an_empty_slot_is_tried_rather_than_a_full_one(self) -> None:
        fake = await self.start(total_slots=2)
        await self.say(fake)
        await self.ask(fake.url)
        self.assert_finds("save", OK, "slot 1 was saved to try it, 0 tokens")

    async def test_the_file_is_nobody_elses(self) -> None:
        fake = await self.start()
        await self.ask(fake.url)
        await self.ask(fake.url)
        saves = [call for call in fake.control_calls if call.query["action"] == "save"]
        names = [json.loads(call.body)["filename"] for call in saves]
        probes = [name for name in names if name != "/"]
        self.assertEqual(len(set(probes)), 2)
        for name in probes:
            self.assertIsNone(OURS.match(name))
        self.assertEqual({call.query["action"] for call in fake.control_calls}, {"save"})

    async def test_a_key_is_accepted_and_not_shown(self) -> None:
        fake = await self.start(api_key="very-secret")
        await self.ask(fake.url, server='api_key = "very-secret"')
        self.assert_finds("key", OK, "it accepts the key")
        self.assert_exit(0)
        self.assertNotIn("very-secret", self.text)

    async def test_a_key_in_a_servers_own_words_is_not_shown(self) -> None:
        fake = await self.start()
        fake.plan(Refuse(500, "no place for very-secret\r\nhere"), action="save", times=2)
        await self.ask(fake.url, server='api_key = "very-secret"')
        self.assert_finds("save", PROBLEM, "no place for ***\\r\\nhere")

    async def test_a_path_before_the_servers_own(self) -> None:
        fake = await self.start()
        root = Resource()
        root.putChild(b"llama", _Prefixed(fake))
        port = CLOCK.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        await self.ask(f"http://127.0.0.1:{port.getHost().port}/llama")
        self.assert_exit(0)

    async def test_an_ipv6_address(self) -> None:
        fake = await self.start()
        site: Any = Site(fake.resource())
        port = CLOCK.listenTCP(0, site, interface="::1")
        self.addCleanup(port.stopListening)
        await self.ask(f"http://[::1]:{port.getHost().port}")
        self.assert_exit(0)


class _Prefixed(Resource):
    """Hands a path below it to the fake."""

    def __init__(self, fake: FakeLlamaServer) -> None:
        super().__init__()
        self._fake: Any = fake.resource()

    def getChild(self, path: bytes, request: Any) -> Any:
        request.uri = request.uri.removeprefix(b"/llama")
        request.path = request.path.removeprefix(b"/llama")
        request.prepath, request.postpath = [], request.path.strip(b"/").split(b"/")
        return self._fake


class WrongTests(FakeCase):
    """A llama-server that something is wrong with."""

    async def test_no_slot_path(self) -> None:
        fake = await self.start(slot_save_path=None)
        await self.ask(fake.url)
        self.assert_finds(
            "save", PROBLEM, "without --slot-save-path", f"--slot-save-path {self.slots}"
        )
        self.assert_exit(2)

    async def test_no_slot_path_is_seen_without_a_folder_of_ours_too(self) -> None:
        fake = await self.start(slot_save_path=None)
        await self.ask(fake.url, slots="")
        self.assert_finds("save", PROBLEM, "without --slot-save-path")

    async def test_wrong_folder(self) -> None:
        fake = await self.start(slot_save_path=self.new_slots("theirs"))
        await self.ask(fake.url)
        self.assert_finds(
            "folder", PROBLEM, f"not in {self.slots}; the file slotgate-doctor-", "slot_save_path ="
        )
        self.assert_exit(2)

    async def test_a_folder_that_is_not_there(self) -> None:
        fake = await self.start()
        await self.ask(fake.url, slots=self.folder / "nowhere")
        self.assert_finds("folder", PROBLEM, "no such folder", "mkdir -p")
        self.assertEqual(self.files(), [])
        self.assert_exit(2)

    async def test_no_folder_of_ours_leaves_no_file(self) -> None:
        fake = await self.start()
        await self.ask(fake.url, slots="")
        self.assert_finds("folder", ADVICE, "never checked or deleted", "slot_save_path =")
        self.assert_finds("save", OK, "it has a --slot-save-path")
        self.assertEqual(self.files(), [])
        self.assert_exit(1)

    async def test_a_full_disk_on_its_side(self) -> None:
        fake = await self.start(disk_full_after=10)
        await self.ask(fake.url)
        self.assert_finds("save", PROBLEM, "a save failed: 500 Unable to save slot")
        self.assertEqual(self.files(), [])

    async def test_less_room_than_is_to_stay_free(self) -> None:
        fake = await self.start()
        await self.ask(fake.url, config=CONFIG.replace("0.001", "1000000"))
        self.assert_finds("disk", PROBLEM, "nothing is saved", "min_free_gib")
        self.assert_exit(2)

    async def test_wrong_key(self) -> None:
        fake = await self.start(api_key="right")
        await self.ask(fake.url, server='api_key = "wrong-one"')
        self.assert_finds("key", PROBLEM, "does not accept our key", "api_key_file")
        self.assert_exit(2)
        self.assertNotIn("wrong-one", self.text)

    async def test_no_key(self) -> None:
        fake = await self.start(api_key="right")
        await self.ask(fake.url)
        self.assert_finds("key", PROBLEM, "wants a key", "[servers.local] api_key_file")
        self.assert_exit(2)

    async def test_auto_slots(self) -> None:
        fake = await self.start(total_slots=4)
        await self.ask(fake.url)
        self.assert_finds("parallel", ADVICE, "as many as without -np", "-np 1")
        self.assert_exit(1)

    async def test_a_slot_that_is_not_there(self) -> None:
        fake = await self.start(total_slots=2)
        await self.ask(fake.url, route="slot = 5")
        self.assert_finds("slot", PROBLEM, "a route uses slot 5, and the slots are 0 to 1", "-np 6")
        self.assert_exit(2)

    async def test_slots_that_are_not_shown(self) -> None:
        fake = await self.start(slots_endpoint=False)
        await self.ask(fake.url)
        self.assert_finds("slots", ADVICE, "not shown", "--slots")
        self.assert_finds("save", ADVICE, "its slots are not seen, so one could be busy")
        self.assertEqual(self.files(), [])
        self.assert_exit(1)

    async def test_a_sleeping_server_sleeps_on(self) -> None:
        fake = await self.start()
        fake.fall_asleep()
        await self.ask(fake.url)
        self.assertTrue(fake.sleeping)
        self.assert_finds("sleep", ADVICE, "it sleeps, and a look would wake it")
        self.assert_exit(1)

    async def test_a_busy_slot_is_left_alone(self) -> None:
        fake = await self.start()
        answer = await self.held(fake, fake.url)
        await self.ask(fake.url)
        self.assert_finds("traffic", ADVICE, "slot 0 is in use", "come through slotgate")
        self.assert_finds("save", ADVICE, "every slot is busy")
        self.assertEqual(self.files(), [])
        self.hang.release()
        await answer

    async def test_no_route(self) -> None:
        fake = await self.start()
        config = CONFIG + '[servers.other]\nurl = "http://127.0.0.1:2"\n'
        await self.ask(fake.url, config=config.replace('server = "local"', 'server = "other"'))
        self.assert_finds("routes", ADVICE, "no route leads to it")
        self.assertEqual(fake.control_calls, [])


#: Of a server with one slot.
PROPS = b'{"total_slots": 1, "model_path": "m.gguf", "build_info": "b11549-abc"}'
SLOTS = b'[{"id": 0, "is_processing": false}]'


class Canned(Resource):
    """Says what it was given to say, and nothing to other questions but one."""

    isLeaf = True

    def __init__(self, answers: dict[str, bytes]) -> None:
        super().__init__()
        self._answers = {"/api/sessions": b"[]", **answers}

    def render(self, request: Any) -> Any:
        answer = self._answers.get(request.path.decode())
        return NOT_DONE_YET if answer is None else answer


class Patient(Protocol):
    """Answers HTTP, and waits for more of anything else."""

    seen: ClassVar[list[bytes]] = []

    def dataReceived(self, data: bytes) -> None:
        self.seen.append(data)
        if data.startswith(b"GET "):
            transport: Any = self.transport
            transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


class NoServerTests(FakeCase):
    """What is there instead of a llama-server."""

    def canned(self, answers: dict[str, bytes]) -> str:
        """The address of a server that knows only these answers."""
        site: Any = Site(Canned(answers))
        port = CLOCK.listenTCP(0, site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"http://127.0.0.1:{port.getHost().port}"

    async def test_nobody(self) -> None:
        port = CLOCK.listenTCP(0, Factory(), interface="127.0.0.1")
        number = port.getHost().port
        await port.stopListening()
        await self.ask(f"http://127.0.0.1:{number}")
        self.assert_finds("reach", PROBLEM, "connection refused", "start llama-server")
        self.assert_exit(2)

    async def test_a_name_that_nobody_has(self) -> None:
        await self.ask("http://no-such-host.invalid:1")
        self.assert_finds("reach", PROBLEM, "unknown host name", "url =")

    async def test_junk(self) -> None:
        for fault, said in (
            (Answer(), "not JSON"),
            (Answer(body=b"[]"), "expected an object"),
            (Answer(body=b"{}"), "total_slots is missing"),
            (Answer(body=b'{"total_slots": true}'), "expected int"),
            (Answer(404, b"404 page not found"), "GET /props: 404"),
            (Answer(500, b"\xff\x00"), "500"),
        ):
            fake = await self.start()
            fake.plan(fault, path="/props")
            await self.ask(fake.url)
            self.assert_finds("reach", PROBLEM, "not as llama-server does", "url =")
            self.assertIn(said, self.text)
            self.assert_exit(2)

    async def test_junk_from_then_on(self) -> None:
        for path in ("/slots", "/slots/0"):
            for body in (b"{", b"[]", b"{}", b'[{"id": "x"}]', b"[" * 100_000):
                fake = await self.start()
                fake.plan(Answer(body=body), path=path, times=9)
                await self.ask(fake.url)
                self.assertEqual(self.files(), [])

    async def test_no_http(self) -> None:
        fake = await self.start()
        fake.plan(NotHttp(), times=9)
        await self.ask(fake.url)
        self.assert_finds("reach", PROBLEM, "cannot be reached", "if it speaks TLS")

    async def test_a_server_that_says_nothing(self) -> None:
        self.patch(server, "CALL_SECONDS", 0.1)
        port = CLOCK.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        await self.ask(f"http://127.0.0.1:{port.getHost().port}")
        self.assert_finds("reach", PROBLEM, ": no answer within 0.1 s", "restart llama-server")

    async def test_a_server_that_hangs_in_a_save(self) -> None:
        self.patch(server, "CALL_SECONDS", 0.2)
        await self.ask(self.canned({"/props": PROPS, "/slots": SLOTS}))
        self.assert_finds("save", PROBLEM, "a save failed: no answer within 0.2 s")
        self.assertEqual(self.files(), [])

    async def test_all_together_takes_only_so_long(self) -> None:
        self.patch(server, "MOST_SECONDS", 0.2)
        await self.ask(self.canned({"/props": PROPS}))
        self.assert_finds("reach", PROBLEM, "did not answer everything within 0.2 s")

    async def test_a_server_that_loads_is_waited_for(self) -> None:
        self.patch(reachable, "_POLL_SECONDS", 0.01)
        fake = await self.start(loading=True)

        class Told(list[str]):
            def append(self, text: str) -> None:
                super().append(text)
                fake.loading = False

        self.told = Told()
        await self.ask(fake.url)
        self.assertEqual(self.told, ["local is loading its model: waiting"])
        self.assert_exit(0)

    async def test_a_server_that_does_not_stop_to_load(self) -> None:
        self.patch(reachable, "LOADING_SECONDS", 0.0)
        fake = await self.start(loading=True)
        await self.ask(fake.url)
        self.assert_finds("reach", PROBLEM, "still loading its model", "ask again")

    async def test_a_certificate_that_nobody_signed(self) -> None:
        fake = await self.start()
        key, certificate = self_signed()
        tls = PrivateCertificate.load(certificate, KeyPair.load(key, 1), 1).options()
        port = CLOCK.listenSSL(0, Site(fake.resource()), tls, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"https://127.0.0.1:{port.getHost().port}"
        await self.ask(url)
        self.assert_finds("reach", PROBLEM, "certificate verify failed", "ca_file")
        (self.folder / "ca.pem").write_bytes(certificate)
        await self.ask(url, server='ca_file = "ca.pem"')
        self.assert_exit(0)
        await self.ask(url.replace("127.0.0.1", "localhost"), server='ca_file = "ca.pem"')
        self.assert_finds("reach", PROBLEM, "for another name", "a name that is in its certificate")

    async def test_no_tls_where_it_should_be(self) -> None:
        fake = await self.start()
        await self.ask(fake.url.replace("http:", "https:"))
        self.assert_finds("reach", PROBLEM, "speaks HTTP without TLS", f'url = "{fake.url}"')
        self.assert_exit(2)

    async def test_no_tls_and_a_server_that_waits_for_more(self) -> None:
        # llama-server takes TLS's first bytes for the beginning of a line
        self.patch(server, "CALL_SECONDS", 0.2)
        port = CLOCK.listenTCP(0, Factory.forProtocol(Patient), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        address = f"127.0.0.1:{port.getHost().port}"
        await self.ask(f"https://{address}", server='api_key = "very-secret"')
        self.assert_finds(
            "reach", PROBLEM, "speaks HTTP without TLS", f'[servers.local] url = "http://{address}"'
        )
        self.assertNotIn(b"very-secret", b"".join(Patient.seen))

    async def test_tls_where_it_is_not_expected(self) -> None:
        fake = await self.start()
        key, certificate = self_signed()
        tls = PrivateCertificate.load(certificate, KeyPair.load(key, 1), 1).options()
        port = CLOCK.listenSSL(0, Site(fake.resource()), tls, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        number = port.getHost().port
        await self.ask(f"http://127.0.0.1:{number}")
        self.assert_finds("reach", PROBLEM, "speaks HTTPS", f'url = "https://127.0.0.1:{number}"')
        self.assert_exit(2)

    async def test_slotgate_by_its_configuration(self) -> None:
        await self.ask("http://localhost:1")
        self.assert_finds("reach", PROBLEM, "slotgate itself listens there", "url =")
        self.assert_exit(2)

    async def test_slotgate_by_what_it_answers(self) -> None:
        fake = await self.start()
        self.start_gateway(fake.url)
        await self.recalled()
        await self.ask(self.base)
        self.assert_finds("reach", PROBLEM, "slotgate answers there", "url =")

    async def test_slotgate_that_asks_for_keys(self) -> None:
        fake = await self.start()
        self.config += '[[clients]]\nname = "me"\nkey = "mine"\n'
        self.start_gateway(fake.url)
        await self.recalled()
        await self.ask(self.base)
        self.assert_finds("reach", PROBLEM, "slotgate answers there", "url =")

    async def test_a_slotgate_that_runs_is_known(self) -> None:
        fake = await self.start()
        self.start_gateway(fake.url)
        await self.recalled()
        port = self.base.rpartition(":")[2]
        answer = await self.held(fake, self.base)
        await self.ask(fake.url, config=CONFIG.replace("tcp:1:", f"tcp:{port}:"))
        self.assert_finds("traffic", OK, "by the slotgate that runs")
        self.hang.release()
        await answer


class RouterTests(DoctorCase):
    """A router with three models."""

    async def start(self, models: Any = None, **options: Any) -> FakeRouter:
        """Start a fake router that stops with the test."""
        names = models or {"alpha": FakeModel(), "beta": FakeModel(), "gamma": FakeModel()}
        router = FakeRouter(CLOCK, names, **{"slot_save_path": self.slots, **options})
        self.addCleanup(router.stop)
        await router.listen(CLOCK)
        return router

    async def load(self, router: FakeRouter, model: str = "alpha") -> None:
        """Load a model."""
        await self.post("/models/load", {"model": model}, base=router.url)

    async def test_a_router_that_is_right(self) -> None:
        router = await self.start()
        await self.load(router)
        await self.ask(router.url)
        self.assert_exit(0)
        self.assert_finds("reach", OK, "as a router with 3 models, at most 4 of them at once")
        self.assert_finds("save", OK, "alpha: slot 0 was saved to try it")
        self.assert_finds("folder", OK, "alpha: what it saves is in")
        self.assert_finds("save", OK, "beta, gamma: it has a --slot-save-path")

    async def test_no_model_is_loaded_for_it(self) -> None:
        router = await self.start()
        await self.ask(router.url)
        self.assertEqual(router.loads, [])
        self.assert_finds("save", ADVICE, "no model is loaded", "ask one of its models")
        self.assert_exit(1)

    async def test_a_sleeping_model_sleeps_on(self) -> None:
        router = await self.start()
        await self.load(router)
        router.fall_asleep("alpha")
        await self.ask(router.url)
        self.assertEqual(router.status("alpha"), "sleeping")
        self.assertEqual(router.control_calls, [])

    async def test_no_slot_path(self) -> None:
        router = await self.start(slot_save_path=None)
        await self.ask(router.url)
        self.assert_finds("save", PROBLEM, "alpha, beta, gamma: it saves no slots")
        self.assert_exit(2)

    async def test_another_folder_on_this_machine(self) -> None:
        theirs = self.new_slots("theirs")
        router = await self.start(slot_save_path=theirs)
        await self.load(router)
        await self.ask(router.url)
        self.assert_finds("folder", PROBLEM, f"it was in {theirs}", f'slot_save_path = "{theirs}"')
        self.assertEqual(list(theirs.iterdir()), [])
        self.assert_exit(2)

    async def test_a_model_that_a_route_names_and_nobody_has(self) -> None:
        router = await self.start()
        await self.load(router)
        await self.ask(router.url, route='upstream_model = "alfa"')
        self.assert_finds(
            "routes", PROBLEM, 'asks for the model "alfa"', '[[routes]] upstream_model = "alpha"'
        )
        self.assert_exit(2)

    async def test_names_that_are_meant(self) -> None:
        router = await self.start({"alpha": FakeModel(aliases=["a"])})
        await self.load(router)
        more = "".join(
            f'[[routes]]\nmodel = "{name}"\nserver = "local"\n'
            for name in ("alpha", "openai/alpha", "a", "al*")
        )
        await self.ask(router.url, config=CONFIG + more)
        self.assert_finds("routes", OK, "every model that a route names")
        self.assert_exit(0)

    async def test_a_tag_that_is_no_part_of_a_models_name(self) -> None:
        # slotgate takes it from what a client says, but not from what the configuration says
        router = await self.start({"alpha": FakeModel()})
        more = '[[routes]]\nmodel = "alpha:latest"\nserver = "local"\n'
        await self.ask(router.url, config=CONFIG + more)
        self.assert_finds("routes", PROBLEM, 'the model "alpha:latest"', 'model = "alpha"')
        self.config += more
        self.start_gateway(router.url)
        await self.recalled()
        answer = await self.chat("a").turn(model="alpha:latest")
        self.assertGreaterEqual(answer.status, 400)

    async def test_a_routers_own_name_that_looks_like_a_providers_or_a_pattern(self) -> None:
        router = await self.start({"openai/gpt": FakeModel(), "m[1]": FakeModel()})
        more = "".join(
            f'[[routes]]\nmodel = "{name}"\nserver = "local"\n' for name in ("openai/gpt", "m[1]")
        )
        await self.ask(router.url, config=CONFIG + more)
        self.assert_finds("routes", OK, "every model that a route names")

    async def test_sleep_is_told(self) -> None:
        router = await self.start({"alpha": FakeModel(sleep_idle_seconds=60)})
        await self.load(router)
        await self.ask(router.url, route="save_idle_seconds = 600")
        self.assert_finds("sleep", OK, "asleep after 60 idle seconds")
        self.assert_finds("sleep", OK, "saves its slots after 30 at the latest")

    async def test_a_router_whose_models_are_junk(self) -> None:
        for body in (b"[]", b'{"data": [{}]}', b'{"data": [{"id": 1, "status": {}}]}'):
            router = await self.start()
            router.plan(Answer(body=body), path="/models", times=3)
            await self.ask(router.url)
            self.assert_finds("reach", PROBLEM, "not as llama-server does")


class MeasureTests(FakeCase):
    """What a switch costs."""

    async def test_a_restore_that_helps(self) -> None:
        fake = await self.start()
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", OK, "500 tokens were read in")
        self.assert_finds("restore", OK, "of 516 tokens 16 were read after it")
        slot = (await self.slots_of(fake))[0]
        self.assertEqual((slot["n_prompt_tokens"], self.files()), (0, []))

    async def test_what_the_slot_held_is_put_back(self) -> None:
        fake = await self.start()
        await self.say(fake)
        held = list(fake.engine.slots[0].tokens)
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", OK, f"The {len(held)} tokens that slot 0 held are in it again")
        self.assertEqual(fake.engine.slots[0].tokens, held)
        self.assertEqual(self.files(), [])

    async def test_what_would_be_lost_is_not_touched(self) -> None:
        fake = await self.start()
        await self.say(fake)
        held = list(fake.engine.slots[0].tokens)
        # the probe of an ordinary look, then the copy
        fake.plan(Refuse(500, "disk full"), action="save", times=3)
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", ADVICE, "not measured")
        self.assertEqual(fake.engine.slots[0].tokens, held)

    async def test_a_prompt_that_does_not_fit(self) -> None:
        fake = await self.start(context=1024)
        await self.ask(fake.url, measure=2000)
        self.assert_finds("measure", ADVICE, "a slot holds 1024 tokens, and 2000 are asked for")

    async def test_a_failed_answer_leaves_an_empty_slot_and_no_file(self) -> None:
        for fault in (Refuse(500, "no"), Answer(body=b"{}"), Answer(body=b"[]")):
            fake = await self.start()
            fake.plan(fault, path="/completion")
            await self.ask(fake.url, measure=500)
            self.assert_finds("measure", ADVICE, "not measured")
            self.assertEqual((fake.engine.slots[0].tokens, self.files()), ([], []))

    async def test_a_file_out_of_our_reach_is_made_small(self) -> None:
        theirs = self.new_slots("theirs")
        fake = await self.start(slot_save_path=theirs)
        await self.ask(fake.url, measure=500, slots="")
        self.assert_finds("measure", OK, "stays in the server's folder")
        self.assertEqual([path.stat().st_size for path in theirs.iterdir()], [36])

    async def test_a_slot_that_somebody_else_took_meanwhile_is_theirs(self) -> None:
        fake = await self.start()

        def take(_: object) -> None:
            fake.engine.slots[0].task = 999

        fake.seen(action="restore").addCallback(take)
        await self.ask(fake.url, measure=500)
        self.assert_finds("measure", ADVICE, "not measured: somebody else used slot 0 meanwhile")
        self.assert_finds("measure", ADVICE, "slot 0 as it was could not be put back")
        actions = [call.query["action"] for call in fake.control_calls]
        self.assertEqual(actions.count("erase"), 1)
        self.assertEqual(self.files(), [])
