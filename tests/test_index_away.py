"""Somebody else holds the index: requests go on, and do not wait for it one after the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar, cast

from gateway import CHAT, FakeGatewayCase, now
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from slotgate.building import AWAY_SECONDS, _Bounded
from slotgate.servers import DISK_SECONDS
from slotgate.snapshots.database import BUSY_SECONDS, IndexAway

T = TypeVar("T")


class Silent:
    """A database that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    def runInteraction(self, interaction: Callable[..., T], *args: object) -> Deferred[T]:
        self.asked += 1
        return Deferred()


class BoundedTests(SynchronousTestCase):
    """Nobody waits for the index for ever, and nobody again right after one has."""

    def test_after_one_has_waited_in_vain_the_others_do_not_wait(self) -> None:
        clock, silent = Clock(), Silent()
        bounded = _Bounded(silent, clock)
        first = bounded.runInteraction(lambda _: None)
        clock.advance(DISK_SECONDS)
        self.failureResultOf(first)
        self.failureResultOf(bounded.runInteraction(lambda _: None), IndexAway)
        self.assertEqual(silent.asked, 1)
        clock.advance(AWAY_SECONDS)
        self.assertNoResult(bounded.runInteraction(lambda _: None))
        self.assertEqual(silent.asked, 2)


class LockedTests(FakeGatewayCase):
    """A backup, or an operator with sqlite3, has locked the file."""

    async def test_requests_are_answered_cold_and_later_as_before(self) -> None:
        lines: list[str] = []
        observer = cast(ILogObserver, lambda event: lines.append(formatEvent(event)))
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        a, b = self.chat("A", 30), self.chat("B", 30)
        for chat in (a, b):
            await chat.turn()
        other = sqlite3.connect(self.folder / "state" / "index.sqlite", isolation_level=None)
        self.addCleanup(other.close)
        other.execute("BEGIN EXCLUSIVE")
        began = now()
        for chat in (a, b, a, b):
            self.assertEqual((await chat.turn()).status, 200)
        # one of them waited for SQLite, and perhaps the writing of what was left
        self.assertLess(now() - began, 4 * BUSY_SECONDS)
        other.execute("ROLLBACK")
        answer = await self.post(CHAT, {"messages": a.messages, "max_tokens": 2})
        self.assertEqual(answer.status, 200)
        await self.stop_gateway()
        # one line, and no traceback for what an operator does
        self.assertTrue([line for line in lines if "database is locked; left alone" in line])
