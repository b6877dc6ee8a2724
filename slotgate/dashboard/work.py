"""
What is done to sessions and slots for an admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from slotgate.llama.errors import ControlError
from slotgate.sessions import SessionKey
from slotgate.shield import shield
from slotgate.slots.address import Address
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.snapshots.database import IndexAway
from slotgate.web._looks import WAIT_SECONDS
from slotgate.web._session_calls import Action, Call
from slotgate.web._session_finding import Finding
from slotgate.web._session_json import Viewer, session_json
from slotgate.web.rejected import Rejected
from slotgate.web.sessions import Sessions

_Json = Mapping[str, Any]
_T = TypeVar("_T")

_ADMIN = Viewer(client=None, names_clients=True)


@frozen
class Work:
    """The calls of the session API that the dashboard makes."""

    _sessions: Sessions
    _finding: Finding
    _pool: SlotPool
    _clock: IReactorTime

    async def listing(self, offset: int, limit: int) -> _Json | None:
        """
        A page of all sessions, the last one where there are not that many; ``None``: the index
        does not answer in time.
        """
        try:
            found = await self._page(offset, limit)
            if offset and offset >= found["total"]:
                found = await self._page(max(found["total"] - 1, 0) // limit * limit, limit)
        except (IndexAway, DeferredTimeout):
            return None
        return found

    def _page(self, offset: int, limit: int) -> Deferred[_Json]:
        call = Call(Action.LIST, limit=limit, offset=offset)
        return self._soon(self._sessions.carry_out(call, _ADMIN))

    def _soon(self, look: Deferred[_T]) -> Deferred[_T]:
        """A look that a page waits for, and not for long: what it shows beside it does not wait."""
        return shield(look).addTimeout(WAIT_SECONDS, self._clock)

    async def session(self, key: SessionKey) -> _Json | None:
        """A session as the session API lists it; ``None``: nothing of it is kept."""
        if not _can_be_kept(key):
            return None
        viewer = Viewer(client=key.client, names_clients=True)
        call = Call(Action.LIST, id=key.id, route=key.route, key=key)
        try:
            look = Deferred.fromCoroutine(self._finding.named(call, viewer))
            here, saved = await self._soon(look)
        except (Rejected, IndexAway, DeferredTimeout):
            return None
        if key not in here and key not in saved:
            return None
        return session_json(viewer, key, here.get(key), saved.get(key))

    async def prompts(self, key: SessionKey) -> _Json | None:
        """
        A session's last two prompts compared.

        :returns: ``None``: there is nothing to compare.
        """
        try:
            told = await self._soon(Deferred.fromCoroutine(self._of(Action.PROMPT, key)))
        except (Rejected, IndexAway, DeferredTimeout):
            return None
        return next((one for one in told["prompts"] if one.get("client") == key.client), None)

    async def save(self, key: SessionKey) -> None:
        """
        Save a session that is in a slot.

        :raises Rejected: it is not, or could not be saved.
        :raises IndexAway: the index does not answer.
        """
        await self._of(Action.SAVE, key)

    async def delete(self, key: SessionKey) -> None:
        """
        Delete a session's snapshot, and forget what is in a slot of it.

        :raises Rejected: there is no such session.
        :raises IndexAway: the index does not answer.
        """
        await self._of(Action.DELETE, key)

    async def _of(self, action: Action, key: SessionKey) -> _Json:
        if not _can_be_kept(key):
            raise Rejected(404, f"no session {key.id!r}")
        # for the client whose it is: another one may have a session of the same name
        viewer = Viewer(client=key.client, names_clients=True)
        call = Call(action, id=key.id, route=key.route, key=key)
        return await self._sessions.carry_out(call, viewer)

    def slot(self, address: Address) -> Slot:
        """
        A slot.

        :raises Rejected: there is none.
        """
        for slot in self._pool:
            if slot.address == address:
                return slot
        raise Rejected(404, f"there is no {address}")

    async def clear(self, address: Address) -> int:
        """
        Erase what is in a slot.

        :returns: how many tokens it dropped.
        :raises Rejected: there is no such slot, or it could not be erased.
        """
        try:
            erased = await shield(self.slot(address).erase())
        except ControlError as error:
            raise Rejected(502, f"{address}: {error}") from None
        return 0 if erased is None else erased.tokens


def _can_be_kept(key: SessionKey) -> bool:
    """Whether the index can be asked for it: it takes no half of a surrogate pair."""
    try:
        "".join((key.client or "", key.route, key.id)).encode()
    except UnicodeEncodeError:
        return False
    return True
