"""
What goes on, as ``GET /slotgate/status`` tells it: servers, slots, totals, the disk and the latest
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import asdict, frozen
from twisted.internet.interfaces import IReactorTime

from slotgate import __version__
from slotgate.reloading import Settings
from slotgate.routes import policy_of, route_for
from slotgate.sessions import SessionKey
from slotgate.slots.backend import Mode
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.telemetry.events import Served
from slotgate.telemetry.journal import Journal, Span
from slotgate.web._seen import Seeing, Seen, ServerSeen
from slotgate.web._session_json import held, time_text

#: What slots did is told for so long, in seconds.
TIMELINE_SECONDS = 600.0


@frozen
class Statuses:
    """Looks at everything, and asks a server whether it lives and nothing else."""

    _settings: Settings
    _pool: SlotPool
    _seeing: Seeing
    _journal: Journal
    _clock: IReactorTime

    async def now(self) -> dict[str, Any]:
        """
        What goes on now. Times are seconds since the epoch, durations seconds.

        What the index or a disk does not tell in time is ``null``.
        """
        seen = await self._seeing.now()
        now = self._clock.seconds()
        totals = self._journal.totals
        return {
            "time": now,
            "version": __version__,
            "servers": [self._server(server) for server in seen.servers],
            "slots": [_slot(slot) for slot in self._pool],
            "totals": {**asdict(totals), "hit_ratio": totals.hit_ratio},
            "disk": self._disk(seen),
            "requests": [_request(served) for served in self._journal.requests],
            "spans": [_span(span) for span in self._journal.spans(now - TIMELINE_SECONDS)],
        }

    def _server(self, seen: ServerSeen) -> dict[str, Any]:
        backend, speed = seen.backend, self._journal.tokens_per_second
        name = backend.server.name
        models = [
            {
                "id": model.id,
                "status": model.status.value,
                "failed": model.failed,
                "tokens_per_second": speed(name, model.id),
            }
            for model in (backend.tracker if backend.is_router else ())
        ]
        return {
            "name": name,
            "url": backend.server.url,
            "mode": backend.mode.value,
            "known": backend.mode is not Mode.UNKNOWN,
            "reachable": seen.health.ok,
            "problem": seen.health.problem or None,
            "found": _found(seen),
            "models": models,
            "tokens_per_second": None if backend.is_router else speed(name, ""),
            "waiting": seen.waiting,
        }

    def _disk(self, seen: Seen) -> dict[str, Any]:
        routes = []
        for use in seen.uses or ():
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
                "server": one.backend.server.name,
                "folder": _text(one.backend.server.slot_save_path),
                "free_bytes": one.free_bytes,
                "min_free_bytes": one.reserved_bytes,
            }
            for one in seen.servers
        ]
        free = [one.free_bytes for one in seen.servers if one.free_bytes is not None]
        return {
            "files": None if seen.uses is None else sum(use.files for use in seen.uses),
            "bytes": None if seen.uses is None else sum(use.bytes for use in seen.uses),
            "limit_bytes": _limit(routes),
            "free_bytes": min(free, default=None),
            "routes": routes,
            "servers": servers,
        }


def _found(seen: ServerSeen) -> list[dict[str, Any]]:
    """What is known of a server, and what keeps its sessions from being saved and restored."""
    found = dict(seen.backend.findings)
    for slot in seen.slots:
        for problem in slot.problems:
            found[f"{slot.model}: {problem}" if slot.model else problem] = True
    return [{"text": text, "warn": warn} for text, warn in found.items()]


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
        "finding": served.explanation.finding_text,
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
