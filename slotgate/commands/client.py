"""
Calls of a gateway that runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast
from urllib.parse import quote, urlencode

import treq
from attrs import define, field
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from slotgate.commands.failed import CommandFailed
from slotgate.commands.target import KEY_VARIABLE, Target
from slotgate.plain import cut, printable

_NO_CONNECTION = (ConnectError, ConnectionClosed, DNSLookupError)
_LONGEST_MESSAGE = 300


class _TooLong(Exception):
    """The time for a call is over."""


def path_of(*segments: str) -> str:
    """
    A path whose segments may hold anything: slashes, dots, what is not ASCII.
    """
    # a dot alone would be a step in the tree to whoever tidies up paths on the way
    return "".join(
        "/" + quote(part, safe="", errors="surrogateescape").replace(".", "%2E")
        for part in segments
    )


@define
class GatewayClient:
    """
    Speaks to a gateway.

    :ivar timeout: how long an answer may take, in seconds.
    """

    target: Target
    timeout: float
    _reactor: Any
    _http: HTTPClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        # a connection that is kept would keep the reactor busy after the last call
        pool = HTTPConnectionPool(self._reactor, persistent=False)
        self._http = HTTPClient(Agent(self._reactor, connectTimeout=self.timeout, pool=pool))

    async def call(
        self, method: str, path: str, parameters: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """
        What the gateway answers.

        :param path: percent-encoded, as :func:`path_of` makes it.
        :raises CommandFailed: whatever goes wrong.
        """
        url = (
            self.target.url
            + path
            + (f"?{urlencode(parameters, errors='surrogateescape')}" if parameters else "")
        )
        answering = Deferred.fromCoroutine(self._answer(method, url))
        answering.addTimeout(self.timeout, self._reactor, _too_long)
        where = self.target.url
        try:
            response, body = await answering
        except _TooLong:
            raise CommandFailed(f"{where} does not answer within {self.timeout:g} s") from None
        except Refused:
            raise CommandFailed(
                f"nothing listens at {where}: is slotgate running there? --url says where else"
            ) from None
        except _NO_CONNECTION as error:
            raise CommandFailed(f"no connection to {where}: {_said(error)}") from None
        except (ResponseFailed, RequestTransmissionFailed) as error:
            causes = getattr(error, "reasons", [])
            cause = causes[0].value if causes else error
            raise CommandFailed(f"{where} does not speak HTTP with us: {_said(cause)}") from None
        return self._understood(response, body)

    async def _answer(self, method: str, url: str) -> tuple[IResponse, bytes]:
        headers = Headers({"Accept": ["application/json"]})
        if self.target.key is not None:
            headers.addRawHeader("Authorization", f"Bearer {self.target.key}")
        response = await self._http.request(
            # another address must not get the key
            *(method, url),
            headers=headers,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        return cast(IResponse, response), await treq.content(response)

    def _understood(self, response: IResponse, body: bytes) -> dict[str, Any]:
        status: int = response.code
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not _is_slotgate(response):
            raise CommandFailed(f"{self.target.url} answers, but it is not slotgate")
        if status == 401:
            raise CommandFailed(f"{self.target.url} asks for a key: {self._key_advice()}", status)
        if status >= 400:
            error = answer.get("error")
            message = error.get("message") if isinstance(error, dict) else error
            told = cut(printable(str(message)), _LONGEST_MESSAGE) if message else "no reason given"
            raise CommandFailed(f"{told} ({status})", status)
        return answer

    def _key_advice(self) -> str:
        if self.target.key is not None:
            return "the one given is nobody's there"
        return f"set {KEY_VARIABLE}, or name a variable with --key-env, or an admin by --config"


def _is_slotgate(response: IResponse) -> bool:
    server: list[str] = response.headers.getRawHeaders("server", [])
    return server == ["slotgate"]


def _too_long(result: object, seconds: float) -> NoReturn:
    if isinstance(result, Failure):
        # what a cancelled request fails with depends on how far it was
        result.cleanFailure()
    raise _TooLong


def _said(error: BaseException) -> str:
    text = printable(str(error).strip().rstrip(".")) or type(error).__name__
    return cut(text, _LONGEST_MESSAGE)
