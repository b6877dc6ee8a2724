"""
Findings about routes, and about what a router and the configuration say of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from slotgate.config import Route
from slotgate.doctor.facts import ServerFacts
from slotgate.doctor.findings import Finding, advice, ok, problem
from slotgate.doctor.said import on_command_line, on_server
from slotgate.routes import upstream_model
from slotgate.surfaces.ollama.names import resolved

_PATTERN = frozenset("*?[")


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
    named = [(route, name) for route in facts.routes if (name := _name(route)) is not None]
    unknown = [(route, name) for route, name in named if resolved(name, known) not in known]
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


def _name(route: Route) -> str | None:
    """The model that a route asks for; ``None``: whatever its clients ask for."""
    if not route.upstream_model and _PATTERN & set(route.model):
        return None
    return upstream_model(route, route.model)
