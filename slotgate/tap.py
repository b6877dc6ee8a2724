"""
What ``twistd slotgate`` needs: its options and its service.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from twisted.application.service import IService, MultiService
from twisted.python.usage import CompleteFiles, Completions
from twisted.python.usage import Options as _Options

from slotgate.config import Config, ConfigError, load_config
from slotgate.signals import Signals
from slotgate.snapshots.database import IndexUnusable
from slotgate.state import StateUnusable


class Options(_Options):
    """
    ``twistd slotgate [--config FILE]``. Everything else is in the file.
    """

    longdesc = "Unlimited llama.cpp slots that survive restarts."
    optParameters: ClassVar = [
        ["config", "c", None, "The TOML file; without it, one server at http://127.0.0.1:8080."]
    ]
    compData = Completions(optActions={"config": CompleteFiles("*.toml")})

    config: Config
    #: Reads it again.
    load: Callable[[], Config]

    def postOptions(self) -> None:
        """
        Read the configuration, so that a mistake in it starts nothing.
        """
        given = self["config"]
        path = None if given is None else Path(given)
        # a daemon has another working directory by the time it reads the file again
        again = None if path is None else path.absolute()
        self.load = partial(load_config, again)
        try:
            self.config = load_config(path)
        except ConfigError as error:
            # a UsageError would print the usage around the line that matters
            sys.exit(str(error))


def makeService(options: Options) -> IService:
    """
    The service that twistd runs.
    """
    # twistd has chosen its reactor by now; at this module's import it has not
    from twisted.internet import reactor

    from slotgate.service import make_service

    try:
        gateway = make_service(options.config, reactor)
    except (StateUnusable, IndexUnusable) as error:
        sys.exit(str(error))
    service = MultiService()
    Signals(reactor, options.load, gateway.reload).setServiceParent(service)
    gateway.setServiceParent(service)
    return service
