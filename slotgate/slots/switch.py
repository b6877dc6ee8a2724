"""
The switch: making another session resident, as far as that goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from attrs import define, evolve, field
from twisted.logger import Logger

from slotgate.llama.control import Control
from slotgate.llama.errors import (
    ControlError,
    Junk,
    NotLoaded,
    ProcessLost,
    Refused,
    Unreachable,
    Unsupported,
)
from slotgate.llama.wire import SlotStatus
from slotgate.sessions import Session, SessionKey
from slotgate.slots.choice import (
    Over,
    Sent,
    Verdict,
    Want,
    after_request,
    fate_of,
    must_erase,
    saved_right,
    seen,
    worth_saving,
)
from slotgate.slots.lease import Lease
from slotgate.slots.machine import Content, Empty, Holding, Unknown
from slotgate.slots.reasons import Cause, Reason, cause_of
from slotgate.slots.steps import Action, Stepping
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.fingerprints import Fingerprint, misfit
from slotgate.snapshots.records import Snapshot
from slotgate.snapshots.store import NoRoom, Snapshots

#: What llama-server answers to a file that is missing, junk, or does not fit.
NOT_RESTORABLE = 400


@define(eq=False)
class Switch:
    """
    The steps of a switch of one slot. Whoever calls them holds the slot's lock.

    Whatever a step finds, it returns what is in the slot afterwards; only lost contact is raised.
    """

    _slot_id: int
    _view: View
    _control: Control
    _snapshots: Snapshots
    _usefulness: Usefulness
    #: Called before the slot's content changes without leaving another ``id_task``: a slotgate
    #: after us must not take what is in it then for what was in it before.
    _changing: Callable[[], Awaitable[None]]
    _stepping: Stepping
    #: What runs behind the slot, for as long as looks agree that nothing has changed.
    _fingerprint: Fingerprint | None = field(default=None, init=False)
    _last_task: int = field(default=-1, init=False)
    #: The server said that it saves no slots; asked again once contact was lost.
    _unsaved: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def make_resident(
        self, content: Content, lease: Lease
    ) -> tuple[SlotStatus | None, Content]:
        """
        Make the lease's session resident, or see to the best start that it can have.

        :returns: the look at the slot that was trusted, and what is in the slot now.
        :raises ControlError: contact was lost; the request may still find a server.
        """
        want = lease.want
        lease.content = content
        status = await self._view.loaded(lambda: lease.released)
        content = lease.content = self.checked(content, status)
        lease.verdict, lease.cause = self._start(want)
        if want.is_for(content) and not want.anew:
            lease.verdict, lease.cause = Verdict.RESIDENT, evolve(lease.cause, reason=Reason.NONE)
            return status, content
        session, known = await self._origin(content, lease)
        if not (worth_saving(content) or known or must_erase(content, want)):
            return status, content
        if status is not None and status.busy:
            status = await self._view.idle()
            content = lease.content = self.checked(content, status)
        if not lease.released:
            needed = [session.key] if session else []
            content = lease.content = await self.keep(content, needed)
        if lease.released:
            return status, content
        if session is not None and known:
            content = await self._begin_as(session, lease, status, content)
        if must_erase(content, want):
            await self._changing()
            erased = self._control.erase(self._slot_id)
            await self._stepping.take(Action.ERASE, None, erased)
            content = Empty()
        return status, content

    def _start(self, want: Want) -> tuple[Verdict, Cause]:
        """What a request is told that finds nothing."""
        if want.session is None:
            return Verdict.BYPASS, Cause(Reason.NO_SESSION)
        cause = cause_of(self._snapshots.fates.of(want.session.key))
        if want.anew and cause.fate is not None:
            return Verdict.COLD, Cause(Reason.ISOLATED, cause.fate)
        return Verdict.COLD, cause

    async def _origin(self, content: Content, lease: Lease) -> tuple[Session | None, bool]:
        """
        The session whose snapshot the request is to begin with, and whether it has one: its own,
        else that of the session that it branches from.
        """
        want = lease.want
        if want.session is None or want.anew:
            return want.session, False
        found = await self._snapshots.found(want.session.key)
        if isinstance(found, Snapshot):
            return want.session, True
        lease.cause = cause_of(found)
        if want.parent is None:
            return want.session, False
        if isinstance(content, Holding) and content.session.key == want.parent.key:
            # the server reuses of it what the new one shares
            lease.verdict, lease.cause = Verdict.FORKED, Cause(Reason.NONE)
            return want.session, False
        return want.parent, await self._snapshots.find(want.parent.key) is not None

    async def _begin_as(
        self, session: Session, lease: Lease, status: SlotStatus | None, content: Content
    ) -> Content:
        """
        Restore a session's snapshot. It is looked at only now: the waits before this can be long,
        and much can happen to a file.
        """
        forks = session is lease.want.parent
        found = await self._fitting(session, status)
        if isinstance(found, Snapshot):
            content = await self._restore(session, found)
            if isinstance(content, Holding):
                lease.verdict = Verdict.FORKED if forks else Verdict.RESTORED
                lease.cause = evolve(lease.cause, reason=Reason.NONE)
                lease.restored = found
                return content
            found = Cause(Reason.DAMAGED, Fate.DAMAGED)
        if not forks:
            lease.cause = found
        return content

    def checked(self, content: Content, status: SlotStatus | None) -> Content:
        """What may be believed of the slot after a look, and what the look says besides."""
        now = seen(content, status)
        if not isinstance(now, Holding):
            # somebody else may be behind the address by now
            self._fingerprint = None
        if status is None:
            self._fingerprint = None
            return now
        task = -1 if status.task is None else status.task
        last = self._last_task
        if isinstance(content, Holding) and content.mark is not None:
            last = max(last, content.mark.task)
        gone = content if isinstance(content, Holding) and not isinstance(now, Holding) else None
        if task < last:
            self._usefulness.begin_anew()
            self._log.info("{slot}: the server was started anew", slot=self._view.name)
            self._note(gone, Fate.RESTARTED)
        elif gone is not None and status.tokens == 0 and task == last:
            self._log.warn(
                "{slot}: it was emptied: what it held of session {session} is gone. Automatic slots"
                " are emptied when they are idle: start llama-server with -np 1",
                slot=self._view.name,
                session=gone.session.key.shown,
            )
            self._note(gone, Fate.EMPTIED)
        elif gone is not None:
            self._log.warn(
                "{slot}: somebody else used it: what it held of session {session} is gone. Let"
                " every client of this server come through slotgate",
                slot=self._view.name,
                session=gone.session.key.shown,
            )
            self._note(gone, Fate.OVERWRITTEN)
        self._last_task = task
        return now

    @property
    def problems(self) -> list[str]:
        """What is known to keep sessions from being saved and restored, one sentence each."""
        said = []
        if self._unsaved:
            said.append("it saves no slots: start it with --slot-save-path")
        if not self._usefulness.helps:
            said.append(
                "restores do not help with this model: a sliding window or a recurrent part needs"
                " checkpoints in the slot files, or --swa-full"
            )
        if self._view.blind:
            said.append("it does not show its slots: start it with --slots")
        return said

    def _note(self, held: Holding | None, fate: Fate) -> None:
        if held is not None:
            self._snapshots.fates.note(held.session.key, fate)

    async def keep(self, content: Content, needed: Collection[SessionKey] = ()) -> Content:
        """
        Save the session in the slot, if that is due. A failure loses that turn, no more.

        :param needed: keys of sessions whose snapshots must not make room.
        """
        held = worth_saving(content)
        if held is None:
            return content
        if self._unsaved or not self._usefulness.helps:
            self._note(held, Fate.UNSUPPORTED if self._unsaved else Fate.NOT_HELPFUL)
            self._stepping.skip(Action.SAVE, held.session.key)
            return content
        try:
            return evolve(held, saved=await self._save(held, needed))
        except Unsupported as error:
            self._unsaved = True
            self._note(held, Fate.UNSUPPORTED)
            self._log.warn(
                "{slot}: the server does not save slots ({error}); start it with"
                " --slot-save-path, so that sessions survive the next one",
                slot=self._view.name,
                error=error,
            )
        except NoRoom as error:
            self._note(held, Fate.NO_ROOM)
            self._stepping.skip(Action.SAVE, held.session.key)
            self._log.warn(
                "{slot}: session {session} is not saved: {error}",
                slot=self._view.name,
                session=held.session.key.shown,
                error=error,
            )
        except Refused:
            # a full disk, for one: the client has logged it
            self._note(held, Fate.FAILED)
        return content

    async def settle(self, sent: Sent, lease: Lease, over: Over) -> Content:
        """
        See what is in the slot now that a request is over, once it is idle.

        :raises ControlError: the slot can not be seen.
        """
        session = lease.want.session
        if lease.restored is not None and session is not None:
            same = lease.restored.beginning == session.beginning != ""
            self._usefulness.restored(lease.restored.tokens, over.usage, same)
        now = await self._view.idle()
        saved_tokens = 0
        if over.usage is None and session is not None:
            snapshot = await self._snapshots.find(session.key)
            saved_tokens = 0 if snapshot is None else snapshot.tokens
        content = after_request(sent, over, now, lease.want, saved_tokens)
        if session is None:
            return content
        taken = over.usage is not None and isinstance(content, Unknown)
        if taken:
            self._log.warn(
                "{slot}: it does not hold what the answer to {session} says: somebody else used"
                " it. Let every client of this server come through slotgate",
                slot=self._view.name,
                session=session.key.shown,
            )
        if now is None or now.task != sent.task:
            self._snapshots.fates.note(session.key, fate_of(content, taken=taken))
        return content

    def lost(self, content: Content, error: ControlError | None = None) -> None:
        """
        Contact was lost: who answers next may be another process.

        :param content: what was in the slot.
        :param error: how it was noticed; ``None``: the model was unloaded or fell asleep.
        """
        alone = error is None or isinstance(error, (ProcessLost, NotLoaded))
        if isinstance(content, Holding) and not content.saved:
            self._note(content, Fate.UNLOADED if alone else Fate.RESTARTED)
        if (held := worth_saving(content)) is not None:
            self._log.warn(
                "{slot}: the {what} went away, and with it session {session}, which was not saved",
                slot=self._view.name,
                what="model" if alone else "server",
                session=held.session.key.shown,
            )
        self._fingerprint = None
        self._unsaved = False
        self._view.lost()
        if isinstance(error, Unreachable) and not alone:
            self._snapshots.nothing_pending()
        else:
            # the next process of the model counts anew, and is the same build
            self._last_task = -1

    async def _save(self, held: Holding, needed: Collection[SessionKey]) -> bool:
        """
        Write the slot to a new file and commit its record (rule 3).

        :raises ControlError: the server did not save.
        :raises NoRoom: the disk has none.
        """
        written_by = await self._written_by()
        previous = await self._snapshots.find(held.session.key)
        planned = self._snapshots.next_save(held.session, previous, self._slot_id, written_by)
        expected = 0 if held.mark is None else held.mark.tokens
        await self._snapshots.make_room(held.session, previous, expected, needed)
        try:
            saving = self._control.save(self._slot_id, planned.file)
            saved = await self._stepping.take(Action.SAVE, held.session.key, saving)
        except Unreachable:
            self._snapshots.abandon(planned)
            raise
        except ControlError:
            # a failed save leaves part of a file, which would kill the server if restored
            await self._snapshots.discard(planned)
            raise
        tokens = saved.tokens
        if not saved_right(held, tokens):
            self._log.warn(
                "{slot}: {saved} tokens were saved, and the slot had held {held}",
                slot=self._view.name,
                saved=tokens,
                held=held.told if held.mark is None else held.mark.tokens,
            )
            tokens = 0
        elif 0 < tokens < held.session.policy.min_tokens:
            # known only now where the server does not show its slots
            await self._snapshots.discard(planned)
            self._note(held, Fate.TOO_SHORT)
            return False
        kept = await self._snapshots.commit(planned, tokens, saved.size, previous)
        self._note(held, Fate.FAILED if kept is None else Fate.SAVED)
        if kept is not None:
            await self._snapshots.evict(held.session, {held.session.key, *needed})
        return kept is not None

    async def _fitting(self, session: Session, status: SlotStatus | None) -> Snapshot | Cause:
        """The session's snapshot, if it may be restored here and that is worth it; else why not."""
        snapshot = await self._snapshots.found(session.key)
        if not isinstance(snapshot, Snapshot):
            return cause_of(snapshot)
        fate = self._snapshots.fates.of(session.key)
        if snapshot.tokens < session.policy.min_tokens:
            return Cause(Reason.TOO_SHORT, fate)
        written_by = await self._written_by()
        if why := misfit(snapshot.written_by, written_by):
            await self._snapshots.drop(snapshot, why, Fate.OTHER_MODEL)
            return Cause(Reason.OTHER_MODEL, fate)
        if status is not None and status.n_ctx is not None and snapshot.tokens > status.n_ctx:
            self._log.info(
                "{file} is not restored: {tokens} tokens, and the slot holds {n_ctx}",
                file=snapshot.file,
                tokens=snapshot.tokens,
                n_ctx=status.n_ctx,
            )
            return Cause(Reason.TOO_LONG, fate)
        if not self._usefulness.allows(written_by.build):
            return Cause(Reason.NOT_HELPFUL, fate)
        return await self._snapshots.verified(snapshot) or Cause(Reason.DAMAGED, fate)

    async def _written_by(self) -> Fingerprint:
        """
        What runs behind the slot now.

        :raises ControlError: the server does not say.
        """
        if self._fingerprint is None:
            props = await self._control.props()
            if self._slot_id >= props.total_slots:
                # the server would wrap the number around to a slot that exists
                raise Junk(f"the server has {props.total_slots} slots, and this is none of them")
            shape = await self._control.shape()
            self._fingerprint = Fingerprint(
                model=f"{props.model_path} ({shape})",
                model_file=await self._snapshots.model_file(props.model_path),
                build=props.build,
            )
        return self._fingerprint

    async def _restore(self, session: Session, snapshot: Snapshot) -> Content:
        """
        :raises ControlError: contact was lost.
        """
        await self._changing()
        try:
            restoring = self._control.restore(self._slot_id, snapshot.file)
            restored = await self._stepping.take(Action.RESTORE, session.key, restoring)
        except Refused as error:
            if error.status != NOT_RESTORABLE:
                return Unknown()
            # a refused restore empties the slot
            await self._snapshots.drop(snapshot, f"restore: {error}", Fate.DAMAGED)
            return Empty()
        except Unreachable as error:
            if error.sent:
                await self._snapshots.suspect(snapshot, f"restore: {error}")
            raise
        if restored.tokens != snapshot.tokens:
            why = f"restore gave {restored.tokens} tokens instead of {snapshot.tokens}"
            await self._snapshots.drop(snapshot, why, Fate.DAMAGED)
            return Unknown()
        try:
            await self._snapshots.used(snapshot)
        except Exception:
            # it is restored all the same
            self._log.failure("{file}: its use is not recorded", file=snapshot.file)
        return Holding(session, saved=True)
