"""The admissions of a scripted router, for tests without a reactor."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from doubles import snapshots
from router_double import ScriptedRouter, slot_of
from slot_case import want
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.models import Status
from slotgate.llama.tracker import Tracker
from slotgate.llama.wire import Usage
from slotgate.slots.admission import Admission, Admissions
from slotgate.slots.choice import End
from slotgate.slots.lease import Lease
from slotgate.slots.slot import Slot

LOAD_WAIT_SECONDS = 60.0

Mode = Literal["enforce", "observe", "off"]


class World:
    """A router that holds two of four models, and what lets requests in to them."""

    def __init__(
        self,
        router: ScriptedRouter,
        kind: type[Admissions] = Admissions,
        mode: Mode = "enforce",
        *,
        events: bool = True,
        max_queue: int = 64,
    ) -> None:
        """
        :param events: whether the router tells what happens; else it has to be asked.
        """
        self.clock = Clock()
        self.router = router
        self.limit = 2
        self.tracker = Tracker(self.router, self.clock, 1.0, self._lose)
        self.kept = snapshots(self.clock)
        self.slots: dict[str, Slot] = {}
        self.admissions = kind(
            name="local",
            control=self.router,
            tracker=self.tracker,
            slots_of=lambda model: [self.slots[model]] if model in self.slots else [],
            control_of=lambda model: self.router.process[model],
            mode=mode,
            limit=lambda: self.limit,
            clock=self.clock,
            poll_seconds=1.0,
            load_wait_seconds=LOAD_WAIT_SECONDS,
            max_queue=max_queue,
        )
        self.tracker.live = events
        if events:
            self.router.follow(lambda: None, self.tracker.told)
        self.look()

    def look(self) -> Deferred[None]:
        """Ask the router what it has loaded."""
        return Deferred.fromCoroutine(self.tracker.look())

    def _lose(self, model: str) -> None:
        if model in self.slots:
            self.slots[model].lose()

    def slot(self, model: str) -> Slot:
        """The slot of a model."""
        if model not in self.slots:
            self.slots[model] = slot_of(self.router, model, self.clock, self.kept)
        return self.slots[model]


class AdmissionCase(SynchronousTestCase):
    """A router that holds two of four models, and what lets requests in to them."""

    mode: ClassVar[Mode] = "enforce"
    events: ClassVar[bool] = True
    max_queue: ClassVar[int] = 64

    def setUp(self) -> None:
        self.router = ScriptedRouter()
        world = World(self.router, mode=self.mode, events=self.events, max_queue=self.max_queue)
        self.world, self.clock, self.slot = world, world.clock, world.slot
        self.tracker, self.admissions = world.tracker, world.admissions
        # as a network does it: an answer never comes while its question is being asked
        self.router.answer = lambda _: deferLater(self.clock, 0)
        self.requests: list[Deferred[Admission]] = []
        self.addCleanup(self.end, self.requests, self.admissions, self.router)

    def end(
        self, requests: list[Deferred[Admission]], admissions: Admissions, router: ScriptedRouter
    ) -> None:
        """Let everything come to its end, so that nothing of it ends in another test."""
        for request in requests:
            request.addErrback(lambda _: None)
        for gates in (router.gates, *(process.gates for process in router.process.values())):
            while gates:
                gates.popitem()[1].callback(None)
        admissions.stop()
        self.settle()

    def settle(self) -> None:
        """Let all answers come that nothing holds back."""
        self.clock.advance(0)

    def successResultOf(self, deferred: Any) -> Any:
        self.settle()
        return super().successResultOf(deferred)

    def failureResultOf(self, deferred: Any, *expected: Any) -> Any:
        self.settle()
        return super().failureResultOf(deferred, *expected)

    def assertNoResult(self, deferred: Any) -> None:
        self.settle()
        super().assertNoResult(deferred)

    def enter(self, model: str) -> Deferred[Admission]:
        """A request for a model comes."""
        entered = self.admissions.enter(model)
        self.requests.append(entered)
        self.settle()
        return entered

    def let_in(self, model: str) -> Admission:
        """A request for a model comes, and is let in at once."""
        admission: Admission = self.successResultOf(self.enter(model))
        return admission

    def lease(self, model: str, session: str = "") -> Lease:
        """A session's lease of a model that is loaded."""
        lease: Lease = self.successResultOf(self.slot(model).lease(want(session or model)))
        return lease

    def answer(self, lease: Lease, model: str, session: str = "", tokens: int = 100) -> None:
        """The server answers a lease's request."""
        self.router.process[model].request(session or model, tokens)
        self.router.uses(model)
        lease.release(End.COMPLETE, Usage(0, tokens - 7, 8))
        self.settle()

    def turn(self, model: str, session: str = "", tokens: int = 100) -> None:
        """A session's request from beginning to end, which leaves something to be saved."""
        admission = self.let_in(model)
        self.answer(self.lease(model, session), model, session, tokens)
        admission.release()

    def turns(self, *models: str) -> None:
        """A request for each of these models, and what was done for them is forgotten."""
        for model in models:
            self.turn(model)
        self.router.journal.clear()

    def stranger(self, model: str) -> None:
        """Somebody else's request runs."""
        self.router.process[model].request("stranger", 300)
        self.router.process[model].busy = True
        self.router.uses(model)

    def stranger_leaves(self, model: str) -> None:
        self.router.process[model].busy = False

    def pass_time(self, seconds: float) -> None:
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            due = [call.getTime() for call in self.clock.getDelayedCalls()]
            self.clock.advance(max(0, min([end, *due]) - self.clock.seconds()))

    def gate(self, action: str, model: str = "") -> Deferred[None]:
        """Hold back calls of this kind, of the router or of one of its models."""
        holder = self.router.process[model] if model else self.router
        gate: Deferred[None] = Deferred()
        holder.gates[action] = gate
        return gate

    def open(self, action: str, model: str = "") -> None:
        """Let what a gate held back go on."""
        holder = self.router.process[model] if model else self.router
        holder.gates.pop(action).callback(None)
        self.settle()

    def cancel(self, *requests: Deferred[Admission]) -> None:
        """The clients go away."""
        for request in requests:
            request.addErrback(lambda _: None)
            request.cancel()
        self.settle()

    def did(self, *verbs: str) -> list[str]:
        """What the router was asked to do."""
        self.settle()
        return self.router.done(*(verbs or ("save", "unload", "load", "wake")))

    def loaded(self) -> list[str]:
        """The models that are loaded, in alphabetical order."""
        self.settle()
        return sorted(name for name, one in self.router.status.items() if one is Status.LOADED)

    def assert_quiet(self) -> None:
        """Nobody waits, and nothing is under way."""
        self.settle()
        self.assertEqual(self.admissions.waiting, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
