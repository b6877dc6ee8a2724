"""
Readers of hosts and origins, which end up as browsers write them.
"""

from __future__ import annotations

import ipaddress
import re

from slotgate._config import values
from slotgate._config.toml import Wrong, shown

_NAME = r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+"
_HOST = re.compile(_NAME)
_ORIGIN = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>{_NAME}|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_USUAL_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65535


def host(value: object) -> str:
    """A name or an address as it stands in ``Host``, but without brackets."""
    given = values.line(value)
    text = given.lower().removesuffix(".")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if _HOST.fullmatch(text):
            return text
    else:
        if isinstance(address, ipaddress.IPv4Address):
            return str(address)
        if not address.scope_id:
            return str(address.ipv4_mapped or address)
    raise Wrong(
        f"{shown(given)} is no host like chat.example.com: a name or an address, without a port"
    )


def cors_origins(value: object) -> tuple[str, ...]:
    """A list of origins, or of ``"*"`` alone."""
    origins = values.listed(_origin)(value)
    if "*" in origins and len(origins) > 1:
        raise Wrong('"*" stands for all origins, so nothing can stand beside it')
    return origins


def _origin(value: object) -> str:
    given = values.line(value)
    if given == "*":
        return given
    try:
        return _as_browsers_write(given.lower())
    except ValueError:
        raise Wrong(
            f"{shown(given)} is no origin like https://chat.example.com: a scheme, a host, a port "
            "if it is not the usual one, and nothing more"
        ) from None


def _as_browsers_write(origin: str) -> str:
    """
    https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin

    :raises ValueError: it is no origin.
    """
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        raise ValueError(origin)
    scheme, where, port = match["scheme"], match["host"], match["port"]
    if where.startswith("["):
        where = f"[{ipaddress.IPv6Address(where[1:-1])}]"
    if port is None or int(port) == _USUAL_PORTS.get(scheme):
        return f"{scheme}://{where}"
    if not 0 < int(port) <= _LARGEST_PORT:
        raise ValueError(origin)
    return f"{scheme}://{where}:{int(port)}"
