"""
Findings about slotgate itself: its state folder, and whether it runs already.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from slotgate.config import Config, Server
from slotgate.doctor.contact import is_slotgate, listening_ports
from slotgate.doctor.findings import Finding, ok, problem
from slotgate.doctor.machine import lock_holder
from slotgate.llama.calls import Calls
from slotgate.llama.errors import ControlError
from slotgate.llama.upstream import Upstream

_SECONDS = 3.0


async def runs(reactor: Any, config: Config) -> bool:
    """Whether a slotgate answers where this configuration's would listen."""
    for port in listening_ports(config):
        server = Server(
            "slotgate",
            f"http://127.0.0.1:{port}",
            control_timeout_seconds=_SECONDS,
            read_timeout_seconds=_SECONDS,
        )
        upstream = Upstream(reactor, server)
        try:
            if await is_slotgate(Calls(upstream, reactor, server)):
                return True
        except ControlError:
            pass
        finally:
            await upstream.close()
    return False


def of_state(config: Config) -> Finding:
    """Whether the state folder can be used; nothing there is touched."""
    folder = config.gateway.state_dir
    holder = lock_holder(folder / "lock")
    if holder is not None:
        return ok("state", f"{folder} is in use by the slotgate that runs (process {holder})")
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        made = "" if there == folder else " (it is not there yet, and can be made)"
        return ok("state", f"{folder} can be used{made}")
    return problem(
        "state", f"{folder} can not be written by this user", f'[gateway] state_dir = "{_home()}"'
    )


def _home() -> Path:
    return Path("~/.local/state/slotgate")
