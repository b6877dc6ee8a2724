"""
``GET /slotgate/health`` and ``GET /slotgate/ready``, for systemd, containers and load balancers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from attrs import frozen
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from slotgate.web.admins import Admins
from slotgate.web.checks import Check, Checks
from slotgate.web.status_page import only, told

_READ = ("GET", "HEAD")


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
        only(request, *_READ)
        return _json(request, 200, {"status": "ok"})

    async def ready(self, request: IRequest, path: str) -> bytes:
        """
        Everything is there that a request needs; 503 where it is not.

        :raises Rejected: for another method.
        """
        only(request, *_READ)
        if self._stopping():
            return _json(request, 503, {"status": "stopping", "checks": []})
        checks = await self._checks.all()
        ready = all(check.ok for check in checks)
        shows = self._admins.may(request)
        answer = {
            "status": "ready" if ready else "not ready",
            "checks": [_check(check, shows=shows) for check in checks],
        }
        return _json(request, 200 if ready else 503, answer)


def _check(check: Check, *, shows: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": check.name, "ok": check.ok}
    if shows and check.problem:
        said["problem"] = check.problem
    return said


def _json(request: IRequest, status: int, answer: object) -> bytes:
    cast(Request, request).setResponseCode(status)
    return told(request, "application/json", json.dumps(answer).encode() + b"\n")
