"""
Whose key a request carries.
"""

from __future__ import annotations

import hmac

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.config import Client
from slotgate.reloading import Settings
from slotgate.web.rejected import Rejected


@frozen
class Clients:
    """The ``[[clients]]`` of the configuration."""

    _settings: Settings

    @property
    def have_keys(self) -> bool:
        """Whether requests are asked for a key."""
        return bool(self._settings.config.clients)

    @property
    def are_several(self) -> bool:
        """Whether there is anybody to keep a client's tokens from."""
        return len(self._settings.config.clients) > 1

    def owner(self, headers: Headers) -> Client | None:
        """
        The client whose key is in ``Authorization: Bearer`` or ``X-Api-Key``.

        :returns: ``None`` where no keys are asked for.
        :raises Rejected: no key, or nobody's.
        """
        clients = self._settings.config.clients
        if not clients:
            return None
        keys = presented(headers)
        found = None
        for client in clients:
            # all of them, so that the time taken tells nothing about a match
            if any(hmac.compare_digest(key, client.key.encode()) for key in keys):
                found = client
        if found is None:
            raise Rejected(401, "Invalid API Key")
        return found


def presented(headers: Headers) -> list[bytes]:
    """The keys that a request carries; other ways to say who one is are somebody else's."""
    keys = [value.strip() for value in headers.getRawHeaders(b"x-api-key", [])]
    for value in headers.getRawHeaders(b"authorization", []):
        scheme, _, key = value.strip().partition(b" ")
        if scheme.lower() == b"bearer":
            keys.append(key.strip())
    return keys
