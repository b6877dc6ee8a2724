"""
What the facts about a server mean.
"""

from __future__ import annotations

from slotgate.doctor.costing import of_costs
from slotgate.doctor.facts import Contact, Measurement, ServerFacts
from slotgate.doctor.findings import Finding, Report
from slotgate.doctor.keeping import of_files
from slotgate.doctor.modelling import of_memory, of_sleep, of_windows
from slotgate.doctor.reaching import reached
from slotgate.doctor.routing import of_routes
from slotgate.doctor.slots import of_slots


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
