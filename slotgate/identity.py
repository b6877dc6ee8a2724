"""
Which session a request belongs to: the configured sources, tried in their order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.config import Identity

#: Longer values are no session: no client makes them, and they would fill the index.
MAX_ID = 256

# lone surrogates too: JSON can spell them, UTF-8 and so header lines and the index can not
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# "id" means many things; chatcmpl-… for one names a completion and changes with every request
_CHAT_ID = re.compile(
    rf"(?:{_UUID}|[0-9a-f]{{32}}|(?:chat|conversation|conv|session|ses|thread)[-_:].+)\Z",
    re.IGNORECASE,
)


@frozen
class Identified:
    """A session id and where it came from (``X-Slotgate-Source``)."""

    #: ``None``: the request belongs to no session.
    id: str | None
    source: str
    #: Why a value that was there is not a session, for the log.
    refused: str = ""


NOBODY = Identified(None, "none")


def identify(
    headers: Headers, body: Mapping[str, object], system_prompt: str, settings: Identity
) -> Identified:
    """
    The session of a request.

    An empty value is absent and the next source is asked. A value that can not be a session id
    (over 256 characters, control characters, or no 32 hex digits where ``strict_hex`` asks for
    them) ends the search: the client did name a session, so no other one may stand in for it.

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
    for name in settings.headers:
        if value := _header(headers, name):
            return _checked(value, f"header:{name}")
    for name in settings.body:
        if value := _field(body, name):
            if name == "id" and not _CHAT_ID.match(value):
                continue
            return _checked(value, f"body:{name}")
    if settings.system_prompt and system_prompt:
        digest = hashlib.sha256(system_prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return Identified(f"sys-{digest[:16]}", "system")
    return Identified("default", "default")


def _header(headers: Headers, name: str) -> str:
    for value in headers.getRawHeaders(name.encode("latin-1"), []):
        if stripped := value.strip():
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
        return value.strip(" ")
    # a number is what some clients use for an id; true is not
    return str(value) if type(value) is int else ""


def _checked(value: str, source: str) -> Identified:
    if len(value) > MAX_ID:
        return Identified(None, "none", f"{source} has {len(value)} characters (at most {MAX_ID})")
    if _UNUSABLE.search(value):
        return Identified(None, "none", f"{source} holds control characters")
    return Identified(value, source)
