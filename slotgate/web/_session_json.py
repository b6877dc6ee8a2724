"""
How the session API shows sessions and slots. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from slotgate.sessions import Session, SessionKey
from slotgate.slots.machine import Content, Holding
from slotgate.slots.slot import Slot
from slotgate.snapshots.records import Snapshot


@frozen
class Viewer:
    """Who asks, and what they may see and touch."""

    #: The client whose sessions they are; ``None``: everybody's.
    client: str | None
    #: Whether the answer says whose a session is.
    names_clients: bool

    def sees(self, session: Session | None) -> bool:
        """Whether a session is one of theirs; nobody's is for those who see everything."""
        return self.client is None or (session is not None and session.key.client == self.client)


@frozen
class Resident:
    """The session whose cache is in a slot."""

    session: Session
    #: Its snapshot is the same as what is in the slot.
    saved: bool
    #: How many tokens are in the slot; ``None`` while a lease changes it, or it is not shown.
    tokens: int | None
    #: When the slot was used last, in seconds since the epoch.
    used: float


def resident_of(slot: Slot, viewer: Viewer) -> Resident | None:
    """The session in a slot, if there is one and the viewer may see it."""
    session = slot.tenant
    if session is None or not viewer.sees(session):
        return None
    content = slot.content
    saved, tokens = held(content)
    return Resident(session, saved, tokens, slot.used)


def held(content: Content) -> tuple[bool, int | None]:
    """Whether what is in a slot is saved, and its tokens."""
    if not isinstance(content, Holding):
        return False, None
    return content.saved, None if content.mark is None else content.mark.tokens


def session_json(
    viewer: Viewer, key: SessionKey, resident: Resident | None, snapshot: Snapshot | None
) -> dict[str, Any]:
    """A session in a list."""
    tokens = None if resident is None else resident.tokens
    if tokens is None and snapshot is not None:
        tokens = snapshot.tokens
    used = [at for at in (resident and resident.used, snapshot and snapshot.used) if at]
    source = resident.session.source if resident else snapshot.source if snapshot else ""
    return {
        **named_json(viewer, key, source),
        "model": snapshot and snapshot.model,
        "tokens": tokens,
        "bytes": snapshot.size if snapshot else 0,
        "created": snapshot and time_text(snapshot.created),
        "last_used": time_text(max(used)) if used else None,
        "resident": resident is not None,
        "saved": snapshot is not None if resident is None else resident.saved,
        "generation": snapshot and snapshot.generation,
    }


def slot_json(
    viewer: Viewer,
    slot: Slot,
    routes: Sequence[str],
    resident: Resident | None,
    snapshot: Snapshot | None,
) -> dict[str, Any]:
    """A slot and who is in it."""
    session = None
    if resident is not None:
        session = {
            **named_json(viewer, resident.session.key, resident.session.source),
            "tokens": resident.tokens,
            "saved": resident.saved,
            "snapshot": snapshot and _snapshot_json(snapshot),
        }
    return {
        "server": slot.server,
        **_model(slot),
        "slot": slot.id,
        "routes": list(routes),
        "state": slot.state,
        "waiting": slot.waiting,
        "session": session,
    }


def cleared_json(viewer: Viewer, slot: Slot, content: Content, tokens: int) -> dict[str, Any]:
    """A slot that was erased, and who was in it."""
    session = None
    if isinstance(content, Holding):
        key, source = content.session.key, content.session.source
        session = {**named_json(viewer, key, source), "saved": content.saved}
    where = {"server": slot.server, **_model(slot), "slot": slot.id}
    return {**where, "tokens": tokens, "session": session}


def _model(slot: Slot) -> dict[str, str]:
    """The model of a router's slot."""
    return {"model": slot.model} if slot.model else {}


def named_json(viewer: Viewer, key: SessionKey, source: str) -> dict[str, Any]:
    """Which session it is."""
    whose = {"client": key.client} if viewer.names_clients else {}
    return {"id": key.id, "source": source, "route": key.route, **whose}


def _snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "model": snapshot.model,
        "tokens": snapshot.tokens,
        "bytes": snapshot.size,
        "created": time_text(snapshot.created),
        "last_used": time_text(snapshot.used),
        "generation": snapshot.generation,
    }


def time_text(seconds: float) -> str:
    """A time as RFC 3339 writes it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
