"""
The signals of a process that runs nothing but a gateway.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from slotgate.config import Config, ConfigError

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Signals(Service):
    """
    SIGHUP reads the configuration again; the second SIGTERM or SIGINT ends the process at once.

    :param load: reads the configuration.
    :param reload: puts it into force.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, load: Callable[[], Config], reload: Callable[[Config], None]
    ) -> None:
        self._reactor = reactor
        self._load = load
        self._reload = reload

    def privilegedStartService(self) -> None:
        """Listen for SIGHUP, which would kill the process, before anybody knows that we run."""
        super().privilegedStartService()
        # a handler runs between any two instructions: the work is the reactor's
        signal.signal(signal.SIGHUP, lambda *_: self._reactor.callFromThread(self._read_again))

    def stopService(self) -> None:
        """The first signal to stop has come: the next one is not ours to handle."""
        super().stopService()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in _STOPPING:
            signal.signal(number, signal.SIG_DFL)

    def _read_again(self) -> None:
        try:
            config = self._load()
        except ConfigError as error:
            for line in error.lines:
                self._log.warn("{line}", line=line)
            self._log.warn("the configuration stays as it was")
            return
        self._reload(config)
