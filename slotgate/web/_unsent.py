"""
How much of what we wrote a peer has still to take.
"""

from __future__ import annotations

import array
from typing import Any

from twisted.protocols.policies import ProtocolWrapper

try:
    import fcntl
    import termios

    _OUTQ: int | None = getattr(termios, "TIOCOUTQ", None)
except ImportError:  # not a Unix
    _OUTQ = None


def unsent(transport: Any) -> int | None:
    """
    Bytes that the kernel holds for a peer because the peer has not acknowledged them.

    Our own buffer says nothing about a slow reader: the kernel takes from it in steps of a third
    of its send buffer, megabytes apart.

    :return: ``None`` where the kernel does not tell.
    """
    while isinstance(transport, ProtocolWrapper):  # TLS
        transport = transport.transport
    if _OUTQ is None:
        return None
    count = array.array("i", [0])
    try:
        fcntl.ioctl(transport.fileno(), _OUTQ, count)
    except (AttributeError, OSError, TypeError, ValueError):  # not a connected socket
        return None
    return count[0]
