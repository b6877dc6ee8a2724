"""
Which route a model name takes, and what the model is called on the way.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from slotgate.config import Config, Route
from slotgate.sessions import Policy

#: What LiteLLM and other gateways put before the name of a model that speaks OpenAI's API.
_PROVIDER = "openai/"


def route_for(config: Config, model: str | None) -> tuple[Route, str] | None:
    """
    The route of a request.

    An exact name wins; then the first pattern of the file that fits. A request without a model is
    one whose name is empty: ``*`` takes it, and where there is none the first route does.

    :param model: the model the client asks for.
    :return: the route and its *route name*, under which snapshots are kept: the model asked for,
        or the pattern when there is none. ``None``: no route fits.
    """
    asked = model or ""
    for route in config.routes:
        if route.model == asked:
            return route, route.model
    for route in config.routes:
        if fnmatchcase(asked, route.model):
            return route, asked or route.model
    return None if asked else (config.routes[0], config.routes[0].model)


def policy_of(route: Route) -> Policy:
    """What the route's settings say about keeping its sessions."""
    return Policy(
        min_tokens=route.min_tokens,
        idle_seconds=route.save_idle_seconds,
        max_files=route.max_files,
        max_bytes=int(route.max_gib * 1024**3),
    )


def upstream_model(route: Route, asked: str | None) -> str | None:
    """
    What the server calls the model.

    :param asked: the name the client used, if any.
    :return: ``None`` when neither the route nor the client names one.
    """
    if route.upstream_model:
        return route.upstream_model
    return asked.removeprefix(_PROVIDER) if asked else None
