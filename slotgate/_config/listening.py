"""
What a Twisted endpoint string would listen on, found out without listening and without a reactor.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory

from slotgate._config.toml import Wrong, shown
from slotgate._config.values import line

#: How far an endpoint reaches; "unknown": handed over by systemd, or a plugin's endpoint.
Reach = Literal["local", "beyond", "unknown"]

_EXAMPLE = "tcp:11434:interface=127.0.0.1"
_SYSTEMD_DOMAINS = ("INET", "INET6", "UNIX")
_LARGEST_PORT = 65535


class _Recorder:
    """
    Stands where an endpoint expects a reactor, and notes what it is asked to listen on.

    twisted.internet.testing has such a class too, and brings all of trial with it.
    """

    def __init__(self) -> None:
        self.unix = False
        self.ports: list[tuple[int, str]] = []

    def listenTCP(
        self, port: int, factory: object, backlog: int = 50, interface: str = ""
    ) -> object:
        self.ports.append((port, interface))
        return object()

    def listenSSL(
        self, port: int, factory: object, context: object, backlog: int = 50, interface: str = ""
    ) -> object:
        return self.listenTCP(port, factory, backlog, interface)

    def listenUNIX(self, address: str, factory: object, **options: Any) -> object:
        self.unix = True
        return object()


def reach(value: object) -> Reach:
    """
    How far an endpoint reaches.

    :param value: the endpoint string. Those of systemd are checked for their form only: the
        descriptors exist when systemd starts us, not when somebody checks the file.
    :raises Wrong: when no endpoint can be made of it.
    """
    description = line(value)
    prefix = description.partition(":")[0]
    if prefix == "systemd":
        _check_systemd(description)
        return "unknown"
    recorder = _Recorder()
    try:
        endpoint = serverFromString(recorder, description)
        if prefix in ("tcp", "tcp6", "ssl", "unix"):
            endpoint.listen(Factory())
    # The parsers are plugins and answer mistakes with whatever comes: TypeError, RuntimeError,
    # OSError, OpenSSL's own.
    except Exception as error:
        raise Wrong(
            f"{shown(description)} is no endpoint like {shown(_EXAMPLE)}: {_reason(error)}"
        ) from error
    for port, _ in recorder.ports:
        if not 0 <= port <= _LARGEST_PORT:
            raise Wrong(f"{shown(description)}: there is no port {shown(port)}")
    if recorder.unix:
        return "local"
    if not recorder.ports:
        return "unknown"
    return "local" if all(_is_loopback(host) for _, host in recorder.ports) else "beyond"


def anonymous(value: object) -> str:
    """
    Read an endpoint that nobody needs a key for: it must not reach beyond this machine.

    :raises Wrong: also when it does.
    """
    description = line(value)
    found = reach(description)
    if found == "local" or description.startswith("systemd:"):
        return description
    where = "listens beyond this machine" if found == "beyond" else "listens nobody knows where"
    example = '":interface=127.0.0.1" to it, ' if found == "beyond" else ""
    raise Wrong(
        f"{shown(description)} {where}, and no [[clients]] are there to ask for keys: "
        f"add {example}[[clients]], or allow_anonymous = true to [gateway]"
    )


def guarded(value: object) -> str:
    """Read an endpoint that may listen anywhere."""
    reach(value)
    return line(value)


def _check_systemd(description: str) -> None:
    options = dict(part.split("=", 1) for part in description.split(":")[1:] if "=" in part)
    named = "name" in options
    if (
        options.get("domain") not in _SYSTEMD_DOMAINS
        or set(options) != {"domain", "name" if named else "index"}
        or not (named or options["index"].isdecimal())
    ):
        raise Wrong(
            f"{shown(description)} is no endpoint like "
            '"systemd:domain=INET:name=…" or "systemd:domain=INET:index=0"'
        )


def _is_loopback(interface: str) -> bool:
    if interface.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror} ({error.filename})"
    if isinstance(error, TypeError):
        return re.sub(r"^\S+\(\) ", "", str(error))  # the name of Twisted's parser says nothing
    if isinstance(error, RuntimeError):
        return "a backslash at its end"  # twisted: "generator raised StopIteration"
    return str(error)
