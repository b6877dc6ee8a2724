"""
The session API: what is resident, what is saved, and to save, delete or clear it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from slotgate import config
from slotgate.llama.errors import ControlError, Loading
from slotgate.prompts.history import PromptHistory
from slotgate.sessions import SessionKey
from slotgate.shield import shield
from slotgate.slots.backend import Backend
from slotgate.slots.machine import Content, Erased, Gone, Holding
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Snapshot
from slotgate.web._prompt_json import prompt_json
from slotgate.web._session_calls import Action, Call, from_elsewhere, understood
from slotgate.web._session_finding import Finding
from slotgate.web._session_json import (
    Resident,
    Viewer,
    cleared_json,
    held,
    resident_of,
    session_json,
    slot_json,
)
from slotgate.web.clients import Clients
from slotgate.web.rejected import Rejected

_T = TypeVar("_T")


def _no_prompts() -> PromptHistory:
    return PromptHistory.of(config.PromptHistory())


@define
class Sessions:
    """Answers the calls of ``/api/sessions``."""

    _clients: Clients
    _pool: SlotPool
    _backends: Mapping[str, Backend]
    _index: Index
    _finding: Finding
    _prompts: PromptHistory = field(factory=_no_prompts)

    async def answer(self, request: IRequest, path: str) -> bytes:
        """
        Answer one call.

        A call that changes something is carried out even if its client does not wait for that.

        :raises Rejected: without a valid key, for what is not there, when it can not be done, and
            when the index does not answer.
        """
        cast(Request, request).setHeader(b"Cache-Control", b"no-store")
        owner = self._clients.owner(request.requestHeaders)
        call = understood(request.method.decode("latin-1"), request.uri.decode("latin-1"))
        if call.action.changes and from_elsewhere(request.requestHeaders):
            raise Rejected(403, "a web page of another origin must not change sessions")
        viewer = Viewer(
            client=None if owner is None or owner.admin else owner.name,
            names_clients=owner is not None and owner.admin,
        )
        # the line end is for people at a terminal
        try:
            body = json.dumps(await self.carry_out(call, viewer)).encode() + b"\n"
        except IndexAway as error:
            raise Rejected(503, f"{error}; try again") from error
        cast(Request, request).setHeader(b"Content-Type", b"application/json")
        cast(Request, request).setHeader(b"Content-Length", b"%d" % len(body))
        return body

    def carry_out(self, call: Call, viewer: Viewer) -> Deferred[Mapping[str, Any]]:
        """
        Carry out a call, even if nobody waits for that any longer: a control call in the middle of
        which its caller leaves would be carried out by the server all the same, unseen by the slot.

        :returns: a Deferred that fires with the answer; fails with
            :class:`~slotgate.web.rejected.Rejected` for what is not there, and when it can not be
            done.
        """
        work = {
            Action.LIST: self._list,
            Action.CURRENT: self._current,
            Action.CLEAR: self._clear,
            Action.DELETE: self._delete,
            Action.SAVE: self._save,
            Action.PROMPT: self._prompt,
        }[call.action]
        return shield(Deferred.fromCoroutine(work(call, viewer)))

    async def _list(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        """What is in slots, then the snapshots of all others: four transactions at any size."""
        here = self._finding.residents(viewer)
        saved = await self._finding.snapshots(here)
        shown = list(here)[call.offset : call.offset + call.limit]
        others = await self._index.page(
            viewer.client,
            max(0, call.offset - len(here)),
            call.limit - len(shown),
            without=list(here),
        )
        files, size = await self._index.count(viewer.client)
        rows = [session_json(viewer, key, here[key], saved.get(key)) for key in shown]
        rows += [session_json(viewer, one.key, None, one) for one in others]
        return {
            "sessions": rows,
            "total": files + len(here) - len(saved),
            "bytes": size,
            "limit": call.limit,
            "offset": call.offset,
        }

    async def _current(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        saved = await self._finding.snapshots(self._finding.residents(viewer))
        slots = []
        for slot in self._pool:
            resident = resident_of(slot, viewer)
            snapshot = saved.get(resident.session.key) if resident else None
            slots.append(slot_json(viewer, slot, self._finding.routes_of(slot), resident, snapshot))
        return {"slots": slots}

    async def _clear(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        def may(content: Content) -> bool:
            return viewer.sees(content.session if isinstance(content, Holding) else None)

        slots = list(self._pool) if call.route is None else [self._finding.slot_of(call.route)]
        # nobody waits for a stranger's lease, only to leave the slot alone in the end
        slots = [slot for slot in slots if viewer.sees(slot.tenant)]
        erased = await DeferredList([slot.erase(may) for slot in slots], consumeErrors=True)
        cleared = []
        for slot, (done, result) in zip(slots, erased, strict=True):
            if not done:
                raise _not_erased(slot, cast(Failure, result))
            if isinstance(result, Erased):
                cleared.append(cleared_json(viewer, slot, result.content, result.tokens))
        return {"cleared": cleared}

    async def _delete(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        here, saved, prompts = await self._named(call, viewer)
        deleted = []
        for key in dict.fromkeys([*here, *saved, *prompts]):
            snapshot = saved.get(key)
            deleted.append(session_json(viewer, key, here.get(key), snapshot))
            slots = self._finding.slots_for(key, snapshot)
            for slot in slots:
                await slot.forget(key)
            self._prompts.forget(key)
            if snapshot is not None and all(slot.server != snapshot.server for slot in slots):
                # no slot of it is to be had: its model is not loaded, or was configured away
                backend = self._backends.get(snapshot.server)
                if backend is None:
                    await self._index.forget(snapshot)
                else:
                    await backend.snapshots.drop(snapshot, "deleted by a client")
        return {"deleted": deleted}

    async def _save(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        here, before, _ = await self._named(call, viewer)
        if not here:
            rest = "what it has is saved" if before else "nothing of it is saved"
            raise Rejected(409, f"session {call.id!r} is not in a slot; {rest}")
        saved = []
        for key in here:
            slots = [slot for slot in self._pool if slot.tenant and slot.tenant.key == key]
            contents = [await slot.save() for slot in slots]
            resident = self._finding.residents(viewer).get(key)
            after = (await self._finding.snapshots([key])).get(key)
            if after is None or (after == before.get(key) and not (resident and resident.saved)):
                raise _not_saved(key, contents)
            saved.append(session_json(viewer, key, resident, after))
        return {"saved": saved}

    async def _prompt(self, call: Call, viewer: Viewer) -> Mapping[str, Any]:
        if not self._prompts.sessions:
            raise Rejected(404, "prompts are not compared: prompt_history.sessions is 0")
        here, saved, prompts = await self._named(call, viewer)
        shown = []
        for key in prompts:
            if (remembered := self._prompts.last_two(key)) is not None:
                resident, snapshot = here.get(key), saved.get(key)
                source = (
                    resident.session.source if resident else snapshot.source if snapshot else ""
                )
                shown.append(prompt_json(viewer, key, source, remembered))
        if not shown:
            raise Rejected(
                404,
                f"no prompt of session {call.id!r} is remembered: it had none since slotgate"
                " started, so many others did since then (prompt_history), or it is longer than 8"
                " million characters",
            )
        return {"prompts": shown}

    async def _named(
        self, call: Call, viewer: Viewer
    ) -> tuple[dict[SessionKey, Resident], dict[SessionKey, Snapshot], list[SessionKey]]:
        """
        The sessions that a call names: those in slots, those with a snapshot, and those of which
        prompts are remembered.

        :raises Rejected: there is none.
        """
        named = self._prompts.named(viewer.client, call.id)
        prompts = [key for key in named if call.means(key)]
        here, saved = await self._finding.named(call, viewer, prompts)
        return here, saved, prompts


def _not_erased(slot: Slot, failure: Failure) -> Exception:
    error = failure.value
    if isinstance(error, ControlError):
        return Rejected(503 if isinstance(error, Loading) else 502, f"{slot.name}: {error}")
    return cast(Exception, error)


def _not_saved(key: SessionKey, contents: Collection[Content]) -> Rejected:
    """Why a session that was in a slot has no new snapshot."""
    for content in contents:
        if isinstance(content, Holding) and content.session.key == key:
            _, tokens = held(content)
            least = content.session.policy.min_tokens
            if tokens is not None and tokens < least:
                return Rejected(
                    409, f"session {key.id!r} has {tokens} tokens, fewer than min_tokens ({least})"
                )
            return Rejected(502, f"session {key.id!r} could not be saved; slotgate's log says why")
        if isinstance(content, Gone):
            return Rejected(502, f"session {key.id!r} is lost: its server is down or sleeps")
    return Rejected(409, f"session {key.id!r} is not in a slot any more")
