"""A slot of a scripted server, for tests without a reactor."""

from __future__ import annotations

from typing import Any

from doubles import ScriptedLlama, memory_database, slot, snapshots
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.errors import ControlError
from slotgate.llama.wire import Usage
from slotgate.sessions import Policy, Session, SessionKey
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.lease import Lease
from slotgate.slots.slot import Slot
from slotgate.snapshots.files import Folder


def want(name: str, client: str | None = None, **policy: Any) -> Want:
    kept = Policy(**{"min_tokens": 64, **policy})
    session = Session(SessionKey(client, "*", name), "header:x-session-id", kept, "beginning")
    return Want(session, client, isolated=client is not None)


class SlotCase(SynchronousTestCase):
    """A slot of a scripted server, on a clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.llama = ScriptedLlama()
        self.database = memory_database()
        self.slot = self.new_slot()

    def new_slot(self, folder: Folder | None = None, max_queue: int = 64, **settings: Any) -> Slot:
        kept = snapshots(self.clock, folder, self.database, **settings)
        return slot(self.llama, self.clock, kept, max_queue)

    def lease(self, wanted: Want | str) -> Lease:
        wanted = want(wanted) if isinstance(wanted, str) else wanted
        lease: Lease = self.successResultOf(self.slot.lease(wanted))
        return lease

    def serve(self, lease: Lease, served: list[str]) -> None:
        """A request that ends as soon as it begins."""
        session = lease.want.session
        served.append(session.key.id if session else "nobody")
        lease.release(End.UNSENT)

    def turn(self, wanted: Want | str, tokens: int = 100, end: End = End.COMPLETE) -> Verdict:
        """One request from beginning to end."""
        lease = self.lease(wanted)
        session = lease.want.session
        self.llama.request(session.key.id if session else "nobody", tokens)
        reused = 0 if lease.verdict is Verdict.COLD else tokens // 2
        usage = Usage(reused, tokens - 7 - reused, 8)
        lease.release(end, usage if end is End.COMPLETE else None)
        return lease.verdict

    def works(self, lease: Lease, content: str, tokens: int = 100) -> None:
        """The server works on a lease's request, and its answer has begun."""
        self.llama.request(content, tokens)
        self.llama.busy = True
        lease.working()
        self.llama.busy = False

    def faults(self, action: str, *errors: ControlError) -> None:
        """The next calls of this kind fail."""
        self.llama.faults[action] = list(errors)
