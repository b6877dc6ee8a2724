"""
One finding, and the words that many of them share.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from slotgate.doctor.facts import Model, ServerFacts


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


#: Stands at the beginning of a sentence for the models that it is about.
WHO = "\0who\0"

#: Looks at one model.
Check = Callable[[ServerFacts, Model], Iterable[Finding]]


def of_models(facts: ServerFacts, check: Check) -> list[Finding]:
    """What a check finds, each sentence once, with the models that it is about in it."""
    found: dict[Finding, list[str]] = {}
    for model in facts.models:
        for finding in check(facts, model):
            found.setdefault(finding, []).append(model.id)
    named = {finding: ", ".join(filter(None, ids)) for finding, ids in found.items()}
    return [
        evolve(finding, text=finding.text.replace(WHO, f"{who}: " if who else ""))
        for finding, who in named.items()
    ]


def on_server(facts: ServerFacts, line: str) -> str:
    """A line of the server's table in the configuration."""
    return f"[servers.{facts.server.name}] {line}"


def on_command_line(options: str) -> str:
    """Options of llama-server."""
    return f"llama-server … {options}"
