"""
What the doctor finds, and what that means for the exit status.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from attrs import frozen


class Level(enum.Enum):
    """How much a finding matters."""

    OK = "ok"
    #: It works, and would work better otherwise; or it could not be found out.
    ADVICE = "advice"
    #: What slotgate is there for does not work.
    PROBLEM = "problem"


@frozen
class Finding:
    """One thing that was looked at."""

    #: The subject, one word that stays the same; docs/doctor.md lists them.
    check: str
    level: Level
    #: A sentence for people.
    text: str
    #: The line to change, where there is one.
    change: str = ""


@frozen
class Report:
    """The findings about one server."""

    name: str
    findings: tuple[Finding, ...]


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def advice(check: str, text: str, change: str = "") -> Finding:
    """Something could be better."""
    return Finding(check, Level.ADVICE, text, change)


def problem(check: str, text: str, change: str = "") -> Finding:
    """Something does not work."""
    return Finding(check, Level.PROBLEM, text, change)


def exit_status(findings: Iterable[Finding]) -> int:
    """0: all is well, 1: it works and there is advice, 2: it does not work."""
    levels = {finding.level for finding in findings}
    if Level.PROBLEM in levels:
        return 2
    return 1 if Level.ADVICE in levels else 0
