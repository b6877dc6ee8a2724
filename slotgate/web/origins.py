"""
Browsers: under which names the gateway may be asked on this machine (``Host``), and which pages
may read its answers (``Origin``).

A page from anywhere makes the browser that shows it send requests to 127.0.0.1. It can not read
the answers, unless its own name is made to point here (DNS rebinding; then that name stands in
``Host``) or the answer allows it (CORS).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.reloading import Settings
from slotgate.web.hosts import host_of, is_loopback, is_this_machine
from slotgate.web.rejected import Rejected

#: A browser asks again whether a page may send a request after this, in seconds.
PREFLIGHT_SECONDS = 3600

# RFC 9110, 5.6.1 and 5.6.2
_TOKENS = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]*")

# one slash or several: a proxy in between may make one of them
_PRIVATE = re.compile(r"/+(slotgate(/|\Z)|api/+sessions)", re.IGNORECASE)

_METHODS = "GET, HEAD, POST, DELETE"
#: What a page can not read otherwise, even where it may read the answer.
_EXPOSED = "Retry-After, X-Slotgate-Session, X-Slotgate-Source, X-Slotgate-Cache"
_MOST_SHOWN = 100

#: Methods that change nothing.
_HARMLESS = frozenset((b"GET", b"HEAD", b"OPTIONS"))


def is_private(path: str) -> bool:
    """
    Whether a path tells of everybody's conversations: no page of another origin has any business
    there, whatever ``cors_origins`` says.

    :param path: decoded, as :func:`~slotgate.web.requests.path_of` says.
    """
    return _PRIVATE.match(path) is not None


@frozen
class Origins:
    """What ``hosts`` and ``cors_origins`` of ``[gateway]`` mean for a request."""

    _settings: Settings

    def _allowed(self, path: str) -> tuple[str, ...]:
        return () if is_private(path) else self._settings.config.gateway.cors_origins

    def check_host(self, address: object, headers: Headers) -> None:
        """
        Refuse what a browser sends for a page whose name was made to point to this machine.

        :param address: where the request arrived. Only loopback addresses are checked: beyond
            them a name can be right that nobody here knows, and keys are asked for.
        :raises Rejected: with 403.
        """
        if not is_loopback(address):
            return
        said = [host.decode("latin-1") for host in headers.getRawHeaders(b"host", [])]
        host = host_of(said[0] if said else "") if len(said) < 2 else None
        if host is None or not is_this_machine(host, self._settings.config.gateway.hosts):
            shown = ", ".join(said)[:_MOST_SHOWN]
            raise Rejected(
                403,
                f"the host {shown!r} is no name of this machine; "
                "if it should be, add it to hosts in [gateway]",
            )

    def check_origin(self, method: bytes, path: str, headers: Headers) -> None:
        """
        Refuse what a page from anywhere sends: it can not read the answer, but a POST is carried
        out without asking anybody. Programs send no ``Origin``, or one of a scheme of their own.

        :param path: decoded.
        :raises Rejected: with 403.
        """
        if method in _HARMLESS or not headers.hasHeader(b"origin"):
            return
        allowed = self._allowed(path)
        origin = _origin(headers)
        scheme, _, rest = origin.lower().partition("://")
        if "*" in allowed or origin in allowed or (rest and scheme not in ("http", "https")):
            return
        said = [host.decode("latin-1").lower() for host in headers.getRawHeaders(b"host", [])]
        host = host_of(rest) if rest else None
        own = rest in said or (bool(host) and is_this_machine(host or ""))
        if not own:
            raise _refused(path, origin)

    def cors(self, path: str, headers: Headers) -> Mapping[str, str]:
        """
        The CORS headers of a response.

        :param path: of the request, decoded.
        :param headers: of the request.
        """
        allowed = self._allowed(path)
        if not allowed:
            return {}
        if "*" in allowed:
            # never with Allow-Credentials: that pair is what browsers refuse
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": _EXPOSED}
        origin = _origin(headers)
        if origin not in allowed:
            return {"Vary": "Origin"}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Credentials": "true",
            "Access-Control-Expose-Headers": _EXPOSED,
            "Vary": "Origin",
        }

    def preflight(self, method: bytes, path: str, headers: Headers) -> Mapping[str, str] | None:
        """
        What a browser wants to know before it sends a request for a page.

        :param path: decoded.
        :returns: the headers of the answer beyond :meth:`cors`; ``None``: it is another request.
        :raises Rejected: the page may not send any.
        """
        asks = headers.hasHeader(b"origin") and headers.hasHeader(b"access-control-request-method")
        if method != b"OPTIONS" or not asks:
            return None
        if "Access-Control-Allow-Origin" not in self.cors(path, headers):
            raise _refused(path, _origin(headers))
        told = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        }
        # a browser takes "*" neither for Authorization nor with credentials
        wanted = b", ".join(headers.getRawHeaders(b"access-control-request-headers", []))
        if wanted and _TOKENS.fullmatch(wanted):
            told["Access-Control-Allow-Headers"] = wanted.decode("ascii")
        return told


def add_headers(response: Headers, added: Mapping[str, str]) -> None:
    """Put :meth:`Origins.cors` into a response, whose own ``Vary`` stays."""
    for name, value in added.items():
        if name == "Vary":
            values = response.getRawHeaders("vary", [])
            kept = [part for line in values if (part := line.strip())]
            named = {part.strip().lower() for line in kept for part in line.split(",")}
            value = ", ".join(kept if named & {"*", value.lower()} else [*kept, value])
        response.setRawHeaders(name, [value])


def _refused(path: str, origin: str) -> Rejected:
    shown = origin[:_MOST_SHOWN]
    why = "is not in cors_origins of [gateway]"
    if is_private(path):
        why = "is another one: /slotgate and /api/sessions are for no other page"
    return Rejected(403, f"the origin {shown!r} {why}")


def _origin(headers: Headers) -> str:
    """The page's origin; a request with two has none."""
    origins = headers.getRawHeaders(b"origin", [])
    return origins[0].decode("latin-1").strip() if len(origins) == 1 else ""
