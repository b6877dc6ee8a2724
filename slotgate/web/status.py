"""
What goes on, as ``GET /slotgate/status`` tells it: servers, slots, totals, the disk and the latest
requests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, frozen
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from slotgate import __version__
from slotgate.reloading import Settings
from slotgate.routes import policy_of, route_for
from slotgate.sessions import SessionKey
from slotgate.slots.backend import Backend, Mode
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.index import Index
from slotgate.telemetry.events import Served
from slotgate.telemetry.journal import Journal, Span
from slotgate.web._session_json import held, time_text

#: What slots did is told for so long, in seconds.
TIMELINE_SECONDS = 600.0


@frozen
class Statuses:
    """Looks at everything, and asks no server."""

    _settings: Settings
    _pool: SlotPool
    _backends: Mapping[str, Backend]
    _index: Index
    _journal: Journal
    _clock: IReactorTime

    async def now(self) -> dict[str, Any]:
        """
        What goes on now. Times are seconds since the epoch, durations seconds.

        What the index or a disk does not tell in time is ``null``.
        """
        now = self._clock.seconds()
        totals = self._journal.totals
        return {
            "time": now,
            "version": __version__,
            "servers": [self._server(backend) for backend in self._backends.values()],
            "slots": [_slot(slot) for slot in self._pool],
            "totals": {**asdict(totals), "hit_ratio": totals.hit_ratio},
            "disk": await self._disk(),
            "requests": [_request(served) for served in self._journal.requests],
            "spans": [_span(span) for span in self._journal.spans(now - TIMELINE_SECONDS)],
        }

    def _server(self, backend: Backend) -> dict[str, Any]:
        name = backend.server.name
        slots = [slot for slot in self._pool if slot.server == name]
        models = [
            {
                "id": model.id,
                "status": model.status.value,
                "failed": model.failed,
                "tokens_per_second": self._journal.tokens_per_second(name, model.id),
            }
            for model in (backend.tracker if backend.is_router else ())
        ]
        return {
            "name": name,
            "url": backend.server.url,
            "mode": backend.mode.value,
            "reachable": backend.mode is not Mode.UNKNOWN,
            "found": [{"text": text, "warn": warn} for text, warn in backend.findings.items()],
            "models": models,
            "waiting": backend.admissions.waiting + sum(slot.waiting for slot in slots),
        }

    async def _disk(self) -> dict[str, Any]:
        try:
            uses = await self._index.uses()
        except (IndexAway, sqlite3.Error, DeferredTimeout):
            uses = None
        routes = []
        for use in uses or ():
            found = route_for(self._settings.config, use.route)
            policy = policy_of(found[0]) if found else None
            routes.append(
                {
                    "server": use.server,
                    "route": use.route,
                    "files": use.files,
                    "bytes": use.bytes,
                    "max_files": policy.max_files if policy else 0,
                    "max_bytes": policy.max_bytes if policy else 0,
                }
            )
        servers = [
            {
                "server": name,
                "folder": _text(backend.server.slot_save_path),
                "free_bytes": await backend.snapshots.free_bytes(),
                "min_free_bytes": int(backend.server.min_free_gib * 1024**3),
            }
            for name, backend in self._backends.items()
        ]
        free = [one["free_bytes"] for one in servers if one["free_bytes"] is not None]
        return {
            "files": None if uses is None else sum(use.files for use in uses),
            "bytes": None if uses is None else sum(use.bytes for use in uses),
            "limit_bytes": _limit(routes),
            "free_bytes": min(free, default=None),
            "routes": routes,
            "servers": servers,
        }


def _limit(routes: Iterable[Mapping[str, Any]]) -> int | None:
    """The limits of all routes together; ``None``: one of them has none."""
    limits = [route["max_bytes"] for route in routes]
    return sum(limits) if limits and all(limits) else None


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def _who(key: SessionKey | None) -> dict[str, Any]:
    if key is None:
        return {"session": None, "client": None}
    return {"session": key.id, "client": key.client}


def _slot(slot: Slot) -> dict[str, Any]:
    tenant = slot.tenant
    saved, tokens = held(slot.content)
    return {
        "server": slot.server,
        "model": slot.model,
        "slot": slot.id,
        "state": slot.state,
        **_who(tenant.key if tenant else None),
        "route": tenant.key.route if tenant else None,
        "tokens": tokens,
        "saved": saved,
        "waiting": slot.waiting,
        "last_used": slot.used or None,
    }


def _request(served: Served) -> dict[str, Any]:
    usage = served.usage
    return {
        "time": served.began,
        "at": time_text(served.began),
        **_who(served.session),
        "source": served.source,
        "surface": served.surface,
        "server": served.server,
        "route": served.session.route if served.session else served.route,
        "model": served.model,
        "cache": served.verdict.value,
        "reason": served.reason.value,
        "finding": served.explanation.words,
        "sentence": served.explanation.sentence,
        "prompt": served.prompt,
        "end": served.end.value,
        "read": usage.read if usage else None,
        "reused": usage.reused if usage else None,
        "generated": usage.generated if usage else None,
        "waited": served.waited,
        "switched": served.switched,
        "first_byte": served.first_byte,
        "seconds": served.seconds,
    }


def _span(span: Span) -> dict[str, Any]:
    return {
        "kind": span.kind.value,
        "server": span.address.server,
        "model": span.address.model,
        "slot": span.address.slot,
        **_who(span.session),
        "began": span.began,
        "ended": span.ended,
        "tokens": span.tokens,
        "bytes": span.bytes,
        "failed": span.failed,
    }
