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
    End,
    Verdict,
    is_short,
    must_erase,
    saved_right,
    seen,
    worth_saving,
)
from slotgate.slots.lease import Lease
from slotgate.slots.machine import Content, Empty, Holding, Unknown
from slotgate.slots.reasons import Reason, reason_of
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
        lease.verdict = Verdict.BYPASS if want.session is None else Verdict.COLD
        lease.reason = Reason.NO_SESSION if want.session is None else Reason.AWAY
        status = await self._view.loaded(lambda: lease.released)
        content = self.checked(content, status)
        if want.session is not None:
            lease.fate = self._snapshots.fates.of(want.session.key)
            new = not want.anew or lease.fate is None
            lease.reason = reason_of(lease.fate) if new else Reason.ISOLATED
        mine = want.is_for(content)
        if mine and not want.anew:
            lease.verdict, lease.reason = Verdict.RESIDENT, Reason.NONE
            return status, content
        session = want.session
        known = None
        if session is not None and not want.anew:
            known = await self._snapshots.find(session.key)
            if known is None:
                lease.reason = reason_of(self._snapshots.fates.of(session.key))
        if known is None and want.parent is not None and not want.anew:
            if isinstance(content, Holding) and content.session.key == want.parent.key:
                # the server reuses of it what the new one shares
                lease.verdict, lease.reason = Verdict.FORKED, Reason.NONE
            else:
                session = want.parent
                known = await self._snapshots.find(session.key)
        if not (worth_saving(content) or known or must_erase(content, want)):
            return status, content
        if status is not None and status.busy:
            status = await self._view.idle()
            content = self.checked(content, status)
        if not lease.released:
            content = await self.keep(content, [session.key] if session else [])
        if lease.released:
            return status, content
        if session is not None and known is not None:
            # looked at only now: the waits above can be long, and much can happen to a file
            found = await self._fitting(session, status)
            why = found if isinstance(found, Reason) else Reason.DAMAGED
            if isinstance(found, Snapshot):
                content = await self._restore(session, found)
            forked = session is want.parent
            if isinstance(found, Snapshot) and isinstance(content, Holding):
                lease.verdict = Verdict.FORKED if forked else Verdict.RESTORED
                lease.reason = Reason.NONE
                lease.restored = found
            elif not forked:
                lease.reason = why
        if must_erase(content, want):
            await self._changing()
            erased = self._control.erase(self._slot_id)
            await self._stepping.take(Action.ERASE, None, erased)
            content = Empty()
        return status, content

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
        if isinstance(content, Holding) and not isinstance(now, Holding):
            fate = Fate.RESTARTED if task < last else Fate.OVERWRITTEN
            self._snapshots.fates.note(content.session.key, fate)
        if task < last:
            self._usefulness.begin_anew()
            self._log.info("{slot}: the server was started anew", slot=self._view.name)
        elif isinstance(content, Holding) and not isinstance(now, Holding):
            self._log.warn(
                "{slot}: somebody else used it: what it held of session {session} is gone. Let"
                " every client of this server come through slotgate",
                slot=self._view.name,
                session=content.session.key.shown,
            )
        self._last_task = task
        return now

    async def keep(self, content: Content, needed: Collection[SessionKey] = ()) -> Content:
        """
        Save the session in the slot, if that is due. A failure loses that turn, no more.

        :param needed: keys of sessions whose snapshots must not make room.
        """
        held = worth_saving(content)
        if held is None or self._unsaved or not self._usefulness.helps:
            return content
        try:
            return evolve(held, saved=await self._save(held, needed))
        except Unsupported as error:
            self._unsaved = True
            self._log.warn(
                "{slot}: the server does not save slots ({error}); start it with"
                " --slot-save-path, so that sessions survive the next one",
                slot=self._view.name,
                error=error,
            )
        except NoRoom as error:
            self._log.warn(
                "{slot}: session {session} is not saved: {error}",
                slot=self._view.name,
                session=held.session.key.shown,
                error=error,
            )
        except Refused:
            # a full disk, for one: the client has logged it
            pass
        return content

    def served(self, session: Session | None, end: End, content: Content) -> None:
        """
        A request is over.

        :param content: what is in the slot now.
        """
        if session is not None and end in (End.COMPLETE, End.CUT):
            short = isinstance(content, Holding) and is_short(content)
            fate = Fate.TOO_SHORT if short else Fate.UNSAVED
            self._snapshots.fates.note(session.key, fate)

    def lost(self, content: Content, error: ControlError | None = None) -> None:
        """
        Contact was lost: who answers next may be another process.

        :param content: what was in the slot.
        :param error: how it was noticed; ``None``: the model was unloaded or fell asleep.
        """
        alone = error is None or isinstance(error, (ProcessLost, NotLoaded))
        if isinstance(content, Holding):
            fate = Fate.UNLOADED if alone else Fate.RESTARTED
            self._snapshots.fates.note(content.session.key, fate)
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
            return False
        kept = await self._snapshots.commit(planned, tokens, saved.size, previous)
        if kept is not None:
            await self._snapshots.evict(held.session, {held.session.key, *needed})
        return kept is not None

    async def _fitting(self, session: Session, status: SlotStatus | None) -> Snapshot | Reason:
        """The session's snapshot, if it may be restored here and that is worth it; else why not."""
        snapshot = await self._snapshots.find(session.key)
        if snapshot is None:
            return reason_of(self._snapshots.fates.of(session.key))
        if snapshot.tokens < session.policy.min_tokens:
            return Reason.TOO_SHORT
        written_by = await self._written_by()
        if why := misfit(snapshot.written_by, written_by):
            await self._snapshots.drop(snapshot, why, Fate.OTHER_MODEL)
            return Reason.OTHER_MODEL
        if status is not None and status.n_ctx is not None and snapshot.tokens > status.n_ctx:
            self._log.info(
                "{file} is not restored: {tokens} tokens, and the slot holds {n_ctx}",
                file=snapshot.file,
                tokens=snapshot.tokens,
                n_ctx=status.n_ctx,
            )
            return Reason.TOO_LONG
        if not self._usefulness.allows(written_by.build):
            return Reason.NOT_HELPFUL
        return await self._snapshots.verified(snapshot) or Reason.DAMAGED

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
