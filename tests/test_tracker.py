"""What a router has loaded, told by its events, by looks and by our own requests."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve, field
from router_double import ScriptedRouter, refusals
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.errors import Junk, Unreachable, Unsupported
from slotgate.llama.following import LONGEST_PAUSE_SECONDS, Following
from slotgate.llama.models import Change, Model, RouterProps, Status
from slotgate.llama.tracker import FIRST_POLL_SECONDS, Tracker

POLL_SECONDS = 1.0


def model(name: str = "alpha", status: Status = Status.LOADED, port: int = 1) -> Model:
    return Model(name, status=status, args=("--port", str(port)))


@define(eq=False)
class Asked:
    """A router whose answers to looks come when the test says."""

    looks: list[Deferred[tuple[Model, ...]]] = field(factory=list)

    async def models(self) -> tuple[Model, ...]:
        asked: Deferred[tuple[Model, ...]] = Deferred()
        self.looks.append(asked)
        return await asked

    async def router(self) -> RouterProps | None:
        raise NotImplementedError

    async def load(self, model: str) -> None:
        raise NotImplementedError

    async def unload(self, model: str) -> None:
        raise NotImplementedError

    def follow(self, opened: object, changed: object) -> Deferred[None]:
        raise NotImplementedError


class TrackerCase(SynchronousTestCase):
    """A tracker that is told by the test."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.router = Asked()
        self.gone: list[str] = []
        self.tracker = Tracker(self.router, self.clock, POLL_SECONDS, self.gone.append)

    def ask(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tracker.look())

    def look(self, *models: Model) -> None:
        """A look that is answered at once."""
        looked = self.ask()
        self.router.looks.pop().callback(models)
        self.successResultOf(looked)

    def told(self, status: Status, name: str = "alpha", code: int | None = None) -> None:
        self.tracker.told(Change(name, status, code))

    def status(self, name: str = "alpha") -> Status:
        return self.tracker.model(name).status


class LookTests(TrackerCase):
    """What a look says, and what it does not overwrite."""

    def test_nothing_is_known_before_the_first_look(self) -> None:
        self.assertEqual(self.tracker.model("alpha"), Model("alpha"))
        self.assertIsNone(self.tracker.id_of("alpha"))
        self.assertEqual((list(self.tracker), self.tracker.running()), ([], []))

    def test_a_look_tells_all_of_the_models(self) -> None:
        failed = Model("beta", failed=True, exit_code=1)
        self.look(model(), failed)
        self.assertEqual(list(self.tracker), [model(), failed])
        self.assertEqual(self.tracker.running(), ["alpha"])

    def test_a_later_look_counts(self) -> None:
        self.look(model())
        self.look(model(status=Status.UNLOADED))
        self.assertIs(self.status(), Status.UNLOADED)

    def test_what_was_told_before_a_look_was_asked_for_is_overwritten(self) -> None:
        self.look(model())
        self.told(Status.UNLOADED)
        self.look(model())
        self.assertIs(self.status(), Status.LOADED)

    def test_what_was_told_after_a_look_was_asked_for_is_not(self) -> None:
        looked = self.ask()
        self.told(Status.LOADED)
        self.router.looks.pop().callback((model(status=Status.UNLOADED), model("beta")))
        self.successResultOf(looked)
        self.assertIs(self.status("alpha"), Status.LOADED)
        self.assertIs(self.status("beta"), Status.LOADED)

    def test_of_what_was_told_meanwhile_a_look_still_tells_the_rest(self) -> None:
        looked = self.ask()
        self.told(Status.UNLOADED, code=1)
        now = evolve(model(), aliases=("a1",))
        self.router.looks.pop().callback((now,))
        self.successResultOf(looked)
        known = self.tracker.model("alpha")
        self.assertEqual((known.aliases, known.args), (("a1",), now.args))
        self.assertEqual((known.failed, known.exit_code), (True, 1))
        self.assertEqual(self.tracker.id_of("a1"), "alpha")

    def test_our_own_load_counts_as_told(self) -> None:
        looked = self.ask()
        with self.tracker.loading("alpha"):
            self.assertIs(self.status(), Status.LOADING)
        self.router.looks.pop().callback((model(status=Status.UNLOADED),))
        self.successResultOf(looked)
        self.assertIs(self.status(), Status.LOADING)

    def test_while_the_router_is_being_told_to_load_no_look_is_believed(self) -> None:
        with self.tracker.loading("alpha"):
            self.look(model(status=Status.UNLOADED), model("beta"))
            self.assertIs(self.status(), Status.LOADING)
            self.assertIs(self.status("beta"), Status.LOADED)
            late = self.ask()
        self.router.looks.pop().callback((model(status=Status.UNLOADED),))
        self.successResultOf(late)
        self.assertIs(self.status(), Status.LOADING)
        self.look(model(status=Status.UNLOADED))
        self.assertIs(self.status(), Status.UNLOADED)

    def test_while_the_router_is_being_told_to_load_events_are_believed(self) -> None:
        with self.tracker.loading("alpha"):
            self.told(Status.UNLOADED, code=1)
        self.assertTrue(self.tracker.model("alpha").failed)

    def test_a_load_that_the_router_refuses_is_none(self) -> None:
        self.told(Status.UNLOADED, code=1)
        with self.assertRaises(Unreachable), self.tracker.loading("alpha"):
            raise Unreachable("nobody listens")
        self.assertIs(self.status(), Status.UNLOADED)
        self.assertTrue(self.tracker.model("alpha").failed)

    def test_a_load_of_which_an_event_tells_is_one_though_its_answer_was_lost(self) -> None:
        for status in (Status.LOADING, Status.LOADED):
            with self.assertRaises(Unreachable), self.tracker.loading("alpha"):
                self.told(status)
                raise Unreachable("no answer")
            self.assertIs(self.status(), status)

    def test_our_own_load_changes_nothing_of_a_model_that_runs(self) -> None:
        self.look(model())
        with self.tracker.loading("alpha"):
            self.assertIs(self.status(), Status.LOADED)
        self.assertEqual(self.gone, [])

    def test_an_answer_that_a_later_look_has_overtaken_is_old(self) -> None:
        first, second = self.ask(), self.ask()
        early, late = self.router.looks
        late.callback((model(status=Status.UNLOADED),))
        early.callback((model(),))
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertIs(self.status(), Status.UNLOADED)

    def test_a_look_that_fails_says_so_and_changes_nothing(self) -> None:
        self.look(model())
        looked = self.ask()
        self.router.looks.pop().errback(Unreachable("nobody listens"))
        self.failureResultOf(looked, Unreachable)
        self.assertIs(self.status(), Status.LOADED)

    def test_a_model_that_vanished_is_not_there_and_its_slots_are_gone(self) -> None:
        self.look(model("alpha"), model("beta"))
        self.look(model("beta"))
        self.assertEqual([one.id for one in self.tracker], ["beta"])
        self.assertIsNone(self.tracker.id_of("alpha"))
        self.assertIs(self.status("alpha"), Status.UNLOADED)
        self.assertEqual(self.gone, ["alpha"])

    def test_a_model_told_of_after_a_look_was_asked_for_has_not_vanished(self) -> None:
        looked = self.ask()
        self.told(Status.LOADED)
        self.router.looks.pop().callback(())
        self.successResultOf(looked)
        self.assertIs(self.status(), Status.LOADED)
        self.assertEqual(self.gone, [])

    def test_a_vanished_model_that_comes_back_is_a_new_one(self) -> None:
        self.look(model(port=1))
        self.look()
        self.look(model(port=2))
        self.assertEqual(self.gone, ["alpha"])
        self.assertEqual(self.tracker.ends("alpha"), 1)


class NameTests(TrackerCase):
    """Aliases are the same model."""

    def test_an_alias_and_an_id_lead_to_the_id(self) -> None:
        self.look(evolve(model("org/ö dd:Q4"), aliases=("a1", "openai/a2")))
        for name in ("org/ö dd:Q4", "a1", "openai/a2"):
            self.assertEqual(self.tracker.id_of(name), "org/ö dd:Q4")
        self.assertIsNone(self.tracker.id_of("a2"))

    def test_an_alias_that_is_another_models_id_is_that_model(self) -> None:
        for models in ((model("alpha"), evolve(model("beta"), aliases=("alpha",))),):
            self.look(*models)
            self.assertEqual(self.tracker.id_of("alpha"), "alpha")
            self.look(*reversed(models))
            self.assertEqual(self.tracker.id_of("alpha"), "alpha")

    def test_an_alias_that_was_taken_away_is_none(self) -> None:
        self.look(evolve(model(), aliases=("a1",)))
        self.look(model())
        self.assertIsNone(self.tracker.id_of("a1"))


class UseTests(TrackerCase):
    """The order of use."""

    def setUp(self) -> None:
        super().setUp()
        self.look(*(model(name) for name in ("alpha", "beta", "gamma")))

    def test_the_one_used_longest_ago_comes_first(self) -> None:
        self.tracker.use("alpha")
        self.tracker.use("beta")
        self.assertEqual(self.tracker.running(), ["gamma", "alpha", "beta"])

    def test_a_load_is_a_use_whoever_wanted_it(self) -> None:
        self.told(Status.UNLOADED, "alpha")
        self.told(Status.LOADING, "alpha")
        self.told(Status.LOADED, "alpha")
        self.assertEqual(self.tracker.running(), ["beta", "gamma", "alpha"])

    def test_falling_asleep_and_waking_are_no_uses(self) -> None:
        for status in (Status.SLEEPING, Status.LOADING, Status.LOADED):
            self.told(status, "alpha")
            self.assertEqual(self.tracker.running(), ["alpha", "beta", "gamma"])

    def test_looks_are_no_uses(self) -> None:
        self.tracker.use("alpha")
        self.look(*(model(name) for name in ("alpha", "beta", "gamma")))
        self.assertEqual(self.tracker.running(), ["beta", "gamma", "alpha"])

    def test_what_is_loading_or_asleep_takes_a_place_and_what_is_unloaded_none(self) -> None:
        self.told(Status.SLEEPING, "alpha")
        self.told(Status.UNLOADED, "beta")
        self.told(Status.LOADING, "beta")
        self.told(Status.UNLOADED, "gamma")
        self.assertEqual(self.tracker.running(), ["alpha", "beta"])


class EndTests(TrackerCase):
    """When a model's slots have gone."""

    def test_each_way_out_of_memory_ends_the_slots_once(self) -> None:
        for status in (Status.UNLOADED, Status.SLEEPING):
            self.look(model())
            self.gone.clear()
            self.told(status)
            self.assertEqual(self.gone, ["alpha"])
            self.told(status)
            self.look(model(status=status))
            self.assertEqual(self.gone, ["alpha"])
        self.assertEqual(self.tracker.ends("alpha"), 2)

    def test_an_end_is_told_when_the_status_is_known_already(self) -> None:
        seen: list[Status] = []
        self.tracker = Tracker(
            self.router, self.clock, POLL_SECONDS, lambda name: seen.append(self.status(name))
        )
        self.look(model())
        self.told(Status.UNLOADED)
        self.assertEqual(seen, [Status.UNLOADED])

    def test_coming_into_memory_ends_nothing(self) -> None:
        for status in (Status.LOADING, Status.LOADED):
            self.told(status)
        self.assertEqual((self.gone, self.tracker.ends("alpha")), ([], 0))

    def test_what_sleeps_has_no_slots_left_to_lose(self) -> None:
        self.look(model(status=Status.SLEEPING))
        self.told(Status.UNLOADED)
        self.assertEqual(self.gone, [])

    def test_another_port_is_another_process_though_it_was_loaded_at_both_looks(self) -> None:
        self.look(model(port=1), model("beta"))
        self.look(model(port=2), model("beta"))
        self.assertEqual(self.gone, ["alpha"])
        self.assertEqual((self.tracker.ends("alpha"), self.tracker.ends("beta")), (1, 0))
        self.look(model(port=2), model("beta"))
        self.assertEqual(self.gone, ["alpha"])

    def test_events_tell_of_another_process_and_the_look_after_them_not_again(self) -> None:
        self.look(model(port=1))
        for status in (Status.UNLOADED, Status.LOADING, Status.LOADED):
            self.told(status)
        self.look(model(port=2))
        self.look(model(port=2))
        self.assertEqual(self.gone, ["alpha"])

    def test_an_old_look_tells_nothing_of_the_process(self) -> None:
        self.look(model(port=1))
        looked = self.ask()
        for status in (Status.UNLOADED, Status.LOADING, Status.LOADED):
            self.told(status)
        self.router.looks.pop().callback((model(port=1),))
        self.successResultOf(looked)
        self.look(model(port=2))
        self.assertEqual(self.gone, ["alpha"])

    def test_a_process_that_was_loading_and_one_that_woke_are_the_same(self) -> None:
        for status in (Status.LOADING, Status.LOADED, Status.SLEEPING, Status.LOADED):
            self.look(model(status=status, port=7))
        self.assertEqual(self.gone, ["alpha"])

    def test_a_failed_end_is_remembered_until_the_next_load(self) -> None:
        self.told(Status.LOADING)
        self.told(Status.UNLOADED, code=1)
        self.assertEqual((self.tracker.model("alpha").failed, self.gone), (True, []))
        self.assertEqual(self.tracker.model("alpha").exit_code, 1)
        self.told(Status.LOADING)
        self.assertFalse(self.tracker.model("alpha").failed)

    def test_an_end_with_exit_code_0_is_none_that_failed(self) -> None:
        self.told(Status.LOADED)
        self.told(Status.UNLOADED, code=0)
        self.assertFalse(self.tracker.model("alpha").failed)


class WaitTests(TrackerCase):
    """Waiting for a change, and for a model to be what it should be."""

    def until_loaded(self, seconds: float = 10.0) -> Deferred[bool]:
        def loaded(one: Model) -> bool:
            return one.status is Status.LOADED

        return Deferred.fromCoroutine(self.tracker.until(loaded, "alpha", seconds))

    def pauses(self, count: int, *models: Model) -> list[float]:
        """How long it is until each of the next looks, which say this."""
        pauses = []
        for _ in range(count):
            (wait,) = self.clock.getDelayedCalls()
            pauses.append(round(wait.getTime() - self.clock.seconds(), 6))
            self.clock.advance(wait.getTime() - self.clock.seconds())
            self.router.looks.pop().callback(models)
        return pauses

    def test_a_change_ends_the_wait_of_everybody(self) -> None:
        waits = [self.tracker.change(5) for _ in range(3)]
        self.told(Status.LOADING)
        self.assertEqual([self.successResultOf(wait) for wait in waits], [True] * 3)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_changes_no_status_is_no_change(self) -> None:
        self.look(model())
        wait = self.tracker.change(5)
        self.told(Status.LOADED)
        self.look(model())
        self.assertNoResult(wait)
        self.clock.advance(5)
        self.successResultOf(wait)

    def test_whoever_waits_for_a_look_sees_all_that_it_says(self) -> None:
        self.look(model("alpha"), model("beta", Status.UNLOADED))
        running: list[str] = []

        def waked(_: bool) -> None:
            running.extend(self.tracker.running())

        self.tracker.change(5).addCallback(waked)
        self.look(model("alpha", Status.UNLOADED), evolve(model("beta"), aliases=("b",)))
        self.assertEqual(running, ["beta"])

    def test_without_a_change_the_wait_ends_in_time(self) -> None:
        wait = self.tracker.change(5)
        self.clock.advance(4.9)
        self.assertNoResult(wait)
        self.clock.advance(0.1)
        self.assertIs(self.successResultOf(wait), False)
        self.told(Status.LOADING)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_whoever_waits_may_be_waked_without_a_change(self) -> None:
        wait = self.tracker.change(5)
        self.tracker.notify()
        self.assertIs(self.successResultOf(wait), True)

    def test_a_wait_can_be_cancelled_and_the_others_go_on(self) -> None:
        first, second = self.tracker.change(5), self.tracker.change(5)
        first.addErrback(lambda _: None)
        first.cancel()
        self.tracker.notify()
        self.assertIs(self.successResultOf(second), True)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_whoever_is_waked_may_cancel_the_others_and_wait_again(self) -> None:
        waits = [self.tracker.change(5) for _ in range(3)]
        again: list[Deferred[bool]] = []

        def waked(_: bool) -> None:
            waits[1].addErrback(lambda _: None)
            waits[1].cancel()
            again.append(self.tracker.change(5))

        waits[0].addCallback(waked)
        self.tracker.notify()
        self.assertIs(self.successResultOf(waits[2]), True)
        self.assertNoResult(again[0])
        self.tracker.notify()
        self.assertIs(self.successResultOf(again[0]), True)

    def test_what_is_so_already_is_not_waited_for(self) -> None:
        self.look(model())
        self.assertIs(self.successResultOf(self.until_loaded(0)), True)

    def test_an_event_ends_the_wait_at_once(self) -> None:
        self.tracker.live = True
        reached = self.until_loaded()
        self.told(Status.LOADING)
        self.assertNoResult(reached)
        self.told(Status.LOADED)
        self.assertIs(self.successResultOf(reached), True)
        self.assertEqual((self.router.looks, self.clock.getDelayedCalls()), ([], []))

    def test_without_events_looks_follow_ever_slower(self) -> None:
        reached = self.until_loaded(60)
        pauses = self.pauses(7, model(status=Status.LOADING))
        self.assertEqual(pauses, [FIRST_POLL_SECONDS, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        self.assertNoResult(reached)
        self.pauses(1, model())
        self.assertIs(self.successResultOf(reached), True)

    def test_with_events_looks_are_as_rare_as_they_are_configured(self) -> None:
        self.tracker.live = True
        self.until_loaded(60)
        self.assertEqual(self.pauses(3, model(status=Status.LOADING)), [1.0, 1.0, 1.0])

    def test_nobody_waits_longer_than_he_wants_to(self) -> None:
        reached = self.until_loaded(2.0)
        while not reached.called:
            self.pauses(1, model(status=Status.LOADING))
            self.assertLessEqual(self.clock.seconds(), 2.0 + POLL_SECONDS)
        self.assertIs(self.successResultOf(reached), False)
        self.assertGreaterEqual(self.clock.seconds(), 2.0)

    def test_a_router_that_is_not_there_ends_the_wait(self) -> None:
        reached = self.until_loaded()
        self.clock.advance(FIRST_POLL_SECONDS)
        self.router.looks.pop().errback(Unreachable("nobody listens", sent=False))
        self.failureResultOf(reached, Unreachable)

    def test_one_that_is_late_with_its_answer_does_not(self) -> None:
        reached = self.until_loaded()
        self.clock.advance(FIRST_POLL_SECONDS)
        self.router.looks.pop().errback(Unreachable("no answer within 15 s"))
        self.assertNoResult(reached)
        self.told(Status.LOADED)
        self.assertIs(self.successResultOf(reached), True)


class FollowingTests(SynchronousTestCase):
    """Events where there are some, and looks all the same."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.router = ScriptedRouter()
        self.gone: list[str] = []
        self.tracker = Tracker(self.router, self.clock, POLL_SECONDS, self.gone.append)
        #: When what answers may have been something else by then.
        self.losses: list[float] = []
        self.following = Following(
            "local",
            self.router,
            self.tracker,
            self.clock,
            POLL_SECONDS,
            lambda: self.losses.append(self.clock.seconds()),
        )
        self.looks: list[float] = []
        self.asked: list[float] = []
        self.patch_router()

    def patch_router(self) -> None:
        """Note when the router is asked for what."""
        models, follow = self.router.models, self.router.follow

        async def noted_models() -> tuple[Model, ...]:
            self.looks.append(self.clock.seconds())
            return await models()

        def noted_follow(*args: object) -> Deferred[None]:
            self.asked.append(self.clock.seconds())
            return follow(*args)  # type: ignore[arg-type]

        class Noted:
            def __getattr__(_, name: str) -> object:
                return {"models": noted_models, "follow": noted_follow}[name]

        noted = Noted()
        self.tracker._control = noted  # type: ignore[assignment]
        self.following._control = noted  # type: ignore[assignment]

    def start(self) -> None:
        self.following.startService()
        self.addCleanup(self.stop)

    def stop(self) -> None:
        if self.following.running:
            self.following.stopService()

    def pass_time(self, seconds: float) -> None:
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end - 1e-9:
            self.clock.advance(min(0.25, end - self.clock.seconds()))

    def refuse(self, action: str, *errors: Exception) -> None:
        self.router.faults[action] = list(errors)

    def end_stream(self) -> None:
        (ended, _) = self.router.streams[0]
        ended.callback(None)

    def test_events_are_heard_as_they_happen(self) -> None:
        self.start()
        self.assertTrue(self.tracker.live)
        self.router.begin("alpha")
        self.assertIs(self.tracker.model("alpha").status, Status.LOADED)
        self.router.crash("alpha")
        self.assertEqual(self.gone, ["alpha"])

    def test_what_was_before_the_events_is_looked_at_once_they_are_heard(self) -> None:
        self.router.begin("alpha")
        self.start()
        self.assertEqual(self.tracker.running(), ["alpha"])
        self.assertEqual(self.looks, [0.0])

    def test_while_events_are_heard_looks_are_rare(self) -> None:
        self.start()
        self.pass_time(95)
        self.assertEqual(self.looks, [0.0, 30.0, 60.0, 90.0])

    def test_a_stream_that_ended_is_opened_again_and_the_models_are_looked_at(self) -> None:
        self.start()
        self.end_stream()
        self.assertFalse(self.tracker.live)
        self.router.begin("alpha")
        self.pass_time(POLL_SECONDS)
        self.assertTrue(self.tracker.live)
        self.assertEqual(self.tracker.running(), ["alpha"])
        self.assertEqual(len(self.router.streams), 1)

    def test_events_that_can_not_be_had_are_asked_for_ever_less_often(self) -> None:
        self.refuse("follow", *[Unreachable("nobody listens")] * 20)
        self.start()
        self.pass_time(125)
        self.assertEqual(self.asked, [0, 1, 3, 7, 15, 31, 61, 91, 121])

    def test_a_stream_that_was_heard_is_missed_for_a_short_time_only(self) -> None:
        self.refuse("follow", *[Unreachable("nobody listens")] * 5)
        self.start()
        self.pass_time(31)
        self.assertTrue(self.tracker.live)
        self.end_stream()
        self.pass_time(POLL_SECONDS)
        self.assertTrue(self.tracker.live)

    def test_a_router_that_ends_each_stream_at_once_is_not_asked_without_pause(self) -> None:
        self.start()
        for _ in range(5):
            self.end_stream()
            self.assertEqual(self.router.streams, [])
            self.pass_time(POLL_SECONDS)
        self.assertEqual(self.asked, [0, 1, 2, 3, 4, 5])

    def test_looks_stand_in_where_there_are_no_events(self) -> None:
        self.refuse("follow", *[Unsupported("/models/sse: 404")] * 5)
        self.start()
        self.router.begin("alpha")
        self.pass_time(POLL_SECONDS)
        self.assertEqual(self.tracker.running(), ["alpha"])
        self.router.crash("alpha")
        self.pass_time(POLL_SECONDS)
        self.assertEqual((self.tracker.running(), self.gone), ([], ["alpha"]))
        self.assertFalse(self.tracker.live)

    def test_a_router_without_events_is_told_of_once_and_asked_again_seldom(self) -> None:
        said: list[object] = []
        self.patch(Following, "_log", _Log(said))
        self.refuse("follow", *[Unsupported("/models/sse: 404")] * 5)
        self.start()
        self.pass_time(100)
        self.assertEqual(self.asked, [0, 30, 60, 90])
        self.assertEqual(said, [LogLevel.info])

    def test_looks_that_fail_become_rarer_and_are_as_before_once_one_is_answered(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        self.refuse("models", *[Unreachable("nobody listens")] * 3)
        self.start()
        self.pass_time(17)
        # the one after 7 fails, the one after 15 is answered
        self.assertEqual(self.looks, [1, 3, 7, 15, 16, 17])

    def test_looks_are_never_rarer_than_the_longest_pause(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        self.refuse("models", *[Unreachable("nobody listens")] * 9)
        self.start()
        self.pass_time(125)
        self.assertEqual(self.looks, [1, 3, 7, 15, 31, 61, 91, 121])

    def test_no_refusal_of_a_look_ends_the_following(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        for error in refusals():
            self.refuse("models", error)
        self.start()
        self.pass_time(40)
        self.router.begin("alpha")
        self.pass_time(40)
        self.assertEqual(self.tracker.running(), ["alpha"])

    def test_a_fault_of_ours_in_a_look_ends_nothing(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        self.refuse("models", RuntimeError("ours"))
        self.start()
        self.pass_time(1)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.router.begin("alpha")
        self.pass_time(2)
        self.assertEqual(self.tracker.running(), ["alpha"])

    def test_a_fault_of_ours_when_events_open_ends_nothing(self) -> None:
        self.refuse("models", RuntimeError("ours"))
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.router.begin("alpha")
        self.assertEqual(self.tracker.running(), ["alpha"])

    def test_a_fault_of_ours_while_events_are_asked_for_ends_nothing(self) -> None:
        self.refuse("follow", RuntimeError("ours"))
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.pass_time(2)
        self.assertTrue(self.tracker.live)

    def test_a_router_with_other_models_than_before_is_looked_at(self) -> None:
        opened: list[Callable[[], None]] = []
        follow = self.router.follow

        def noted(told: Callable[[], None], changed: Callable[[Change], None]) -> Deferred[None]:
            opened.append(told)
            return follow(told, changed)

        self.patch(self.following, "_control", _Followed(noted))
        self.start()
        self.router.begin("alpha")
        self.router.aliases["alpha"] = ("a1",)
        self.assertIsNone(self.tracker.id_of("a1"))
        opened[0]()
        self.assertEqual(self.tracker.id_of("a1"), "alpha")

    def test_whoever_answers_after_a_stream_has_ended_may_be_somebody_else(self) -> None:
        self.start()
        self.pass_time(2)
        self.assertEqual(self.losses, [])
        self.end_stream()
        self.assertEqual(self.losses, [2])
        self.stop()
        self.assertEqual(self.losses, [2])

    def test_a_stream_that_can_not_be_had_tells_nothing_of_that(self) -> None:
        self.refuse("follow", Unreachable("nobody listens"), Unsupported("404"))
        self.start()
        self.pass_time(20)
        self.assertEqual(self.losses, [])

    def test_whoever_does_not_speak_of_models_is_somebody_else(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        self.refuse("models", Unreachable("no answer"), Junk("/models: no list of models"))
        self.start()
        self.pass_time(4)
        self.assertEqual(self.losses, [3])

    def test_a_router_that_answers_late_is_only_busy_and_its_events_go_on(self) -> None:
        self.start()
        self.refuse("models", Unreachable("no answer within 15 s", sent=True))
        self.pass_time(LONGEST_PAUSE_SECONDS)
        self.assertTrue(self.tracker.live)
        self.assertEqual((len(self.router.streams), len(self.asked)), (1, 1))

    def test_a_stream_that_died_without_a_sign_is_cut_when_nobody_is_there(self) -> None:
        self.start()
        self.refuse("models", Unreachable("nobody listens", sent=False))
        self.pass_time(LONGEST_PAUSE_SECONDS)
        self.assertEqual((self.tracker.live, self.router.streams), (False, []))
        self.router.begin("alpha")
        self.pass_time(POLL_SECONDS)
        self.assertTrue(self.tracker.live)
        self.assertEqual(self.tracker.running(), ["alpha"])

    def test_once_stopped_nothing_is_left(self) -> None:
        self.start()
        self.pass_time(3)
        self.stop()
        self.assertEqual((self.clock.getDelayedCalls(), self.router.streams), ([], []))
        self.assertFalse(self.tracker.live)

    def test_stopped_between_two_attempts_nothing_is_left(self) -> None:
        self.refuse("follow", *[Unreachable("nobody listens")] * 9)
        self.start()
        self.pass_time(5)
        self.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopped_while_events_are_asked_for_nothing_is_left(self) -> None:
        self.router.gates["follow"] = Deferred()
        self.start()
        self.stop()
        self.assertEqual((self.clock.getDelayedCalls(), self.router.streams), ([], []))
        self.assertFalse(self.tracker.live)

    def test_stopped_during_a_look_nothing_is_left(self) -> None:
        self.refuse("follow", *[Unsupported("404")] * 9)
        self.start()
        self.router.gates["models"] = Deferred()
        self.pass_time(POLL_SECONDS)
        self.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.flushLoggedErrors(), [])
        self.pass_time(60)
        self.assertEqual(self.looks, [POLL_SECONDS])

    def test_stopped_during_the_first_look_nothing_is_left(self) -> None:
        self.router.gates["models"] = Deferred()
        self.start()
        self.stop()
        self.router.gates.pop("models").callback(None)
        self.assertEqual((self.clock.getDelayedCalls(), self.router.streams), ([], []))
        self.assertFalse(self.tracker.live)

    def test_it_can_be_started_again(self) -> None:
        self.start()
        self.stop()
        self.pass_time(1)
        self.router.begin("alpha")
        self.start()
        self.assertTrue(self.tracker.live)
        self.assertEqual(self.tracker.running(), ["alpha"])


class _Followed:
    """A router that is followed in another way."""

    def __init__(self, follow: object) -> None:
        self.follow = follow


class _Log:
    """Notes at which levels something is said, other than for those who look for a fault."""

    def __init__(self, said: list[object]) -> None:
        self._said = said

    def debug(self, text: str, **fields: object) -> None:
        """For those who look for a fault."""

    def info(self, text: str, **fields: object) -> None:
        self._said.append(LogLevel.info)

    def warn(self, text: str, **fields: object) -> None:
        self._said.append(LogLevel.warn)

    def failure(self, text: str, failure: Failure | None = None, **fields: object) -> None:
        self._said.append(LogLevel.critical)
