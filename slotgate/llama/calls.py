"""
Control calls on the wire: JSON there and back, a limit of time, and how each can fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate.config import Server
from slotgate.llama import errors
from slotgate.llama.bodies import BodyLost, body_of
from slotgate.llama.upstream import UpstreamError, UpstreamUnreachable

_T = TypeVar("_T")

#: A look at the slots stands between a client and its answer, so it gets less time than a save
#: or a restore, which move gigabytes. It still outlasts the batch a slow machine is reading.
LOOK_SECONDS = 15.0

#: Control answers are small; a server that talks on is not a llama-server.
MOST_BYTES = 16 * 1024 * 1024

#: What a router answers, as bare text, for a model's process that went away or does not listen
#: yet (b11434).
_PROXY_ERROR = b"proxy error"

#: The same, where it went between being looked for and being asked (b11434, as its source says).
_NOT_RUNNING = re.compile(rb'"message":\s*"model name=[^"]* is not running"')

#: How that text ends when the process never got the call.
_NOT_SENT = b"Could not establish connection"

#: What a router answers to ``autoload=false`` when the model is not loaded (b11434).
_NOT_LOADED = "model is not loaded"


#: What a router answers to a call for slots that names no model (b11434).
_NAMELESS = "model name is missing from the request"


class Requests(Protocol):
    """How a server is reached: :class:`~slotgate.llama.upstream.Upstream`."""

    def request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        """Send a request; fires with the response when its head has come."""


@define
class Calls:
    """The control calls of one server."""

    server_side: Requests
    clock: IReactorTime
    server: Server
    #: Called when nobody answered at the address, or somebody else than before.
    lost: Callable[[], None] = lambda: None

    async def get(self, target: str, read: Callable[[object], _T]) -> _T:
        """
        Look at something.

        :param read: makes the answer's JSON into data.
        :raises ControlError: there is no such answer.
        """
        limit = min(LOOK_SECONDS, self.server.control_timeout_seconds)
        return read(await self._call(b"GET", target, None, limit))

    async def post(self, target: str, body: object) -> object:
        """
        Let something be done; it may take ``control_timeout_seconds``.

        :returns: the answer's JSON.
        :raises ControlError: it was not done, as far as is known.
        """
        return await self._call(b"POST", target, body, self.server.control_timeout_seconds)

    def headers(self, accept: str = "application/json") -> Headers:
        """The headers of a call, our key in them."""
        headers = Headers({"Accept": [accept]})
        if self.server.api_key:
            headers.addRawHeader("Authorization", f"Bearer {self.server.api_key}")
        return headers

    async def _call(self, method: bytes, target: str, body: object, limit: float) -> object:
        whole = Deferred.fromCoroutine(self._exchange(method, target.encode(), body))
        # on the whole exchange; cancelled, it closes its connection
        whole.addTimeout(limit, self.clock, onTimeoutCancel=_timed_out)
        try:
            status, content = await whole
        except UpstreamUnreachable as error:
            self.lost()
            raise errors.Unreachable(str(error), sent=error.sent) from error
        except (UpstreamError, BodyLost) as error:
            raise errors.Unreachable(str(error)) from error
        try:
            return _understood(status, content)
        except errors.Nameless:
            self.lost()
            raise

    async def _exchange(self, method: bytes, target: bytes, body: object) -> tuple[int, bytes]:
        headers = self.headers()
        if body is not None:
            headers.addRawHeader("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        response = await self.server_side.request(method, target, headers, data)
        return response.code, await body_of(response, MOST_BYTES)


def is_lost(status: int, body: bytes) -> bool:
    """Whether a router's answer says that it lost the model's process, and nothing else."""
    if status == 400:
        return _NOT_RUNNING.search(body) is not None
    return status == 500 and body.startswith(_PROXY_ERROR)


def _timed_out(_: object, limit: float) -> object:
    raise errors.Unreachable(f"no answer within {limit:g} s")


def _understood(status: int, content: bytes) -> object:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if 200 <= status < 300:
        if answer is None:
            raise errors.Junk(f"{len(content)} bytes that are not JSON")
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    # these words go into the log, and what else a server answers can hold somebody's prompt
    plain = content[:120].decode("utf-8", "replace") if content.startswith(_PROXY_ERROR) else ""
    said = f"{status} {message or plain}".strip()
    if status in (401, 403):
        raise errors.KeyRefused(f"refused key: {said}")
    if status == 503:
        raise errors.Loading(said)
    if status in (404, 501):
        raise errors.Unsupported(said)
    if status == 400 and (message == _NOT_LOADED or is_lost(status, content)):
        raise errors.NotLoaded(said)
    if status == 400 and message == _NAMELESS:
        raise errors.Nameless(said)
    if is_lost(status, content):
        # it may have done what it was asked before that
        raise errors.ProcessLost(said, sent=not content.endswith(_NOT_SENT))
    raise errors.Refused(status, said)
