"""
Hosts: what a ``Host`` header names, and whether that is this machine.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection
from typing import TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: As in Ollama, whose clients use such names.
_LOCAL_DOMAINS = (".localhost", ".local", ".internal")
_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
)

_NAME = r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+"
_HOST = re.compile(rf"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>{_NAME})\.?)?(?::[0-9]{{0,5}})?")


def is_loopback(address: object) -> bool:
    """
    Whether the near end of a connection is a loopback address.

    :param address: an :class:`~twisted.internet.interfaces.IAddress`; a Unix socket has no host.
    """
    host = _literal(str(getattr(address, "host", "")))
    return host is not None and host.is_loopback


def host_of(value: str) -> str | None:
    """
    The host in a ``Host`` header, without its port.

    :returns: a name in lower case and without a dot at its end, an address as :mod:`ipaddress`
        writes it, or nothing where nothing is said; ``None``: it is no host.
    """
    text = value.strip(" \t").lower()
    if bare := _literal(text):
        return str(bare)
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    if match["v6"]:
        address = _literal(match["v6"])
        return str(address) if address else None
    name = match["name"] or ""
    return str(_literal(name) or name)


def is_this_machine(
    host: str, further: Collection[str] = (), has: Callable[[_Address], bool] | None = None
) -> bool:
    """
    Whether a host is this machine under a name that no page can have: Ollama's rule.

    :param host: from :func:`host_of`.
    :param further: other names that are fine.
    :param has: whether the machine has an address.
    """
    if address := _literal(host):
        near = address.is_loopback or address.is_unspecified or host in further
        private = any(address in network for network in _PRIVATE)
        return near or private or (has or has_address)(address)
    return (
        host in ("", "localhost", socket.gethostname().lower().removesuffix("."))
        or host.endswith(_LOCAL_DOMAINS)
        or host in further
    )


def has_address(address: _Address) -> bool:
    """
    Whether an interface of this machine has an address: what is sent there comes from there.

    Nothing is sent to find it out. Binding would not do: a broadcast address can be bound too.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return _literal(probe.getsockname()[0]) == address
    except OSError:
        return False


def _literal(text: str) -> _Address | None:
    """An IP address, an IPv4 one also where IPv6 wraps it; with a zone it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return None if address.scope_id else address.ipv4_mapped or address
