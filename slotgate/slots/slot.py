"""
One slot: its queue, its leases, and the switch from one session to another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.control import Control
from slotgate.llama.errors import ControlError, Loading, Refused, Unreachable, Unsupported
from slotgate.llama.wire import SlotStatus
from slotgate.sessions import Session
from slotgate.slots.choice import (
    End,
    Verdict,
    Want,
    after_request,
    must_erase,
    seen,
    worth_saving,
)
from slotgate.slots.lease import Lease, QueueFull, Stopping
from slotgate.slots.machine import (
    Content,
    Empty,
    Gone,
    Holding,
    SlotMachine,
    Unknown,
    new_machine,
    put_back,
)
from slotgate.snapshots.index import Snapshot
from slotgate.snapshots.store import Snapshots

_T = TypeVar("_T")

#: The longest wait for a slot that somebody else keeps busy, in seconds.
IDLE_WAIT_SECONDS = 3600.0
#: The first pause between two looks at a busy slot; it doubles up to the server's poll_seconds.
FIRST_POLL_SECONDS = 0.02


class StillBusy(ControlError):
    """The slot did not become idle in time; no control call was sent."""


@define(eq=False)
class Slot:
    """
    One KV-cache slot of one server, and the only thing that sends control calls for it.

    Invariants: the lock's holder, and nobody else, sends requests, saves, restores and erases
    (rule 1); it gives the lock back only when the slot is idle or can not be seen. A session is
    saved only while a look agrees with what its last lease left (rule 2).
    """

    #: For people: the server and the slot.
    name: str
    id: int
    _client: Control
    _snapshots: Snapshots
    _clock: IReactorTime
    _poll_seconds: float
    _max_queue: int
    _machine: SlotMachine = field(factory=new_machine, init=False)
    _lock: DeferredLock = field(factory=DeferredLock, init=False)
    _stopping: bool = field(default=False, init=False)
    # what the server said it can not do; asked again once contact was lost
    _blind: bool = field(default=False, init=False)
    _unsaved: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    @property
    def content(self) -> Content:
        """What is in the slot, as far as we know; unknown while a lease changes it."""
        return self._machine.content()

    @property
    def state(self) -> str:
        """The name of the slot's state (:class:`~slotgate.slots.machine.SlotMachine`)."""
        return self._machine.state()

    @property
    def waiting(self) -> int:
        """How many requests wait for the slot."""
        return len(self._lock.waiting)

    def lease(self, want: Want) -> Deferred[Lease]:
        """
        Wait for the slot and make a session resident.

        Whatever goes wrong with the cache, the Deferred fires: with a colder start. Cancelled in
        the queue it leaves the queue; cancelled during the switch, the step that is under way
        ends first and the slot then goes to the next in the queue.

        :returns: a Deferred that fires with the lease; fails with
            :class:`~slotgate.slots.lease.QueueFull` or
            :class:`~slotgate.slots.lease.Stopping`.
        """
        return Deferred.fromCoroutine(self._lease(want))

    async def _lease(self, want: Want) -> Lease:
        if self._stopping:
            raise Stopping
        if self._lock.locked and self.waiting >= self._max_queue:
            raise QueueFull(f"{self.waiting} requests wait for {self.name}")
        await self._lock.acquire()
        lease = Lease(want, self.id)
        ready: Deferred[None] = Deferred()
        # the slot's own: the client may go away at any time, the slot's work has to end in order
        Deferred.fromCoroutine(self._serve(lease, ready)).addErrback(self._surprised)
        try:
            await ready
        except BaseException:
            # CancelledError: the client went away during the switch
            lease.release(End.UNSENT)
            raise
        return lease

    async def _serve(self, lease: Lease, ready: Deferred[None]) -> None:
        """One lease from the lock's acquisition to its release. Never cancelled."""
        content = self._machine.take()
        try:
            content = await self._serve_lease(content, lease, ready)
        except BaseException:
            content = Unknown()
            raise
        finally:
            if not ready.called:
                ready.callback(None)
            put_back(self._machine, content)
            self._hand_over()

    async def _serve_lease(self, content: Content, lease: Lease, ready: Deferred[None]) -> Content:
        status: SlotStatus | None = None
        try:
            status, content = await self._switch(content, lease)
        except ControlError as error:
            content = self._without_contact(error)
        except Exception:
            # the index, the folder, or a fault of ours: the request goes on all the same (rule 6)
            self._log.failure("{slot}: the switch failed", slot=self.name)
            content = Unknown()
        if not ready.called:
            ready.callback(None)
        end, usage = await lease.ended()
        if end is End.CUT:
            self._machine.drain()
        try:
            now = await self._idle()
        except ControlError as error:
            return self._without_contact(error)
        task = None if status is None else status.task
        return after_request(
            content, task, now, lease.want, end, usage, await self._saved_tokens(lease.want, end)
        )

    async def _saved_tokens(self, want: Want, end: End) -> int:
        if end is not End.CUT or want.session is None:
            return 0
        snapshot = await self._snapshots.find(want.session.key)
        return 0 if snapshot is None else snapshot.tokens

    def _hand_over(self) -> None:
        if self._lock.waiting:
            # one reactor turn each: above about 110 waiters that end at once the lock would
            # recurse until Python gives up, and stay locked for ever (twisted#9304)
            self._clock.callLater(0, self._lock.release)
        else:
            self._lock.release()

    async def _switch(self, content: Content, lease: Lease) -> tuple[SlotStatus | None, Content]:
        """
        Make the lease's session resident, as far as that goes.

        :returns: the look at the slot that was trusted, and what is in the slot now.
        :raises ControlError: contact was lost; the request may still find a server.
        """
        want = lease.want
        lease.verdict = Verdict.BYPASS if want.session is None else Verdict.COLD
        status = await self._look()
        content = seen(content, status)
        if want.is_for(content):
            lease.verdict = Verdict.RESIDENT
            return status, content
        snapshot = None if want.session is None else await self._snapshots.find(want.session.key)
        if not (worth_saving(content) or snapshot or must_erase(content, want)):
            return status, content
        if status is not None and status.busy:
            status = await self._idle()
            content = seen(content, status)
        if not lease.released:
            content = await self._keep(content)
        if not lease.released:
            content = await self._start(content, lease, snapshot)
        return status, content

    async def _keep(self, content: Content) -> Content:
        """Save the session in the slot, if that is due. A failure loses that turn, no more."""
        held = worth_saving(content)
        if held is None or self._unsaved:
            return content
        try:
            return evolve(held, saved=await self._save(held))
        except Unsupported as error:
            self._unsaved = True
            self._log.warn(
                "{slot}: the server does not save slots ({error}); start it with"
                " --slot-save-path, so that sessions survive the next one",
                slot=self.name,
                error=error,
            )
        except Refused:
            # a full disk, for one: the client has logged it
            pass
        return content

    async def _save(self, held: Holding) -> bool:
        """
        Write the slot to a new file and commit its record (rule 3).

        :raises ControlError: the server did not save.
        """
        previous = await self._snapshots.find(held.session.key)
        planned = self._snapshots.next_save(held.session, previous, self.id)
        try:
            saved = await self._client.save(self.id, planned.file)
        except Unreachable:
            self._snapshots.abandon(planned)
            raise
        except ControlError:
            # a failed save leaves part of a file, which would kill the server if restored
            await self._snapshots.discard(planned)
            raise
        tokens = saved.tokens
        if held.mark is not None and tokens != held.mark.tokens:
            self._log.warn(
                "{slot}: {saved} tokens were saved where {held} were seen",
                slot=self.name,
                saved=tokens,
                held=held.mark.tokens,
            )
            tokens = 0
        return await self._snapshots.commit(planned, tokens, saved.size, previous) is not None

    async def _start(self, content: Content, lease: Lease, snapshot: Snapshot | None) -> Content:
        """Put the session's snapshot into the slot, or see to a start that it may have."""
        if snapshot is not None and lease.want.session is not None:
            content = await self._restore(lease.want.session, snapshot)
            if isinstance(content, Holding):
                lease.verdict = Verdict.RESTORED
                return content
        if must_erase(content, lease.want):
            await self._client.erase(self.id)
            return Empty()
        return content

    async def _restore(self, session: Session, snapshot: Snapshot) -> Content:
        """
        :raises ControlError: contact was lost.
        """
        try:
            restored = await self._client.restore(self.id, snapshot.file)
        except Refused as error:
            # a refused restore empties the slot
            await self._snapshots.drop(snapshot, f"restore: {error}")
            return Empty()
        except Unreachable as error:
            if error.sent:
                # the server may have died of it, and would again
                await self._snapshots.drop(snapshot, f"restore: {error}")
            raise
        if restored.tokens != snapshot.tokens:
            await self._snapshots.drop(
                snapshot, f"restore gave {restored.tokens} tokens instead of {snapshot.tokens}"
            )
            return Unknown()
        await self._snapshots.used(snapshot)
        return Holding(session, saved=True)

    async def _look(self) -> SlotStatus | None:
        """
        The slot now; ``None`` where the server does not show its slots.

        :raises ControlError: no answer that says anything.
        """
        try:
            return await self._client.slot(self.id)
        except Unsupported as error:
            if not self._blind:
                self._blind = True
                self._log.warn(
                    "{slot}: the server does not show its slots ({error}); start it with"
                    " --slots, so that another client's use of them can be noticed",
                    slot=self.name,
                    error=error,
                )
            return None

    async def _idle(self) -> SlotStatus | None:
        """
        Wait until the slot is idle.

        A control call for a busy slot is parked by the server, and only one parked call is
        released each time a request ends: another client's request behind it could wait for good.

        :raises StillBusy: it was busy for :data:`IDLE_WAIT_SECONDS`.
        :raises ControlError: no answer that says anything.
        """
        began, pause = self._clock.seconds(), FIRST_POLL_SECONDS
        while (status := await self._look()) is not None and status.busy:
            if self._clock.seconds() - began > IDLE_WAIT_SECONDS:
                raise StillBusy(f"it was busy for {IDLE_WAIT_SECONDS:g} s")
            await deferLater(self._clock, min(pause, self._poll_seconds))
            pause *= 2
        return status

    def _without_contact(self, error: ControlError) -> Content:
        self._log.warn("{slot}: {error}", slot=self.name, error=error)
        if isinstance(error, (Unreachable, Loading)):
            self._blind = self._unsaved = False
            return Gone()
        return Unknown()

    def _surprised(self, failure: Failure) -> None:
        self._log.failure("{slot}: a lease ended in a fault", failure, slot=self.name)

    def stop(self) -> Deferred[None]:
        """
        Give out no more leases, and save what is not on disk once the running ones have ended.

        :returns: a Deferred that fires when nothing is left to save, or saving failed. Cancel it
            to stop waiting.
        """
        self._stopping = True
        return Deferred.fromCoroutine(self._alone(self._save_now))

    async def _alone(self, work: Callable[[], Awaitable[_T]]) -> _T:
        await self._lock.acquire()
        try:
            return await work()
        finally:
            self._hand_over()

    async def _save_now(self) -> None:
        content = self._machine.take()
        try:
            status = await self._idle()
            content = await self._keep(seen(content, status))
        except ControlError as error:
            content = self._without_contact(error)
        except BaseException:
            content = Unknown()
            raise
        finally:
            put_back(self._machine, content)
