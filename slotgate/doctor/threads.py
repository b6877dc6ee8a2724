"""
Blocking work that may hang for good, such as a network folder whose server is away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

_T = TypeVar("_T")


def in_thread(reactor: Any, seconds: float, function: Callable[[], _T]) -> Deferred[_T]:
    """
    Call a function in a thread of its own, which does not keep the process from ending; the
    reactor's thread pool would.

    :param seconds: after so many it fails with :class:`twisted.internet.defer.TimeoutError`.
    """
    done: Deferred[_T] = Deferred(lambda _: None)

    def told(result: _T | Failure) -> None:
        if not done.called:
            done.callback(result)

    def work() -> None:
        try:
            result: _T | Failure = function()
        except BaseException:
            result = Failure()
        reactor.callFromThread(told, result)

    threading.Thread(target=work, daemon=True).start()
    return done.addTimeout(seconds, reactor)
