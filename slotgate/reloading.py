"""
A configuration read again while the gateway runs: what of it can change, and what can not.
"""

from __future__ import annotations

from attrs import define, evolve, fields

from slotgate.config import Config, Gateway

#: Settings of ``[gateway]`` that hold for every next request.
_LIVE = frozenset({"drain_seconds", "stall_seconds"})


@define(eq=False)
class Settings:
    """
    The configuration that is in force.

    Whoever decides by it reads it anew for each request and keeps no part of it.
    """

    config: Config


def merged(running: Config, read: Config) -> tuple[Config, list[str], list[str]]:
    """
    What comes into force of a configuration that was read again.

    :returns: the configuration, the settings that changed, and those that need a restart and
        stay as they are.
    """
    changed, stays = [], []
    gateway = running.gateway
    for setting in fields(Gateway):
        old, new = getattr(running.gateway, setting.name), getattr(read.gateway, setting.name)
        if old == new:
            continue
        if setting.name in _LIVE:
            gateway = evolve(gateway, **{setting.name: new})
            changed.append(f"gateway.{setting.name}")
        else:
            stays.append(f"gateway.{setting.name}")
    if running.servers != read.servers:
        stays.append("servers")
    merged = evolve(running, gateway=gateway)
    if running.routes != read.routes:
        if _slots(read) <= _slots(running):
            merged = evolve(merged, routes=read.routes)
            changed.append("routes")
        else:
            stays.append("routes (they need slots that are not in use)")
    if running.identity != read.identity:
        merged = evolve(merged, identity=read.identity)
        changed.append("identity")
    for section in ("prompt_history", "logging"):
        if getattr(running, section) != getattr(read, section):
            stays.append(section)
    if running.clients != read.clients:
        if bool(running.clients) == bool(read.clients):
            merged = evolve(merged, clients=read.clients)
            changed.append("clients")
        else:
            # from asking for no keys to asking, or back: sessions would change hands
            stays.append("clients")
    return merged, changed, stays


def _slots(config: Config) -> set[tuple[str, int]]:
    return {
        (route.server, slot) for route in config.routes if route.cache for slot in route.slots
    } | {(route.server, -1) for route in config.routes}
