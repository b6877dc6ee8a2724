"""
Which session a request belongs to: the configured sources, tried in their order.

What clients send, and what of it names a conversation rather than a user, a request or a machine,
is the subject of ``tests/clients``, one file for each client.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.config import Identity

#: Longer values are no session: no client makes them, and they would fill the index.
MAX_ID = 256

# lone surrogates too: JSON can spell them, UTF-8 and so header lines and the index can not
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IS_UUID = re.compile(rf"(?:{_UUID}|[0-9a-f]{{32}})\Z", re.IGNORECASE)
# "id" means many things; chatcmpl-… for one names a completion and changes with every request
_CHAT_ID = re.compile(
    rf"(?:{_UUID}|[0-9a-f]{{32}}|(?:chat|conversation|conv|session|ses|thread)[-_:].+)\Z",
    re.IGNORECASE,
)

#: Sources that come first wherever they stand in their lists: whoever sends them means us.
_OURS = (("header", "x-slotgate-session"), ("body", "slotgate_session"))

#: Headers of Codex with names that others use for other things: theirs is a session only where
#: the request is Codex's, or where the value can not well be anything else.
_CODEX_HEADERS = frozenset({"session-id", "session_id", "thread-id", "conversation_id"})

_CLAUDE_USER = "metadata.user_id"
_CLAUDE_USER_OLD = re.compile(rf"user_\S*_session_({_UUID})\Z", re.IGNORECASE)
#: The JSON of Claude Code has about 200 characters.
_MAX_CLAUDE_USER = 4096

#: Sources that a main agent and its sub-agents share, and where the sub-agent is named.
_SUB_AGENTS = {
    "header:x-claude-code-session-id": "header:x-claude-code-agent-id",
    f"body:{_CLAUDE_USER}": "header:x-claude-code-agent-id",
    "header:session-id": "header:thread-id",
    "body:prompt_cache_key": "body:client_metadata.thread_id",
}

# the name goes into a header line of ours, and into the index
_NAME = re.compile(r"[!-~]{1,80}\Z")
# LiteLLM's rule for headers that it knows by their form only
_GUESSED_ID = re.compile(r"[A-Za-z0-9_-]{8,}\Z")
#: What a pattern never finds: ours, the session that another one came from, and users.
_NEVER_GUESSED = ("x-slotgate-*", "*-parent-*", "x-openwebui-user-*")


@frozen
class Identified:
    """A session id and where it came from (``X-Slotgate-Source``)."""

    #: ``None``: the request belongs to no session.
    id: str | None
    source: str
    #: Why a value that was there is not a session, for the log.
    refused: str = ""


NOBODY = Identified(None, "none")

#: Sources of an id that can be an application's: OpenAI's own advice is one for all requests that
#: begin alike.
SHARED = ("body:prompt_cache_key", "body:promptCacheKey")

#: Sources of an id that no client gave: several conversations can have it.
UNNAMED = ("system", "default")


def identify(
    headers: Headers, body: Mapping[str, object], system_prompt: str, settings: Identity
) -> Identified:
    """
    The session of a request.

    An empty value is absent and the next source is asked; so is a placeholder (``{{CHAT_ID}}``)
    that the client did not fill in. A value that can not be a session id (over 256 characters,
    control characters, or no 32 hex digits where ``strict_hex`` asks for them) ends the search:
    the client did name a session, so no other one may stand in for it.

    :param body: the request's JSON.
    :param system_prompt: its text, empty where there is none.
    """
    if settings.strict_hex:
        value = _header(headers, "x-session-id")
        if not value:
            return NOBODY
        if not _HEX32.match(value):
            return Identified(None, "none", "x-session-id is not 32 hex digits (strict_hex)")
        return Identified(value, "header:x-session-id")
    for source, value in _named(headers, body, settings):
        agent = _value(_SUB_AGENTS.get(source, ""), headers, body)
        return _checked(f"{value}:{agent}" if agent not in ("", value) else value, source)
    if settings.system_prompt and system_prompt:
        digest = hashlib.sha256(system_prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return Identified(f"sys-{digest[:16]}", "system")
    return Identified("default", "default")


def names_sub_agent(headers: Headers, body: Mapping[str, object]) -> bool:
    """
    Whether a request is a sub-agent's that names itself, and so has a session of its own beside
    its main agent's.
    """
    if _header(headers, "x-claude-code-agent-id"):
        return True
    for shared in ("header:session-id", "body:prompt_cache_key"):
        main = _value(shared, headers, body)
        if main and _value(_SUB_AGENTS[shared], headers, body) not in ("", main):
            return True
    return False


def _named(
    headers: Headers, body: Mapping[str, object], settings: Identity
) -> Iterator[tuple[str, str]]:
    """The sources that name a session, best first, and what each says."""
    listed = [("header", name) for name in settings.headers]
    listed += [("body", name) for name in settings.body]
    for kind, name in sorted(listed, key=lambda source: source not in _OURS):
        if kind == "header" and "*" in name:
            yield from _guessed(headers, name)
            continue
        source = f"{kind}:{name}"
        if value := _read_specially(source, _value(source, headers, body), headers):
            yield source, value


def _read_specially(source: str, value: str, headers: Headers) -> str:
    """What a value says of the session; empty: nothing."""
    kind, _, name = source.partition(":")
    if not value:
        return ""
    if kind == "header" and name in _CODEX_HEADERS:
        return value if _IS_UUID.match(value) or _from_codex(headers) else ""
    if source == f"body:{_CLAUDE_USER}":
        return _claude_session(value)
    if source == "body:id":
        return value if _CHAT_ID.match(value) else ""
    return value


def _from_codex(headers: Headers) -> bool:
    said = (_header(headers, name) for name in ("user-agent", "originator"))
    return any("codex" in value.lower() for value in said)


def _claude_session(user_id: str) -> str:
    """The session in Claude Code's ``metadata.user_id``; for others that field is a user."""
    if len(user_id) > _MAX_CLAUDE_USER:
        return ""
    if old := _CLAUDE_USER_OLD.match(user_id):
        return old[1]
    try:
        read = json.loads(user_id)
    except (ValueError, RecursionError):
        return ""
    return _field(read, "session_id") if isinstance(read, dict) else ""


def _guessed(headers: Headers, pattern: str) -> Iterator[tuple[str, str]]:
    """What the headers say that a pattern finds, in the order of their names."""
    names = sorted(name.decode("latin-1").lower() for name, _ in headers.getAllRawHeaders())
    for name in names:
        if not fnmatchcase(name, pattern) or not _NAME.match(name):
            continue
        if any(fnmatchcase(name, never) for never in _NEVER_GUESSED):
            continue
        if _GUESSED_ID.match(value := _header(headers, name)):
            yield f"header:{name}", value


def _value(source: str, headers: Headers, body: Mapping[str, object]) -> str:
    """What stands in ``header:<name>`` or ``body:<field>``, empty where there is nothing."""
    kind, _, name = source.partition(":")
    if kind == "header":
        return _header(headers, name)
    return _field(body, name) if kind == "body" else ""


def _header(headers: Headers, name: str) -> str:
    for value in headers.getRawHeaders(name.encode("latin-1"), []):
        if (stripped := value.strip()) and b"{{" not in stripped:
            try:
                return stripped.decode("utf-8")
            except UnicodeDecodeError:
                return stripped.decode("latin-1")
    return ""


def _field(body: Mapping[str, object], path: str) -> str:
    value: object = body
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return ""
        value = value.get(name)
    if isinstance(value, str):
        return "" if "{{" in value else value.strip(" ")
    # a number is what some clients use for an id; true is not
    return str(value) if type(value) is int else ""


def _checked(value: str, source: str) -> Identified:
    if len(value) > MAX_ID:
        return Identified(None, "none", f"{source} has {len(value)} characters (at most {MAX_ID})")
    if _UNUSABLE.search(value):
        return Identified(None, "none", f"{source} holds control characters")
    return Identified(value, source)
