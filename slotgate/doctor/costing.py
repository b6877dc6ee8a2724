"""
Findings about what a switch costs.
"""

from __future__ import annotations

from slotgate.doctor.facts import Measured, Measurement
from slotgate.doctor.findings import Finding, advice, ok, problem
from slotgate.doctor.modelling import NEWER
from slotgate.doctor.said import megabytes, on_command_line

#: A switch that takes less is no trouble to anybody.
_NOTICED_SECONDS = 0.1


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
            f"{NEWER}, or {on_command_line('--swa-full')}",
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
