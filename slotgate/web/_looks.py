"""
Looks that many wait for: one at a time, and nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

_T = TypeVar("_T")
_U = TypeVar("_U")

#: How long a look may take until those who ask do not wait for it any longer, in seconds.
WAIT_SECONDS = 2.0

#: An answer so old is told again, in seconds: probes come in flocks.
FRESH_SECONDS = 1.0


@define(eq=False)
class Look(Generic[_T]):
    """
    Looks at something for everybody who asks meanwhile.

    Invariant: at most one look runs.
    """

    _begin: Callable[[], Deferred[_T]]
    _clock: IReactorTime
    #: It can not be stopped: it is in a thread. A second one would take another thread.
    _lasts: bool = False
    _running: Deferred[None] | None = field(default=None, init=False)
    _began: float = field(default=0.0, init=False)
    _waiting: list[Deferred[_T]] = field(factory=list, init=False)
    #: The latest answer, and when it came.
    _latest: tuple[float, _T] | None = field(default=None, init=False)

    async def __call__(self) -> _T:
        """
        What is seen.

        :raises TimeoutError: (Twisted's) it takes too long.
        """
        now = self._clock.seconds()
        if self._latest is not None and now - self._latest[0] < FRESH_SECONDS:
            return self._latest[1]
        if self._running is None:
            self._began = now
        left = self._began + WAIT_SECONDS - now
        if left <= 0:
            # it hangs; so would everybody who asks
            raise DeferredTimeout(WAIT_SECONDS, "look")
        waiting: Deferred[_T] = Deferred(self._leave)
        self._waiting.append(waiting)
        if self._running is None:
            running = self._begin().addCallbacks(self._seen, self._failed)
            if not running.called:
                self._running = running
        return await waiting.addTimeout(left, self._clock)

    def _leave(self, waiting: Deferred[_T]) -> None:
        if waiting not in self._waiting:
            # the look is over, and the others are being told
            return
        self._waiting.remove(waiting)
        if not self._waiting and self._running is not None and not self._lasts:
            self._running.cancel()

    def _seen(self, answer: _T) -> None:
        self._latest = (self._clock.seconds(), answer)
        for waiting in self._over():
            waiting.callback(answer)

    def _failed(self, failure: Failure) -> None:
        for waiting in self._over():
            waiting.errback(failure)

    def _over(self) -> Iterator[Deferred[_T]]:
        """Who still waits; whoever is told first can make others go away."""
        self._running = None
        over, self._waiting = self._waiting, []
        return (waiting for waiting in over if not waiting.called)


async def together(looks: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """
    Wait for all of them at once.

    The first failure is raised, and what the others say then is nobody's.
    """
    begun = [Deferred.fromCoroutine(look) for look in looks]
    try:
        return await gatherResults(begun, consumeErrors=True)
    except FirstError as error:
        for one in begun:
            one.cancel()
        error.subFailure.raiseException()


async def both(first: Coroutine[Any, Any, _T], second: Coroutine[Any, Any, _U]) -> tuple[_T, _U]:
    """Wait for two at once, as :func:`together`."""
    looks: list[Coroutine[Any, Any, Any]] = [first, second]
    one, other = await together(looks)
    return one, other
