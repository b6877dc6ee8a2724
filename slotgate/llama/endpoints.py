"""
How a server's address becomes a Twisted endpoint.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    wrapClientTLS,
)
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from zope.interface import implementer

#: How long a connection may take to be made, in seconds.
CONNECT_SECONDS = 10

# Not annotated in Twisted.
_TCP6: Any = TCP6ClientEndpoint
_trust_root: Any = trustRootFromCertificates

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def endpoint_for(reactor: Any, url: SplitResult, ca_file: Path | None) -> IStreamClientEndpoint:
    """
    The endpoint of an ``http`` or ``https`` URL.

    :param reactor: a reactor with TCP, time and, for host names, a name resolver.
    :param ca_file: for https, a PEM file of the trusted certificates; ``None``: the system's.
    :raises ValueError: for another scheme, a URL without a host, or a ``ca_file`` that holds no
        certificate.
    """
    host = url.hostname
    if url.scheme not in ("http", "https") or not host:
        raise ValueError(f"not the http(s) address of a server: {url.geturl()}")
    port = url.port or (443 if url.scheme == "https" else 80)
    endpoint = _tcp(reactor, host, port)
    if url.scheme == "https":
        trust = _trust(ca_file) if ca_file else None
        options = optionsForClientTLS(host, trustRoot=trust)
        return wrapClientTLS(options, endpoint)
    return endpoint


def _tcp(reactor: Any, host: str, port: int) -> IStreamClientEndpoint:
    if host == "localhost":
        # HostnameEndpoint would try ::1 first and wait 0.3 s before 127.0.0.1, where llama-server
        # listens by default.
        return _OneOf(
            TCP4ClientEndpoint(reactor, "127.0.0.1", port, CONNECT_SECONDS),
            _TCP6(reactor, "::1", port, CONNECT_SECONDS),
        )
    try:
        version = ip_address(host.partition("%")[0]).version
    except ValueError:
        return HostnameEndpoint(reactor, host, port, CONNECT_SECONDS)
    literal = TCP4ClientEndpoint if version == 4 else _TCP6
    endpoint: IStreamClientEndpoint = literal(reactor, host, port, CONNECT_SECONDS)
    return endpoint


def _trust(ca_file: Path) -> Any:
    certificates = [Certificate.loadPEM(pem) for pem in _PEM.findall(ca_file.read_bytes())]
    if not certificates:
        raise ValueError(f"no certificate in {ca_file}")
    return _trust_root(certificates)


@implementer(IStreamClientEndpoint)
class _OneOf:
    """
    The second endpoint where the first refuses.
    """

    def __init__(self, first: IStreamClientEndpoint, second: IStreamClientEndpoint) -> None:
        self._first = first
        self._second = second

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Connect, as :class:`IStreamClientEndpoint` says; fails with the first one's error.
        """
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        try:
            return await self._first.connect(factory)
        except ConnectError as error:
            try:
                return await self._second.connect(factory)
            except ConnectError:
                raise error from None
