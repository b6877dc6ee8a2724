"""
What the metrics count, how they are named, and how many series there can be.
"""

from __future__ import annotations

import re
from typing import Any

from attrs import evolve
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from scraping import Page
from twisted.trial.unittest import SynchronousTestCase

from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import End, Verdict
from slotgate.slots.reasons import Reason
from slotgate.slots.steps import Action, Result, Step
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.records import Snapshot
from slotgate.telemetry.events import Served, Telemetry
from slotgate.telemetry.explanations import Explanation, Finding
from slotgate.telemetry.gauges import Kept, Now, ServerNow, gauges
from slotgate.telemetry.metrics import BUCKETS, MOST_MODELS, Metrics

SERVED = Served(
    began=1000.0,
    seconds=4.0,
    waited=0.5,
    switched=0.25,
    first_byte=2.0,
    surface="openai",
    server="local",
    route="*",
    model="gemma",
    address=Address("local", "gemma", 0),
    session=SessionKey(None, "gemma", "some-session"),
    source="header:x-session-id",
    verdict=Verdict.COLD,
    reason=Reason.NEW_SESSION,
    end=End.COMPLETE,
    usage=Usage(10, 90, 5),
    explanation=Explanation(Finding.NONE, "", ""),
)

SNAPSHOT = Snapshot(
    client="",
    route="whatever a client says",
    session="some-session",
    server="local",
    slot=0,
    file="a.1.bin",
    generation=1,
    tokens=100,
    size=1000,
    checksum="",
    model="m",
    model_file="",
    build="b",
    beginning="",
    source="",
    created=0.0,
    used=0.0,
)

STEP = Step(Action.SAVE, Result.OK, Address("local", "", 0), None, 1000.0, 0.5, 100, 4096)

NOW = Now(
    version="1.2",
    servers=[
        ServerNow(
            name='the "local" one\\',
            up=True,
            waiting=2,
            slots={"dirty": 1, "saved": 0},
            models={"loaded": 1},
            free_bytes=10,
            reserved_bytes=5,
        )
    ],
    kept=[Kept('the "local" one\\', "*", 3, 4096)],
)


def metrics(*models: str) -> Metrics:
    """Metrics of server "local", which is a router where it has models."""
    return Metrics(["local"], lambda server, model: server == "local" and model in models)


def text(counted: Metrics, now: Now | None = None) -> str:
    """The page."""
    more = [] if now is None else gauges(now)
    return exposition.generate_latest(counted.families(more)).decode()


def page(counted: Metrics) -> Page:
    """The page without what is now, parsed."""
    return Page.of(text(counted))


def full() -> Metrics:
    """Metrics that were told of everything once."""
    counted = metrics("gemma")
    found = Explanation(Finding.PROMPT_DIFFERS, "prompt differs at message 2", "")
    counted.served(evolve(SERVED, explanation=found))
    counted.stepped(STEP)
    counted.dropped(SNAPSHOT, Fate.EVICTED)
    counted.failed("local", "silent")
    counted.rejected(503)
    return counted


class CountTests(SynchronousTestCase):
    """What is told is counted."""

    def test_a_request(self) -> None:
        counted = metrics("gemma")
        counted.served(SERVED)
        seen = page(counted)
        place = {"server": "local", "route": "*"}
        self.assertEqual(
            seen.value(
                "slotgate_requests_total", **place, surface="openai", verdict="cold", end="complete"
            ),
            1,
        )
        self.assertEqual(
            seen.value(
                "slotgate_cache_misses_total", **place, verdict="cold", reason="new session"
            ),
            1,
        )
        for name, value in (
            ("prompt_tokens_read", 90),
            ("prompt_tokens_reused", 10),
            ("generated_tokens", 5),
        ):
            self.assertEqual(seen.value(f"slotgate_{name}_total", **place, model="gemma"), value)
        for name, seconds in (
            ("wait", 0.5),
            ("switch", 0.25),
            ("first_byte", 2.0),
            ("duration", 4.0),
        ):
            self.assertEqual(seen.value(f"slotgate_request_{name}_seconds_sum", **place), seconds)

    def test_a_hit_is_no_miss(self) -> None:
        counted = metrics()
        counted.served(evolve(SERVED, verdict=Verdict.RESIDENT, reason=Reason.NONE))
        self.assertEqual(page(counted).values("slotgate_cache_misses_total", ("reason",)), {})

    def test_a_request_that_got_nothing(self) -> None:
        counted = metrics()
        counted.served(evolve(SERVED, address=None, first_byte=None, usage=None, end=End.CUT))
        seen = page(counted)
        self.assertEqual(seen.value("slotgate_request_duration_seconds_count"), 1)
        for name in ("request_switch_seconds", "request_first_byte_seconds"):
            self.assertEqual(seen.values(f"slotgate_{name}_count", ("server",)), {})
        self.assertEqual(seen.values("slotgate_prompt_tokens_read_total", ("server",)), {})

    def test_an_answer_without_a_count_of_what_it_generated(self) -> None:
        counted = metrics()
        counted.served(evolve(SERVED, usage=Usage(1, 2, None)))
        self.assertEqual(page(counted).value("slotgate_generated_tokens_total"), 0)

    def test_a_finding(self) -> None:
        self.assertEqual(
            page(full()).values("slotgate_findings_total", ("finding",)), {("prompt differs",): 1}
        )

    def test_what_is_done_to_slots(self) -> None:
        counted = metrics()
        counted.stepped(STEP)
        counted.stepped(evolve(STEP, result=Result.REFUSED, bytes=0))
        counted.stepped(evolve(STEP, action=Action.RESTORE, bytes=100, seconds=2.0))
        seen = page(counted)
        self.assertEqual(
            seen.values("slotgate_slot_actions_total", ("action", "result")),
            {("save", "ok"): 1, ("save", "refused"): 1, ("restore", "ok"): 1},
        )
        self.assertEqual(
            seen.values("slotgate_slot_action_bytes_total", ("action",)),
            {("save",): 4096, ("restore",): 100},
        )
        self.assertEqual(seen.value("slotgate_slot_action_seconds_sum", action="save"), 1.0)

    def test_what_was_deleted(self) -> None:
        counted = metrics()
        counted.dropped(SNAPSHOT, Fate.EVICTED)
        counted.dropped(SNAPSHOT, Fate.DAMAGED)
        self.assertEqual(
            page(counted).values("slotgate_snapshots_dropped_total", ("server", "reason")),
            {("local", "evicted"): 1, ("local", "damaged"): 1},
        )

    def test_what_can_be_known_begins_at_zero(self) -> None:
        """Else the first error of a server would be no increase to Prometheus."""
        seen = page(metrics())
        for name, labels in (
            ("upstream_errors", {"server": "local", "kind": "unreachable"}),
            ("slot_actions", {"server": "local", "action": "save", "result": "refused"}),
            ("snapshots_dropped", {"server": "local", "reason": "evicted"}),
        ):
            self.assertEqual(seen.value(f"slotgate_{name}_total", **labels), 0)

    def test_two_gateways_count_apart(self) -> None:
        first, second = metrics(), metrics()
        first.served(SERVED)
        self.assertEqual(page(second).values("slotgate_requests_total", ("server",)), {})
        self.assertEqual(page(first).value("slotgate_requests_total"), 1)

    def test_a_listener_that_fails_costs_the_metrics_nothing(self) -> None:
        counted = metrics()
        broken: Any = object()
        telemetry = Telemetry((broken, counted))
        telemetry.served(SERVED)
        telemetry.failed("local", "silent")
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 2)
        self.assertEqual(page(counted).value("slotgate_requests_total"), 1)
        self.assertEqual(page(counted).value("slotgate_upstream_errors_total", kind="silent"), 1)


class CardinalityTests(SynchronousTestCase):
    """How many series there are is not for clients to say."""

    def test_models_that_clients_make_up(self) -> None:
        counted = metrics("gemma")
        counted.served(SERVED)
        counted.served(evolve(SERVED, model=""))
        before = page(counted).series()
        for number in range(500):
            counted.served(
                evolve(
                    SERVED,
                    model=f'model-{number}"\n}} 1',
                    session=SessionKey(None, f"model-{number}", f"session-{number}"),
                    source=f"header:{number}",
                    prompt=f"differs in {number}",
                )
            )
            counted.dropped(evolve(SNAPSHOT, route=f"model-{number}"), Fate.EVICTED)
            counted.stepped(evolve(STEP, session=SessionKey(None, "*", f"session-{number}")))
        self.assertEqual(page(counted).series(), before)

    def test_a_router_with_very_many_models(self) -> None:
        counted = Metrics(["local"], lambda server, model: True)
        for number in range(MOST_MODELS + 50):
            counted.served(evolve(SERVED, model=f"model-{number}"))
        read = page(counted).values("slotgate_prompt_tokens_read_total", ("model",))
        self.assertEqual(len(read), MOST_MODELS + 1)
        self.assertEqual(read["other",], 50 * 90)

    def test_no_label_tells_a_session(self) -> None:
        for name, labels in Page.of(text(full(), NOW)).series():
            values = dict(labels).values()
            self.assertFalse([value for value in values if "some-session" in value], name)
            self.assertFalse({"session", "client", "source"} & dict(labels).keys(), name)


#: Units that are not the base ones, as promtool knows them.
_WRONG_UNITS = re.compile(
    r"milliseconds|microseconds|nanoseconds|minutes|hours|days|"
    r"(kilo|mega|giga|kibi|mebi|gibi)bytes|bits|percent"
)


class LintTests(SynchronousTestCase):
    """The rules of ``promtool check metrics``."""

    def setUp(self) -> None:
        self.text = text(full(), NOW)
        self.page = Page.of(self.text)

    def test_each_family_follows_the_conventions(self) -> None:
        self.assertGreater(len(self.page.families), 20)
        for name, family in self.page.families.items():
            written = f"{name}_total" if family.type == "counter" else name
            self.assertRegex(written, r"^slotgate_[a-z]+(_[a-z]+)*$")
            self.assertIn(family.type, {"counter", "gauge", "histogram"}, name)
            self.assertIsNone(_WRONG_UNITS.search(written), name)
            self.assertNotRegex(written, r"_(counter|gauge|histogram|summary)(_|$)")
            if family.type != "counter":
                self.assertNotRegex(written, r"_(total|count|sum|bucket)$")
            if family.type == "histogram":
                self.assertTrue(name.endswith("_seconds"), name)
            self.assertTrue(family.documentation.endswith("."), name)
            self.assertIn(f"# HELP {written} {family.documentation}\n", self.text)
            self.assertIn(f"# TYPE {written} {family.type}\n", self.text)

    def test_labels_are_plain_words_and_not_in_the_name(self) -> None:
        for family in self.page.families.values():
            for sample in family.samples:
                for label in sample.labels.keys() - {"le"}:
                    self.assertRegex(label, r"^[a-z]+$")
                    self.assertNotIn(label, {"id", "type", "le", "quantile", "job", "instance"})

    def test_each_family_stands_once(self) -> None:
        types = re.findall(r"^# TYPE (\S+)", self.text, re.MULTILINE)
        self.assertEqual(sorted(types), sorted(set(types)))
        self.assertEqual(len(types), len(self.page.families))

    def test_no_series_of_when_series_began(self) -> None:
        self.assertNotIn("_created", self.text)
        written = openmetrics.generate_latest(full().families(gauges(NOW))).decode()
        self.assertNotIn("_created", written)

    def test_openmetrics_says_the_same(self) -> None:
        written = openmetrics.generate_latest(full().families(gauges(NOW))).decode()
        families = {one.name: one for one in openmetrics_families(written)}
        self.assertEqual(
            {
                (sample.name, frozenset(sample.labels.items()))
                for family in families.values()
                for sample in family.samples
            },
            self.page.series(),
        )

    def test_names_of_the_configuration_are_escaped(self) -> None:
        self.assertEqual(self.page.value("slotgate_server_up", server='the "local" one\\'), 1)

    def test_buckets_go_from_milliseconds_to_minutes(self) -> None:
        self.assertEqual((BUCKETS[0], BUCKETS[-1]), (0.005, 600))
        self.assertEqual(list(BUCKETS), sorted(set(BUCKETS)))


class GaugeTests(SynchronousTestCase):
    """What is now."""

    def test_an_index_that_does_not_answer(self) -> None:
        seen = Page.of(text(metrics(), evolve(NOW, kept=None)))
        self.assertEqual(seen.value("slotgate_index_up"), 0)
        self.assertEqual(seen.families["slotgate_snapshots"].samples, [])

    def test_a_disk_that_is_not_seen(self) -> None:
        unseen = evolve(NOW, servers=[evolve(NOW.servers[0], free_bytes=None, models={})])
        seen = Page.of(text(metrics(), unseen))
        self.assertEqual(seen.families["slotgate_disk_free_bytes"].samples, [])
        self.assertEqual(seen.families["slotgate_models"].samples, [])

    def test_the_version(self) -> None:
        self.assertEqual(
            Page.of(text(metrics(), NOW)).value("slotgate_build_info", version="1.2"), 1
        )
