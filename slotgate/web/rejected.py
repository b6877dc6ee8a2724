"""
A request that slotgate answers itself, with an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field


@define
class Rejected(Exception):
    """
    Why a request is not relayed.

    :ivar message: one sentence for the person who reads the client's error.
    """

    status: int
    message: str
    headers: Mapping[str, str] = field(factory=dict)
