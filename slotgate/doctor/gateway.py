"""
slotgate itself: where it listens, whether it runs, and its state folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import CertificateOptions
from twisted.web.client import Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from slotgate._config.listening import Listening, listening
from slotgate.config import Config, Server
from slotgate.doctor.findings import Finding, ok, problem
from slotgate.doctor.machine import is_local, lock_holder
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.causes import REQUEST_FAILURES, cause
from slotgate.llama.endpoints import endpoint_for
from slotgate.llama.upstream import UpstreamError

_SECONDS = 3.0


def addresses(config: Config) -> list[Listening]:
    """Where slotgate listens with this configuration, as far as that says it."""
    found: list[Listening] = []
    for endpoint in config.gateway.listen:
        try:
            found += listening(endpoint)
        except ValueError:
            # its certificate went away since the configuration was read
            continue
    return [one for one in found if one.port or one.path]


def is_ours(config: Config, url: str) -> bool:
    """Whether an address is one that slotgate itself listens on."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return any(one.port == port and _leads_to(url, one) for one in addresses(config))


def _leads_to(url: str, address: Listening) -> bool:
    host = urlsplit(url).hostname
    # which of the loopback addresses "localhost" is, is not known
    if address.everywhere or "localhost" in (host, address.host):
        return is_local(url) and is_local(address.url)
    return host == address.host.lower()


async def runs(reactor: Any, config: Config) -> bool:
    """
    Whether a slotgate with this configuration runs.

    Its lock tells where it is seen, and is not taken. In another container it is not: then
    whoever answers where slotgate would listen is asked.
    """
    if lock_holder(_lock(config)) is not None:
        return True
    for address in addresses(config):
        server = Server("slotgate", "http://localhost", control_timeout_seconds=_SECONDS)
        try:
            if await is_slotgate(Calls(_Door(reactor, address), reactor, server)):
                return True
        except errors.ControlError:
            continue
    return False


async def is_slotgate(calls: Calls) -> bool:
    """
    Whether slotgate answers. Asked only for what slotgate answers by itself: anything else would
    go round where its configuration leads back to it.

    :raises ControlError: nobody answers in a way that says something.
    """
    try:
        return await calls.get("/api/sessions", _sessions)
    except (errors.Unsupported, errors.Junk, errors.Refused):
        return False
    except errors.KeyRefused:
        pass
    try:
        # slotgate tells everybody that it lives, llama-server knows no such path
        return await calls.get("/slotgate/health", lambda answer: isinstance(answer, dict))
    except errors.ControlError:
        return False


def _sessions(answer: object) -> bool:
    return isinstance(answer, dict) and "sessions" in answer and "total" in answer


@define
class _Door:
    """
    Requests to an address that slotgate listens on.

    Its certificate is not checked: it is for the name that clients use, and no key goes there.
    """

    reactor: Any
    address: Listening

    def request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        """As :meth:`slotgate.llama.upstream.Upstream.request`, without a body."""
        return Deferred.fromCoroutine(self._request(method, target, headers))

    async def _request(self, method: bytes, target: bytes, headers: Headers) -> IResponse:
        agent = Agent.usingEndpointFactory(self.reactor, _Always(self._endpoint()))
        try:
            response: IResponse = await agent.request(method, b"http://localhost" + target, headers)
        except REQUEST_FAILURES as error:
            raise UpstreamError(cause(error)) from error
        return response

    def _endpoint(self) -> IStreamClientEndpoint:
        if self.address.path:
            unix: IStreamClientEndpoint = UNIXClientEndpoint(self.reactor, self.address.path)
            return unix
        plain = urlsplit(self.address.url)._replace(scheme="http")
        endpoint = endpoint_for(self.reactor, plain, None)
        if self.address.scheme == "https":
            return wrapClientTLS(CertificateOptions(verify=False), endpoint)
        return endpoint


@implementer(IAgentEndpointFactory)
@define
class _Always:
    """The same endpoint for every URL."""

    endpoint: IStreamClientEndpoint

    def endpointForURI(self, uri: object) -> IStreamClientEndpoint:
        """The endpoint."""
        return self.endpoint


def _lock(config: Config) -> Path:
    return config.gateway.state_dir / "lock"


def of_state(config: Config) -> Finding:
    """Whether the state folder can be used; nothing there is touched."""
    folder = config.gateway.state_dir
    holder = lock_holder(_lock(config))
    if holder is not None:
        return ok("state", f"{folder} is in use by the slotgate that runs (process {holder})")
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        made = "" if there == folder else " (it is not there yet, and can be made)"
        return ok("state", f"{folder} can be used{made}")
    return problem(
        "state",
        f"{folder} can not be written by this user",
        '[gateway] state_dir = "~/.local/state/slotgate"',
    )
