"""
The page kept up to date in the browsers that show it: a stream of server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime, ITCPTransport
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.web.http import Request
from twisted.web.iweb import IRequest
from zope.interface import implementer

from slotgate.dashboard.markup import to_html
from slotgate.dashboard.sections import Section
from slotgate.dashboard.view import View
from slotgate.web.rejected import Rejected

#: How often somebody looks for what has changed, in seconds.
LOOK_SECONDS = 0.5
#: A stream without news gets a comment after so many seconds, so that nothing on the way ends it.
ALIVE_SECONDS = 15.0
#: A browser that takes nothing for so long is cut, in seconds.
STALL_SECONDS = 60.0
#: So many streams at once.
MOST_WATCHERS = 32

#: What there is to see.
See = Callable[[View], Awaitable[Iterable[Section]]]


@implementer(IPushProducer)
@define(eq=False)
class Watcher:
    """
    One stream.

    Nothing is written while its transport has not got rid of what was written before: a browser
    that comes back gets what is there then, and nothing of what was there meanwhile.

    :ivar ended: fires when nothing more is to be written.
    """

    view: View
    #: Whether it may go on.
    allowed: Callable[[], bool]
    _request: Request
    _clock: IReactorTime
    #: Which process it is.
    _instance: str
    ended: Deferred[None] = field(factory=Deferred, init=False)
    #: Which version of each section it has.
    _has: dict[str, int] = field(factory=dict, init=False)
    _wrote: float = field(default=0.0, init=False)
    #: Since when it takes nothing.
    _stalled: float | None = field(default=None, init=False)

    def begin(self) -> None:
        """Write the head: a page of another process has forms that nobody takes any more."""
        self._request.registerProducer(self, True)
        self._write(f"retry: 2000\n\nevent: instance\ndata: {self._instance}\n\n".encode())

    def send(self, now: float, drawn: Iterable[tuple[str, int, bytes]]) -> None:
        """
        Write what it does not have.

        :param now: the time on the page.
        :param drawn: each section's name, version and event.
        """
        if self._stalled is not None:
            if self._clock.seconds() - self._stalled >= STALL_SECONDS:
                self.end()
            return
        news = []
        for name, version, event in drawn:
            if self._has.get(name) != version:
                self._has[name] = version
                news.append(event)
        if news:
            self._write(b"event: time\ndata: %.3f\n\n" % now + b"".join(news))
        elif self._clock.seconds() - self._wrote >= ALIVE_SECONDS:
            self._write(b": still here\n\n")

    def end(self) -> None:
        """End it; whoever has not taken what was written does not get the rest."""
        if self.ended.called:
            return
        if self._stalled is not None:
            cast(ITCPTransport, self._request.transport).abortConnection()
        if not self.ended.called:
            self.ended.callback(None)

    def _write(self, data: bytes) -> None:
        self._wrote = self._clock.seconds()
        self._request.write(data)

    def gone(self) -> None:
        """Let go of the transport."""
        # without a channel the connection is gone
        if self._request.channel is not None:
            self._request.unregisterProducer()

    def pauseProducing(self) -> None:
        """As :class:`IPushProducer` says."""
        self._stalled = self._clock.seconds()

    def resumeProducing(self) -> None:
        """As :class:`IPushProducer` says."""
        self._stalled = None

    def stopProducing(self) -> None:
        """As :class:`IPushProducer` says; the request ends by itself."""


@define(eq=False)
class _Drawn:
    """A section as it was drawn last."""

    about: object
    version: int
    event: bytes


@define(eq=False)
class Watching:
    """
    Everybody who looks.

    Invariant: as long as nobody does, nothing is looked at and no call is scheduled.
    """

    _see: See
    _clock: IReactorTime
    _instance: str
    _watchers: list[Watcher] = field(factory=list, init=False)
    _looking: LoopingCall | None = field(default=None, init=False)
    _drawn: dict[tuple[View | None, str], _Drawn] = field(factory=dict, init=False)
    _versions: int = field(default=0, init=False)
    _stopped: bool = field(default=False, init=False)
    _failed: bool = field(default=False, init=False)
    _log: Logger = field(factory=Logger, init=False)

    def __len__(self) -> int:
        return len(self._watchers)

    async def stream(self, request: IRequest, view: View, allowed: Callable[[], bool]) -> None:
        """
        Keep a browser up to date until it goes away.

        :param allowed: whether it may still see it; asked at each look.
        :raises Rejected: with 503; too many look, or slotgate stops.
        """
        if self._stopped:
            raise Rejected(503, "slotgate stops", {"Retry-After": "5"})
        if len(self._watchers) >= MOST_WATCHERS:
            raise Rejected(503, f"{MOST_WATCHERS} browsers look already", {"Retry-After": "10"})
        watcher = Watcher(view, allowed, cast(Request, request), self._clock, self._instance)
        watcher.begin()
        self._watchers.append(watcher)
        try:
            self._start()
            await watcher.ended
        finally:
            # a cancelled Deferred has been called too
            watcher.gone()
            self._watchers.remove(watcher)
            if not self._watchers:
                self._pause()

    def stop(self) -> None:
        """End all streams, and begin no more."""
        self._stopped = True
        for watcher in list(self._watchers):
            watcher.end()

    def _start(self) -> None:
        if self._looking is None:
            # a new one each time: the last look of the one before may still be under way
            self._looking = LoopingCall(self._look)
            self._looking.clock = self._clock
            self._looking.start(LOOK_SECONDS)
        # otherwise the next look has it all

    def _pause(self) -> None:
        looking, self._looking = self._looking, None
        self._drawn.clear()
        if looking is not None:
            looking.stop()

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._tell_all())

    async def _tell_all(self) -> None:
        """What is raised would end the looking for good."""
        for view in {watcher.view for watcher in self._watchers}:
            if not any(watcher.view == view for watcher in self._watchers):
                # whoever looked has gone meanwhile
                continue
            try:
                drawn = await self._draw(view, await self._see(view))
            except Exception:
                if not self._failed:
                    self._failed = True
                    self._log.failure("the dashboard can not be drawn")
                drawn = []
            else:
                self._failed = False
            now = self._clock.seconds()
            for watcher in list(self._watchers):
                if watcher.view == view and not watcher.ended.called:
                    self._tell(watcher, now, drawn)
        seen = {watcher.view for watcher in self._watchers}
        for key in [key for key in self._drawn if key[0] is not None and key[0] not in seen]:
            del self._drawn[key]

    def _tell(self, watcher: Watcher, now: float, drawn: list[tuple[str, int, bytes]]) -> None:
        try:
            if watcher.allowed():
                watcher.send(now, drawn)
            else:
                watcher.end()
        except Exception:
            self._log.failure("a stream of the dashboard failed")
            watcher.end()

    async def _draw(self, view: View, found: Iterable[Section]) -> list[tuple[str, int, bytes]]:
        drawn = []
        for section in found:
            key = view if section.of_view else None, section.name
            last = self._drawn.get(key)
            if last is None or last.about != section.about:
                self._versions += 1
                event = _event(section.name, to_html(section.draw()))
                last = self._drawn[key] = _Drawn(section.about, self._versions, event)
                # a large one takes tens of milliseconds: answers that run do not wait for all
                await deferLater(self._clock, 0)
            drawn.append((section.name, last.version, last.event))
        return drawn


def _event(name: str, html: str) -> bytes:
    data: dict[str, Any] = {"name": name, "html": html}
    # JSON has no line ends of its own, which would end the event
    return f"event: section\ndata: {json.dumps(data)}\n\n".encode()
