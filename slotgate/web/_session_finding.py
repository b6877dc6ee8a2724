"""
Where the sessions are that a call of the session API is about.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from slotgate.config import Route
from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address
from slotgate.slots.backend import Backend
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
    _backends: Mapping[str, Backend]
    _index: Index

    def residents(self, viewer: Viewer) -> dict[SessionKey, Resident]:
        """The sessions in slots."""
        found = [resident_of(slot, viewer) for slot in self._pool]
        return {one.session.key: one for one in found if one is not None}

    async def snapshots(self, keys: Collection[SessionKey]) -> dict[SessionKey, Snapshot]:
        """The snapshots of these sessions, as far as they have one."""
        return {one.key: one for one in await self._index.of(keys)}

    async def named(
        self, call: Call, viewer: Viewer, remembered: Collection[SessionKey] = ()
    ) -> tuple[dict[SessionKey, Resident], dict[SessionKey, Snapshot]]:
        """
        The sessions that a call names: those in slots, and those with a snapshot.

        :param remembered: those that are there too, though they may be in neither.
        :raises Rejected: there is none.
        """
        here = {key: one for key, one in self.residents(viewer).items() if call.means(key)}
        named = await self._index.named(viewer.client, call.id)
        saved = {one.key: one for one in named if call.means(one.key)}
        if not here and not saved and not remembered:
            on = "" if call.route is None else f" on route {call.route!r}"
            raise Rejected(404, f"no session {call.id!r}{on}")
        return here, saved

    def slots_for(self, key: SessionKey, snapshot: Snapshot | None) -> list[Slot]:
        """
        The slots that hold a session or may save or restore it: that of its route, and that of
        its snapshot, which is another one once the routes were changed.
        """
        of_route = self._of_route(key.route)
        return [
            slot
            for slot in self._pool
            if slot is of_route
            or (slot.tenant is not None and slot.tenant.key == key)
            or (snapshot is not None and slot.address == _address_of(snapshot))
        ]

    def _of_route(self, model: str) -> Slot | None:
        """The slot that requests for a model take."""
        address = self._address_for(model)
        return None if address is None else self._pool.at(address)

    def _address_for(self, model: str) -> Address | None:
        found = route_for(self._settings.config, model)
        if found is None:
            return None
        route = found[0]
        return self._backends[route.server].place(route, model).address

    def slot_of(self, model: str) -> Slot:
        """
        The slot of the route that requests for a model take.

        :raises Rejected: there is none.
        """
        slot = self._of_route(model)
        if slot is None:
            raise Rejected(404, f"no route {model!r} with a slot")
        return slot

    def routes_of(self, slot: Slot) -> list[str]:
        """The routes whose sessions a slot keeps."""
        return [
            route.model
            for route in self._settings.config.routes
            if route.cache and self._serves(route, slot.address)
        ]

    def _serves(self, route: Route, address: Address) -> bool:
        backend = self._backends[route.server]
        if backend.place(route, route.model).address == address:
            return True
        # a wildcard serves each of a router's models that no other route has
        found = route_for(self._settings.config, address.model)
        return (
            bool(address.model)
            and found is not None
            and found[0] is route
            and backend.place(route, address.model).address == address
        )


def _address_of(snapshot: Snapshot) -> Address:
    """Where a server with one model wrote a snapshot; a router's are found by their route."""
    return Address(snapshot.server, "", snapshot.slot)
