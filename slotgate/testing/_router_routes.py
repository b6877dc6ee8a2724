"""
The fake router's own routes, and which requests it hands to a model's server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from slotgate.testing._answers import FINGERPRINT, LlamaError
from slotgate.testing._engine import ServerGone
from slotgate.testing._front_door import FrontDoor, Opened
from slotgate.testing._router_model import Model
from slotgate.testing._router_reply import CONNECT, ProxiedReply
from slotgate.testing._router_settings import args, preset
from slotgate.testing._routes import GENERATIONS, model_info

if TYPE_CHECKING:
    from slotgate.testing.fake_router import FakeRouter

PROXIED_GETS = {"/props", "/slots", "/metrics", "/lora-adapters"}
PROXIED_POSTS = {
    *GENERATIONS,
    "/props",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/embedding",
    "/embeddings",
    "/v1/embeddings",
    "/rerank",
    "/reranking",
    "/v1/rerank",
    "/v1/reranking",
    "/lora-adapters",
}

NOT_FOUND = LlamaError(404, "File Not Found", "not_found_error")


class RouterRoutes(Resource):
    """
    What is behind the router's front door.

    :ivar door: the resource to serve.
    """

    isLeaf = True

    def __init__(self, router: FakeRouter) -> None:
        super().__init__()
        self._router = router
        self.door = FrontDoor(router, self)

    def render(self, request: Request) -> int:
        work = Deferred.fromCoroutine(self._serve(request))
        # whoever waits for a model and goes away gives its place up
        request.notifyFinish().addErrback(lambda _: work.cancel())
        work.addErrback(_gave_up)
        return NOT_DONE_YET

    async def _serve(self, request: Request) -> None:
        opened = self.door.opened(request)
        try:
            if await self._answered(request, opened):
                opened.reply.finish()
        except LlamaError as error:
            await opened.reply.error(error)
            opened.reply.finish()
        except ServerGone:
            await opened.reply.vanish()

    async def _answered(self, request: Request, opened: Opened) -> bool:
        """
        Answer, unless a model's server does.
        """
        call, reply = opened.call, opened.reply
        match "GET" if call.method == "HEAD" else call.method, call.path:
            case "GET", "/health" | "/v1/health":
                await reply.json({"status": "ok"})
            case "GET", "/props" if not call.query.get("model"):
                await reply.json(self._props())
            case "GET", "/models" | "/v1/models":
                await reply.json(self._models())
            case "GET", "/models/sse" if self._router.sse:
                await self._router.events.send(reply)
            case "POST", "/models/load":
                await self._load(opened)
            case "POST", "/models/unload":
                await self._unload(opened)
            case "GET", path if path in PROXIED_GETS:
                return await self._proxied(request, opened)
            case "POST", path if path in PROXIED_POSTS or path.startswith("/slots/"):
                return await self._proxied(request, opened)
            case _:
                raise NOT_FOUND
        return True

    def _props(self) -> dict[str, Any]:
        return {
            "role": "router",
            "max_instances": self._router.models_max,
            "models_autoload": self._router.autoload,
            "model_alias": "llama-server",
            "model_path": "none",
            "default_generation_settings": {"params": None, "n_ctx": 0},
            "ui_settings": {},
            "build_info": FINGERPRINT,
            "cors_proxy_enabled": False,
        }

    def _models(self) -> dict[str, Any]:
        found = self._router.registry.all.values()
        return {"data": [self._describe(model) for model in found], "object": "list"}

    def _describe(self, model: Model) -> dict[str, Any]:
        status: dict[str, Any] = {
            "value": model.status,
            "args": args(model.child, model.settings, model.port),
            "preset": preset(model.child, model.settings),
        }
        if not model.running and model.exit_code:
            status |= {"exit_code": model.exit_code, "failed": True}
        told: dict[str, Any] = {
            "id": model.name,
            "aliases": sorted(model.settings.aliases),
            "tags": [],
            "object": "model",
            "owned_by": "llamacpp",
            "created": int(self._router.clock.seconds()),
            "status": status,
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "source": "preset",
            "can_remove": False,
        }
        if model.status in ("loaded", "sleeping"):
            told["meta"] = model_info(model.child)["meta"]
        return told

    async def _load(self, opened: Opened) -> None:
        model = self._known(opened)
        if model is None:
            raise NOT_FOUND
        if model.running:
            raise LlamaError(400, "model is already running")
        await self._router.registry.load(model)
        await opened.reply.json({"success": True})

    async def _unload(self, opened: Opened) -> None:
        model = self._known(opened)
        if model is None:
            raise LlamaError(400, "model is not found")
        if not model.running:
            raise LlamaError(400, "model is not running")
        self._router.registry.stop(model)
        await opened.reply.json({"success": True})

    def _known(self, opened: Opened) -> Model | None:
        return self._router.registry.find(_named(opened))

    async def _proxied(self, request: Request, opened: Opened) -> bool:
        name = _named(opened)
        if not name:
            raise LlamaError(400, "model name is missing from the request")
        model = self._router.registry.find(name)
        if model is None:
            raise LlamaError(400, f"model '{name}' not found")
        asked = opened.call.query.get("autoload", "")
        if asked in ("true", "1") if asked else self._router.autoload:
            await self._router.registry.ready(model)
        elif not model.running:
            raise LlamaError(400, "model is not loaded")
        if not model.running:
            raise LlamaError(400, f"model name={model.name} is not running")
        self._hand_over(request, opened, model)
        return False

    def _hand_over(self, request: Request, opened: Opened, model: Model) -> None:
        reply = self._proxied_reply(request, opened, model)
        if model.stopping:
            reply.proxy_error(CONNECT)
            return
        registry = self._router.registry
        registry.take_off(model, reply, use=opened.call.method == "POST")
        reply.landed.addCallback(lambda _: registry.landed(model, reply))
        model.child.pass_on(request, opened.call, reply)

    def _proxied_reply(self, request: Request, opened: Opened, model: Model) -> ProxiedReply:
        fault, opened.reply.fault = opened.reply.fault, None
        behind = fault is None
        fault = model.child.fault_for(opened.call) if fault is None else fault
        die = model.child.die if behind else self._router.die
        return ProxiedReply(request, fault, die, model, lambda: self._router.died, behind=behind)


def _gave_up(failure: Failure) -> None:
    """
    The client has gone away while something waited for it.
    """
    failure.trap(CancelledError)


def _named(opened: Opened) -> str:
    """
    The model that a request names, empty when none.

    :raises LlamaError: a body that is not JSON.
    """
    call = opened.call
    if call.method == "POST" and call.model is None:
        call.parsed()
    return call.model or ""
