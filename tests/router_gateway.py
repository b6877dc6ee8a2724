"""
A gateway in this process in front of a llama-server in router mode.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, ClassVar, TypeVar, cast

from attrs import frozen
from gateway import CHAT, CLOCK, Answer, Caller, Chat, GatewayCase, long_text
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher

from slotgate.llama.tracker import Tracker
from slotgate.slots.backend import Mode
from slotgate.slots.slot import Slot
from slotgate.testing.fake import Call
from slotgate.testing.fake_router import FakeModel, FakeRouter
from slotgate.testing.faults import Hang
from slotgate.testing.models import write_tiny_model
from slotgate.testing.router import RealRouter, RealRouterOptions

_T = TypeVar("_T")


@frozen
class ModelChat(Chat):
    """A conversation with one of a router's models."""

    model: str

    async def turn(self, said: str = "And then?", **fields: object) -> Answer:
        """Say something, and keep what the model answers."""
        return await super().turn(said, **{"model": self.model, **fields})


class RouterGatewayCase(GatewayCase):
    """A gateway in front of ``self.upstream_url``, a router; the subclass starts it."""

    config = """
        [gateway]
        listen = ["tcp:0:interface=127.0.0.1"]
        state_dir = "{state}"
        drain_seconds = 2
        [servers.local]
        url = "{url}"
        slot_save_path = "{slots}"
        poll_seconds = 0.2
        [servers.local.router]
        tracker = "{tracker}"
        models_max = {models_max}
        [[routes]]
        model = "*"
        server = "local"
        save_idle_seconds = {idle}
    """

    tracker: ClassVar[str] = "enforce"
    models_max: ClassVar[object] = '"auto"'
    idle: ClassVar[float] = 0
    #: The router's address.
    url: str

    def start_gateway(self, url: str, **values: object) -> Any:
        """Start a gateway; it stops with the test."""
        set_here = {"tracker": self.tracker, "models_max": self.models_max, "idle": self.idle}
        return super().start_gateway(url, **{**set_here, **values})

    def chat_with(self, model: str, session: str = "", words: int = 200) -> ModelChat:
        """A new conversation with a model, which begins with a long text."""
        session = session or f"talk-{model}"
        first = {"role": "system", "content": long_text(session[:8], words)}
        return ModelChat(self, session, [first], model=model)

    async def statuses(self) -> dict[str, str]:
        """The router's models and what it says of them."""
        models = (await self.get("/models", self.url)).json["data"]
        return {model["id"]: model["status"]["value"] for model in models}

    async def loaded(self) -> set[str]:
        """The models that are loaded."""
        return {model for model, status in (await self.statuses()).items() if status == "loaded"}

    async def events(self) -> Caller:
        """What the router tells of its models from now on."""
        port = int(self.url.rpartition(":")[2])
        caller: Caller = await connectProtocol(
            TCP4ClientEndpoint(CLOCK, "127.0.0.1", port), Caller()
        )
        self.addCleanup(caller.leave)
        caller.write(b"GET /models/sse HTTP/1.1\r\nHost: router\r\n\r\n")
        await caller.heard(b"\r\n\r\n")
        return caller

    async def until_status(self, model: str, status: str) -> None:
        """Wait until the router says so, and slotgate has heard of it."""
        while (await self.statuses())[model] != status:
            await self.pause(0.02)
        tracker = self.gateway._parts.backends["local"].tracker
        while tracker.model(model).status.value != status:
            await self.pause(0.02)

    async def until_waiting(self, count: int) -> None:
        """Wait until so many requests wait for room."""
        while self.gateway._parts.backends["local"].admissions.waiting != count:
            await self.pause(0.01)

    async def long_answer(self, model: str, session: str, tokens: int) -> Caller:
        """A stream that is being written."""
        caller = await self.connect()
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"{session} tell me a long story"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            "temperature": 0,
        }
        caller.post(CHAT, body, {"X-Session-ID": session})
        await caller.heard(b"data: {")
        return caller

    def of_story(self, caller: Caller) -> dict[str, Any]:
        """The last event of a long answer."""
        events = [line for line in caller.received.split(b"\n") if line.startswith(b"data: {")]
        last: dict[str, Any] = json.loads(events[-1][6:])
        return last


class RealRouterCase(RouterGatewayCase):
    """A gateway in front of a real router with three tiny models."""

    timeout = 60
    names: ClassVar[tuple[str, ...]] = ("alpha", "beta", "gamma")
    #: Options of the router.
    options: ClassVar[dict[str, Any]] = {}

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        models = {}
        for number, name in enumerate(self.names):
            models[name] = self.folder / f"model{number}.gguf"
            write_tiny_model(models[name])
        values = {"slot_save_path": f"{self.slots}/", "context": 8192, "threads": 1}
        self.llama = RealRouter(
            CLOCK, RealRouterOptions(models=models, **{**values, **self.options})
        )
        self.addCleanup(self.llama.stop)
        await self.llama.start()
        self.url = self.llama.url
        self.start_gateway(self.url)
        await self.recalled()


@frozen
class Held:
    """A streamed answer that stops in its middle until the test lets it go on."""

    caller: Caller
    _hang: Hang

    async def finish(self) -> bytes:
        """Let it come to its end; all that the client got."""
        self._hang.release()
        await self.caller.heard(b"0\r\n\r\n")
        return self.caller.received


class FakeRouterCase(RouterGatewayCase):
    """A gateway in front of a fake router with three models, where two fit."""

    timeout = 20
    #: The models, and how each differs from the fake's default.
    models: ClassVar[Mapping[str, Mapping[str, Any]]] = {"alpha": {}, "beta": {}, "gamma": {}}
    #: Settings of the router.
    options: ClassVar[dict[str, Any]] = {}
    #: What a request costs in :meth:`chat_with`; the fake reads a token a byte.
    words: ClassVar[int] = 40

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.logged: list[str] = []
        observer = cast(ILogObserver, lambda event: self.logged.append(formatEvent(event)))
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        await self.start_router()
        self.start_gateway(self.url)
        await self.followed()
        self.router.calls.clear()

    async def start_router(self) -> None:
        """Start the router; it stops with the test."""
        self.router = self.new_router()
        await self.router.listen(CLOCK)
        self.url = self.router.url

    def new_router(self, **options: Any) -> FakeRouter:
        """A router that does not listen yet; it stops with the test."""
        models = {name: FakeModel(**given) for name, given in self.models.items()}
        set_here = {"slot_save_path": self.slots, "models_max": 2, **self.options}
        router = FakeRouter(CLOCK, cast(Any, models), **{**set_here, **options})
        self.addCleanup(router.stop)
        return router

    async def followed(self) -> None:
        """Wait until it is known what the router is, and its events are heard."""
        await self.recalled()
        while self.router.sse and not self.following.live:
            await self.pause(0.01)

    async def missed(self) -> None:
        """Wait until it is noticed that the router has gone."""
        while self.gateway._parts.backends["local"].mode is not Mode.UNKNOWN:
            await self.pause(0.01)

    @property
    def following(self) -> Tracker:
        """What slotgate knows of the router's models."""
        return self.gateway._parts.backends["local"].tracker

    def chat_with(self, model: str, session: str = "", words: int = 0) -> ModelChat:
        """A new conversation with a model, which begins with a text of the session's own."""
        session = session or f"talk-{model}"
        first = {"role": "system", "content": long_text(session, words or self.words)}
        return ModelChat(self, session, [first], model=model)

    async def dirty(self, *models: str) -> list[ModelChat]:
        """A conversation with each of these models; none of them is on disk."""
        chats = [self.chat_with(model) for model in models]
        for chat in chats:
            answer = await chat.turn()
            self.assertEqual(answer.status, 200, answer.body)
        await self.at_rest(*models)
        return chats

    async def at_rest(self, *models: str) -> None:
        """
        Wait until the models' slots have no lease: a client has its answer before the slot is
        looked at.
        """
        for model in models:
            while self.slot(model).state in ("leased", "draining"):
                await self.pause(0)

    async def saved(self, model: str, session: str = "") -> ModelChat:
        """A conversation that is on disk and still resident."""
        chat = self.chat_with(model, session)
        await chat.turn()
        answer = await self.post(f"/api/sessions/{chat.session}/save", {})
        self.assertEqual(answer.status, 200, answer.body)
        return chat

    async def held(self, model: str, session: str = "") -> Held:
        """An answer of a model that keeps it busy for as long as the test wants."""
        hang, caller = Hang(after=300), await self.connect()
        self.router.child(model).plan(hang, path=CHAT)
        said = [{"role": "user", "content": long_text(session or f"held-{model}", self.words)}]
        body = {"model": model, "messages": said, "stream": True}
        caller.post(CHAT, body, {"X-Session-ID": session or f"held-{model}"})
        await caller.heard(b"data: {")
        return Held(caller, hang)

    def begin(self, work: Coroutine[Any, Any, _T]) -> Deferred[_T]:
        """Begin something; a test that fails before it has waited for it has one fault, not two."""
        begun = Deferred.fromCoroutine(work)
        self.addCleanup(begun.addErrback, lambda _: None)
        return begun

    def slot(self, model: str) -> Slot:
        """The only slot of a model that was used so far."""
        (slot,) = self.gateway._parts.pool.of_model("local", model)
        return slot

    def steps(self, *kinds: str) -> list[str]:
        """
        What the router was told to do, in that order: ``save alpha``, ``unload alpha``,
        ``load gamma``, ``chat gamma``.

        :param kinds: only these.
        """
        steps = [step for call in self.router.calls if (step := _step(call))]
        return [step for step in steps if not kinds or step.partition(" ")[0] in kinds]

    def told(self, part: str) -> list[str]:
        """The log lines so far with this in them."""
        return [line for line in self.logged if part in line]

    def assert_answered(self, answer: Answer, cache: str) -> None:
        """A whole answer that found its cache like this, and read no more than that means."""
        self.assertEqual((answer.status, answer.cache), (200, cache), answer.body)
        if cache in ("resident", "restored"):
            self.assertLess(answer.share_read, 0.1)

    async def assert_none_is_lost(self, chats: Iterable[ModelChat]) -> None:
        """Every conversation goes on where it was."""
        for chat in chats:
            answer = await chat.turn()
            self.assertIn(answer.cache, ("resident", "restored"), chat.model)
            self.assertLess(answer.share_read, 0.1, chat.model)


def _step(call: Call) -> str:
    """What a call tells a router to do; empty: nothing, it only looks."""
    if call.method != "POST":
        return ""
    action = {"/models/load": "load", "/models/unload": "unload", CHAT: "chat"}.get(call.path)
    return f"{call.action or action or call.path} {call.model}"
