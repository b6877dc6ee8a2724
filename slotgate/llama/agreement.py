"""
Where what a router says of itself and the configuration do not fit together. No I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from slotgate.config import Server
from slotgate.llama.models import Model, RouterProps


def limit_of(server: Server, router: RouterProps) -> int:
    """How many models may be loaded at once; 0: no limit."""
    configured = server.router.models_max
    return router.models_max if configured is None else configured


def disagreements(
    server: Server, slots: Collection[int], router: RouterProps, models: Iterable[Model]
) -> list[str]:
    """
    What does not fit, one sentence for each thing that an operator can put right.

    :param slots: the slots that the configuration uses of each model.
    """
    said = []
    most, ours = router.models_max, server.router.models_max
    if most and ours is not None and (ours == 0 or ours > most):
        said.append(
            f"models_max is {ours}, and the router holds at most {most} models (--models-max): it"
            " will unload some by itself, with what is in their slots"
        )
    if not router.autoload:
        said.append("it loads no models by itself (--no-models-autoload), and neither do we")
    found: dict[str, list[str]] = defaultdict(list)
    for model in models:
        for problem in _problems(server, slots, model):
            found[problem].append(model.id)
    said += [f"{', '.join(names)}: {problem}" for problem, names in found.items()]
    return said


def _problems(server: Server, slots: Collection[int], model: Model) -> Iterable[str]:
    if not slots:
        return
    if not model.slot_save_path:
        yield "started without --slot-save-path, so nothing is saved"
    elif server.slot_save_path is not None:
        theirs = model.slot_save_path.rstrip("/") or "/"
        if theirs != str(server.slot_save_path):
            yield (
                f"the slot files go to {theirs}, and slot_save_path is {server.slot_save_path};"
                " is that the same folder?"
            )
    if model.parallel is None:
        yield "started without --parallel, so the number of slots is the server's choice"
    elif model.parallel <= max(slots):
        yield f"has {model.parallel} slots (--parallel), and a route uses slot {max(slots)}"
