"""
The fake server's routes.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from werkzeug.exceptions import MethodNotAllowed, NotFound

from slotgate.shield import shield
from slotgate.testing._answers import (
    FINGERPRINT,
    Asked,
    Chat,
    Infill,
    LlamaError,
    Native,
    Surface,
    Text,
    job,
    templated,
    too_long,
)
from slotgate.testing._answers_items import Messages, Responses
from slotgate.testing._engine import ServerGone
from slotgate.testing._front_door import Call, FrontDoor
from slotgate.testing._reply import Reply, Teller
from slotgate.testing._slot_actions import Erase, act, parse_action
from slotgate.testing._slot_files import DeadlySlotFile
from slotgate.testing._slots import tokenize
from slotgate.testing.models import CHAT_TEMPLATE

if TYPE_CHECKING:
    from slotgate.testing.fake import FakeLlamaServer

GENERATIONS: dict[str, Surface] = {
    "/v1/chat/completions": Chat(),
    "/chat/completions": Chat(),
    "/v1/completions": Text(),
    "/completions": Native(),
    "/completion": Native(),
    "/infill": Infill(),
    "/v1/responses": Responses(),
    "/responses": Responses(),
    "/v1/messages": Messages(),
}


def model_info(server: FakeLlamaServer) -> dict[str, Any]:
    """
    The model in ``GET /models``, and in a router's event when it is loaded.
    """
    return {
        "id": server.alias,
        "aliases": [server.alias],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": int(server.clock.seconds()),
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": 1,
            "n_vocab": 263,
            "n_ctx": server.context,
            "n_ctx_train": 32768,
            "n_embd": 64,
            "n_params": 115520,
            "size": 462080,
            "ftype": "all F32",
        },
    }


class Routes:
    """
    What is behind the front door.

    :ivar door: the resource to serve.
    """

    app = Klein()

    def __init__(self, server: FakeLlamaServer) -> None:
        self._server = server
        self._answers = 0
        self.door = FrontDoor(server, self.app.resource())

    @app.handle_errors(NotFound, MethodNotAllowed)
    async def _unknown(self, request: IRequest, failure: object) -> None:
        error = LlamaError(404, "File Not Found", "not_found_error")
        await self.door.opened(request).reply.error(error)

    @app.route("/health", methods=["GET"])
    @app.route("/v1/health", methods=["GET"])
    async def _health(self, request: IRequest) -> None:
        await self.door.opened(request).reply.json({"status": "ok"})

    @app.route("/props", methods=["GET"])
    async def _props(self, request: IRequest) -> None:
        await self.door.opened(request).reply.json(
            {
                "default_generation_settings": {"n_ctx": self._server.context},
                "total_slots": self._server.total_slots,
                "model_alias": self._server.alias,
                "model_ftype": "all F32",
                "model_path": self._server.model_path,
                "modalities": {"vision": False, "audio": False},
                "endpoint_slots": self._server.slots_endpoint,
                "endpoint_props": True,
                "endpoint_metrics": True,
                "chat_template": CHAT_TEMPLATE,
                "bos_token": "<s>",
                "eos_token": "</s>",
                "build_info": FINGERPRINT,
                "is_sleeping": self._server.sleeping,
            }
        )

    @app.route("/models", methods=["GET", "HEAD"])
    @app.route("/v1/models", methods=["GET", "HEAD"])
    async def _models(self, request: IRequest) -> None:
        dummy = {"name": self._server.alias, "model": self._server.alias, "type": "model"}
        await self.door.opened(request).reply.json(
            {"models": [dummy], "object": "list", "data": [model_info(self._server)]}
        )

    @app.route("/metrics", methods=["GET"])
    async def _metrics(self, request: IRequest) -> None:
        engine = self._server.engine
        counters = {
            "prompt_tokens_total": engine.tokens_read,
            "prompt_tokens_cached_total": engine.tokens_cached,
            "tokens_predicted_total": engine.tokens_written,
        }
        gauges = {"requests_processing": engine.processing, "requests_deferred": engine.deferred}
        lines = [
            f"# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
            for kind, values in (("counter", counters), ("gauge", gauges))
            for name, value in values.items()
        ]
        reply = self.door.opened(request).reply
        await reply.answer(200, "text/plain; version=0.0.4", "".join(lines).encode())

    @app.route("/tokenize", methods=["POST"])
    async def _tokenize(self, request: IRequest) -> None:
        opened = self.door.opened(request)
        self._server.awake()
        body = opened.call.body_object()
        begin = body.get("add_special") is True
        tokens = tokenize(str(body.get("content", "")), begin=begin)
        await opened.reply.json({"tokens": tokens})

    @app.route("/apply-template", methods=["POST"])
    async def _apply_template(self, request: IRequest) -> None:
        opened = self.door.opened(request)
        prompt = templated(opened.call.body_object().get("messages"))
        await opened.reply.json({"prompt": prompt})

    @app.route("/v1/messages/count_tokens", methods=["POST"])
    async def _count_tokens(self, request: IRequest) -> None:
        opened = self.door.opened(request)
        tokens = Messages().prompt(opened.call.body_object())
        await opened.reply.json({"input_tokens": len(tokens)})

    @app.route("/slots", methods=["GET"])
    async def _slots(self, request: IRequest) -> None:
        if not self._server.slots_endpoint:
            raise LlamaError(
                501,
                "This server does not support slots endpoint. Start it with `--slots`",
                "not_supported_error",
            )
        engine = self._server.awake()
        engine.next_task()
        answer = [slot.describe(self._server.context) for slot in engine.slots]
        await self.door.opened(request).reply.json(answer)

    @app.route("/slots/<slot_id>", methods=["POST"])
    async def _slot_action(self, request: IRequest, slot_id: str) -> None:
        opened = self.door.opened(request)
        await self._carry_out(self._slot_work(opened.call, opened.reply, slot_id))
        await opened.reply.settled()

    async def _slot_work(self, call: Call, reply: Reply, slot_id: str) -> None:
        if self._server.slot_save_path is None:
            raise LlamaError(
                501,
                "This server does not support slots action. Start it with `--slot-save-path`",
                "not_supported_error",
            )
        action = parse_action(slot_id, call)
        engine = self._server.awake()
        engine.next_task()
        slot = await engine.idle_slot(action.slot_id)
        try:
            if not isinstance(action, Erase):
                await engine.passing(self._server.speed.slot_file_seconds)
            answer = act(action, slot, self._server)
        except DeadlySlotFile:
            self._server.die()
            raise ServerGone from None
        finally:
            engine.release(slot)
        await reply.json(answer)

    @app.route("/v1/chat/completions", methods=["POST"])
    @app.route("/chat/completions", methods=["POST"])
    @app.route("/v1/completions", methods=["POST"])
    @app.route("/completions", methods=["POST"])
    @app.route("/completion", methods=["POST"])
    @app.route("/infill", methods=["POST"])
    @app.route("/v1/responses", methods=["POST"])
    @app.route("/responses", methods=["POST"])
    @app.route("/v1/messages", methods=["POST"])
    async def _generate(self, request: IRequest) -> None:
        opened = self.door.opened(request)
        await self._carry_out(self._generation_work(opened.call, opened.reply))
        await opened.reply.settled()

    async def _generation_work(self, call: Call, reply: Reply) -> None:
        surface = GENERATIONS[call.path]
        body = call.body_object()
        wanted = job(surface, body)
        if len(wanted.prompt) >= self._server.context:
            raise too_long(len(wanted.prompt), self._server.context)
        engine = self._server.awake()
        slot = await engine.slot_for(wanted)
        self._answers += 1
        asked = Asked(body, self._server.alias, self._answers, int(self._server.clock.seconds()))
        await shield(engine.run(slot, wanted, Teller(reply, surface, asked, wanted.stream)))

    async def _carry_out(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """
        Work for a client that may go away, at which Klein cancels what it waits for.
        """
        running = Deferred.fromCoroutine(work)
        await (running if self._server.notices_disconnect else shield(running))

    @app.handle_errors(LlamaError)
    async def _refused(self, request: IRequest, failure: Any) -> None:
        await self.door.opened(request).reply.error(failure.value)

    @app.handle_errors(ServerGone)
    async def _gone(self, request: IRequest, failure: object) -> None:
        await self.door.opened(request).reply.vanish()
