"""
What a Twisted endpoint string would listen on, found out without listening and without a reactor.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from attrs import frozen
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from slotgate._config.toml import Wrong, shown
from slotgate._config.values import line

#: How far an endpoint reaches; "unknown": handed over by systemd, or a plugin's endpoint.
Reach = Literal["local", "beyond", "unknown"]

_EXAMPLE = "tcp:11434:interface=127.0.0.1"
_SYSTEMD_DOMAINS = ("INET", "INET6", "UNIX")
_LARGEST_PORT = 65535
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


@frozen
class Listening:
    """One address that an endpoint listens on."""

    scheme: Literal["http", "https", "unix"]
    #: As the endpoint says it; empty: every IPv4 address.
    host: str = ""
    #: 0: whichever is free then.
    port: int = 0
    #: Of a Unix socket.
    path: str = ""

    @property
    def everywhere(self) -> bool:
        """Whether it is every address of this machine."""
        return self.host in _EVERYWHERE

    @property
    def here(self) -> str:
        """The host by which it is reached from this machine."""
        return _EVERYWHERE.get(self.host, self.host)

    @property
    def url(self) -> str:
        """How a client on this machine writes it; not for a Unix socket."""
        bracketed = f"[{self.here}]" if ":" in self.here else self.here
        return f"{self.scheme}://{bracketed}:{self.port}"


class _Recorder:
    """
    Stands where an endpoint expects a reactor, and notes what it is asked to listen on.

    twisted.internet.testing has such a class too, and brings all of trial with it.
    """

    def __init__(self) -> None:
        self.found: list[Listening] = []

    def listenTCP(
        self, port: int, factory: object, backlog: int = 50, interface: str = ""
    ) -> object:
        self.found.append(Listening("http", interface, port))
        return object()

    def listenSSL(
        self,
        port: int,
        factory: object,
        contextFactory: object,
        backlog: int = 50,
        interface: str = "",
    ) -> object:
        self.found.append(Listening("https", interface, port))
        return object()

    def listenUNIX(self, address: str, factory: object, **options: Any) -> object:
        self.found.append(Listening("unix", path=address))
        return object()


def listening(value: object) -> tuple[Listening, ...]:
    """
    What an endpoint listens on; nothing where only systemd or somebody's plugin knows.

    :param value: the endpoint string. Those of systemd are checked for their form only: the
        descriptors exist when systemd starts us, not when somebody checks the file.
    :raises Wrong: when no endpoint can be made of it.
    """
    description = line(value)
    prefix = description.partition(":")[0]
    if prefix == "systemd":
        _check_systemd(description)
        return ()
    recorder = _Recorder()
    try:
        endpoint = serverFromString(recorder, description)
        if prefix in ("tcp", "tcp6", "ssl", "unix"):
            failures: list[Failure] = []
            endpoint.listen(Factory()).addErrback(failures.append)
            for failure in failures:
                failure.raiseException()
    # The parsers are plugins and answer mistakes with whatever comes: TypeError, RuntimeError,
    # OSError, OpenSSL's own.
    except Exception as error:
        raise Wrong(
            f"{shown(description)} is no endpoint like {shown(_EXAMPLE)}: {_reason(error)}"
        ) from error
    for one in recorder.found:
        if not 0 <= one.port <= _LARGEST_PORT:
            raise Wrong(f"{shown(description)}: there is no port {shown(one.port)}")
    return tuple(recorder.found)


def reach(value: object) -> Reach:
    """
    How far an endpoint reaches.

    :raises Wrong: as :func:`listening` says.
    """
    found = listening(value)
    if not found:
        return "unknown"
    local = all(one.scheme == "unix" or _is_loopback(one.host) for one in found)
    return "local" if local else "beyond"


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
