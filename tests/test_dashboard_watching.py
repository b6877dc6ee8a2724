"""The dashboard's stream: what it costs, and whom it does not wait for. No sockets, no time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import tags

from slotgate.dashboard.sections import Section
from slotgate.dashboard.view import View
from slotgate.dashboard.watching import (
    ALIVE_SECONDS,
    LOOK_SECONDS,
    MOST_WATCHERS,
    STALL_SECONDS,
    Watching,
)
from slotgate.web.rejected import Rejected


class Transport:
    """Whether the connection was cut."""

    cut = False

    def abortConnection(self) -> None:
        self.cut = True


class Browser:
    """A request of a browser that reads, or does not."""

    def __init__(self) -> None:
        self.channel = object()
        self.written = b""
        self.producer: Any = None
        self.transport = Transport()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self.producer is None
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def write(self, data: bytes) -> None:
        self.written += data

    def sections(self) -> list[str]:
        """The sections that came, in their order."""
        lines = self.written.decode().split("\n")
        return [json.loads(line[6:])["html"] for line in lines if line.startswith('data: {"')]


class WatchingTests(SynchronousTestCase):
    """Who looks, and what it costs."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.looks: list[View] = []
        #: What there is to see.
        self.values = {"a": 1, "b": 1}
        self.draws: list[str] = []
        #: Those that are another one for each view.
        self.of_view = {"a", "b"}
        self.watching = Watching(self.see, self.clock, "this-one")

    async def see(self, view: View) -> list[Section]:
        self.looks.append(view)
        return [self.section(name, value) for name, value in self.values.items()]

    def section(self, name: str, value: int) -> Section:
        def draw() -> Any:
            self.draws.append(name)
            if value < 0:
                raise ZeroDivisionError(name)
            return tags.p(f"{name}{value}")

        return Section(name, value, draw, name in self.of_view)

    def look(
        self,
        view: View | None = None,
        allowed: Callable[[], bool] = lambda: True,
    ) -> tuple[Browser, Deferred[None]]:
        """A browser that looks."""
        browser = Browser()
        request: Any = browser
        stream = self.watching.stream(request, view or View(), allowed)
        done = Deferred.fromCoroutine(stream)
        self.addCleanup(done.addErrback, lambda failure: failure.trap(CancelledError))
        self.addCleanup(done.cancel)
        self.clock.pump([0, 0, 0])
        return browser, done

    def advance(self, seconds: float) -> None:
        """Let time go by, as a reactor would."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            # what is drawn is drawn one by one
            self.clock.pump([LOOK_SECONDS, 0, 0, 0, 0, 0])

    def test_nothing_is_looked_at_and_nothing_is_scheduled_while_nobody_looks(self) -> None:
        self.advance(60)
        self.assertEqual((self.looks, self.clock.getDelayedCalls()), ([], []))
        _, first = self.look()
        _, second = self.look()
        self.advance(5)
        self.assertTrue(self.looks)
        first.cancel()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        second.cancel()
        self.looks.clear()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.advance(60)
        self.assertEqual(self.looks, [])
        self.assertEqual(len(self.watching), 0)
        self.assertEqual(self.watching._drawn, {})

    def test_it_gets_everything_at_once_and_then_what_changes(self) -> None:
        browser, _ = self.look()
        self.assertEqual(browser.sections(), ["<p>a1</p>", "<p>b1</p>"])
        self.advance(2)
        self.assertEqual(len(browser.sections()), 2)
        self.values["b"] = 2
        self.advance(LOOK_SECONDS)
        self.assertEqual(browser.sections()[2:], ["<p>b2</p>"])
        self.assertEqual(self.draws, ["a", "b", "b"])

    def test_it_is_looked_once_for_all_who_see_the_same(self) -> None:
        browsers = [self.look()[0] for _ in range(5)]
        other, _ = self.look(View(minutes=10))
        self.looks.clear()
        self.draws.clear()
        self.values["a"] = 2
        self.advance(LOOK_SECONDS)
        self.assertCountEqual(self.looks, [View(), View(minutes=10)])
        # the one for whom it is all new is drawn all of it
        self.assertCountEqual(self.draws, ["a", "a", "b"])
        for browser in browsers:
            self.assertIn("<p>a2</p>", browser.sections())
        self.assertIn("<p>a2</p>", other.sections())

    def test_what_is_the_same_for_all_is_drawn_once_for_all(self) -> None:
        self.of_view = {"b"}
        browsers = [self.look(View(minutes, offset))[0] for minutes in (2, 5) for offset in (0, 25)]
        self.advance(LOOK_SECONDS)
        self.assertEqual((self.draws.count("a"), self.draws.count("b")), (1, 4))
        self.values["a"] = 2
        self.advance(LOOK_SECONDS)
        self.assertEqual(self.draws.count("a"), 2)
        for browser in browsers:
            self.assertEqual(browser.sections(), ["<p>a1</p>", "<p>b1</p>", "<p>a2</p>"])

    def test_it_says_first_which_process_it_is(self) -> None:
        browser, _ = self.look()
        told = b"retry: 2000\n\nevent: instance\ndata: this-one\n\n"
        self.assertTrue(browser.written.startswith(told))

    def test_one_that_comes_later_gets_everything_with_the_next_look(self) -> None:
        self.look()
        later, _ = self.look()
        self.advance(LOOK_SECONDS)
        self.assertEqual(later.sections(), ["<p>a1</p>", "<p>b1</p>"])
        self.assertEqual(self.draws, ["a", "b"])

    def test_an_error_while_it_is_drawn_does_not_end_it(self) -> None:
        browser, _ = self.look()
        self.values["a"] = -1
        self.advance(5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.values["a"] = 2
        self.advance(LOOK_SECONDS)
        self.assertIn("<p>a2</p>", browser.sections())

    def test_a_line_now_and_then_tells_that_it_is_alive(self) -> None:
        browser, _ = self.look()
        before = len(browser.written)
        self.advance(ALIVE_SECONDS - LOOK_SECONDS)
        self.assertEqual(len(browser.written), before)
        self.advance(2 * LOOK_SECONDS)
        self.assertEqual(browser.written[before:], b": still here\n\n")

    def test_one_that_does_not_read_gets_what_is_there_once_it_does(self) -> None:
        browser, _ = self.look()
        other, _ = self.look()
        browser.producer.pauseProducing()
        before = len(browser.written)
        for value in range(2, 9):
            self.values["a"] = value
            self.advance(LOOK_SECONDS)
        self.assertEqual(len(browser.written), before)
        self.assertEqual(other.sections()[-1], "<p>a8</p>")
        browser.producer.resumeProducing()
        self.advance(LOOK_SECONDS)
        self.assertEqual(browser.sections()[2:], ["<p>a8</p>"])

    def test_one_that_never_reads_is_cut(self) -> None:
        browser, done = self.look()
        browser.producer.pauseProducing()
        self.advance(STALL_SECONDS - 1)
        self.assertFalse(browser.transport.cut)
        self.advance(2)
        self.assertTrue(browser.transport.cut)
        self.assertEqual(self.successResultOf(done), None)
        self.assertEqual(len(self.watching), 0)

    def test_who_may_not_look_any_more_sees_nothing_more(self) -> None:
        allowed = True
        browser, done = self.look(allowed=lambda: allowed)
        allowed = False
        self.values["a"] = 2
        self.advance(LOOK_SECONDS)
        self.assertEqual(self.successResultOf(done), None)
        self.assertNotIn("<p>a2</p>", browser.sections())

    def test_there_is_a_limit(self) -> None:
        streams = [self.look()[1] for _ in range(MOST_WATCHERS)]
        _, refused = self.look()
        self.assertEqual(self.failureResultOf(refused, Rejected).value.status, 503)
        streams[0].cancel()
        _, done = self.look()
        self.assertNoResult(done)

    def test_a_stop_ends_all_streams_at_once_and_lets_nobody_in(self) -> None:
        browser, done = self.look()
        stuck, stuck_done = self.look()
        stuck.producer.pauseProducing()
        self.watching.stop()
        self.assertEqual(self.successResultOf(done), None)
        self.assertEqual(self.successResultOf(stuck_done), None)
        self.assertEqual((browser.transport.cut, stuck.transport.cut), (False, True))
        self.assertIsNone(browser.producer)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        _, refused = self.look()
        self.assertEqual(self.failureResultOf(refused, Rejected).value.status, 503)

    def test_a_slow_look_is_the_only_one_and_outlives_those_it_was_for(self) -> None:
        slow: list[Deferred[list[Section]]] = []

        def see(view: View) -> Deferred[list[Section]]:
            slow.append(Deferred())
            return slow[-1]

        self.watching = Watching(see, self.clock, "this-one")
        _, first = self.look()
        self.advance(5)
        self.assertEqual(len(slow), 1)
        first.cancel()
        browser, _ = self.look()
        self.assertEqual(len(slow), 2)
        slow[0].callback([self.section("a", 1)])
        self.clock.pump([0, 0])
        slow[1].callback([self.section("a", 2)])
        self.advance(2 * LOOK_SECONDS)
        self.assertEqual(browser.sections()[-1], "<p>a2</p>")
        self.assertEqual(len(slow), 3)
        self.assertEqual(len(self.clock.getDelayedCalls()), 0)
