"""
``GET /slotgate/metrics``: counts and times since our start, and what is now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from attrs import frozen
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from twisted.web.iweb import IRequest

from slotgate import __version__
from slotgate.llama.models import Model, Status
from slotgate.reloading import Settings
from slotgate.routes import route_for
from slotgate.snapshots.records import Use
from slotgate.telemetry.gauges import Kept, Now, ServerNow, gauges
from slotgate.telemetry.metrics import Metrics
from slotgate.web._seen import Seeing, ServerSeen
from slotgate.web.admins import Admins
from slotgate.web.pages import LOOK, allow, page_answer

_OPENMETRICS = "application/openmetrics-text"

#: The states of a slot (:class:`~slotgate.slots.machine.SlotMachine`).
STATES = ("unknown", "empty", "dirty", "saved", "leased", "draining", "gone")

#: The statuses of a model, and that it could not be loaded.
STATUSES = (*(status.value for status in Status), "failed")

#: The route of snapshots that no route of the configuration takes any longer.
NO_ROUTE = "(none)"


@frozen
class MetricsPage:
    """The metrics, for admins."""

    _admins: Admins
    _metrics: Metrics
    _settings: Settings
    _seeing: Seeing

    async def answer(self, request: IRequest, path: str) -> bytes:
        """
        Answer one scrape.

        :raises Rejected: without an admin's key, or for another method.
        """
        allow(request, *LOOK)
        self._admins.check(request)
        encode, content_type = _encoder(request)
        page = encode(self._metrics.families(gauges(await self._now())))
        return page_answer(request, content_type, page)

    async def _now(self) -> Now:
        seen = await self._seeing.now()
        kept = None if seen.uses is None else self._kept(seen.uses)
        return Now(__version__, [_server(one) for one in seen.servers], kept)

    def _kept(self, uses: Iterable[Use]) -> list[Kept]:
        """By the routes of the configuration: a wildcard's snapshots have the client's names."""
        files: Counter[tuple[str, str]] = Counter()
        size: Counter[tuple[str, str]] = Counter()
        for use in uses:
            found = route_for(self._settings.config, use.route)
            place = use.server, found[0].model if found else NO_ROUTE
            files[place] += use.files
            size[place] += use.bytes
        for route in self._settings.config.routes:
            if route.cache:
                files[route.server, route.model] += 0
        return [Kept(*place, files[place], size[place]) for place in files]


def _server(seen: ServerSeen) -> ServerNow:
    backend = seen.backend
    return ServerNow(
        name=backend.server.name,
        up=seen.health.ok,
        waiting=seen.waiting,
        slots=_counted(STATES, (slot.state for slot in seen.slots)),
        models=_counted(STATUSES, map(_status, backend.tracker)) if backend.is_router else {},
        free_bytes=seen.free_bytes,
        reserved_bytes=seen.reserved_bytes,
    )


def _encoder(request: IRequest) -> tuple[Callable[[Collector], bytes], str]:
    """How the client wants it written, and what that is called."""
    accepts = request.requestHeaders.getRawHeaders("Accept", ())
    if any(_OPENMETRICS in value for value in accepts):
        return openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest, exposition.CONTENT_TYPE_PLAIN_0_0_4


def _counted(words: Iterable[str], found: Iterable[str]) -> Mapping[str, int]:
    """How often each word was found, those that were not among them."""
    counts = dict.fromkeys(words, 0)
    for word in found:
        counts[word] = counts.get(word, 0) + 1
    return counts


def _status(model: Model) -> str:
    return "failed" if model.failed else model.status.value
