"""
What ``twistd slotgate`` needs: its options and its service.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from attrs import evolve
from twisted.application.service import IService
from twisted.python.usage import CompleteFiles, CompleteList, Completions, UsageError
from twisted.python.usage import Options as _Options

from slotgate.config import Config, ConfigError, load_config
from slotgate.logs.twistd import LoggingService, observer_for
from slotgate.signals import Signals
from slotgate.snapshots.database import IndexUnusable
from slotgate.state import StateUnusable

LOG_FORMATS = ("text", "json")


class Options(_Options):
    """
    ``twistd slotgate [--config FILE] [--log-format text|json]``. Everything else is in the file.
    """

    longdesc = "Unlimited llama.cpp slots that survive restarts."
    optParameters: ClassVar = [
        ["config", "c", None, "The TOML file; without it, one server at http://127.0.0.1:8080."],
        ["log-format", None, None, "text or json (one object a line), whatever the file says."],
    ]
    compData = Completions(
        optActions={"config": CompleteFiles("*.toml"), "log-format": CompleteList(LOG_FORMATS)}
    )

    config: Config
    #: Reads it again.
    load: Callable[[], Config]

    def postOptions(self) -> None:
        """
        Read the configuration, so that a mistake in it starts nothing.
        """
        if self["log-format"] not in (None, *LOG_FORMATS):
            raise UsageError(f"--log-format is one of {', '.join(LOG_FORMATS)}")
        given = self["config"]
        path = None if given is None else Path(given)
        # a daemon has another working directory by the time it reads the file again
        again = None if path is None else path.absolute()
        self.load = partial(self._read, again)
        try:
            self.config = self._read(path)
        except ConfigError as error:
            # a UsageError would print the usage around the line that matters
            sys.exit(str(error))

    def _read(self, path: Path | None) -> Config:
        config = load_config(path)
        if self["log-format"] is None:
            return config
        return evolve(config, logging=evolve(config.logging, format=self["log-format"]))


def makeService(options: Options) -> IService:
    """
    The service that twistd runs, with the log that the configuration asks for.
    """
    # twistd has chosen its reactor by now; at this module's import it has not
    from twisted.internet import reactor

    from slotgate.service import make_service

    try:
        gateway = make_service(options.config, reactor)
    except (StateUnusable, IndexUnusable) as error:
        sys.exit(str(error))
    service = LoggingService(observer_for(options.config.logging, options.parent))
    Signals(reactor, options.load, gateway.reload).setServiceParent(service)
    gateway.setServiceParent(service)
    return service
