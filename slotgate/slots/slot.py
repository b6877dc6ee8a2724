"""
One slot: its queue, its leases, and what it holds between them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.llama.control import Control
from slotgate.llama.errors import ControlError, Loading, NotLoaded, ProcessLost, Unreachable
from slotgate.llama.wire import SlotStatus
from slotgate.sessions import Session, SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import (
    End,
    Over,
    Sent,
    Want,
    idle_seconds,
    must_erase,
    worth_saving,
)
from slotgate.slots.lease import Lease, QueueFull, Stopping
from slotgate.slots.machine import (
    Content,
    Empty,
    Erased,
    Gone,
    Holding,
    SlotMachine,
    Unknown,
    new_machine,
    put_back,
)
from slotgate.slots.memory import Memory
from slotgate.slots.reasons import Reason
from slotgate.slots.steps import Action, Stepping, Tell, nobody
from slotgate.slots.switch import Switch
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.store import Snapshots

_T = TypeVar("_T")


@define(eq=False)
class Slot:
    """
    One KV-cache slot of one model, and the only thing that sends control calls for it.

    Invariants: the lock's holder, and nobody else, sends requests, saves, restores and erases
    (rule 1); it gives the lock back only when the slot is idle or can not be seen. A session is
    saved only while a look agrees with what its last lease left (rule 2).
    """

    address: Address
    _control: Control
    _snapshots: Snapshots
    _view: View
    _usefulness: Usefulness
    _memory: Memory
    _clock: IReactorTime
    _max_queue: int
    #: After how many idle seconds the model falls asleep, as far as is known now.
    _sleep_seconds: Callable[[], float | None]
    #: Told of each step of the slot.
    _tell: Tell = nobody
    _stepping: Stepping = field(init=False)
    _switch: Switch = field(init=False)
    _machine: SlotMachine = field(factory=new_machine, init=False)
    _lock: DeferredLock = field(factory=DeferredLock, init=False)
    _stopping: bool = field(default=False, init=False)
    _recalled: bool = field(default=False, init=False)
    #: A request of ours runs, or its switch does.
    _running: bool = field(default=False, init=False)
    #: How many requests wait; calls of the session API do not take their places.
    _queue: int = field(default=0, init=False)
    _used: float = field(default=0.0, init=False)
    #: Whose cache is in the slot while the lock is held and the content therefore unknown.
    _in_use_by: Session | None = field(default=None, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def __attrs_post_init__(self) -> None:
        self._stepping = Stepping(self.address, self._clock, self._tell)
        self._switch = Switch(
            self.id,
            self._view,
            self._control,
            self._snapshots,
            self._usefulness,
            partial(self._memory.forget, self.model, self.id),
            self._stepping,
        )

    @property
    def name(self) -> str:
        """For people: the server, its model where it has several, and the slot."""
        return str(self.address)

    @property
    def server(self) -> str:
        """The server's name in the configuration."""
        return self.address.server

    @property
    def model(self) -> str:
        """The id by which a router knows the model; empty: the server has one model."""
        return self.address.model

    @property
    def id(self) -> int:
        """The slot's number."""
        return self.address.slot

    @property
    def content(self) -> Content:
        """What is in the slot, as far as we know; unknown while a lease changes it."""
        return self._machine.content()

    @property
    def state(self) -> str:
        """The name of the slot's state (:class:`~slotgate.slots.machine.SlotMachine`)."""
        return self._machine.state()

    @property
    def tenant(self) -> Session | None:
        """
        Whose cache is in the slot, as far as we know; that of the running lease if there is one.
        """
        content = self.content
        return content.session if isinstance(content, Holding) else self._in_use_by

    @property
    def used(self) -> float:
        """When the slot was used last, in seconds of its clock."""
        return self._clock.seconds() if self._lock.locked else self._used

    @property
    def problems(self) -> list[str]:
        """What is known to keep its sessions from being saved and restored."""
        return self._switch.problems

    @property
    def waiting(self) -> int:
        """How many requests and calls of the session API wait for the slot."""
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
        # our own look after a request is not one that waits behind another
        room = self._max_queue if self._running else self._max_queue + 1
        if self._lock.locked and self._queue >= room:
            raise QueueFull(f"{self._queue} requests wait for {self.name}")
        self._queue += 1
        try:
            await self._lock.acquire()
        finally:
            self._queue -= 1
        if self._stopping:
            # those that waited end at once, and leave the time there is to the running ones
            self._hand_over()
            raise Stopping
        lease = Lease(want, self.id)
        lease.look = partial(self._look, lease)
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
        content: Content = Unknown()
        self._running = True
        began = self._clock.seconds()
        try:
            status, content = await self._prepare(await self._recall(), lease)
            lease.switched = self._clock.seconds() - began
            self._in_use_by = lease.want.session
            lease.may_reuse = not must_erase(content, lease.want)
            restored = None if lease.restored is None else lease.restored.tokens
            lease.held = restored
            if isinstance(content, Holding) and content.mark is not None:
                lease.held = content.mark.tokens
            sent = Sent(content, None if status is None else status.task, restored)
            if not ready.called:
                ready.callback(None)
            end, usage = await lease.ended()
            self._running = False
            content = await self._settle(sent, lease, Over(end, usage, lease.task))
        except BaseException:
            content = Unknown()
            raise
        finally:
            self._running = False
            if not ready.called:
                ready.callback(None)
            self._leave(content)

    def _look(self, lease: Lease) -> None:
        async def look() -> None:
            with suppress(ControlError):
                status = await self._view.look()
                if status is not None and status.busy and not lease.released:
                    lease.task = status.task

        Deferred.fromCoroutine(look()).addErrback(self._surprised)

    async def _prepare(self, content: Content, lease: Lease) -> tuple[SlotStatus | None, Content]:
        try:
            return await self._switch.make_resident(content, lease)
        except ControlError as error:
            lease.lost = isinstance(error, (NotLoaded, ProcessLost))
            lease.found_nothing(Reason.SERVER_AWAY)
            return None, self._without_contact(error, lease.content)
        except IndexAway as error:
            lease.found_nothing(Reason.INDEX_AWAY)
            self._log.warn("{slot}: {error}; it goes on without", slot=self.name, error=error)
            return None, Unknown()
        except Exception:
            # the index, the folder, or a fault of ours: the request goes on all the same (rule 6)
            lease.found_nothing(Reason.INDEX_AWAY)
            self._log.failure("{slot}: the switch failed", slot=self.name)
            return None, Unknown()

    async def _settle(self, sent: Sent, lease: Lease, over: Over) -> Content:
        if over.end is End.CUT:
            self._machine.drain()
        try:
            return await self._switch.settle(sent, lease, over)
        except IndexAway as error:
            self._log.warn(
                "{slot}: {error}; what it holds is not known", slot=self.name, error=error
            )
            return Unknown()
        except ControlError as error:
            session = lease.want.session
            worked = sent.content if session is None else Holding(session, saved=False)
            return self._without_contact(error, worked)

    async def _recall(self) -> Content:
        """Begin a lease; the first one with what the slotgate before us left in the slot."""
        content = self._machine.take()
        if not self._recalled:
            self._recalled = True
            content = await self._memory.left(self.model, self.id) or content
        self._in_use_by = content.session if isinstance(content, Holding) else None
        return content

    def _leave(self, content: Content, remember: bool = True) -> None:
        """End a lease with this content in the slot."""
        put_back(self._machine, content)
        self._in_use_by = None
        self._used = self._clock.seconds()
        if remember:
            self._memory.leave(self.model, self.id, content)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._lock.waiting:
            # one reactor turn each: above about 110 waiters that end at once the lock would
            # recurse until Python gives up, and stay locked for ever (twisted#9304)
            self._clock.callLater(0, self._lock.release)
        else:
            self._lock.release()

    def _without_contact(self, error: ControlError, content: Content) -> Content:
        """
        What is in the slot when a control call did not say.

        :param content: what was in it before.
        """
        tell = self._log.info if isinstance(error, NotLoaded) else self._log.warn
        tell("{slot}: {error}", slot=self.name, error=error)
        if isinstance(error, (Unreachable, Loading, NotLoaded)):
            self._switch.lost(content, error)
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
        return self.save().addCallback(lambda _: None)

    def lose(self) -> None:
        """
        The model was unloaded or fell asleep, by itself or by somebody else's will, and what was
        in its slots is gone. A lease finds that out by its own look.
        """
        if self._lock.locked:
            return
        content = self.content
        self._machine.lose()
        self._switch.lost(content)
        self._memory.leave(self.model, self.id, Gone())

    def vacate(self, gone: Deferred[bool]) -> Deferred[None]:
        """
        Save what the slot holds, and lend the slot to nobody until the model has gone or stays.

        :param gone: fires with whether the model was unloaded.
        :returns: a Deferred that fires when nothing is left to save, or saving failed.
        """
        kept: Deferred[None] = Deferred()

        async def vacate(content: Content) -> tuple[Content, None]:
            content = await self._save(content, patient=False)
            kept.callback(None)
            if not await gone:
                return content, None
            self._switch.lost(content)
            return Gone(), None

        def failed(failure: Failure) -> None:
            self._surprised(failure)
            if not kept.called:
                kept.callback(None)

        Deferred.fromCoroutine(self._alone(vacate)).addErrback(failed)
        return kept

    def recall(self) -> Deferred[None]:
        """
        See whether the slot still holds what the slotgate before us left in it.

        :returns: a Deferred that fires when that is known, as far as the server can be asked.
        """

        async def recall(content: Content) -> tuple[Content, None]:
            if not isinstance(content, Holding):
                return content, None
            try:
                if await self._view.asleep():
                    return Gone(), None
                return self._switch.checked(content, await self._view.look()), None
            except ControlError as error:
                return self._without_contact(error, content), None

        return Deferred.fromCoroutine(self._alone(recall))

    def save(self, *, patient: bool = True) -> Deferred[Content]:
        """
        Save what the slot holds, if that is not on disk, once the running lease has ended.

        :param patient: wait for a slot that somebody else keeps busy.
        :returns: a Deferred that fires when nothing is left to save, or saving failed, with what
            is in the slot then.
        """

        async def save(content: Content) -> tuple[Content, Content]:
            kept = await self._save(content, patient)
            return kept, kept

        return Deferred.fromCoroutine(self._alone(save))

    def save_if_idle(self) -> Deferred[Content] | None:
        """
        Save what the slot holds if it had no request for as long as its route says, or the model
        would soon fall asleep.

        :returns: ``None`` when there is nothing to do.
        """
        held = worth_saving(self.content)
        if held is None or self._lock.locked:
            return None
        seconds = idle_seconds(held.session.policy, self._sleep_seconds())
        if seconds is None or self._clock.seconds() - self._used < seconds:
            return None
        return self.save(patient=False)

    def erase(self, may: Callable[[Content], bool] = lambda _: True) -> Deferred[Erased | None]:
        """
        Empty the slot, once the running lease has ended.

        :param may: whether what is in the slot then may go.
        :returns: a Deferred that fires with what went, ``None`` when it may not; fails with a
            :class:`~slotgate.llama.errors.ControlError`.
        """

        async def erase(content: Content) -> tuple[Content, Erased | None]:
            return await self._erase(content) if may(content) else (content, None)

        return Deferred.fromCoroutine(self._alone(erase))

    def forget(self, key: SessionKey) -> Deferred[None]:
        """
        Drop a session's snapshot, and save no more of it than its next request brings.

        :returns: a Deferred that fires when the running lease has ended and that is done.
        """

        async def forget(content: Content) -> tuple[Content, None]:
            self._snapshots.fates.note(key, Fate.DELETED)
            if (snapshot := await self._snapshots.find(key)) is not None:
                await self._snapshots.drop(snapshot, "deleted by a client")
            holds = isinstance(content, Holding) and content.session.key == key
            return Unknown() if holds else content, None

        return Deferred.fromCoroutine(self._alone(forget))

    async def _alone(self, work: Callable[[Content], Awaitable[tuple[Content, _T]]]) -> _T:
        """
        Do something with the slot while nobody has a lease.

        What is raised leaves the slot unknown.

        :param work: gets what is in the slot, and returns what is in it afterwards.
        """
        await self._lock.acquire()
        content: Content = Unknown()
        remember = True
        try:
            content, result = await work(await self._recall())
        except CancelledError:
            # time is up: what was left in the slot may be there still when we are back
            remember = False
            raise
        finally:
            self._leave(content, remember)
        return result

    async def _save(self, content: Content, patient: bool) -> Content:
        if worth_saving(content) is None:
            return content
        try:
            if await self._view.asleep():
                # it has dropped its slots, and a look would wake it for nothing
                self._log.warn(
                    "{slot}: the server fell asleep before the slot was saved; let"
                    " save_idle_seconds be less than its --sleep-idle-seconds",
                    slot=self.name,
                )
                return Gone()
            status = await (self._view.idle() if patient else self._view.look())
            if status is not None and status.busy:
                return content
            return await self._switch.keep(self._switch.checked(content, status))
        except ControlError as error:
            return self._without_contact(error, content)

    async def _erase(self, content: Content) -> tuple[Content, Erased]:
        try:
            asleep = await self._view.asleep()
        except NotLoaded:
            asleep = True
        if asleep:
            # it has dropped its slots, and a look would wake it for nothing
            return Gone(), Erased(content, 0)
        await self._view.idle()
        erasing = self._control.erase(self.id)
        tokens = await self._stepping.take(Action.ERASE, None, erasing)
        self._log.info("{slot}: {tokens} tokens erased for a client", slot=self.name, tokens=tokens)
        if isinstance(content, Holding):
            self._snapshots.fates.note(content.session.key, Fate.CLEARED)
        return Empty(), Erased(content, tokens)
