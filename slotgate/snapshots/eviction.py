"""
Which snapshots make room for others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from slotgate.sessions import Policy, SessionKey
from slotgate.snapshots.records import Snapshot


def surplus(
    snapshots: Sequence[Snapshot],
    policy: Policy,
    needed: Container[SessionKey],
    *,
    coming_files: int = 0,
    coming_bytes: int = 0,
) -> list[Snapshot]:
    """
    The snapshots of a route that are over its limits, the one used longest ago first.

    :param snapshots: all of the route's, the one used longest ago first.
    :param needed: sessions whose snapshots stay whatever the limits say: the one just saved and
        the one about to be restored.
    :param coming_files: how many are about to be added.
    :param coming_bytes: how many bytes are about to be added.
    """
    files = len(snapshots) + coming_files
    size = sum(snapshot.size for snapshot in snapshots) + coming_bytes
    going = []
    for snapshot in snapshots:
        over_files = policy.max_files and files > policy.max_files
        over_bytes = policy.max_bytes and size > policy.max_bytes
        if not (over_files or over_bytes):
            break
        if snapshot.key not in needed:
            going.append(snapshot)
            files -= 1
            size -= snapshot.size
    return going


def for_space(
    snapshots: Sequence[Snapshot], needed: Container[SessionKey], missing_bytes: int
) -> list[Snapshot]:
    """
    The snapshots to delete so that a disk has so many bytes more, the one used longest ago first.

    :returns: nothing when all of them together would not be enough: then none should go.
    """
    going = []
    for snapshot in snapshots:
        if missing_bytes <= 0:
            break
        if snapshot.key not in needed:
            going.append(snapshot)
            missing_bytes -= snapshot.size
    return going if missing_bytes <= 0 else []
