"""
Findings about the slots: whether they are seen, how many there are, and who else uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from slotgate.doctor.facts import Model, ServerFacts
from slotgate.doctor.findings import Finding, advice, ok, problem
from slotgate.doctor.options import Options
from slotgate.doctor.said import WHO, of_models, on_command_line
from slotgate.llama.models import Status

#: How many slots llama-server makes where nobody says (b11434, b11549).
AUTO_SLOTS = 4


def of_slots(facts: ServerFacts) -> list[Finding]:
    """All about slots."""
    if not facts.slots_used:
        return []
    checks = (_shown, _counted, _there, _traffic)
    return [finding for check in checks for finding in of_models(facts, check)]


def _shown(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    if model.slots is not None:
        yield ok("slots", f"{WHO}the slots are shown")
    elif "501" in model.hidden or "404" in model.hidden:
        yield advice(
            "slots",
            f"{WHO}the slots are not shown, so another client's use of them is not noticed"
            f" ({model.hidden})",
            on_command_line("--slots") + " (without --no-slots)",
        )
    elif model.hidden:
        yield problem("slots", f"{WHO}a look at the slots failed: {model.hidden}")


def _counted(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    total = model.total_slots
    change = on_command_line(f"-np {max(facts.slots_used) + 1}")
    does = (
        "they share one cache, and when one works the idle others are emptied: a session can be"
        " gone before it is saved"
    )
    if model.options is not None:
        if model.options.parallel is None and total != 1:
            yield advice(
                "parallel",
                f"{WHO}-np is not set, so there are {AUTO_SLOTS} slots; {does}",
                change,
            )
        elif (total or 1) > 1 and _cleared(model.options):
            yield advice(
                "parallel",
                f"{WHO}{total} slots and --kv-unified; {does}",
                on_command_line("--no-kv-unified"),
            )
        else:
            yield ok("parallel", f"{WHO}-np says how many slots there are: {total}")
    elif total == AUTO_SLOTS:
        yield advice(
            "parallel",
            f"{WHO}there are {AUTO_SLOTS} slots, as many as without -np. If -np is not set, {does}",
            change,
        )
    elif total is not None:
        yield ok("parallel", f"{WHO}number of slots: {total}")


def _cleared(options: Options) -> bool:
    """Whether idle slots are emptied though their number is set."""
    unified = {"--kv-unified", "-kvu"} & set(options.args)
    return bool(unified) and "--no-cache-idle-slots" not in options.args


def _there(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    total = model.total_slots
    missing = [slot for slot in facts.slots_used if total is not None and slot >= total]
    if missing and total is not None:
        yield problem(
            "slot",
            f"{WHO}a route uses slot {missing[-1]}, and the slots are 0 to {total - 1}: another"
            " one would be used instead",
            f"[[routes]] slot = {total - 1}, or {on_command_line(f'-np {missing[-1] + 1}')}",
        )


def _traffic(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    if model.slots is None or model.status is not Status.LOADED:
        return
    used = [slot for slot in facts.slots_used if model.slots.used(slot)]
    if not used:
        yield ok("traffic", f"{WHO}nobody used our slots while we looked")
    elif facts.slotgate_runs:
        yield ok(
            "traffic",
            f"{WHO}slot {used[0]} is in use, by the slotgate that runs, if no client talks to"
            " the server directly",
        )
    else:
        yield advice(
            "traffic",
            f"{WHO}slot {used[0]} is in use, and no slotgate with this configuration runs: other"
            " clients take what is in it",
            "let every client of this server come through slotgate",
        )
