"""
Who answers at a server's address: asking, and the findings about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from slotgate.config import Config
from slotgate.doctor.facts import Contact, ServerFacts
from slotgate.doctor.findings import Finding, advice, ok, on_server, problem
from slotgate.doctor.gateway import is_ours, is_slotgate
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.models import RouterProps, router_from
from slotgate.llama.wire import Props, props_from

#: How long a server that loads its model is waited for, in seconds.
LOADING_SECONDS = 60.0
_POLL_SECONDS = 1.0

#: The builds that slotgate is tested with.
OLDEST_BUILD = 11434
NEWEST_BUILD = 11549


class NoServer(Exception):
    """There is no llama-server to talk to; ``contact`` says what there is instead."""

    def __init__(self, contact: Contact, said: str = "") -> None:
        super().__init__(said)
        self.contact = contact


async def greet(
    config: Config, calls: Calls, clock: IReactorTime, tell: Callable[[str], None]
) -> RouterProps | Props:
    """
    Find out what is there; a server that loads its model is waited for.

    :param tell: told when there is something to wait for.
    :raises NoServer: there is no llama-server that talks to us.
    """
    if is_ours(config, calls.server.url):
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


def build_number(build: str) -> int | None:
    """The number in ``b11434-1a2b3c4``; ``None``: it says none."""
    found = re.match(r"b(\d+)", build)
    return int(found[1]) or None if found else None


def reached(facts: ServerFacts) -> list[Finding]:
    """Whether there is a llama-server, and which one."""
    server = facts.server
    if facts.answers_at:
        speaks = "HTTPS" if facts.answers_at.startswith("https:") else "HTTP without TLS"
        text = f"{server.url}: the server at that port speaks {speaks} ({facts.said})"
        return [problem("reach", text, on_server(facts, f'url = "{facts.answers_at}"'))]
    match facts.contact:
        case Contact.ANSWERS:
            return _answers(facts)
        case Contact.UNREACHABLE:
            said = facts.said
            # some words name the server already
            text = said if server.url in said else f"{server.url}: {said}"
            return [problem("reach", text, _way(facts))]
        case Contact.SLOTGATE:
            text = f"{server.url} is not llama-server's address: {facts.said}"
            return [problem("reach", text, on_server(facts, 'url = "http://HOST:PORT"'))]
        case Contact.FOREIGN:
            text = f"{server.url} answers, but not as llama-server does ({facts.said})"
            return [problem("reach", text, on_server(facts, 'url = "http://HOST:PORT"'))]
        case Contact.KEY_REFUSED:
            does = (
                "does not accept our key" if server.api_key else "wants a key, and has none of us"
            )
            return [
                problem(
                    "key",
                    f"it {does} ({facts.said})",
                    on_server(facts, 'api_key_file = "FILE"')
                    + ", with the key of llama-server --api-key in it",
                )
            ]
        case Contact.LOADING:
            text = f"it was still loading its model after {LOADING_SECONDS:g} s ({facts.said})"
            return [problem("reach", text, "ask again when it has loaded its model")]


def _answers(facts: ServerFacts) -> list[Finding]:
    router = facts.router
    if router is None:
        what = f"llama-server with one model, {facts.models[0].path or 'of unknown path'}"
    else:
        most = f"at most {router.models_max}" if router.models_max else "any number"
        what = f"llama-server as a router with {len(facts.models)} models, {most} of them at once"
    findings = [ok("reach", what)]
    if facts.server.api_key:
        findings.append(ok("key", "it accepts the key"))
    number = build_number(facts.build)
    tested = f"slotgate is tested with b{OLDEST_BUILD} and b{NEWEST_BUILD}"
    if number is None:
        findings.append(ok("build", f"it does not say its build ({facts.build!r}); {tested}"))
    elif number < OLDEST_BUILD:
        text = f"its build {facts.build} is older than what {tested}"
        findings.append(advice("build", text, "a newer llama-server"))
    else:
        findings.append(ok("build", f"{facts.build}; {tested}"))
    return findings


def _way(facts: ServerFacts) -> str:
    """What to change where nobody answers, by the words of :mod:`slotgate.llama.causes`."""
    said, https = facts.said, facts.server.url.startswith("https:")
    if "another name" in said:
        return on_server(facts, 'url = "https://NAME"') + ", with a name that is in its certificate"
    if "certificate" in said:
        return on_server(facts, 'ca_file = "FILE.pem"') + ", with the certificate that signed its"
    if "TLS failed" in said:
        return on_server(facts, 'url = "http://…"') + ", if it does not speak TLS"
    if "no answer that is HTTP" in said or "closed the connection" in said:
        if https:
            return on_server(facts, 'url = "http://…"') + ", if it does not speak TLS"
        return on_server(facts, 'url = "https://…"') + ", if it speaks TLS"
    if "within" in said or "has not answered" in said:
        return "restart llama-server if it hangs, or ask again when it has less to do"
    return "start llama-server, or " + on_server(facts, 'url = "http://HOST:PORT"')
