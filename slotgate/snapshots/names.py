"""
File names of snapshots: ``<route>-<8 hex of its hash>_<session>.<generation>.bin``.
"""

from __future__ import annotations

import hashlib
import re

#: Matches our names and no other file's; ``tag`` is the route's part, ``generation`` the number.
OURS = re.compile(
    r"(?P<tag>[A-Za-z0-9_-]{1,40}-[0-9a-f]{8})_(?P<session>[0-9a-f]{32})\.(?P<generation>\d{1,18})\.bin\Z"
)


def route_tag(route: str) -> str:
    """
    The part of a file name that is the route: readable, and told apart by a hash.

    An operator can delete a route's files by this prefix.
    """
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", route)[:40] or "_"
    return f"{readable}-{hashlib.sha256(route.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def file_name(route: str, session: str, generation: int) -> str:
    """
    The name of one snapshot's file.

    :param session: 32 hex digits (:func:`slotgate.sessions.session_digits`).
    :param generation: the save's number; no two saves of a session that can matter at the same
        time share one.
    """
    return f"{route_tag(route)}_{session}.{generation}.bin"
