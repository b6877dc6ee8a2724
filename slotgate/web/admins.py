"""
Who may see what is everybody's: the dashboard, the metrics, the status.
"""

from __future__ import annotations

from attrs import frozen
from twisted.web.iweb import IRequest

from slotgate.web.clients import Clients, presented
from slotgate.web.logins import Logins
from slotgate.web.rejected import Rejected


@frozen
class Admins:
    """The clients with ``admin = true``; where no keys are asked for, everybody."""

    _clients: Clients
    logins: Logins

    @property
    def have_keys(self) -> bool:
        """Whether anybody has to say who they are."""
        return self._clients.have_keys

    def check(self, request: IRequest) -> None:
        """
        Let an admin pass: with a key, or in a browser in which one has logged in.

        :raises Rejected: 401 without a key, 403 with another client's.
        """
        headers = request.requestHeaders
        # a proxy's Basic is no key of ours
        if not presented(headers) and self.have_keys and self.logins.client(request) is not None:
            return
        owner = self._clients.owner(headers)
        if owner is not None and not owner.admin:
            raise Rejected(403, "only for clients with admin = true")

    def may(self, request: IRequest) -> bool:
        """Whether :meth:`check` lets a request pass."""
        try:
            self.check(request)
        except Rejected:
            return False
        return True
