"""``GET /slotgate/metrics``: who gets it, what it says of now, and what it costs."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from gateway import CHAT, CLOCK, Answer, FakeGatewayCase, GatewayCase
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from router_gateway import FakeRouterCase
from scraping import Page
from test_metrics import NOW, full, text
from twisted.internet.defer import Deferred, gatherResults

from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.faults import Hang
from slotgate.web import _looks

PATH = "/slotgate/metrics"

#: What Prometheus 3 sends.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


async def scrape(case: GatewayCase) -> Page:
    """The page, parsed."""
    answer = await case.get(PATH)
    case.assertEqual(answer.status, 200, answer.body)
    return Page.of(answer.body.decode())


class PageTests(FakeGatewayCase):
    """Where no keys are asked for."""

    def setUp(self) -> Any:
        self.patch(_looks, "FRESH_SECONDS", 0.0)
        return super().setUp()

    async def test_the_text_format(self) -> None:
        answer = await self.get(PATH)
        self.assertEqual(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertEqual(Page.of(answer.body.decode()).value("slotgate_server_up"), 1)

    async def test_it_has_every_family_that_the_documents_are_checked_against(self) -> None:
        expected = Page.of(text(full(), NOW)).families
        self.assertEqual((await scrape(self)).families.keys(), expected.keys())

    async def test_openmetrics_for_prometheus(self) -> None:
        answer = await self.request("GET", PATH, {"Accept": PROMETHEUS})
        self.assertEqual(
            answer.headers["content-type"],
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )
        names = {one.name for one in text_string_to_metric_families(answer.body.decode())}
        self.assertIn("slotgate_requests", names)

    async def test_what_is_asked_for_in_a_strange_way_is_text(self) -> None:
        for accept in ("text/plain;version=x.y.z", ",;=", "", "text/html"):
            answer = await self.request("GET", PATH, {"Accept": accept})
            self.assertEqual(answer.status, 200, accept)
            self.assertIn("0.0.4", answer.headers["content-type"])

    async def test_head_and_other_methods(self) -> None:
        head = await self.request("HEAD", PATH)
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual((await self.request("POST", PATH)).status, 405)

    async def test_a_scrape_asks_the_server_whether_it_lives_and_nothing_else(self) -> None:
        self.llama.fall_asleep()
        page = await scrape(self)
        self.assertEqual([call.path for call in self.llama.calls], ["/health"])
        self.assertTrue(self.llama.sleeping)
        self.assertEqual(page.value("slotgate_server_up"), 1)

    async def test_a_server_that_is_away(self) -> None:
        await self.llama.stop()
        self.assertEqual((await scrape(self)).value("slotgate_server_up"), 0)

    async def test_slots_and_snapshots_and_the_disk(self) -> None:
        page = await scrape(self)
        self.assertEqual(page.value("slotgate_snapshots", route="*"), 0)
        self.assertEqual(page.value("slotgate_slots"), 1)
        for session in ("a", "b"):
            await self.chat(session).turn()
        page = await scrape(self)
        files = list(self.slots.iterdir())
        self.assertEqual(page.value("slotgate_snapshots", route="*", server="local"), len(files))
        self.assertEqual(
            page.value("slotgate_snapshots_bytes", route="*"),
            sum(file.stat().st_size for file in files),
        )
        self.assertEqual(page.values("slotgate_slots", ("state",)), {("dirty",): 1})
        self.assertGreater(page.value("slotgate_disk_free_bytes"), 0)
        self.assertEqual(page.value("slotgate_disk_reserved_bytes"), 1024**3)
        self.assertEqual(page.value("slotgate_index_up"), 1)

    async def test_snapshots_of_models_that_clients_make_up(self) -> None:
        before = (await scrape(self)).series()
        for number in range(6):
            chat = self.chat(f"session-{number}", 30)
            answer = await chat.turn(model=f'made-up-{number}"{{}}\\')
            self.assertEqual(answer.status, 200)
        page = await scrape(self)
        self.assertEqual(page.value("slotgate_snapshots"), 5)
        new = page.series() - before
        self.assertFalse([one for one in new if "made-up" in str(one) or "session-" in str(one)])
        self.assertEqual(
            {dict(labels)["route"] for _, labels in new if "route" in dict(labels)}, {"*"}
        )

    async def test_who_waits_now(self) -> None:
        hang = Hang()
        self.llama.plan(hang, path=CHAT)
        first = self.chat("a").turn()
        second = self.chat("b").turn()
        running = gatherResults([Deferred.fromCoroutine(first), Deferred.fromCoroutine(second)])
        await self.llama.seen(path=CHAT)
        while (page := await scrape(self)).value("slotgate_waiting_requests") != 1:
            await self.pause(0.01)
        self.assertEqual(page.values("slotgate_slots", ("state",)), {("leased",): 1})
        hang.release()
        await running
        self.assertEqual((await scrape(self)).value("slotgate_waiting_requests"), 0)

    async def test_a_scrape_is_cheap(self) -> None:
        await self.chat("a").turn()
        await scrape(self)
        began = time.process_time()
        for _ in range(10):
            await self.get(PATH)
        # measured: about 5 ms of this process, the client's part and the fake's included
        self.assertLess((time.process_time() - began) / 10, 0.1)


class KeyTests(FakeGatewayCase):
    """Where clients have keys."""

    config = (
        FakeGatewayCase.config
        + """
        [[clients]]
        name = "prometheus"
        key = "admin-key"
        admin = true
        [[clients]]
        name = "webui"
        key = "webui-key"
    """
    )

    async def with_key(self, key: str) -> Answer:
        """A scrape with a key."""
        return await self.request("GET", PATH, {"Authorization": f"Bearer {key}"})

    async def test_only_for_admins(self) -> None:
        self.assertEqual((await self.get(PATH)).status, 401)
        self.assertEqual((await self.with_key("guess")).status, 401)
        self.assertEqual((await self.with_key("webui-key")).status, 403)
        self.assertEqual((await self.with_key("admin-key")).status, 200)
        self.assertEqual(self.llama.calls[:-1], [])


class RouterTests(FakeRouterCase):
    """A router's models."""

    async def test_models_by_status_and_tokens_by_model(self) -> None:
        await self.chat_with("alpha").turn()
        while (page := await scrape(self)).value("slotgate_request_duration_seconds_count") != 1:
            await self.pause(0.01)
        statuses = await self.statuses()
        counted = page.values("slotgate_models", ("status",))
        self.assertEqual(sum(counted.values()), len(statuses))
        self.assertEqual(counted["loaded",], 1)
        read = page.values("slotgate_prompt_tokens_read_total", ("model",))
        self.assertEqual(read.keys(), {("alpha",)})

    async def test_a_scrape_loads_no_model(self) -> None:
        await scrape(self)
        self.assertEqual(await self.loaded(), set())


class TwoGatewaysTests(FakeGatewayCase):
    """Two of them in one process, as an application may embed them."""

    options: ClassVar[dict[str, Any]] = {}

    async def test_each_counts_for_itself(self) -> None:
        await self.chat("a").turn()
        first = self.base
        other = FakeLlamaServer(CLOCK)
        self.addCleanup(other.stop)
        await other.listen(CLOCK)
        one = self.gateway
        self.addCleanup(one.stopService)
        self.start_gateway(other.url, state=self.folder / "another")
        await self.recalled()
        name = "slotgate_requests_total"
        second = await scrape(self)
        self.assertEqual(second.families["slotgate_requests"].samples, [])
        self.base = first
        self.assertEqual((await scrape(self)).value(name), 1)
