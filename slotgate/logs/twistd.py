"""
The log under twistd: where ``--logfile`` and ``--syslog`` say, in our format and with our levels.

twistd chooses its observer in this order (``twisted.application.app.AppLogger``): the one of
``--logger``, the one that the application brings along as its ``ILogObserver`` component, its own.
Ours is the second, so it must write where twistd's own would.
"""

from __future__ import annotations

import signal
import sys
import syslog
from collections.abc import Callable, Mapping
from typing import IO, Any

from twisted.application.service import MultiService
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
)
from twisted.python.components import Componentized
from twisted.python.logfile import LogFile
from zope.interface import implementer

from slotgate.config import Logging
from slotgate.logs.formats import as_json, as_text
from slotgate.logs.levels import levels
from slotgate.plain import tolerant

#: The file of a daemon that was given none, as twistd's own.
_DEFAULT_FILE = "twistd.log"

_PRIORITIES = {
    LogLevel.debug: syslog.LOG_DEBUG,
    LogLevel.info: syslog.LOG_INFO,
    LogLevel.warn: syslog.LOG_WARNING,
    LogLevel.error: syslog.LOG_ERR,
    LogLevel.critical: syslog.LOG_CRIT,
}


class LoggingService(MultiService):
    """
    A service that brings its log along: it gives the application that it becomes part of an
    observer, for the runner to log to from its first line on.

    Within another service it is a ``MultiService`` and nothing else.

    :param observer: makes the observer; ``None``: the runner's own is right.
    """

    def __init__(self, observer: Callable[[], ILogObserver] | None) -> None:
        super().__init__()
        self._observer = observer

    def setServiceParent(self, parent: Any) -> None:
        """
        Become part of an application, or of another service.
        """
        super().setServiceParent(parent)
        # an application that has one chose it itself
        if (
            self._observer is not None
            and isinstance(parent, Componentized)
            and parent.getComponent(ILogObserver) is None
        ):
            parent.setComponent(ILogObserver, self._observer())


def observer_for(
    logging: Logging, runner: Mapping[str, Any] | None
) -> Callable[[], ILogObserver] | None:
    """
    What makes the observer that ``[logging]`` asks for.

    :param runner: the options of twistd; ``None``: there is no twistd.
    :returns: ``None`` where the runner's options decide: without twistd, and with ``--logger``.
    """
    if runner is None or runner.get("logger"):
        return None
    return lambda: FilteringLogObserver(_writer(logging, runner), [levels(logging)])


def _writer(logging: Logging, runner: Mapping[str, Any]) -> ILogObserver:
    json = logging.format == "json"
    if runner.get("syslog"):
        return SyslogObserver(runner["prefix"], as_json if json else _without_time)
    # without an option for it the runner stays in the foreground
    foreground = runner.get("nodaemon", True) or runner.get("debug", False)
    out = _file(runner.get("logfile"), foreground)
    return FileLogObserver(out, as_json if json else as_text)


def _without_time(event: LogEvent) -> str | None:
    # syslog writes the time itself
    return as_text(event, with_time=False)


def _file(name: str | None, foreground: bool) -> IO[Any]:
    """The file that twistd would log to, opened as twistd does."""
    if foreground and name in (None, "", "-"):
        tolerant(sys.stdout)
        return sys.stdout
    if name == "-":
        sys.exit("Daemons cannot log to stdout, exiting!")
    try:
        file: Any = LogFile.fromFullPath(name or _DEFAULT_FILE)
    except OSError as error:
        sys.exit(f"can not log to {error.filename}: {error.strerror}")
    if not signal.getsignal(signal.SIGUSR1):
        signal.signal(signal.SIGUSR1, lambda *_: _rotate(file))
    out: IO[Any] = file
    return out


def _rotate(file: LogFile) -> None:
    # a handler runs between any two instructions: the work is the reactor's
    from twisted.internet import reactor

    calls: Any = reactor
    calls.callFromThread(file.rotate)


@implementer(ILogObserver)
class SyslogObserver:
    """
    Writes to syslog, each event with the priority of its level.

    Twisted's own knows two priorities, and formats the message itself.
    """

    def __init__(self, prefix: str, format_event: Callable[[LogEvent], str | None]) -> None:
        self._format = format_event
        syslog.openlog(prefix, 0, syslog.LOG_USER)

    def __call__(self, event: LogEvent) -> None:
        """Write an event, a line at a time."""
        priority = _PRIORITIES.get(event.get("log_level"), syslog.LOG_INFO)
        for line in (self._format(event) or "").splitlines():
            syslog.syslog(priority, line)
