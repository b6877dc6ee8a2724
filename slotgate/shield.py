"""
Waiting for something that goes on when nobody waits any longer, as :func:`asyncio.shield` does.
"""

from __future__ import annotations

from typing import TypeVar

from twisted.internet.defer import Deferred

_T = TypeVar("_T")


def shield(work: Deferred[_T]) -> Deferred[_T]:
    """
    Wait for work that is not cancelled with the wait.

    :returns: a Deferred that fires as the work does. Cancelled, it fails and the work goes on; what
        that comes to is then nobody's.
    """
    waiting: Deferred[_T] = Deferred()
    work.chainDeferred(waiting)
    return waiting
