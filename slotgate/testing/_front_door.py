"""
What every request to the fake server meets first: it is written down, it may meet a fault, and it
is turned away without the key or while the model loads.
"""

from __future__ import annotations

import hmac
import json
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from attrs import define, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.web.http import Request
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET

from slotgate.testing._answers import LlamaError
from slotgate.testing._reply import Reply
from slotgate.testing.faults import Fault


@define(eq=False)
class Call:
    """
    A request that the fake saw.

    :ivar uri: path and query as they came.
    :ivar headers: by lower-case name; of a repeated one the last.
    :ivar at: when it came, in seconds of the fake's clock.
    :ivar answered_at: when its answer was complete, None before.
    :ivar aborted_at: when its client went away before that, None when it did not.
    """

    method: str
    uri: str
    headers: dict[str, str]
    body: bytes
    at: float
    answered_at: float | None = None
    aborted_at: float | None = None

    @property
    def path(self) -> str:
        """
        The URI without its query.
        """
        return urlsplit(self.uri).path

    @property
    def query(self) -> dict[str, str]:
        """
        The query's parameters.
        """
        return dict(parse_qsl(urlsplit(self.uri).query))

    @property
    def action(self) -> str | None:
        """
        ``save``, ``restore`` or ``erase`` of a control call.
        """
        return self.query.get("action")

    @property
    def model(self) -> str | None:
        """
        The model it names: a POST in its body, anything else in its query. An alias stays one.
        """
        if self.method != "POST":
            return self.query.get("model")
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        name = value.get("model") if isinstance(value, dict) else None
        return name if isinstance(name, str) else None

    def json(self) -> Any:
        """
        The body, parsed.
        """
        return json.loads(self.body)

    def parsed(self) -> Any:
        """
        The body, parsed as the server does.

        :raises LlamaError: for anything but JSON.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise LlamaError(
                400, "[json.exception.parse_error.101] parse error: syntax error"
            ) from None

    def body_object(self) -> dict[str, Any]:
        """
        The body as the server wants it.

        :raises LlamaError: for anything but a JSON object.
        """
        value = self.parsed()
        if not isinstance(value, dict):
            raise LlamaError(400, "[json.exception.type_error.304] cannot use at() with this")
        return value


@frozen
class Opened:
    """
    A request under way.
    """

    call: Call
    reply: Reply


@frozen
class _Kind:
    """
    A kind of calls; None is any.
    """

    method: str | None
    path: str | None
    action: str | None
    model: str | None

    def takes(self, call: Call) -> bool:
        return (
            self.method in (None, call.method)
            and self.path in (None, call.path)
            and self.action in (None, call.action)
            and (self.model is None or self.model == call.model)
        )


@define
class _Planned:
    fault: Fault
    kind: _Kind
    times: int


class Server(Protocol):
    """
    What the door needs to know of the server behind it.
    """

    clock: IReactorTime
    api_key: str
    loading: bool
    calls: list[Call]

    @property
    def died(self) -> bool:
        """
        Whether nobody is behind the door.
        """

    def die(self) -> None:
        """
        Die at once.
        """


class FrontDoor(Resource):
    """
    The root resource: whatever passes goes on to the resource behind.
    """

    isLeaf = True

    def __init__(self, server: Server, behind: IResource) -> None:
        super().__init__()
        self._server = server
        self._behind = behind
        self._planned: list[_Planned] = []
        self._awaited: list[tuple[_Kind, Deferred[Call]]] = []
        self._open: dict[object, Opened] = {}

    def plan(
        self,
        fault: Fault,
        *,
        method: str | None,
        path: str | None,
        action: str | None,
        times: int,
        model: str | None = None,
    ) -> None:
        self._planned.append(_Planned(fault, _Kind(method, path, action, model), times))

    def seen(
        self,
        *,
        method: str | None,
        path: str | None,
        action: str | None,
        model: str | None = None,
    ) -> Deferred[Call]:
        kind = _Kind(method, path, action, model)
        for call in self._server.calls:
            if kind.takes(call):
                return succeed(call)
        deferred: Deferred[Call] = Deferred(lambda deferred: self._awaited.remove((kind, deferred)))
        self._awaited.append((kind, deferred))
        return deferred

    def _tell(self, call: Call) -> None:
        for entry in list(self._awaited):
            if entry[0].takes(call):
                self._awaited.remove(entry)
                entry[1].callback(call)

    def opened(self, request: IRequest) -> Opened:
        """
        What belongs to a request that came through this door.
        """
        return self._open[request]

    def render(self, request: Request) -> Any:
        call = self._record(request)
        return self._let_in(request, call, Reply(request, self.fault_for(call), self._server.die))

    def pass_on(self, request: Request, call: Call, reply: Reply) -> Any:
        """
        Let a request in that came through another door before: a router's.
        """
        self._server.calls.append(call)
        return self._let_in(request, call, reply)

    def _let_in(self, request: Request, call: Call, reply: Reply) -> Any:
        self._open[request] = Opened(call, reply)
        self._tell(call)
        request.notifyFinish().addCallbacks(
            self._answered, self._aborted, callbackArgs=(request,), errbackArgs=(request,)
        )
        if self._server.died:
            reply.abort()
            return NOT_DONE_YET
        fault = reply.fault
        if fault is not None and fault.instead:
            reply.fault = None
            return self._handle(request, reply, Deferred.fromCoroutine(fault.strike(reply)))
        refusal = self._refusal(call)
        if refusal is not None:
            return self._handle(request, reply, Deferred.fromCoroutine(reply.error(refusal)))
        return self._behind.render(request)

    def _record(self, request: Request) -> Call:
        body = request.content
        assert body is not None  # noqa: S101 - twisted.web sets it before rendering
        body.seek(0)
        call = Call(
            method=request.method.decode(),
            uri=request.uri.decode(),
            headers={
                name.decode().lower(): values[-1].decode("latin-1")
                for name, values in request.requestHeaders.getAllRawHeaders()
            },
            body=body.read(),
            at=self._server.clock.seconds(),
        )
        self._server.calls.append(call)
        return call

    def fault_for(self, call: Call) -> Fault | None:
        """
        The fault planned for a request, which is then no longer planned for another.
        """
        for planned in self._planned:
            if planned.times > 0 and planned.kind.takes(call):
                planned.times -= 1
                return planned.fault
        return None

    def _refusal(self, call: Call) -> LlamaError | None:
        key = self._server.api_key
        if key and call.path not in ("/health", "/v1/health"):
            bearer = call.headers.get("authorization", "").removeprefix("Bearer ")
            given = bearer or call.headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode(), key.encode()):
                return LlamaError(401, "Invalid API Key", "authentication_error")
        if self._server.loading:
            return LlamaError(503, "Loading model", "unavailable_error")
        return None

    def _handle(self, request: Request, reply: Reply, handled: Deferred[None]) -> int:
        handled.addCallback(lambda _: reply.finish())
        return NOT_DONE_YET

    def _answered(self, result: None, request: IRequest) -> None:
        self._open.pop(request).call.answered_at = self._server.clock.seconds()

    def _aborted(self, reason: object, request: IRequest) -> None:
        # stays known: what runs for it may still want to say something
        self._open[request].call.aborted_at = self._server.clock.seconds()
