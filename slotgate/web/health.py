"""
``GET /slotgate/health`` and ``GET /slotgate/ready``, for systemd, containers and load balancers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.web.iweb import IRequest

from slotgate.web.admins import Admins
from slotgate.web.checks import Check, Checks
from slotgate.web.pages import LOOK, allow, json_answer


@frozen
class HealthPages:
    """
    Whether the process answers, and whether a request would be.

    No key is asked for. What is wrong in particular is told to admins, and to everybody where
    there are no keys.
    """

    _admins: Admins
    _checks: Checks
    _stopping: Callable[[], bool]

    async def live(self, request: IRequest, path: str) -> bytes:
        """
        The process answers.

        :raises Rejected: for another method.
        """
        allow(request, *LOOK)
        return json_answer(request, {"status": "ok"})

    async def ready(self, request: IRequest, path: str) -> bytes:
        """
        Everything is there that a request needs; 503 where it is not.

        :raises Rejected: for another method.
        """
        allow(request, *LOOK)
        if self._stopping():
            return json_answer(request, {"status": "stopping", "checks": []}, 503)
        checks = await self._checks.all()
        ready = all(check.ok for check in checks)
        shows = self._admins.may(request)
        answer = {
            "status": "ready" if ready else "not ready",
            "checks": [_check(check, shows=shows) for check in checks],
        }
        return json_answer(request, answer, 200 if ready else 503)


def _check(check: Check, *, shows: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": check.name, "ok": check.ok}
    if shows and check.problem:
        said["problem"] = check.problem
    return said
