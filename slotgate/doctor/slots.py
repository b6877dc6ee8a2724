"""
Findings about the slots and the routes that lead to them: how many there are, and who uses them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from difflib import get_close_matches

from slotgate.config import Route
from slotgate.doctor.facts import Model, ServerFacts
from slotgate.doctor.findings import (
    WHO,
    Finding,
    advice,
    of_models,
    ok,
    on_command_line,
    on_server,
    problem,
)
from slotgate.doctor.options import Options
from slotgate.llama.models import Status
from slotgate.routes import upstream_model

#: How many slots llama-server makes where nobody says (b11434, b11549).
AUTO_SLOTS = 4

_PATTERN = frozenset("*?[")


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


def of_routes(facts: ServerFacts) -> list[Finding]:
    """All about routes."""
    if not facts.routes:
        text = "no route leads to it, so nobody gets there"
        change = f'[[routes]] model = "…", server = "{facts.server.name}"'
        return [advice("routes", text, change)]
    if facts.router is None:
        return []
    return [*_router(facts), *_names(facts)]


def _router(facts: ServerFacts) -> Iterator[Finding]:
    router, ours = facts.router, facts.server.router.models_max
    if router is None:
        return
    if not facts.models:
        yield problem("routes", "the router has no models", on_command_line("--models-dir FOLDER"))
    if not router.autoload:
        yield advice(
            "routes",
            "it loads no models by itself, and neither do we",
            "llama-server without --no-models-autoload",
        )
    if router.models_max and ours is not None and (ours == 0 or ours > router.models_max):
        yield advice(
            "routes",
            f"models_max is {ours}, and the router holds at most {router.models_max}: it unloads"
            " some by itself, with what is in their slots",
            on_server(facts, 'router = { models_max = "auto" }'),
        )


def _names(facts: ServerFacts) -> Iterator[Finding]:
    known = {name for model in facts.models for name in (model.id, *model.aliases)}
    named = [(route, name) for route in facts.routes if (name := _name(route, known))]
    unknown = [(route, name) for route, name in named if name not in known]
    for route, name in unknown:
        close = get_close_matches(name, sorted(known), 1, 0.5)
        instead = close[0] if close else "…"
        key = "upstream_model" if route.upstream_model else "model"
        yield problem(
            "routes",
            f'the route "{route.model}" asks for the model "{name}", which the router does not'
            " have",
            f'[[routes]] {key} = "{instead}"',
        )
    if named and not unknown:
        yield ok("routes", "the router has every model that a route names")


def _name(route: Route, known: Container[str]) -> str | None:
    """The model that a route asks for; ``None``: whatever its clients ask for."""
    if not route.upstream_model and route.model in known:
        # whatever it begins with
        return route.model
    if not route.upstream_model and _PATTERN & set(route.model):
        return None
    return upstream_model(route, route.model)
