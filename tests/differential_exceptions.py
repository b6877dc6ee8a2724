"""
Requests that slotgate answers in another way than llama-server, each an example of what
``docs/clients.md`` says; the shape of Anthropic's errors is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from gzip import compress

from attrs import frozen
from differential import Case
from differential_cases import GREEDY, HELLO, JSON, MAX, NO_JSON, NO_OBJECT, post


@frozen
class Different:
    """A request whose answer is another one through slotgate."""

    case: Case
    #: What of ``docs/clients.md`` it is an example of.
    documented: str
    #: The status of the direct answer and of slotgate's.
    direct: int
    through: int
    #: Is in slotgate's answer.
    says: str = ""


def different() -> Iterator[Different]:
    """All of them."""
    chat = {"messages": HELLO, **MAX, **GREEDY}
    no_json = "A body that is no JSON object"
    for path in (
        *("/v1/chat/completions", "/v1/completions", "/completion", "/infill"),
        *("/v1/responses", "/v1/messages"),
    ):
        for name, body in NO_JSON.items():
            says = "not UTF-8" if name == "no UTF-8" else "the request body is not JSON"
            case = Case(f"{path}: {name}", "POST", path, body, JSON)
            yield Different(case, no_json, 400, 400, says)
        for name, body in NO_OBJECT.items():
            case = Case(f"{path}: {name}", "POST", path, body, JSON)
            direct = 500 if path == "/v1/messages" else 400
            yield Different(case, no_json, direct, 400, "the request body must be a JSON object")
    data = compress(json.dumps(chat).encode(), mtime=0)
    sent = {**JSON, "Content-Encoding": "gzip"}
    gzip = Case("gzip", "POST", "/v1/chat/completions", data, sent)
    yield Different(gzip, "A compressed body", 415, 400, "not UTF-8")
    yield Different(
        post("slot: no JSON", "/slots/0?action=save", b"hello"),
        "Calls of a slot",
        400,
        400,
        "the body of a slot call must be a JSON object",
    )
    ours = {"filename": "_-00000000_" + "0" * 32 + ".1.bin"}
    yield Different(
        post("slot: a snapshot of slotgate's", "/slots/0?action=restore", ours),
        "Calls of a slot",
        400,
        403,
        "a snapshot of slotgate's",
    )
    ollama = "Ollama's paths, `/` and `/api/sessions`"
    yield Different(Case("/", "GET", "/"), ollama, 415, 200, "Ollama is running")
    yield Different(Case("HEAD /", "HEAD", "/"), ollama, 415, 200)
    yield Different(Case("tags", "GET", "/api/tags"), ollama, 404, 200, '"models"')
    yield Different(Case("sessions", "GET", "/api/sessions"), ollama, 404, 200, '"sessions"')
    targets = "Paths that a server could read in two ways"
    for target in ("//health", "/v1/../health", "/v1/%2e%2e/health", "/health;", "/a\\..\\health"):
        yield Different(Case(target, "GET", target), targets, 404, 400, "request")
    foreign = {"Host": "evil.example"}
    browsers = "Web pages"
    host = Case("another host", "GET", "/v1/models", None, foreign)
    yield Different(host, browsers, 200, 403, "no name of this machine")
    asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = Case("a preflight", "OPTIONS", "/v1/models", None, asks)
    yield Different(preflight, browsers, 200, 403, "cors_origins")
