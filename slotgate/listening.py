"""
Where the gateway listens, as one would write it.
"""

from __future__ import annotations

import os

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from slotgate.plain import printable


def url_of(address: IAddress, description: str) -> str:
    """
    An address as a client writes it: ``http://127.0.0.1:11434``, ``unix:/path``.

    :param description: the endpoint string it comes from, which says whether it is TLS.
    """
    if isinstance(address, UNIXAddress):
        return "unix:" + printable(os.fsdecode(address.name or b""))
    if isinstance(address, (IPv4Address, IPv6Address)):
        scheme = "https" if description.startswith(("ssl:", "tls:")) else "http"
        host = f"[{address.host}]" if isinstance(address, IPv6Address) else address.host
        return f"{scheme}://{host}:{address.port}"
    # an endpoint of somebody's plugin
    return printable(str(address))
