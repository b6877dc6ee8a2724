"""
Requests for four models of a router that holds two, in any order, with answers that come in any
order: what :class:`~slotgate.slots.admission.Admissions` promises, it keeps.
"""

from __future__ import annotations

from typing import Any, ClassVar

from admission_case import World
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from router_double import ScriptedRouter, refusals
from slot_case import want
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from slotgate.llama.errors import ControlError, Refused, Unreachable
from slotgate.llama.models import Status
from slotgate.llama.wire import Usage
from slotgate.slots.admission import Admission, Admissions, _Waiter
from slotgate.slots.arrivals import ModelFailed
from slotgate.slots.choice import End, Verdict
from slotgate.slots.lease import Lease
from slotgate.slots.occupancy import Arrival

MODELS = ("alpha", "beta", "gamma", "delta")

#: Many more than it takes until nothing moves any more.
ENOUGH_ROUNDS = 400

#: What was done against a promise, in the present example.
broken: list[str] = []


@define(eq=False, repr=False)
class Watched(Admissions):
    """Notes who is let in out of order."""

    def _let_in(self, waiter: _Waiter, arrival: Arrival | None = None) -> None:
        first = self._queue[0]
        if waiter is not first and first.model not in self._occupancy.leaving:
            broken.append(f"{waiter.model} passed {first.model}")
        super()._let_in(waiter, arrival)


@define(eq=False, repr=False)
class Request:
    """A client's request for a model."""

    model: str
    entered: Deferred[None] | None = None
    admission: Admission | None = None
    failure: BaseException | None = None
    lease: Lease | None = None
    #: Which process of the model it was that works on it.
    port: int | None = None

    @property
    def waits(self) -> bool:
        return self.admission is None and self.failure is None


@define(eq=False, repr=False)
class Asked(ScriptedRouter):
    """A router whose answers come when they are let, and that notes what it should not be told."""

    pending: list[tuple[str, Deferred[None]]] = field(factory=list)
    requests: list[Request] = field(factory=list)
    #: Saves can fail, so what is unloaded need not be saved.
    faulty: bool = False

    async def unload(self, model: str) -> None:
        self.check(model)
        await super().unload(model)

    def check(self, model: str) -> None:
        """Whether a model may be unloaded now."""
        if any(one.model == model and one.admission for one in self.requests):
            broken.append(f"{model} was unloaded under a request")
        process = self.process[model]
        if self.status[model] is not Status.LOADED:
            return
        if process.busy:
            broken.append(f"{model} was unloaded while it worked")
        ours = process.content not in (None, "stranger")
        saved = (process.content, process.tokens) in process.files.values()
        if ours and not saved and not self.faulty:
            broken.append(f"{model} was unloaded with {process.content}, which was not saved")


class Machine(RuleBasedStateMachine):
    """A router that does what it is asked, sooner or later."""

    faulty: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        broken.clear()
        self.tokens = 100
        self.crashes = 0
        #: Answers come when they are let, and not as soon as they can.
        self.slow = False

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            if event["log_level"] is LogLevel.critical:
                broken.append(formatEvent(event))

        self.observer = observe
        globalLogPublisher.addObserver(observe)

    @initialize(events=st.booleans())
    def begin(self, events: bool) -> None:
        self.router = Asked(faulty=self.faulty)
        self.requests = self.router.requests
        self.world = World(self.router, Watched, events=events)
        self.admissions, self.events = self.world.admissions, events
        self.router.answer = self.ask

    def ask(self, model: str) -> Deferred[None]:
        asked: Deferred[None] = Deferred()
        self.router.pending.append((model, asked))
        return asked

    # clients

    @rule(model=st.sampled_from(MODELS))
    def a_request_comes(self, model: str) -> None:
        admissions = self.admissions
        before = list(admissions._queue)
        request = Request(model)
        self.requests.append(request)

        def let_in(admission: Admission) -> None:
            request.admission = admission
            if model in admissions._occupancy.leaving:
                broken.append(f"{model} was entered while it was being unloaded")
            known = self.world.tracker.model(model).status
            # between two looks it may have been loaded and have fallen asleep
            awake = known is Status.LOADED or (known is Status.SLEEPING and not self.events)
            if not awake and not self.faulty:
                broken.append(f"{model} was entered while it was {known}")

        def not_let_in(failure: Failure) -> None:
            request.failure = failure.value
            if failure.check(ModelFailed) and not self.crashes:
                broken.append(f"{model} did not fail to load")

        request.entered = admissions.enter(model).addCallbacks(let_in, not_let_in)
        still = [waiter for waiter in before if waiter in admissions._queue]
        passed = still and admissions.waiting == len(still)
        if passed and still[0].model not in admissions._occupancy.leaving:
            broken.append(f"{model} passed those that waited")

    def some(self, number: int, *, leased: bool = False, waits: bool = False) -> Request | None:
        """One of the requests that wait to be let in, that were, or that have a lease."""
        found = [
            one
            for one in self.requests
            if (one.waits if waits else one.admission and bool(one.lease) is leased)
        ]
        return found[number % len(found)] if found else None

    @rule(number=st.integers(0, 9))
    def a_client_leaves(self, number: int) -> None:
        request = self.some(number, waits=True)
        if request is not None and request.entered is not None:
            request.entered.cancel()

    @rule(number=st.integers(0, 9))
    def a_request_without_a_lease_ends(self, number: int) -> None:
        request = self.some(number)
        if request is not None and request.port is None:
            self.release(request)

    @rule(number=st.integers(0, 9), session=st.integers(0, 1))
    def a_request_wants_its_lease(self, number: int, session: int) -> None:
        request = self.some(number)
        if request is None or request.port is not None:
            return
        model = request.model
        request.port = self.router.ports.get(model, 0)

        def leased(lease: Lease) -> None:
            request.lease = lease
            if self.is_the_same(request):
                self.router.process[model].busy = True

        def failed(failure: Failure) -> None:
            broken.append(f"no lease of {model}: {failure.value!r}")

        self.world.slot(model).lease(want(f"{model}{session}")).addCallbacks(leased, failed)

    def is_the_same(self, request: Request) -> bool:
        loaded = self.router.status[request.model] is Status.LOADED
        return loaded and self.router.ports[request.model] == request.port

    @rule(model=st.sampled_from(MODELS), session=st.integers(0, 1))
    def a_session_has_a_turn(self, model: str, session: int) -> None:
        self.a_request_comes(model)
        self.what_can_be_done_is_done()
        self.a_request_wants_its_lease(-1, session)
        self.what_can_be_done_is_done()
        self.a_request_is_answered(-1)

    @rule(number=st.integers(0, 9))
    def a_request_is_answered(self, number: int) -> None:
        request = self.some(number, leased=True)
        if request is None or request.lease is None or request.lease.want.session is None:
            return
        process, lease = self.router.process[request.model], request.lease
        if self.is_the_same(request):
            process.busy = False
            self.tokens += 1
            assert lease.want.session is not None
            process.request(lease.want.session.key.id, self.tokens)
            self.router.uses(request.model)
            reused = 0 if lease.verdict is Verdict.COLD else 50
            lease.release(End.COMPLETE, Usage(reused, self.tokens - 7 - reused, 8))
        else:
            lease.release(End.CUT)
        self.release(request)

    def release(self, request: Request) -> None:
        assert request.admission is not None
        admission, request.admission = request.admission, None
        self.requests.remove(request)
        admission.release()
        admission.release()

    # the router

    @rule(slow=st.booleans())
    def answers_take_time(self, slow: bool) -> None:
        self.slow = slow

    @rule(model=st.sampled_from(MODELS))
    def loads_and_unloads_take_time(self, model: str) -> None:
        self.router.held ^= {model}

    @rule(number=st.integers(0, 9))
    def some_answer_comes(self, number: int) -> None:
        pending = self.router.pending
        if pending:
            pending.pop(number % len(pending))[1].callback(None)

    def all_answers_come(self) -> None:
        for _ in range(ENOUGH_ROUNDS):
            if not self.router.pending:
                return
            self.some_answer_comes(0)
        broken.append("the router is asked without end")

    @rule(model=st.sampled_from(MODELS))
    def a_load_or_an_unload_is_done(self, model: str) -> None:
        self.router.finish(model)

    def all_loads_and_unloads_are_done(self) -> None:
        for model in MODELS:
            self.router.finish(model)

    def is_at_rest(self, model: str) -> bool:
        """Whether nothing is asked of a model at the moment."""
        loaded = self.router.status[model] is Status.LOADED and model not in self.router.ending
        return loaded and all(asked != model for asked, _ in self.router.pending)

    @rule(model=st.sampled_from(MODELS))
    def a_model_falls_asleep(self, model: str) -> None:
        if self.is_at_rest(model) and not self.router.process[model].busy:
            self.router.fall_asleep(model)

    @rule(model=st.sampled_from(MODELS))
    def a_model_crashes(self, model: str) -> None:
        if self.router.status[model].running:
            self.crashes += 1
            self.router.crash(model)

    @rule(model=st.sampled_from(MODELS))
    def a_stranger_comes_and_goes(self, model: str) -> None:
        process = self.router.process[model]
        if process.busy and process.content == "stranger":
            process.busy = False
        elif self.is_at_rest(model) and not process.busy:
            self.tokens += 1
            process.request("stranger", self.tokens)
            process.busy = True

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def the_models_are_looked_at(self) -> None:
        self.world.look().addErrback(lambda failure: failure.trap(ControlError) and None)

    @invariant()
    def what_can_be_done_is_done(self) -> None:
        if hasattr(self, "world") and not self.slow:
            self.all_answers_come()

    @invariant()
    def every_promise_is_kept(self) -> None:
        assert not broken, broken

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.finish()
        finally:
            globalLogPublisher.removeObserver(self.observer)

    def finish(self) -> None:
        """Everything ends, and nobody is left."""
        self.router.faults.clear()
        for process in self.router.process.values():
            process.faults.clear()
        for _ in range(ENOUGH_ROUNDS):
            self.all_answers_come()
            self.all_loads_and_unloads_are_done()
            for request in list(self.requests):
                if request.lease is not None:
                    self.a_request_is_answered(0)
                elif request.admission is not None and request.port is None:
                    self.release(request)
                elif request.failure is not None:
                    self.requests.remove(request)
            for process in self.router.process.values():
                if process.content == "stranger":
                    process.busy = False
            self.world.clock.advance(1)
            if not (self.requests or self.router.pending or self.world.clock.getDelayedCalls()):
                break
        assert not self.requests, [one.model for one in self.requests]
        assert self.admissions.waiting == 0
        left = self.admissions._occupancy
        assert (left.arrivals, left.leaving, left.guests) == ({}, set(), {})
        assert not self.admissions._working
        assert self.world.clock.getDelayedCalls() == []
        if not self.faulty:
            # nobody else loads anything, so there was always room
            assert self.router.evicted == []
        assert not broken, broken


class FaultyMachine(Machine):
    """A router that refuses now and then: nobody is stuck, and nobody's model is unloaded."""

    faulty = True

    @rule(
        action=st.sampled_from(["models", "load", "unload"]),
        error=st.sampled_from(list(refusals())),
    )
    def the_router_refuses(self, action: str, error: ControlError) -> None:
        self.router.faults[action] = [error]

    @rule(
        model=st.sampled_from(MODELS),
        action=st.sampled_from(["look", "props", "save", "restore"]),
        error=st.sampled_from([Unreachable("no answer"), Refused(500, "500 it can not")]),
    )
    def a_model_refuses(self, model: str, action: str, error: ControlError) -> None:
        self.router.process[model].faults[action] = [error]

    @rule(model=st.sampled_from(MODELS))
    def a_stranger_loads_a_model(self, model: str) -> None:
        if len(self.router.running()) < self.router.models_max:
            self.router.begin(model)


SETTINGS = settings(max_examples=50, stateful_step_count=80, deadline=None, derandomize=True)

AdmissionTests = Machine.TestCase
AdmissionTests.settings = SETTINGS
FaultyAdmissionTests = FaultyMachine.TestCase
FaultyAdmissionTests.settings = SETTINGS
