"""
One model of the fake router, and its process.
"""

from __future__ import annotations

from typing import Literal

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from slotgate.testing._router_child import Child
from slotgate.testing._router_reply import ProxiedReply
from slotgate.testing._router_settings import FakeModel

Status = Literal["unloaded", "loading", "loaded", "sleeping"]


@define(eq=False)
class Model:
    """
    One model of the router.

    :ivar stopping: its process was told to end; the status stays until it has.
    :ivar flights: the requests that its process answers; those of clients that have gone away too,
        until there is something that cannot be sent.
    :ivar used: grows with every POST for it and with every start.
    """

    name: str
    settings: FakeModel
    child: Child
    status: Status = "unloaded"
    stopping: bool = False
    exit_code: int = 0
    port: int = 0
    used: int = 0
    flights: set[ProxiedReply] = field(factory=set)
    timer: IDelayedCall | None = None
    _ends: list[Deferred[None]] = field(factory=list)

    @property
    def running(self) -> bool:
        """
        Whether it has a process, and so counts towards ``--models-max``.
        """
        return self.status != "unloaded"

    @property
    def serving(self) -> bool:
        """
        Whether a request can go to it.
        """
        return self.status in ("loaded", "sleeping") and not self.stopping

    def ended(self) -> Deferred[None]:
        """
        Wait until its process is gone.
        """
        if not self.running:
            return succeed(None)
        deferred: Deferred[None] = Deferred(self._ends.remove)
        self._ends.append(deferred)
        return deferred

    def tell_end(self) -> None:
        """
        Its process is gone: go on with who waited for that.
        """
        ends, self._ends = self._ends, []
        for deferred in ends:
            deferred.callback(None)

    def cancel_timer(self) -> None:
        """
        What was to come at some time comes no more.
        """
        timer, self.timer = self.timer, None
        if timer is not None and timer.active():
            timer.cancel()
