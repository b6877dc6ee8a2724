"""
Findings about a model's memory: prompts that are kept beside the slots, and sleep.
"""

from __future__ import annotations

from collections.abc import Iterator

from slotgate.doctor.facts import Model, ServerFacts
from slotgate.doctor.findings import WHO, Finding, advice, of_models, ok, on_command_line
from slotgate.doctor.options import DEFAULT_CACHE_RAM_MIB
from slotgate.llama.models import Status
from slotgate.units import gib


def of_memory(facts: ServerFacts) -> list[Finding]:
    """``--cache-ram`` beside the memory there is."""
    if not facts.local or not facts.memory_available or not facts.models:
        return []
    known = [model.options.cache_ram_mib for model in facts.models if model.options is not None]
    left = f"{gib(facts.memory_available)} of memory are left here"
    at_once = 1
    if facts.router is not None:
        most = facts.router.models_max or len(facts.models)
        at_once = min(most, len(facts.models))
    # what is loaded has its share already, and this is a figure to think about, not to compute
    fits = int(facts.memory_available / 1024**2 / 2 / at_once) // 256 * 256
    change = on_command_line(f"--cache-ram {fits}")
    each = "" if at_once == 1 else f" of each of {at_once} models"
    if -1 in known:
        return [advice("memory", f"--cache-ram -1: prompts kept without a limit; {left}", change)]
    mib = max(known, default=DEFAULT_CACHE_RAM_MIB)
    if mib * at_once <= facts.memory_available / 1024**2:
        what = f"up to {mib} MiB of prompts{each} are kept in memory (--cache-ram)"
        if not known:
            what = f"--cache-ram is not known; its default, {mib} MiB, would fit"
        return [ok("memory", f"{what}, {left}")]
    what = f"up to {mib} MiB of prompts{each} are kept in memory (--cache-ram)"
    if not known:
        what = f"--cache-ram is not known; if it is not set, {what}"
    return [advice("memory", f"{what}, and only {left}", change)]


def of_sleep(facts: ServerFacts) -> list[Finding]:
    """Whether what is in a slot is saved before its model sleeps."""
    return of_models(facts, _sleep) if facts.slots_used else []


def _sleep(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    seconds = None if model.options is None else model.options.sleep_seconds
    if facts.router is not None:
        if seconds is not None:
            yield ok(
                "sleep",
                f"{WHO}asleep after {seconds:g} idle seconds (--sleep-idle-seconds); slotgate"
                f" saves its slots after {seconds / 2:g} at the latest",
            )
        return
    if model.status is Status.SLEEPING:
        yield advice(
            "sleep",
            f"{WHO}it sleeps, and a look would wake it, so its slots and a save were not looked at",
            "ask its model something, and ask again",
        )
    idle = [route.save_idle_seconds for route in facts.routes if route.cache]
    unsaved = any(not one or (seconds is not None and one >= seconds) for one in idle)
    if not unsaved or (seconds is None and model.status is not Status.SLEEPING):
        return
    after = "it sleeps when it is idle" if seconds is None else f"asleep after {seconds:g} idle s"
    early = "…" if seconds is None else f"{seconds / 2:g}"
    yield advice(
        "sleep",
        f"{WHO}{after} (--sleep-idle-seconds), and what is in its slots then and not saved is lost",
        f"[[routes]] save_idle_seconds = {early}, less than --sleep-idle-seconds",
    )
