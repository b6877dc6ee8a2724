"""
Findings about restores: whether a slot file holds all that a model needs, and what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from slotgate.doctor.facts import Measured, Measurement, Model, ServerFacts
from slotgate.doctor.findings import (
    WHO,
    Finding,
    advice,
    of_models,
    ok,
    on_command_line,
    problem,
)
from slotgate.doctor.reachable import NEWEST_BUILD, build_number
from slotgate.units import megabytes

_MEASURE = "slotgate doctor --measure 2000 tells"
_NEWER = f"a llama-server of 2026-10-08 or later (b{NEWEST_BUILD} is one)"
#: A switch that takes less is no trouble to anybody.
_NOTICED_SECONDS = 0.1


def of_windows(facts: ServerFacts, measured: frozenset[str]) -> list[Finding]:
    """
    Whether slot files hold all that a model needs to go on.

    :param measured: ids of models of which that was measured.
    """
    if not facts.slots_used:
        return []

    def check(facts: ServerFacts, model: Model) -> Iterator[Finding]:
        if model.id not in measured:
            yield from _window(facts, model)

    return of_models(facts, check)


def _window(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    number, header = build_number(facts.build), model.header
    if header is None:
        if number is None or number < NEWEST_BUILD:
            yield ok(
                "window",
                f"{WHO}not known whether the model has a sliding window or layers with a state"
                f" (its file is not seen here), for which restores may not help; {_MEASURE}",
            )
        return
    kind = f"{WHO}the model ({header.architecture})"
    if header.whole:
        yield ok("window", f"{kind} has no sliding window: a slot file holds all of a prompt")
        return
    has = f"has a sliding window of {header.window} tokens" if header.window else "keeps a state"
    if header.window and header.recurrent:
        has += ", and keeps a state"
    full = header.window and not header.recurrent
    if full and model.options is not None and model.options.swa_full:
        yield ok("window", f"{kind} {has}, and --swa-full keeps all of it")
    elif number is None:
        text = f"{kind} {has}; not known whether this build saves checkpoints with a slot"
        yield advice("window", text, _MEASURE)
    elif number < NEWEST_BUILD:
        text = (
            f"{kind} {has}, and {facts.build} may be too old to save checkpoints with a slot"
            " (builds do since about 2026-10-08): a restored session would be read again."
            f" {_MEASURE}"
        )
        or_full = f", or {on_command_line('--swa-full')}" if full else ""
        yield advice("window", text, _NEWER + or_full)
    elif header.recurrent:
        text = f"{kind} {has}; not known whether what this build saves is enough"
        yield advice("window", text, _MEASURE)
    else:
        yield ok("window", f"{kind} {has}, and {facts.build} saves checkpoints with a slot")


def of_costs(measurement: Measurement | None) -> list[Finding]:
    """
    :param measurement: ``None``: nobody wanted it.
    """
    if measurement is None:
        return []
    found = [advice("measure", trouble) for trouble in measurement.troubles]
    measured = measurement.measured
    if measured is None:
        return [advice("measure", f"not measured: {measurement.why}"), *found]
    who = f"{measured.model}: " if measured.model else ""
    speed = measured.tokens / measured.read_seconds if measured.read_seconds > 0 else 0.0
    notes = "".join(f". {note}" for note in measurement.notes)
    text = (
        f"{who}{measured.tokens} tokens were read in {measured.read_seconds:.2f} s"
        f" ({speed:,.0f} a second), saved in {measured.save_seconds:.2f} s and restored in"
        f" {measured.restore_seconds:.2f} s ({megabytes(measured.size)}){notes}"
    )
    return [ok("measure", text), *found, _restore(measured, who)]


def _restore(measured: Measured, who: str) -> Finding:
    whole = measured.reused + measured.read_again
    after = f"of {whole} tokens {measured.read_again} were read after it"
    switch = measured.save_seconds + measured.restore_seconds
    if not measured.helped:
        return problem(
            "restore",
            f"{who}a restore does not help with this model and this llama-server: {after}. So every"
            " session is read anew after a switch; that is so with sliding windows and layers with"
            " a state where a build saves no checkpoints",
            f"{_NEWER}, or {on_command_line('--swa-full')}",
        )
    if switch > measured.read_seconds and switch > _NOTICED_SECONDS:
        return advice(
            "restore",
            f"{who}a restore helps ({after}), but a switch costs {switch:.2f} s, and reading"
            f" {measured.tokens} tokens again {measured.read_seconds:.2f} s",
            f"[[routes]] min_tokens = {2 * measured.tokens}, or cache = false",
        )
    return ok(
        "restore",
        f"{who}a restore helps ({after}): a switch costs {switch:.2f} s, reading"
        f" {measured.tokens} tokens again {measured.read_seconds:.2f} s",
    )
