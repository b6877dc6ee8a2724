"""
Where the sessions are that a call of the session API is about.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.sessions import SessionKey
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Snapshot
from slotgate.web._session_calls import Call
from slotgate.web._session_json import Resident, Viewer, resident_of
from slotgate.web.rejected import Rejected


@frozen
class Finding:
    """Finds sessions in slots and in the index, and the slots of sessions and routes."""

    _settings: Settings
    _pool: SlotPool
    _index: Index

    def residents(self, viewer: Viewer) -> dict[SessionKey, Resident]:
        """The sessions in slots."""
        found = [resident_of(slot, viewer) for slot in self._pool]
        return {one.session.key: one for one in found if one is not None}

    async def snapshots(self, keys: Collection[SessionKey]) -> dict[SessionKey, Snapshot]:
        """The snapshots of these sessions, as far as they have one."""
        return {one.key: one for one in await self._index.of(keys)}

    async def named(
        self, call: Call, viewer: Viewer
    ) -> tuple[dict[SessionKey, Resident], dict[SessionKey, Snapshot]]:
        """
        The sessions that a call names: those in slots, and those with a snapshot.

        :raises Rejected: there is none.
        """

        def meant(key: SessionKey) -> bool:
            return key.id == call.id and call.route in (None, key.route)

        here = {key: one for key, one in self.residents(viewer).items() if meant(key)}
        named = await self._index.named(viewer.client, call.id)
        saved = {one.key: one for one in named if meant(one.key)}
        if not here and not saved:
            on = "" if call.route is None else f" on route {call.route!r}"
            raise Rejected(404, f"no session {call.id!r}{on}")
        return here, saved

    def slots_for(self, key: SessionKey, snapshot: Snapshot | None) -> list[Slot]:
        """
        The slots that hold a session or may save or restore it: that of its route, and that of
        its snapshot, which is another one once the routes were changed.
        """
        found = route_for(self._settings.config, key.route)
        of_route = None if found is None else self._pool.for_route(found[0])
        return [
            slot
            for slot in self._pool
            if slot is of_route
            or (slot.tenant is not None and slot.tenant.key == key)
            or (snapshot is not None and (slot.server, slot.id) == (snapshot.server, snapshot.slot))
        ]

    def slot_of(self, model: str) -> Slot:
        """
        The slot of the route that requests for a model take.

        :raises Rejected: there is none.
        """
        found = route_for(self._settings.config, model)
        slot = None if found is None else self._pool.for_route(found[0])
        if slot is None:
            raise Rejected(404, f"no route {model!r} with a slot")
        return slot

    def routes_of(self, slot: Slot) -> list[str]:
        """The routes whose sessions a slot keeps."""
        return [
            route.model
            for route in self._settings.config.routes
            if route.cache and self._pool.for_route(route) is slot
        ]
