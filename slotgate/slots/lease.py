"""
The right to use a slot.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred

from slotgate.llama.wire import Usage
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.machine import Content, Unknown
from slotgate.slots.reasons import Cause, Reason
from slotgate.snapshots.records import Snapshot


class LeaseReleased(Exception):
    """The lease was given back; whoever still uses it would use somebody else's slot."""


class QueueFull(Exception):
    """So many requests wait for the slot that another one is not let in."""


class Stopping(Exception):
    """The gateway is stopping and gives out no more leases."""


@define(eq=False)
class Lease:
    """
    The right to use a slot, from before the switch until the response has ended.

    The slot itself is free only once ``/slots`` shows it idle; that is the slot's business.
    """

    want: Want
    _slot_id: int
    #: How the request found its cache; set by the switch.
    verdict: Verdict = Verdict.COLD
    #: Why it was cold, or past the cache.
    cause: Cause = field(default=Cause(Reason.NONE))
    #: What was in the slot at the last step of the switch.
    content: Content = field(factory=Unknown)
    #: How many tokens were in the slot when the request was sent, as far as is known.
    held: int | None = None
    #: How long the switch took, in seconds.
    switched: float = 0.0
    #: The snapshot that was restored for it, if one was.
    restored: Snapshot | None = None
    #: Whether the request may start from what is in the slot: not where that may be another
    #: client's.
    may_reuse: bool = True
    #: There was no slot to be had: the router has not loaded the model, or lost its process.
    lost: bool = False
    #: The slot's ``id_task`` while the request runs, once somebody has looked.
    task: int | None = None
    #: Set by the slot: looks at it now.
    look: Callable[[], None] = field(default=lambda: None)
    _ended: Deferred[tuple[End, Usage | None]] = field(factory=Deferred, init=False)
    _released: bool = field(default=False, init=False)

    @property
    def slot_id(self) -> int:
        """
        The slot to name in the request.

        :raises LeaseReleased: the lease was given back.
        """
        if self._released:
            raise LeaseReleased(f"slot {self._slot_id}")
        return self._slot_id

    @property
    def released(self) -> bool:
        """Whether the lease was given back."""
        return self._released

    def release(self, end: End, usage: Usage | None = None) -> None:
        """
        Give the lease back. The first call counts, and a released lease stays released.

        :param end: how the request ended.
        :param usage: the token counts of the response.
        """
        if not self._released:
            self._released = True
            self._ended.callback((end, usage))

    def found_nothing(self, reason: Reason) -> None:
        """The switch did not come to its end."""
        self.verdict = Verdict.BYPASS if self.want.session is None else Verdict.COLD
        self.cause = Cause(reason, self.cause.fate)

    def working(self) -> None:
        """
        The server works on the request: the moment to learn by which ``id_task`` the slot will
        show that nobody else came after it.
        """
        if not self._released:
            self.look()

    def ended(self) -> Deferred[tuple[End, Usage | None]]:
        """For the slot: fires when the lease is given back."""
        return self._ended
