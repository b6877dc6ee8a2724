"""
The report about a server: what the facts mean, as text for people and as JSON for programs.

No key is ever in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from slotgate.config import Config
from slotgate.doctor.facts import Contact, Measurement, ServerFacts
from slotgate.doctor.findings import Finding, Level, exit_status
from slotgate.doctor.folder import of_files
from slotgate.doctor.memory import of_memory, of_sleep
from slotgate.doctor.reachable import reached
from slotgate.doctor.slots import of_routes, of_slots
from slotgate.doctor.window import of_costs, of_windows
from slotgate.plain import printable

_VERDICTS = ("All is well.", "It works; there is advice.", "It does not work: see the problems.")


@frozen
class Report:
    """The findings about one server."""

    name: str
    findings: tuple[Finding, ...]


def judge(facts: ServerFacts, measurement: Measurement | None = None) -> Report:
    """
    The findings about a server.

    :param measurement: how measuring went there; ``None``: nobody wanted it.
    """
    return Report(facts.server.name, tuple(_found(facts, measurement)))


def _found(facts: ServerFacts, measurement: Measurement | None) -> list[Finding]:
    found = reached(facts)
    if facts.contact is not Contact.ANSWERS:
        return found
    measured = None if measurement is None else measurement.measured
    return [
        *found,
        *of_slots(facts),
        *of_files(facts),
        *of_windows(facts, frozenset() if measured is None else frozenset({measured.model})),
        *of_memory(facts),
        *of_sleep(facts),
        *of_routes(facts),
        *of_costs(measurement),
    ]


def secrets_of(config: Config) -> list[str]:
    """All keys of a configuration, the longest first."""
    keys = [server.api_key for server in config.servers.values()]
    keys += [client.key for client in config.clients]
    return sorted({key for key in keys if key}, key=len, reverse=True)


def safe(report: Report, secrets: Sequence[str]) -> Report:
    """
    A report that can be shown: a server's own words could have a key in them, or a line's end.
    """

    def text(said: str) -> str:
        for secret in secrets:
            said = said.replace(secret, "***")
        return printable(said)

    findings = (evolve(f, text=text(f.text), change=text(f.change)) for f in report.findings)
    return evolve(report, findings=tuple(findings))


def lines_of(report: Report) -> list[str]:
    """One line for each finding, and one below it for what to change."""
    lines = [report.name]
    for finding in report.findings:
        lines.append(f"  {finding.level.value:<8} {finding.check}: {finding.text}")
        if finding.change:
            lines.append(f"           change: {finding.change}")
    return lines


def verdict(findings: Iterable[Finding]) -> str:
    """The last line."""
    found = list(findings)
    counts = [
        f"{number} {level.value}"
        for level in Level
        if (number := sum(finding.level is level for finding in found))
    ]
    return f"{_VERDICTS[exit_status(found)]} ({', '.join(counts) or 'nothing was looked at'})"


def as_json(own: Sequence[Finding], reports: Sequence[Report]) -> str:
    """
    One object.

    :param own: findings about slotgate itself.
    """
    every = [*own, *(finding for report in reports for finding in report.findings)]
    return json.dumps(
        {
            "findings": [_shown(finding) for finding in own],
            "servers": [
                {"name": report.name, "findings": [_shown(f) for f in report.findings]}
                for report in reports
            ],
            "exit": exit_status(every),
        },
        ensure_ascii=False,
        indent=2,
    )


def _shown(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "text": finding.text,
        "change": finding.change,
    }
