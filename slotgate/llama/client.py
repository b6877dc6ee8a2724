"""
The control calls: what slotgate itself asks a llama-server, one log line for each that acts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate.config import Server
from slotgate.llama import errors, wire
from slotgate.llama._body import BodyLost, body_of
from slotgate.llama.control import Control
from slotgate.llama.upstream import UpstreamError, UpstreamUnreachable

_T = TypeVar("_T")

#: A look at the slots stands between a client and its answer, so it gets less time than a save
#: or a restore, which move gigabytes. It still outlasts the batch a slow machine is reading.
LOOK_SECONDS = 15.0


#: Control answers are small; a server that talks on is not a llama-server.
MOST_BYTES = 16 * 1024 * 1024


class Requests(Protocol):
    """How a server is reached: :class:`~slotgate.llama.upstream.Upstream`."""

    def request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        """Send a request; fires with the response when its head has come."""


@define
class LlamaClient:
    """
    The control side of one server, as :class:`~slotgate.llama.control.Control` says.
    """

    _server_side: Requests
    _clock: IReactorTime
    _server: Server
    _log: Logger = field(factory=Logger, init=False)

    async def slot(self, slot_id: int) -> wire.SlotStatus:
        """
        As :class:`Control` says; ``Junk`` when the server has no slot of this number.
        """
        for status in await self._get("/slots", wire.slots_from):
            if status.id == slot_id:
                return status
        raise errors.Junk(f"/slots shows no slot {slot_id}")

    async def props(self) -> wire.Props:
        """As :class:`Control` says."""
        return await self._get("/props", wire.props_from)

    async def shape(self) -> str:
        """As :class:`Control` says."""
        return await self._get("/v1/models", wire.shape_from)

    async def save(self, slot_id: int, file: str) -> wire.Saved:
        """As :class:`Control` says."""
        return await self._act(
            slot_id, "save", {"filename": file}, wire.saved_from, lambda s: (s.tokens, s.size)
        )

    async def restore(self, slot_id: int, file: str) -> wire.Restored:
        """As :class:`Control` says."""
        return await self._act(
            slot_id, "restore", {"filename": file}, wire.restored_from, lambda r: (r.tokens, r.size)
        )

    async def erase(self, slot_id: int) -> int:
        """As :class:`Control` says."""
        return await self._act(slot_id, "erase", {}, wire.erased_from, lambda n: (n, 0))

    async def _get(self, path: str, read: Callable[[object], _T]) -> _T:
        limit = min(LOOK_SECONDS, self._server.control_timeout_seconds)
        return read(await self._call(b"GET", path, None, limit))

    async def _act(
        self,
        slot_id: int,
        action: str,
        body: dict[str, str],
        read: Callable[[object], _T],
        measure: Callable[[_T], tuple[int, int]],
    ) -> _T:
        # an erase needs a body too: a router reads the model from it, and some builds hang
        # without one
        path = f"/slots/{slot_id}?action={action}"
        call = f"{self._server.name} {action} {body.get('filename', '-')} (slot {slot_id})"
        began = self._clock.seconds()
        try:
            answer = await self._call(b"POST", path, body, self._server.control_timeout_seconds)
            result = read(answer)
        except errors.ControlError as error:
            seconds = self._clock.seconds() - began
            if isinstance(error, errors.KeyRefused):
                self._log.warn("{call}: {error}", call=call, error=error)
            elif isinstance(error, errors.Refused) and error.status == 400 and action == "restore":
                self._log.info("{call}: miss: {error}", call=call, error=error)
            else:
                self._log.warn(
                    "{call}: failed after {seconds:.1f} s: {error}",
                    call=call,
                    seconds=seconds,
                    error=error,
                )
            raise
        tokens, size = measure(result)
        self._log.info(
            "{call}: ok ({tokens} tokens, {megabytes:.1f} MB, {seconds:.2f} s)",
            call=call,
            tokens=tokens,
            megabytes=size / 1e6,
            seconds=self._clock.seconds() - began,
        )
        return result

    async def _call(self, method: bytes, path: str, body: object, limit: float) -> object:
        whole = Deferred.fromCoroutine(self._exchange(method, path.encode(), body))
        # on the whole exchange; cancelled, it closes its connection
        whole.addTimeout(limit, self._clock, onTimeoutCancel=_timed_out)
        try:
            status, content = await whole
        except UpstreamUnreachable as error:
            raise errors.Unreachable(str(error), sent=error.sent) from error
        except (UpstreamError, BodyLost) as error:
            raise errors.Unreachable(str(error)) from error
        return _understood(status, content)

    async def _exchange(self, method: bytes, target: bytes, body: object) -> tuple[int, bytes]:
        headers = Headers({"Accept": ["application/json"]})
        if self._server.api_key:
            headers.addRawHeader("Authorization", f"Bearer {self._server.api_key}")
        if body is not None:
            headers.addRawHeader("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        response = await self._server_side.request(method, target, headers, data)
        return response.code, await body_of(response, MOST_BYTES)


_check: type[Control] = LlamaClient


def _timed_out(_: object, limit: float) -> object:
    raise errors.Unreachable(f"no answer within {limit:g} s")


def _understood(status: int, content: bytes) -> object:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if 200 <= status < 300:
        if answer is None:
            raise errors.Junk(f"not JSON: {content[:60]!r}")
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    said = f"{status} {message or content[:120].decode('utf-8', 'replace')}".strip()
    if status in (401, 403):
        raise errors.KeyRefused(f"refused key: {said}")
    if status == 503:
        raise errors.Loading(said)
    if status in (404, 501):
        raise errors.Unsupported(said)
    raise errors.Refused(status, said)
