"""
Sentences that are about several models at once, and figures for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve

from slotgate.doctor.facts import Model, ServerFacts
from slotgate.doctor.findings import Finding

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


def gib(size: float) -> str:
    """Bytes, as GiB."""
    return f"{size / 1024**3:.1f} GiB"


def megabytes(size: float) -> str:
    """Bytes, as MB; small ones as they are."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:g} bytes"
