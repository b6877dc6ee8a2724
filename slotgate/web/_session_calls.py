"""
What a call of the session API asks for. No I/O.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.sessions import SessionKey
from slotgate.web.rejected import Rejected

PREFIX = "/api/sessions"

#: Sessions on a page: where the call does not say, and at the most.
PAGE, LARGEST_PAGE = 100, 1000

_DIGITS = re.compile(r"[0-9]{1,15}\Z")
_PORTS = {"http": 80, "https": 443}


class Action(enum.Enum):
    """What can be asked for."""

    LIST = "list"
    CURRENT = "current"
    CLEAR = "clear"
    DELETE = "delete"
    SAVE = "save"
    PROMPT = "prompt"

    @property
    def changes(self) -> bool:
        """Whether something is different afterwards."""
        return self not in (Action.LIST, Action.CURRENT, Action.PROMPT)


#: The query parameters that each knows.
_PARAMETERS = {
    Action.LIST: ("limit", "offset"),
    Action.CURRENT: (),
    Action.CLEAR: ("route",),
    Action.DELETE: ("route",),
    Action.SAVE: ("route",),
    Action.PROMPT: ("route",),
}

#: What comes after the session in a path, and what it asks for.
_OF_SESSION = {
    "/save": {"POST": Action.SAVE},
    "/prompt": {"GET": Action.PROMPT, "HEAD": Action.PROMPT},
}


@frozen
class Call:
    """A call, understood."""

    action: Action
    #: Which session; the id itself, not percent-encoded.
    id: str = ""
    #: ``None``: whatever route.
    route: str | None = None
    limit: int = PAGE
    offset: int = 0
    #: Exactly this one; ``None``: whichever are named so.
    key: SessionKey | None = None

    def means(self, key: SessionKey) -> bool:
        """Whether it is about a session."""
        if self.key is not None:
            return key == self.key
        return key.id == self.id and self.route in (None, key.route)


def understood(method: str, uri: str) -> Call:
    """
    What a call asks for.

    :param uri: the request-target as it came, percent-encoded.
    :raises Rejected: there is no such call.
    """
    path, _, query = uri.partition("?")
    action, session = _action(method, path)
    given = parse_qs(query, keep_blank_values=True, errors="replace")
    for name, values in given.items():
        # a slip in a parameter's name must not clear or delete more than was meant
        if name not in _PARAMETERS[action]:
            raise Rejected(400, f"this call has no parameter {name!r}")
        if len(values) > 1:
            raise Rejected(400, f"{name} is given more than once")
    return Call(
        action=action,
        id=session,
        route=given["route"][0] if "route" in given else None,
        limit=_number(given, "limit", PAGE, 1, LARGEST_PAGE),
        offset=_number(given, "offset", 0, 0, None),
    )


def _action(method: str, path: str) -> tuple[Action, str]:
    """The action, and the session id in the path."""
    rest = unquote(path)[len(PREFIX) :]
    # an encoded slash before "save" belongs to an id
    end = next((end for end in _OF_SESSION if path.endswith(end)), "")
    possible = {}
    if rest in ("", "/current"):
        found = Action.CURRENT if rest else Action.LIST
        possible = {"GET": found, "HEAD": found}
    elif rest == "/clear":
        possible = {"POST": Action.CLEAR}
    elif end:
        possible = dict(_OF_SESSION[end])
    if rest:
        possible["DELETE"] = Action.DELETE
    if method not in possible:
        allowed = ", ".join(possible)
        raise Rejected(405, f"{method} is not for this path, only {allowed}", {"Allow": allowed})
    action = possible[method]
    if action in (Action.SAVE, Action.PROMPT):
        rest = unquote(path.removesuffix(end))[len(PREFIX) :]
    if action in (Action.DELETE, Action.SAVE, Action.PROMPT):
        if rest in ("", "/"):
            raise Rejected(404, "the path names no session")
        return action, rest[1:]
    return action, ""


def _number(
    given: Mapping[str, list[str]], name: str, default: int, least: int, most: int | None
) -> int:
    if name not in given:
        return default
    (text,) = given[name]
    if _DIGITS.match(text) and least <= int(text) and (most is None or int(text) <= most):
        return int(text)
    wanted = f"from {least} to {most}" if most is not None else f"from {least} on"
    raise Rejected(400, f"{name} must be a whole number {wanted}")


def from_elsewhere(headers: Headers) -> bool:
    """
    Whether a browser sends this for a page of another origin.

    Such a page can not read the answer, but a POST is carried out without asking anybody. Other
    programs than browsers send no ``Origin``.
    """
    hosts = headers.getRawHeaders("host", [])
    for origin in headers.getRawHeaders("origin", []):
        scheme, _, authority = origin.strip().lower().partition("://")
        page = _address(scheme, authority)
        if page is None or len(hosts) != 1 or page != _address(scheme, hosts[0].strip().lower()):
            return True
    return False


def _address(scheme: str, authority: str) -> tuple[str, int | None] | None:
    """Host and port; ``None`` when it is no address."""
    try:
        parts = urlsplit(f"//{authority}")
        port = parts.port or _PORTS.get(scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None
