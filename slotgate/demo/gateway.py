"""
The gateway of the demo: slotgate as a service of this process, as any Twisted program could.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError

from slotgate.config import Config, Gateway, Identity, Route, Server


class GatewayFailed(Exception):
    """
    The gateway did not start.
    """


class DemoGateway:
    """
    A gateway on a free loopback port, in front of one server with one slot.

    :ivar url: where it listens.
    """

    def __init__(self, reactor: Any, server_url: str, slots: Path, state: Path) -> None:
        """
        :param slots: the server's folder of slot files.
        :param state: the folder of the gateway's index.
        """
        # Imported here: it imports Klein, and so installs the reactor for who only asks for help.
        from slotgate.service import make_service

        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._service = make_service(
            Config(
                # Its end waits for neither long: the folders go with the demo.
                gateway=Gateway(
                    listen=(f"tcp:{port}:interface=127.0.0.1",), state_dir=state, drain_seconds=2.0
                ),
                servers={
                    "demo": Server(
                        "demo", url=server_url, slot_save_path=slots, control_timeout_seconds=10.0
                    )
                },
                routes=(Route("*", "demo"),),
                identity=Identity(),
            ),
            reactor,
        )

    def start(self) -> None:
        """
        Listen.

        :raises GatewayFailed: something else took the port.
        """
        try:
            self._service.privilegedStartService()
        except CannotListenError as error:
            raise GatewayFailed(f"slotgate can not listen: {error}") from error
        self._service.startService()

    def stop(self) -> Deferred[object]:
        """
        Fire when the gateway has ended.
        """
        return maybeDeferred(self._service.stopService)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
