"""
Session keys, and the file-safe name of a session.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import quote

from attrs import frozen

_HEX32 = re.compile(r"[0-9a-f]{32}\Z")


@frozen
class SessionKey:
    """
    What makes two requests one session: the same client, the same route, the same session id.
    """

    #: The name of the client in ``[[clients]]``; ``None`` where no keys are asked for.
    client: str | None
    #: The route's name: the model the client asked for where the route is a pattern.
    route: str
    id: str

    @property
    def shown(self) -> str:
        """
        The id as ``/api/sessions`` and ``X-Slotgate-Session`` show it: percent-encoded where a
        header line or a URL could not hold it as it is.
        """
        return quote(self.id, safe="!$&'()*+,;=:@/")


@frozen
class Policy:
    """What a route's settings say about keeping its sessions."""

    #: Smaller caches are not worth a file.
    min_tokens: int = 0
    #: A slot without requests for so many seconds is saved; 0: only when it is needed.
    idle_seconds: float = 0.0
    #: At most so many snapshots of the route; 0: no limit.
    max_files: int = 0
    #: At most so many bytes of snapshots of the route; 0: no limit.
    max_bytes: int = 0
    #: Nothing of it is worth a file: it is one of many questions that nobody asks on from.
    passing: bool = False


@frozen
class Session:
    """A session as a request names it."""

    key: SessionKey
    #: Where the id came from, as in ``X-Slotgate-Source``.
    source: str
    policy: Policy = Policy()
    #: A digest of how the request's prompt begins (:mod:`slotgate.prompts.beginning`); two
    #: requests with the same one must share a cache's beginning too.
    beginning: str = ""


def session_digits(key: SessionKey, secret: bytes) -> str:
    """
    32 hex digits that name a session in a file name.

    An id of 32 hex digits stands for itself where no client key is involved, so that files can
    be told apart by whoever made the id. Everything else is hashed with a key of this
    installation: nobody can work out an id from a file, or make two clients' names meet.
    """
    if key.client is None and _HEX32.match(key.id):
        return key.id
    said = b"\0".join(part.encode("utf-8", "surrogatepass") for part in (key.client or "", key.id))
    return hmac.new(secret, said, hashlib.sha256).hexdigest()[:32]
