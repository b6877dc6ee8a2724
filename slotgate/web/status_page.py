"""
``GET /slotgate/status``.
"""

from __future__ import annotations

from attrs import frozen
from twisted.web.iweb import IRequest

from slotgate.web.admins import Admins
from slotgate.web.pages import LOOK, allow, json_answer
from slotgate.web.status import Statuses


@frozen
class StatusPage:
    """What goes on, as JSON, for admins."""

    _admins: Admins
    _statuses: Statuses

    async def answer(self, request: IRequest, path: str) -> bytes:
        """
        Answer one call.

        :raises Rejected: without an admin's key, or for another method.
        """
        allow(request, *LOOK)
        self._admins.check(request)
        return json_answer(request, await self._statuses.now())
