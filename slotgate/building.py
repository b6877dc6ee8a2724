"""
The parts of a gateway, put together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.conversations import Conversation, Conversations
from slotgate.dashboard.pages import Dashboard
from slotgate.dashboard.watching import Watching
from slotgate.dashboard.work import Work
from slotgate.llama.upstream import Upstream
from slotgate.prompts.history import PromptHistory
from slotgate.reloading import Settings
from slotgate.servers import DISK_SECONDS, serve
from slotgate.slots.backend import Backend
from slotgate.slots.pool import SlotPool
from slotgate.snapshots.database import IndexAway, Transactions
from slotgate.snapshots.index import Index
from slotgate.telemetry.events import Telemetry
from slotgate.telemetry.journal import Journal
from slotgate.telemetry.metrics import Metrics
from slotgate.web._seen import Seeing
from slotgate.web._session_finding import Finding
from slotgate.web.admins import Admins
from slotgate.web.app import make_app
from slotgate.web.asked import Understanding
from slotgate.web.checks import make_checks
from slotgate.web.clients import Clients
from slotgate.web.connections import Connections
from slotgate.web.forward import Forward
from slotgate.web.generations import Generations
from slotgate.web.health import HealthPages
from slotgate.web.limits import limited_site
from slotgate.web.logins import Logins
from slotgate.web.metrics_page import MetricsPage
from slotgate.web.names import Names
from slotgate.web.ollama import Ollama
from slotgate.web.origins import Origins
from slotgate.web.passing import Passing
from slotgate.web.sessions import Sessions
from slotgate.web.status import Statuses
from slotgate.web.status_page import StatusPage

_T = TypeVar("_T")


#: How long the index is left alone after it did not answer, in seconds.
AWAY_SECONDS = 10.0


@frozen
class Parts:
    """What a running gateway is made of."""

    upstreams: Mapping[str, Upstream]
    pool: SlotPool
    backends: Mapping[str, Backend]
    forward: Forward
    #: Fires when the index is at rest.
    settled: Callable[[], Deferred[None]]
    connections: Connections
    #: Who looks at the dashboard.
    watching: Watching


@define
class _Bounded:
    """
    A database whose users do not wait for it for ever, and none of them again right after one
    has waited in vain.
    """

    _database: Transactions
    _reactor: Any
    _away_until: float = 0.0
    _running: int = 0
    _waiting: list[Deferred[None]] = field(factory=list)
    _log: Logger = field(factory=Logger, init=False)

    def runInteraction(self, interaction: Callable[..., _T], *args: object) -> Deferred[_T]:
        """
        As :class:`Transactions` says; fails with :class:`~slotgate.snapshots.database.IndexAway`
        where the database does not answer.
        """
        if self._reactor.seconds() < self._away_until:
            return fail(IndexAway())
        self._running += 1
        done = self._database.runInteraction(interaction, *args)
        done.addTimeout(DISK_SECONDS, self._reactor).addErrback(self._away)
        return done.addBoth(self._ended)

    def _ended(self, result: _T) -> _T:
        self._running -= 1
        if not self._running:
            waiting, self._waiting = self._waiting, []
            for deferred in waiting:
                deferred.callback(None)
        return result

    def settled(self) -> Deferred[None]:
        """A Deferred that fires when nothing is read or written; some is that nobody waits for."""
        if not self._running:
            return succeed(None)
        self._waiting.append(Deferred(self._waiting.remove))
        return self._waiting[-1]

    def _away(self, failure: Failure) -> None:
        """
        :raises IndexAway: instead of what says so in the database's way.
        """
        if not failure.check(sqlite3.OperationalError, DeferredTimeout):
            failure.raiseException()
        self._away_until = self._reactor.seconds() + AWAY_SECONDS
        timed_out = failure.check(DeferredTimeout)
        away = IndexAway(f"not within {DISK_SECONDS:g} s" if timed_out else str(failure.value))
        self._log.warn("{error}; left alone for {seconds:g} s", error=away, seconds=AWAY_SECONDS)
        raise away from None


def build(
    settings: Settings,
    reactor: Any,
    secret: bytes,
    database: Transactions,
    known: Iterable[Conversation] = (),
) -> Parts:
    """
    Put a gateway together. Nothing of it runs yet.

    :param secret: the key of this installation.
    :param database: the index.
    :param known: the conversations of before, the one used longest ago first.
    """
    config = settings.config
    upstreams = {name: Upstream(reactor, server) for name, server in config.servers.items()}
    bounded = _Bounded(database, reactor)
    index = Index(bounded)
    journal = Journal()
    metrics = Metrics(
        tuple(config.servers),
        lambda server, model: backends[server].tracker.id_of(model) == model,
    )
    telemetry = Telemetry((journal, metrics))
    pool, backends = serve(settings, reactor, upstreams, secret, index, telemetry)
    clients = Clients(settings)
    forward = Forward(upstreams, reactor, settings, telemetry)
    prompts = PromptHistory.of(config.prompt_history)
    conversations = Conversations(index, reactor.seconds)
    conversations.recall(known)
    names = Names(settings, backends)
    understanding = Understanding(settings, clients, backends, conversations, names)
    generations = Generations(
        settings, understanding, pool, backends, forward, reactor, prompts, telemetry
    )
    passing = Passing(settings, clients, backends, names, forward)
    finding = Finding(settings, pool, backends, index)
    sessions = Sessions(clients, pool, backends, index, finding, prompts)
    ollama = Ollama(
        settings, clients, backends, pool, understanding, generations, passing, names, reactor
    )
    admins = Admins(clients, Logins.of(settings, reactor, secret))
    checks = make_checks(config.servers, upstreams, bounded, reactor)
    seeing = Seeing(pool, backends, checks)
    statuses = Statuses(settings, pool, seeing, journal, reactor)
    health = HealthPages(admins, checks, lambda: pool.stopping)
    dashboard = Dashboard(admins, statuses, Work(sessions, finding, pool, reactor), reactor)
    pages = {
        "/slotgate/status": StatusPage(admins, statuses).answer,
        **dashboard.pages,
        "/slotgate/metrics": MetricsPage(admins, metrics, settings, seeing).answer,
        "/slotgate/health": health.live,
        "/slotgate/ready": health.ready,
    }
    app = make_app(
        generate=generations.answer,
        slot_call=passing.slot_call,
        session_call=sessions.answer,
        passing=passing.answer,
        root=ollama.root,
        translated=ollama.paths,
        pages=pages,
        rejected=telemetry.rejected,
    )
    max_body = int(config.gateway.max_body_mib * 1024 * 1024)
    site = limited_site(app.resource(), reactor, max_body, Origins(settings), telemetry.rejected)
    connections = Connections(site)
    settled = bounded.settled
    return Parts(upstreams, pool, backends, forward, settled, connections, dashboard.watching)
