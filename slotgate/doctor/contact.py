"""
Who answers at a server's address.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from slotgate.config import Config
from slotgate.doctor.facts import Contact
from slotgate.doctor.machine import is_local
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.models import RouterProps, router_from
from slotgate.llama.wire import Props, props_from

#: How long a server that loads its model is waited for, in seconds.
LOADING_SECONDS = 60.0
_POLL_SECONDS = 1.0

_LISTEN = re.compile(r"(?:tcp|tcp6|ssl):(?:port=)?(\d+)(?::|\Z)")


class NoServer(Exception):
    """There is no llama-server to talk to; ``contact`` says what there is instead."""

    def __init__(self, contact: Contact, said: str = "") -> None:
        super().__init__(said)
        self.contact = contact


def listening_ports(config: Config) -> list[int]:
    """The TCP ports that slotgate listens on with this configuration."""
    found = (_LISTEN.match(endpoint) for endpoint in config.gateway.listen)
    return [int(one[1]) for one in found if one]


def is_ourselves(config: Config, url: str) -> bool:
    """Whether an address is one that slotgate itself listens on."""
    parts = urlsplit(url)
    return is_local(url) and parts.port in listening_ports(config)


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


async def greet(
    config: Config, calls: Calls, clock: IReactorTime, tell: Callable[[str], None]
) -> RouterProps | Props:
    """
    Find out what is there; a server that loads its model is waited for.

    :param tell: told when there is something to wait for.
    :raises NoServer: there is no llama-server that talks to us.
    """
    if is_ourselves(config, calls.server.url):
        raise NoServer(Contact.SLOTGATE, "slotgate itself listens there (gateway.listen)")
    deadline, told = clock.seconds() + LOADING_SECONDS, False
    while True:
        try:
            return await _greeted(calls)
        except errors.Loading as error:
            if clock.seconds() >= deadline:
                raise NoServer(Contact.LOADING, str(error)) from error
        if not told:
            told = True
            tell(f"{calls.server.name} is loading its model: waiting")
        await deferLater(clock, _POLL_SECONDS)


async def _greeted(calls: Calls) -> RouterProps | Props:
    try:
        if await is_slotgate(calls):
            raise NoServer(Contact.SLOTGATE, "slotgate answers there")
        return await calls.get("/props", _props)
    except errors.Loading:
        raise
    except errors.KeyRefused as error:
        raise NoServer(Contact.KEY_REFUSED, str(error)) from error
    except errors.Unreachable as error:
        raise NoServer(Contact.UNREACHABLE, str(error)) from error
    except errors.ControlError as error:
        raise NoServer(Contact.FOREIGN, f"GET /props: {error}") from error


def _props(answer: object) -> RouterProps | Props:
    return router_from(answer) or props_from(answer)
