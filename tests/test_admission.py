"""Who is let in to the models of a router, in which order, and what makes room for whom."""

from __future__ import annotations

from admission_case import LOAD_WAIT_SECONDS, AdmissionCase
from router_double import refusals
from slot_case import want
from twisted.internet.defer import CancelledError, Deferred

from slotgate.llama.errors import NotLoaded, Refused, Unreachable, Unsupported
from slotgate.llama.models import Status
from slotgate.slots.admission import Admission
from slotgate.slots.arrivals import FAILED_SECONDS, ModelFailed
from slotgate.slots.choice import End
from slotgate.slots.lease import QueueFull, Stopping


class RoomTests(AdmissionCase):
    """Which model makes room, and how."""

    def test_while_there_is_room_models_are_loaded_and_nothing_else_is_done(self) -> None:
        self.turn("alpha")
        self.turn("beta")
        self.assertEqual(self.did(), ["load alpha", "load beta"])
        self.turn("alpha")
        self.assertEqual(self.did(), ["load alpha", "load beta"])

    def test_the_model_used_longest_ago_is_saved_and_unloaded_before_the_load(self) -> None:
        self.turns("alpha", "beta")
        self.turn("gamma")
        self.assertEqual(self.did(), ["save alpha alpha", "unload alpha", "load gamma"])
        self.assertEqual(self.loaded(), ["beta", "gamma"])
        self.assertEqual(self.router.evicted, [])

    def test_the_order_is_that_of_the_requests_and_saves_do_not_count(self) -> None:
        self.turns("alpha", "beta", "alpha")
        self.successResultOf(self.slot("beta").save())
        self.turn("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])

    def test_a_request_is_a_use_when_it_is_let_in(self) -> None:
        self.turns("alpha", "beta")
        self.let_in("alpha").release()
        self.turn("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])

    def test_what_is_saved_already_is_not_saved_again(self) -> None:
        self.turns("alpha", "beta")
        self.successResultOf(self.slot("alpha").save())
        self.router.journal.clear()
        self.turn("gamma")
        self.assertEqual(self.did(), ["unload alpha", "load gamma"])

    def test_a_model_whose_slots_nobody_used_is_unloaded_without_a_save(self) -> None:
        self.let_in("alpha").release()
        self.turns("beta", "gamma")
        self.assertEqual(self.loaded(), ["beta", "gamma"])

    def test_an_unloaded_models_slot_is_gone_and_its_session_restored_later(self) -> None:
        self.turns("alpha", "beta", "gamma")
        self.assertEqual(self.slot("alpha").state, "gone")
        self.let_in("alpha")
        self.lease("alpha")
        self.assertEqual(self.router.process["alpha"].calls, ["save alpha", "restore alpha"])

    def test_turns_on_more_models_than_fit_lose_nothing(self) -> None:
        for number in range(12):
            self.turn(self.router.names[number % 4], tokens=100 + number)
        self.assertEqual(self.router.evicted, [])
        for name in self.router.names[:2]:
            calls = self.router.process[name].calls
            self.assertEqual(calls, [f"save {name}", f"restore {name}"] * 2 + [f"save {name}"])

    def test_a_model_with_a_request_of_ours_stays(self) -> None:
        self.turns("alpha", "beta")
        admission = self.let_in("alpha")
        self.let_in("gamma")
        self.assertEqual(self.loaded(), ["alpha", "gamma"])
        admission.release()

    def test_a_model_that_works_for_somebody_else_stays(self) -> None:
        self.turns("alpha", "beta")
        self.stranger("alpha")
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])

    def test_a_model_that_still_works_for_a_client_of_ours_that_left_stays(self) -> None:
        self.turns("alpha", "beta")
        admission = self.let_in("alpha")
        lease = self.lease("alpha")
        self.router.process["alpha"].busy = True
        lease.release(End.CUT)
        admission.release()
        self.let_in("beta").release()
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])
        self.router.process["alpha"].busy = False
        self.pass_time(2)

    def test_somebody_else_who_comes_during_the_save_keeps_the_model(self) -> None:
        self.turns("alpha", "beta")
        self.gate("save", "alpha")
        gamma = self.enter("gamma")
        self.stranger("alpha")
        self.open("save", "alpha")
        self.assertEqual(self.did("unload", "load"), ["unload beta", "load gamma"])
        self.successResultOf(gamma)
        self.stranger_leaves("alpha")
        self.let_in("alpha")

    def test_a_model_of_which_it_is_not_known_whether_it_works_stays(self) -> None:
        self.turns("alpha", "beta")
        self.router.process["alpha"].faults["look"] = [Unreachable("no answer")]
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])

    def test_a_model_that_does_not_show_its_slots_counts_as_idle(self) -> None:
        self.turns("alpha", "beta")
        self.router.process["alpha"].faults["look"] = [Unsupported("501 --slots")] * 9
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload alpha"])

    def test_a_save_that_fails_does_not_hold_up_the_request(self) -> None:
        self.turns("alpha", "beta")
        self.router.process["alpha"].faults["save"] = [Refused(500, "disk full")]
        self.let_in("gamma")
        self.assertEqual(self.did("unload", "load"), ["unload alpha", "load gamma"])

    def test_the_load_waits_until_the_model_that_gives_way_is_gone(self) -> None:
        self.turns("alpha", "beta")
        self.router.held.add("alpha")
        gamma = self.enter("gamma")
        self.pass_time(5)
        self.assertEqual(self.did("unload", "load"), ["unload alpha"])
        self.router.finish("alpha")
        self.successResultOf(gamma)
        self.assertEqual(self.router.evicted, [])

    def test_a_request_waits_until_its_model_is_loaded(self) -> None:
        self.router.held.add("alpha")
        alpha = self.enter("alpha")
        self.pass_time(5)
        self.assertNoResult(alpha)
        self.router.finish("alpha")
        self.successResultOf(alpha)

    def test_a_model_that_somebody_else_is_loading_is_waited_for(self) -> None:
        self.router.held.add("alpha")
        self.router.begin("alpha")
        alpha = self.enter("alpha")
        self.assertNoResult(alpha)
        self.router.finish("alpha")
        self.successResultOf(alpha)
        self.assertEqual(self.did(), [])

    def test_where_there_is_no_limit_nothing_is_unloaded(self) -> None:
        self.world.limit = self.router.models_max = 0
        for model in self.router.names:
            self.turn(model)
        self.assertEqual(self.did("unload", "save"), [])
        self.assertEqual(self.loaded(), sorted(self.router.names))

    def test_a_lower_limit_of_ours_is_kept(self) -> None:
        self.world.limit = 1
        self.turns("alpha")
        self.turn("beta")
        self.assertEqual(self.did(), ["save alpha alpha", "unload alpha", "load beta"])

    def test_a_model_that_gives_way_for_one_does_not_give_way_for_another(self) -> None:
        self.turns("alpha", "beta")
        self.router.held |= {"alpha", "beta"}
        gamma, delta = self.enter("gamma"), self.enter("delta")
        self.assertEqual(self.did("unload", "load"), ["unload alpha", "unload beta"])
        for name in ("beta", "alpha"):
            self.router.finish(name)
        self.successResultOf(gamma)
        self.successResultOf(delta)

    def test_a_model_that_was_let_in_and_is_loading_is_not_unloaded(self) -> None:
        self.turns("alpha", "beta")
        self.router.held.add("gamma")
        gamma, delta = self.enter("gamma"), self.enter("delta")
        self.assertEqual(self.did("unload"), ["unload alpha", "unload beta"])
        alpha = self.enter("alpha")
        self.pass_time(3)
        self.assertNoResult(alpha)
        self.successResultOf(delta).release()
        self.successResultOf(alpha)
        self.router.finish("gamma")
        self.successResultOf(gamma)

    def test_two_that_wait_without_a_place_do_not_wait_for_each_other(self) -> None:
        self.world.limit = self.router.models_max = 1
        self.turns("alpha")
        self.gate("save", "alpha")
        gamma, delta = self.enter("gamma"), self.enter("delta")
        self.stranger("alpha")
        self.open("save", "alpha")
        self.pass_time(2)
        self.router.crash("alpha")
        self.pass_time(2)
        first, second = (gamma, delta) if gamma.called else (delta, gamma)
        self.successResultOf(first).release()
        self.successResultOf(second)
        self.assertEqual(self.router.evicted, [])

    def test_a_request_that_comes_while_its_model_is_looked_at_keeps_it(self) -> None:
        self.turns("alpha", "beta")
        self.gate("save", "alpha")
        self.gate("look", "beta")
        gamma = self.enter("gamma")
        self.stranger("alpha")
        self.open("save", "alpha")
        beta = self.let_in("beta")
        self.open("look", "beta")
        self.pass_time(2)
        self.assertNoResult(gamma)
        self.assertEqual(self.did("unload"), [])
        beta.release()
        self.successResultOf(gamma)
        self.assertEqual(self.did("unload"), ["unload beta"])


class SleepTests(AdmissionCase):
    """Models that fell asleep."""

    def test_one_that_gives_way_is_neither_waked_nor_saved(self) -> None:
        self.turns("alpha", "beta")
        self.router.fall_asleep("alpha")
        self.let_in("gamma")
        self.assertEqual(self.did(), ["unload alpha", "load gamma"])

    def test_one_that_was_used_later_gives_way_later(self) -> None:
        self.turns("alpha", "beta")
        self.router.fall_asleep("beta")
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload alpha"])

    def test_a_request_wakes_its_model_and_needs_no_room(self) -> None:
        self.turns("alpha", "beta")
        self.router.fall_asleep("alpha")
        self.let_in("alpha")
        self.assertEqual(self.did(), ["wake alpha"])

    def test_a_request_waits_until_its_model_is_awake(self) -> None:
        self.turns("alpha", "beta")
        self.router.held.add("alpha")
        self.router.fall_asleep("alpha")
        first, second = self.enter("alpha"), self.enter("alpha")
        self.pass_time(3)
        self.assertNoResult(first)
        self.router.finish("alpha")
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(self.did("wake"), ["wake alpha"])

    def test_a_model_that_wakes_does_not_give_way(self) -> None:
        self.turns("alpha", "beta")
        self.gate("look", "alpha")
        self.router.fall_asleep("alpha")
        alpha = self.enter("alpha")
        self.let_in("gamma")
        self.assertEqual(self.did("unload"), ["unload beta"])
        self.open("look", "alpha")
        self.successResultOf(alpha)

    def test_one_that_does_not_wake_lets_its_requests_go_on_in_time(self) -> None:
        for error in refusals():
            self.setUp()
            self.turns("alpha")
            self.router.fall_asleep("alpha")
            self.router.process["alpha"].faults["look"] = [error]
            alpha = self.enter("alpha")
            self.pass_time(LOAD_WAIT_SECONDS + 2)
            self.successResultOf(alpha)
            self.assert_quiet()

    def test_one_that_others_unload_when_it_should_wake_has_not_failed(self) -> None:
        self.turns("alpha")
        self.router.fall_asleep("alpha")
        self.gate("look", "alpha")
        alpha = self.enter("alpha")
        self.router.finish_ending("alpha", 0)
        # the router loads it again for the request itself
        self.successResultOf(alpha)

    def test_one_that_crashes_when_it_should_wake_has(self) -> None:
        self.turns("alpha")
        self.router.fall_asleep("alpha")
        self.gate("look", "alpha")
        alpha = self.enter("alpha")
        self.router.crash("alpha")
        self.failureResultOf(alpha, ModelFailed)


class BusyTests(AdmissionCase):
    """All models work."""

    def setUp(self) -> None:
        super().setUp()
        self.turns("alpha", "beta")
        self.alpha, self.beta = self.let_in("alpha"), self.let_in("beta")

    def test_a_request_waits_until_one_is_free_and_that_one_is_saved_first(self) -> None:
        gamma = self.enter("gamma")
        self.pass_time(30)
        self.assertNoResult(gamma)
        self.assertEqual(self.did(), [])
        self.beta.release()
        self.successResultOf(gamma)
        self.assertEqual(self.did(), ["save beta beta", "unload beta", "load gamma"])

    def test_every_request_of_a_model_has_to_end_before_it_gives_way(self) -> None:
        second = self.let_in("alpha")
        gamma = self.enter("gamma")
        second.release()
        self.pass_time(3)
        self.assertNoResult(gamma)
        self.alpha.release()
        self.successResultOf(gamma)
        self.assertEqual(self.did("unload"), ["unload alpha"])

    def test_a_released_admission_stays_released(self) -> None:
        second = self.let_in("alpha")
        self.alpha.release()
        self.alpha.release()
        gamma = self.enter("gamma")
        self.pass_time(3)
        self.assertNoResult(gamma)
        self.assertEqual(self.did("unload"), [])
        second.release()
        self.successResultOf(gamma)

    def test_somebody_elses_request_is_waited_for_too(self) -> None:
        self.stranger("alpha")
        self.alpha.release()
        gamma = self.enter("gamma")
        self.pass_time(10)
        self.assertNoResult(gamma)
        self.stranger_leaves("alpha")
        self.pass_time(1.1)
        self.successResultOf(gamma)

    def test_a_model_that_crashes_makes_room(self) -> None:
        gamma = self.enter("gamma")
        self.router.crash("alpha")
        self.successResultOf(gamma)
        self.assertEqual(self.did("unload"), [])

    def test_a_model_that_somebody_else_loads_meanwhile_is_waited_for_no_longer(self) -> None:
        # strangers wait in the router, which takes the first model that is idle
        self.stranger("beta")
        self.beta.release()
        gamma = self.enter("gamma")
        self.pass_time(3)
        self.assertNoResult(gamma)
        self.router.finish_ending("beta", 0)
        self.router.begin("gamma")
        self.successResultOf(gamma)
        self.assertEqual(self.did("save", "unload"), [])
        self.assertEqual(self.router.evicted, [])

    def test_and_neither_where_no_event_tells_of_it(self) -> None:
        self.stranger("beta")
        self.beta.release()
        gamma = self.enter("gamma")
        streams, self.router.streams = self.router.streams, []
        self.router.finish_ending("beta", 0)
        self.router.begin("gamma")
        self.router.streams = streams
        self.pass_time(1.1)
        self.successResultOf(gamma)
        self.assertEqual(self.did("save", "unload"), [])


class SharingTests(AdmissionCase):
    """Several requests for one model."""

    def test_two_requests_for_a_missing_model_cause_one_load(self) -> None:
        self.router.held.add("alpha")
        requests = [self.enter("alpha") for _ in range(3)]
        self.router.finish("alpha")
        for request in requests:
            self.successResultOf(request)
        self.assertEqual(self.did("load"), ["load alpha"])

    def test_and_one_unload(self) -> None:
        self.turns("alpha", "beta")
        self.router.held |= {"alpha", "gamma"}
        requests = [self.enter("gamma") for _ in range(3)]
        self.router.finish("alpha")
        requests += [self.enter("gamma") for _ in range(3)]
        self.router.finish("gamma")
        for request in requests:
            self.successResultOf(request)
        self.assertEqual(self.did("unload", "load"), ["unload alpha", "load gamma"])

    def test_they_are_let_in_in_their_order(self) -> None:
        self.router.held.add("alpha")
        order: list[int] = []
        for number in range(5):
            self.enter("alpha").addCallback(lambda _, number: order.append(number), number)
        self.router.finish("alpha")
        self.assertEqual(order, [0, 1, 2, 3, 4])

    def test_each_keeps_the_model_until_it_is_released(self) -> None:
        self.world.limit = self.router.models_max = 1
        first, second = self.let_in("alpha"), self.let_in("alpha")
        beta = self.enter("beta")
        second.release()
        self.assertNoResult(beta)
        first.release()
        self.successResultOf(beta)

    def test_an_admission_knows_how_often_the_model_had_gone(self) -> None:
        first = self.let_in("alpha")
        self.router.crash("alpha")
        self.assertEqual(self.tracker.ends("alpha"), first.ends + 1)
        self.assertEqual(self.let_in("alpha").ends, first.ends + 1)


class OrderTests(AdmissionCase):
    """Requests are let in in the order in which they came."""

    def setUp(self) -> None:
        super().setUp()
        self.turns("alpha", "beta")
        self.order: list[str] = []

    def assert_order(self, *models: str) -> None:
        self.settle()
        self.assertEqual(self.order, list(models))

    def come(self, *models: str) -> list[Deferred[Admission]]:
        requests = []
        for model in models:
            request = self.enter(model)

            def noted(admission: Admission, model: str = model) -> Admission:
                self.order.append(model)
                return admission

            requests.append(request.addCallback(noted))
        return requests

    def test_nobody_passes_a_request_that_waits_for_room(self) -> None:
        held = [self.let_in("alpha"), self.let_in("beta")]
        requests = self.come("gamma", "beta", "delta", "beta", "gamma")
        self.pass_time(3)
        self.assert_order()
        self.assertEqual(self.admissions.waiting, 5)
        held[0].release()
        self.pass_time(3)
        self.assert_order("beta", "gamma")
        self.assertEqual(self.admissions.waiting, 3)
        held[1].release()
        self.successResultOf(requests[1]).release()
        self.pass_time(3)
        self.assert_order("beta", "gamma", "gamma", "delta")

    def test_requests_of_many_models_are_served_in_their_order(self) -> None:
        self.world.limit = self.router.models_max = 1
        self.router.finish_ending("alpha", 0)
        held = self.let_in("beta")
        names = ["gamma", "alpha", "delta", "beta", "gamma", "delta"]
        requests = self.come(*names)
        held.release()
        for request in requests:
            self.successResultOf(request).release()
        self.assert_order(*names)

    def test_who_comes_while_a_model_is_loading_for_the_first_may_pass_it(self) -> None:
        # its place is certain: nobody takes it from it
        self.router.held.add("gamma")
        requests = self.come("gamma", "beta")
        self.assert_order("beta")
        self.router.finish("gamma")
        self.assert_order("beta", "gamma")
        for request in requests:
            self.successResultOf(request)

    def test_while_the_victim_is_saved_for_the_first_those_behind_go_on(self) -> None:
        self.gate("save", "alpha")
        self.come("gamma", "beta")
        self.assert_order("beta")
        self.open("save", "alpha")
        self.assert_order("beta", "gamma")

    def test_a_request_for_a_model_that_is_being_saved_to_be_unloaded_is_not_let_in(self) -> None:
        self.gate("save", "alpha")
        self.come("gamma", "alpha")
        self.pass_time(2)
        self.assert_order()
        self.open("save", "alpha")
        self.assert_order("gamma", "alpha")
        self.assertEqual(
            self.did(),
            [
                "save alpha alpha",
                "unload alpha",
                "load gamma",
                "save beta beta",
                "unload beta",
                "load alpha",
            ],
        )

    def test_a_request_for_a_model_that_is_being_unloaded_is_not_let_in(self) -> None:
        self.router.held.add("alpha")
        self.come("gamma", "alpha")
        self.pass_time(2)
        self.assert_order()
        self.router.finish("alpha")
        self.router.held.clear()
        self.assert_order("gamma", "alpha")

    def test_those_whose_model_is_loaded_pass_one_whose_model_is_being_unloaded(self) -> None:
        self.router.held.add("alpha")
        self.come("gamma", "alpha", "beta")
        self.assert_order("beta")
        self.come("beta")
        self.assert_order("beta", "beta")
        self.router.finish("alpha")
        self.settle()
        self.assertEqual(self.order[:3], ["beta", "beta", "gamma"])

    def test_they_no_longer_pass_it_once_it_waits_for_room(self) -> None:
        beta = self.let_in("beta")
        self.router.held.add("alpha")
        self.come("gamma", "alpha")
        self.router.finish("alpha")
        self.router.held.clear()
        self.settle()
        (late,) = self.come("beta")
        self.assert_order("gamma")
        self.assertNoResult(late)
        beta.release()
        self.assert_order("gamma", "alpha")

    def test_a_model_that_stays_after_all_lets_its_requests_in(self) -> None:
        self.gate("save", "alpha")
        requests = self.come("gamma", "alpha")
        self.stranger("alpha")
        self.open("save", "alpha")
        self.pass_time(2)
        for request in requests:
            self.successResultOf(request)
        self.assertEqual(self.did("unload"), ["unload beta"])


class QueueTests(AdmissionCase):
    """So many requests wait, and no more."""

    max_queue = 2

    def test_who_comes_to_a_full_queue_is_told_so(self) -> None:
        self.turns("alpha", "beta")
        held = [self.let_in("alpha"), self.let_in("beta")]
        waiting = [self.enter("gamma"), self.enter("gamma")]
        self.failureResultOf(self.enter("gamma"), QueueFull)
        waiting += [self.enter("delta")]
        self.assertEqual(self.admissions.waiting, 3)
        for admission in held:
            admission.release()
        for request in waiting:
            self.successResultOf(request).release()

    def test_who_leaves_makes_room_in_the_queue(self) -> None:
        self.turns("alpha", "beta")
        self.let_in("alpha"), self.let_in("beta")
        waiting = [self.enter("gamma"), self.enter("gamma")]
        self.cancel(waiting[0])
        self.assertNoResult(self.enter("gamma"))
        self.failureResultOf(self.enter("gamma"), QueueFull)

    def test_those_who_wait_for_a_load_count_too(self) -> None:
        self.router.held.add("alpha")
        waiting = [self.enter("alpha"), self.enter("alpha")]
        self.failureResultOf(self.enter("alpha"), QueueFull)
        self.cancel(waiting[0])
        late = self.enter("alpha")
        self.router.finish("alpha")
        self.successResultOf(waiting[1])
        self.successResultOf(late)

    def test_those_who_were_let_in_do_not(self) -> None:
        for _ in range(5):
            self.let_in("alpha")


class UnloadTests(AdmissionCase):
    """A client unloads a model."""

    def setUp(self) -> None:
        super().setUp()
        self.turns("alpha", "beta")

    def unload(self, model: str) -> Deferred[None]:
        async def unload() -> None:
            await self.router.unload(model)

        unloaded = Deferred.fromCoroutine(self.admissions.unload(model, unload))
        self.settle()
        return unloaded

    def test_its_slots_are_saved_first(self) -> None:
        self.successResultOf(self.unload("alpha"))
        self.assertEqual(self.did(), ["save alpha alpha", "unload alpha"])
        self.assertEqual(self.slot("alpha").state, "gone")
        self.assert_quiet()

    def test_nobody_is_let_in_until_it_has_gone(self) -> None:
        self.router.held.add("alpha")
        self.unload("alpha")
        self.assertFalse(self.admissions.present("alpha"))
        alpha = self.enter("alpha")
        self.pass_time(2)
        self.assertNoResult(alpha)
        self.router.finish("alpha")
        self.router.held.clear()
        self.successResultOf(alpha)
        self.assertEqual(self.did(), ["save alpha alpha", "unload alpha", "load alpha"])

    def test_its_place_is_free_only_when_it_has_gone(self) -> None:
        self.let_in("beta")
        self.gate("save", "alpha")
        self.unload("alpha")
        gamma = self.enter("gamma")
        self.pass_time(2)
        self.assertEqual((self.did("load"), self.router.evicted), ([], []))
        self.open("save", "alpha")
        self.successResultOf(gamma)
        self.assertEqual(self.did("unload", "load"), ["unload alpha", "load gamma"])
        self.assertEqual(self.router.evicted, [])

    def test_one_that_is_being_unloaded_already_is_not_saved_twice(self) -> None:
        self.router.held.add("alpha")
        self.enter("gamma")
        again = self.unload("alpha")
        self.successResultOf(again)
        self.assertEqual(self.did("save", "unload"), ["save alpha alpha"] + ["unload alpha"] * 2)

    def test_one_that_the_router_does_not_unload_is_as_before(self) -> None:
        self.router.faults["unload"] = [Refused(500, "500 it can not")]
        self.failureResultOf(self.unload("alpha"), Refused)
        self.assertTrue(self.admissions.present("alpha"))
        self.let_in("alpha")
        self.assertEqual(self.slot("alpha").state, "saved")

    def test_what_is_there_awake_or_not(self) -> None:
        self.assertTrue(self.admissions.present("alpha"))
        self.router.fall_asleep("alpha")
        self.assertTrue(self.admissions.present("alpha"))
        self.assertFalse(self.admissions.present("gamma"))


class LeavingTests(AdmissionCase):
    """Clients that go away while they wait."""

    def setUp(self) -> None:
        super().setUp()
        self.turns("alpha", "beta")

    def assert_served(self) -> None:
        """The admissions still do what they should."""
        for model in self.router.names:
            self.let_in(model).release()
        self.assert_quiet()

    def test_one_that_leaves_the_queue_is_not_waited_for(self) -> None:
        held = [self.let_in("alpha"), self.let_in("beta")]
        gamma, delta = self.enter("gamma"), self.enter("delta")
        gamma.cancel()
        self.failureResultOf(gamma, CancelledError)
        self.assertEqual(self.admissions.waiting, 1)
        held[0].release()
        self.successResultOf(delta).release()
        self.assertEqual(self.did("load"), ["load delta"])
        held[1].release()
        self.assert_served()

    def test_the_last_in_the_queue_leaves_nothing_behind(self) -> None:
        held = [self.let_in("alpha"), self.let_in("beta")]
        self.cancel(self.enter("gamma"))
        self.assert_quiet()
        for admission in held:
            admission.release()
        self.assertEqual(self.did(), [])
        self.assert_served()

    def test_one_of_two_that_leaves_does_not_stop_the_other(self) -> None:
        held = [self.let_in("alpha"), self.let_in("beta")]
        first, second = self.enter("gamma"), self.enter("gamma")
        self.cancel(first)
        held[0].release()
        self.successResultOf(second)

    def test_a_load_that_nobody_waits_for_any_longer_ends_and_the_model_may_go(self) -> None:
        self.router.held.add("gamma")
        self.cancel(self.enter("gamma"))
        self.router.finish("gamma")
        self.router.held.clear()
        self.assertEqual(self.loaded(), ["beta", "gamma"])
        self.assert_served()

    def test_whoever_comes_during_a_load_that_nobody_waits_for_shares_it(self) -> None:
        self.router.held.add("gamma")
        self.cancel(self.enter("gamma"))
        late = self.enter("gamma")
        self.router.finish("gamma")
        self.successResultOf(late)
        self.assertEqual(self.did("load"), ["load gamma"])

    def test_leaving_during_the_save_of_the_victim_leaves_all_as_it_was(self) -> None:
        self.gate("save", "alpha")
        gamma = self.enter("gamma")
        self.cancel(gamma)
        self.open("save", "alpha")
        self.assertEqual(self.did("unload", "load"), [])
        self.assert_served()

    def test_leaving_during_the_look_at_the_victim_leaves_all_as_it_was(self) -> None:
        self.gate("look", "alpha")
        gamma = self.enter("gamma")
        self.cancel(gamma)
        self.open("look", "alpha")
        self.assertEqual(self.did("unload", "load"), [])
        self.assert_served()

    def test_leaving_during_the_look_at_the_models_leaves_all_as_it_was(self) -> None:
        self.gate("models")
        gamma = self.enter("gamma")
        self.cancel(gamma)
        self.open("models")
        self.assertEqual(self.did(), [])
        self.assert_served()

    def test_leaving_while_the_victim_is_unloaded_causes_no_load(self) -> None:
        self.router.held.add("alpha")
        self.cancel(self.enter("gamma"))
        self.router.finish("alpha")
        self.router.held.clear()
        self.assertEqual(self.did("load"), [])
        self.assert_served()

    def test_a_model_that_is_on_its_way_out_stays_closed_though_nobody_waits_any_longer(
        self,
    ) -> None:
        self.router.held.add("alpha")
        self.cancel(self.enter("gamma"))
        alpha = self.enter("alpha")
        self.assertNoResult(alpha)
        self.router.finish("alpha")
        self.router.held.clear()
        self.successResultOf(alpha)
        self.assertEqual(self.did("load"), ["load alpha"])

    def test_and_its_slot_too(self) -> None:
        self.router.held.add("alpha")
        self.cancel(self.enter("gamma"))
        lease = self.slot("alpha").lease(want("alpha"))
        self.assertNoResult(lease)
        self.router.finish("alpha")
        self.assertTrue(self.successResultOf(lease).lost)

    def test_leaving_while_the_router_is_told_to_load_leaves_nothing_behind(self) -> None:
        self.gate("load")
        self.cancel(self.enter("gamma"))
        self.open("load")
        self.assert_served()

    def test_whoever_is_behind_one_that_leaves_is_served_wherever_that_was(self) -> None:
        for action, model in (("save", "alpha"), ("look", "alpha"), ("models", ""), ("load", "")):
            self.setUp()
            self.gate(action, model)
            gamma, delta = self.enter("gamma"), self.enter("delta")
            self.cancel(gamma)
            self.open(action, model)
            self.pass_time(2)
            self.successResultOf(delta).release()
            self.assert_served()

    def test_one_that_is_let_in_can_not_leave_any_more(self) -> None:
        alpha = self.enter("alpha")
        alpha.cancel()
        self.successResultOf(alpha)


class FailureTests(AdmissionCase):
    """A model, or the router itself, does not do as it should."""

    def assert_failed(self, model: str) -> None:
        request = self.enter(model)
        self.router.finish(model)
        self.failureResultOf(request, ModelFailed)

    def test_a_model_that_fails_to_load_is_an_error_to_all_its_clients(self) -> None:
        self.router.broken.add("alpha")
        requests = [self.enter("alpha") for _ in range(3)]
        self.router.finish("alpha")
        for request in requests:
            error = self.failureResultOf(request, ModelFailed).value
            self.assertEqual(str(error), "model 'alpha' failed to load (exit code 1)")
        self.assert_quiet()

    def test_it_is_tried_again_for_the_next_client(self) -> None:
        self.router.broken.add("alpha")
        self.assert_failed("alpha")
        self.assert_failed("alpha")
        self.router.broken.clear()
        self.let_in("alpha")
        self.assertEqual(self.did("load"), ["load alpha"] * 3)

    def test_it_does_not_block_the_queue(self) -> None:
        self.world.limit = self.router.models_max = 1
        self.turns("alpha")
        self.router.broken.add("beta")
        held = self.let_in("alpha")
        beta, gamma = self.enter("beta"), self.enter("gamma")
        held.release()
        self.settle()
        self.router.finish("beta")
        self.failureResultOf(beta, ModelFailed)
        self.successResultOf(gamma).release()
        self.assert_quiet()

    def test_as_long_as_that_is_fresh_it_costs_no_other_model_its_place(self) -> None:
        self.router.broken.add("gamma")
        self.turns("alpha", "beta")
        self.assert_failed("gamma")
        # once can be bad luck, or somebody's unload while it loaded
        self.let_in("alpha").release()
        self.assert_failed("gamma")
        self.let_in("alpha").release()
        self.let_in("beta").release()
        self.router.journal.clear()
        for _ in range(3):
            self.failureResultOf(self.enter("gamma"), ModelFailed)
        self.assertEqual(self.did(), [])
        self.assert_quiet()
        self.pass_time(FAILED_SECONDS)
        self.assert_failed("gamma")
        self.assertEqual(self.did("unload", "load"), ["unload alpha", "load gamma"])

    def test_a_load_that_succeeds_makes_good_for_one_that_did_not(self) -> None:
        self.router.broken.add("gamma")
        self.turns("alpha", "beta")
        self.assert_failed("gamma")
        self.router.broken.discard("gamma")
        self.let_in("gamma").release()
        self.turns("alpha", "beta")
        self.router.broken.add("gamma")
        self.assert_failed("gamma")
        self.router.broken.discard("gamma")
        self.turns("alpha", "beta")
        self.let_in("gamma").release()

    def test_then_it_does_not_block_the_queue_either(self) -> None:
        self.router.broken.add("gamma")
        self.turns("alpha", "beta")
        self.assert_failed("gamma")
        self.assert_failed("gamma")
        held = [self.let_in("alpha"), self.let_in("beta")]
        requests = [self.enter(name) for name in ("delta", "gamma", "delta")]
        held[1].release()
        self.successResultOf(requests[0])
        self.failureResultOf(requests[1], ModelFailed)
        self.successResultOf(requests[2])

    def test_a_model_whose_work_stays_unknown_is_not_waited_for_for_good(self) -> None:
        self.world.limit = self.router.models_max = 1
        self.turns("alpha")
        self.router.process["alpha"].faults["look"] = [Unreachable("no answer")] * 999
        beta = self.enter("beta")
        self.pass_time(LOAD_WAIT_SECONDS - 1)
        self.assertNoResult(beta)
        self.pass_time(3)
        self.successResultOf(beta)
        self.assertEqual(self.did("unload"), [])
        self.assert_quiet()

    def test_looks_that_are_answered_between_begin_that_time_anew(self) -> None:
        self.world.limit = self.router.models_max = 1
        self.turns("alpha")
        process = self.router.process["alpha"]
        process.faults["look"] = [Unreachable("no answer")] * 999
        beta = self.enter("beta")
        self.pass_time(LOAD_WAIT_SECONDS / 2)
        self.stranger("alpha")
        process.faults.clear()
        self.pass_time(2)
        process.faults["look"] = [Unreachable("no answer")] * 999
        self.pass_time(LOAD_WAIT_SECONDS - 5)
        self.assertNoResult(beta)
        process.faults.clear()
        self.stranger_leaves("alpha")
        self.pass_time(2)
        self.successResultOf(beta)

    def test_a_model_that_failed_takes_no_place(self) -> None:
        self.router.broken.add("gamma")
        self.turns("alpha", "beta")
        self.assert_failed("gamma")
        self.let_in("alpha")
        self.let_in("beta")
        self.assertEqual(self.did("unload"), ["unload alpha"])

    def test_a_model_that_is_unloaded_while_it_loads_is_an_error(self) -> None:
        self.router.held.add("alpha")
        alpha = self.enter("alpha")
        self.router.crash("alpha")
        self.failureResultOf(alpha, ModelFailed)

    def test_a_model_that_never_comes_lets_its_requests_go_on(self) -> None:
        self.router.held.add("alpha")
        alpha = self.enter("alpha")
        self.pass_time(LOAD_WAIT_SECONDS - 1)
        self.assertNoResult(alpha)
        self.pass_time(2)
        self.successResultOf(alpha)
        self.assert_quiet()

    def test_a_victim_that_does_not_go_lets_the_request_go_on(self) -> None:
        self.turns("alpha", "beta")
        self.router.held.add("alpha")
        gamma = self.enter("gamma")
        self.pass_time(LOAD_WAIT_SECONDS + 2)
        self.successResultOf(gamma)
        self.assert_quiet()
        self.let_in("alpha")

    def test_a_router_that_refuses_a_step_lets_every_request_go_on(self) -> None:
        for action in ("models", "unload", "load"):
            for error in refusals():
                self.setUp()
                self.turns("alpha", "beta")
                self.router.faults[action] = [error] * 20
                requests = [self.enter(model) for model in ("gamma", "delta", "gamma", "alpha")]
                self.pass_time(5)
                for request in requests:
                    self.successResultOf(request).release()
                self.assert_quiet()
                self.assertEqual(self.tracker.live, True)
                self.router.faults.clear()
                self.successResultOf(self.world.look())
                for model in self.router.names:
                    self.let_in(model).release()

    def test_a_router_that_is_away_when_a_victim_is_looked_for_is_not_waited_for(self) -> None:
        self.turns("alpha", "beta")
        held = [self.let_in("alpha"), self.let_in("beta")]
        gamma, delta = self.enter("gamma"), self.enter("delta")
        self.router.faults["models"] = [Unreachable("nobody listens", sent=False)] * 9
        held[0].release()
        self.successResultOf(gamma)
        self.successResultOf(delta)
        self.assertEqual(self.did(), [])

    def test_a_model_that_refuses_to_be_looked_at_lets_every_request_go_on(self) -> None:
        for action in ("look", "props", "save"):
            for error in (*refusals(), NotLoaded("400 model is not loaded")):
                self.setUp()
                self.turns("alpha", "beta")
                self.router.process["alpha"].faults[action] = [error]
                requests = [self.enter(model) for model in ("gamma", "delta", "gamma")]
                self.pass_time(5)
                for request in requests:
                    self.successResultOf(request).release()
                self.assert_quiet()

    def test_a_victim_that_crashed_unheard_of_makes_room(self) -> None:
        self.turns("alpha", "beta")
        streams, self.router.streams = self.router.streams, []
        self.router.crash("alpha")
        self.router.streams = streams
        self.let_in("gamma")
        self.assertEqual(self.did(), ["load gamma"])

    def test_a_victim_that_crashes_during_its_save_makes_room(self) -> None:
        self.turns("alpha", "beta")
        self.gate("save", "alpha")
        gamma = self.enter("gamma")
        self.router.crash("alpha")
        self.open("save", "alpha")
        self.successResultOf(gamma)
        self.assertEqual(self.slot("alpha").state, "gone")

    def test_a_router_that_holds_fewer_models_than_we_were_told_is_waited_for(self) -> None:
        self.turns("alpha", "beta")
        self.world.limit = 3
        held = [self.let_in("alpha"), self.let_in("beta")]
        for model in ("alpha", "beta"):
            self.router.process[model].busy = True
        gamma = self.enter("gamma")
        self.pass_time(3)
        self.assertNoResult(gamma)
        self.router.process["alpha"].busy = False
        held[0].release()
        self.pass_time(1.1)
        self.successResultOf(gamma)

    def test_a_full_router_takes_no_place_for_the_model_that_waits(self) -> None:
        self.turns("alpha")
        self.let_in("alpha")
        self.router.models_max = 1
        self.router.process["alpha"].busy = True
        gamma = self.enter("gamma")
        self.pass_time(3)
        self.assertNoResult(gamma)
        self.assertEqual(self.tracker.running(), ["alpha"])
        self.router.process["alpha"].busy = False
        self.pass_time(1.1)
        self.successResultOf(gamma)

    def test_a_fault_of_ours_lets_every_request_go_on(self) -> None:
        self.turns("alpha", "beta")
        self.router.faults["models"] = [RuntimeError("ours")]
        gamma = self.enter("gamma")
        self.successResultOf(gamma)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.let_in("delta")


class StopTests(AdmissionCase):
    """The end, whatever is under way."""

    def setUp(self) -> None:
        super().setUp()
        self.turns("alpha", "beta")

    def test_nobody_is_let_in_any_more(self) -> None:
        self.admissions.stop()
        self.failureResultOf(self.enter("alpha"), Stopping)
        self.failureResultOf(self.enter("gamma"), Stopping)

    def test_whoever_was_let_in_stays(self) -> None:
        admission = self.let_in("alpha")
        self.admissions.stop()
        admission.release()
        self.assert_quiet()

    def test_everybody_in_the_queue_is_told(self) -> None:
        self.let_in("alpha"), self.let_in("beta")
        requests = [self.enter(model) for model in ("gamma", "delta", "alpha")]
        self.admissions.stop()
        for request in requests:
            self.failureResultOf(request, Stopping)
        self.assert_quiet()

    def test_everybody_who_waits_for_a_load_is_told(self) -> None:
        self.router.held |= {"gamma", "delta"}
        requests = [self.enter(name) for name in ("gamma", "gamma", "delta", "gamma", "delta")]
        self.admissions.stop()
        for request in requests:
            self.failureResultOf(request, Stopping)
        self.assert_quiet()

    def test_at_each_step_everybody_is_told_and_nothing_goes_on(self) -> None:
        for action, model in (("models", ""), ("look", "alpha"), ("save", "alpha")):
            self.setUp()
            self.let_in("beta")
            self.gate(action, model)
            requests = [self.enter(name) for name in ("gamma", "delta", "gamma")]
            self.admissions.stop()
            for request in requests:
                self.failureResultOf(request, Stopping)
            self.open(action, model)
            self.assertEqual(self.did("unload", "load"), [], action)
            self.assert_quiet()

    def test_while_the_victim_is_unloaded_the_wait_ends(self) -> None:
        self.router.held.add("alpha")
        gamma = self.enter("gamma")
        self.admissions.stop()
        self.failureResultOf(gamma, Stopping)
        self.assertEqual(self.did("load"), [])
        self.assert_quiet()
        # and its slots are free to be looked at
        self.assertTrue(self.slot("alpha").save().called)

    def test_while_the_router_is_told_to_unload_or_load_everybody_is_told(self) -> None:
        for action in ("unload", "load"):
            self.setUp()
            self.gate(action)
            requests = [self.enter(name) for name in ("gamma", "delta")]
            self.admissions.stop()
            for request in requests:
                self.failureResultOf(request, Stopping)
            self.open(action)
            self.assert_quiet()

    def test_what_a_victims_slot_held_is_still_known(self) -> None:
        self.gate("save", "alpha")
        self.cancel(self.enter("gamma"))
        self.admissions.stop()
        self.open("save", "alpha")
        self.assertEqual(self.slot("alpha").state, "saved")


class ObserveTests(AdmissionCase):
    """The router unloads by itself, and whatever it could take is saved before."""

    mode = "observe"

    def test_every_idle_model_is_saved_and_none_unloaded(self) -> None:
        self.turns("alpha", "beta")
        self.turn("gamma")
        self.assertEqual(self.did(), ["save alpha alpha", "save beta beta", "load gamma"])
        self.assertEqual(len(self.router.evicted), 1)

    def test_no_session_is_lost(self) -> None:
        for number in range(12):
            self.turn(self.router.names[number % 4], tokens=100 + number)
        for name in self.router.names[:2]:
            calls = self.router.process[name].calls
            self.assertEqual(calls.count(f"restore {name}"), 2, calls)

    def test_one_at_work_is_neither_saved_nor_in_danger(self) -> None:
        self.turns("alpha", "beta")
        self.router.process["alpha"].busy = True
        admission = self.let_in("alpha")
        self.let_in("gamma")
        self.assertEqual(self.did(), ["save beta beta", "load gamma"])
        self.assertEqual(self.router.evicted, ["beta"])
        admission.release()

    def test_somebody_elses_is_not_either(self) -> None:
        self.turns("alpha", "beta")
        self.stranger("alpha")
        self.let_in("gamma")
        self.assertEqual(self.did(), ["save beta beta", "load gamma"])

    def test_while_all_work_a_request_waits(self) -> None:
        self.turns("alpha", "beta")
        held = [self.let_in("alpha"), self.let_in("beta")]
        gamma = self.enter("gamma")
        self.pass_time(3)
        self.assertNoResult(gamma)
        held[1].release()
        self.successResultOf(gamma)
        self.assertEqual(self.did("save"), ["save beta beta"])

    def test_while_there_is_room_nothing_is_saved(self) -> None:
        self.turns("alpha")
        self.turn("beta")
        self.assertEqual(self.did(), ["load beta"])

    def test_leaving_during_the_saves_causes_no_load(self) -> None:
        self.turns("alpha", "beta")
        self.gate("save", "beta")
        self.cancel(self.enter("gamma"))
        self.open("save", "beta")
        self.assertEqual(self.did("load"), [])
        self.assert_quiet()


class OffTests(AdmissionCase):
    """The router does as it likes."""

    mode = "off"

    def test_models_are_loaded_and_nothing_is_saved_or_unloaded(self) -> None:
        for model in ("alpha", "beta", "gamma", "alpha"):
            self.turn(model)
        self.assertEqual(self.did("save", "unload"), [])
        self.assertEqual(self.router.evicted, ["alpha", "beta"])

    def test_where_all_work_the_request_goes_on_and_waits_in_the_router(self) -> None:
        self.turns("alpha", "beta")
        for model in ("alpha", "beta"):
            self.router.process[model].busy = True
        self.let_in("gamma")
        self.assert_quiet()

    def test_a_model_that_fails_is_an_error(self) -> None:
        self.router.broken.add("alpha")
        alpha = self.enter("alpha")
        self.router.finish("alpha")
        self.failureResultOf(alpha, ModelFailed)

    def test_a_model_that_sleeps_is_waked(self) -> None:
        self.turns("alpha")
        self.router.fall_asleep("alpha")
        self.let_in("alpha")
        self.assertEqual(self.did(), ["wake alpha"])


class LooksTests(AdmissionCase):
    """A router without events is asked what has become of what was set going."""

    events = False

    def test_a_load_is_noticed_within_a_second(self) -> None:
        self.router.held.add("alpha")
        alpha = self.enter("alpha")
        self.pass_time(10)
        self.assertNoResult(alpha)
        self.router.finish("alpha")
        self.pass_time(1.1)
        self.successResultOf(alpha)

    def test_a_quick_load_is_noticed_at_once(self) -> None:
        alpha = self.enter("alpha")
        self.pass_time(0.1)
        self.successResultOf(alpha)

    def test_an_unload_and_the_load_after_it_are_noticed(self) -> None:
        for model in ("alpha", "beta", "gamma"):
            request = self.enter(model)
            self.pass_time(0.2)
            admission = self.successResultOf(request)
            self.answer(self.lease(model), model)
            admission.release()
        self.assertEqual(self.did("save", "unload"), ["save alpha alpha", "unload alpha"])
        self.assertEqual(self.router.evicted, [])

    def test_a_model_that_fails_is_an_error(self) -> None:
        self.router.broken.add("alpha")
        for _ in range(2):
            alpha = self.enter("alpha")
            self.router.finish("alpha")
            self.pass_time(0.5)
            self.failureResultOf(alpha, ModelFailed)

    def test_a_look_answered_before_the_router_loads_does_not_make_a_failure_of_it(self) -> None:
        # the router ends another model first, which takes a while
        self.router.broken.add("alpha")
        alpha = self.enter("alpha")
        self.router.finish("alpha")
        self.pass_time(0.5)
        self.failureResultOf(alpha, ModelFailed)
        self.router.broken.clear()
        self.gate("load")
        alpha = self.enter("alpha")
        self.successResultOf(self.world.look())
        self.gate("told")
        late = self.world.look()
        self.settle()
        self.open("load")
        self.open("told")
        self.successResultOf(late)
        self.pass_time(0.5)
        self.successResultOf(alpha)

    def test_what_others_loaded_is_seen_before_one_is_chosen(self) -> None:
        self.world.limit = self.router.models_max = 1
        alpha = self.enter("alpha")
        self.pass_time(0.1)
        self.successResultOf(alpha).release()
        self.router.crash("alpha")
        self.router.begin("beta")
        gamma = self.enter("gamma")
        self.pass_time(0.1)
        self.successResultOf(gamma)
        self.assertEqual(self.did("unload"), ["unload beta"])
        self.assertEqual(self.router.evicted, [])

    def test_nothing_is_left_once_everybody_was_served(self) -> None:
        requests = [self.enter(model) for model in ("alpha", "beta", "gamma", "delta")]
        for request in requests:
            self.pass_time(2)
            self.successResultOf(request).release()
        self.assert_quiet()

    def test_a_status_that_stays_unknown_is_not_waited_for_for_good(self) -> None:
        self.router.held.add("alpha")
        alpha = self.enter("alpha")
        self.pass_time(LOAD_WAIT_SECONDS + 2)
        self.successResultOf(alpha)
        self.assertIs(self.tracker.model("alpha").status, Status.LOADING)
