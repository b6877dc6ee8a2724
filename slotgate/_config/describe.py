"""
A configuration in words, for ``slotgate check``.
"""

from __future__ import annotations

from slotgate.config import (
    Client,
    Config,
    Gateway,
    Identity,
    Logging,
    PromptHistory,
    Route,
    Server,
)
from slotgate.plain import printable


def describe(config: Config) -> list[str]:
    """
    What was understood, one line for each thing. No key is in it.
    """
    lines = [
        *_gateway(config.gateway),
        *(_server(server) for server in config.servers.values()),
        *(_route(number, route) for number, route in enumerate(config.routes)),
        _identity(config.identity),
        *_clients(config.clients, config.gateway),
        _prompts(config.prompt_history),
        _logging(config.logging),
    ]
    return [printable(line) for line in lines]


def _gateway(gateway: Gateway) -> list[str]:
    return [
        *(f"listen: {endpoint}" for endpoint in gateway.listen),
        f"state: {gateway.state_dir}",
        f"limits: bodies of {gateway.max_body_mib:g} MiB, {gateway.max_queue} waiting requests per "
        f"slot, {gateway.stall_seconds:g} s for a client that reads nothing, "
        f"{gateway.drain_seconds:g} s to end responses at a stop",
    ]


def _server(server: Server) -> str:
    folder = "not given, so files are neither checked nor deleted"
    if server.slot_save_path is not None:
        missing = "" if server.slot_save_path.is_dir() else " (there is no such folder now)"
        folder = f"{server.slot_save_path}{missing}"
    parts = [
        server.url,
        "with a key" if server.api_key else "without a key",
        f"slot folder {folder}",
    ]
    if server.slot_save_path is not None:
        parts.append(
            f"files checked by {server.verify}, {server.min_free_gib:g} GiB of the disk kept free, "
            + ("leftovers swept" if server.sweep else "leftovers left")
        )
    if server.ca_file is not None:
        parts.append(f"trusts {server.ca_file}")
    parts.append(
        f"a look at a busy slot every {server.poll_seconds:g} s, "
        f"{server.control_timeout_seconds:g} s for a control call, "
        f"{server.read_timeout_seconds:g} s of silence within a response, "
        f"{server.load_wait_seconds:g} s for a model to load"
    )
    return f"server {server.name}: {'; '.join(parts)}"


def _route(number: int, route: Route) -> str:
    name = f' as "{route.upstream_model}"' if route.upstream_model else ""
    to = f'route {number}: "{route.model}" to server {route.server}{name}'
    if not route.cache:
        return f"{to}; relayed only, nothing is saved"
    slots = f"slot{'s' if len(route.slots) > 1 else ''} {', '.join(map(str, route.slots))}"
    limits = [f"snapshots from {route.min_tokens} tokens"]
    if route.max_files:
        limits.append(f"at most {route.max_files} files")
    if route.max_gib:
        limits.append(f"at most {route.max_gib:g} GiB")
    if route.save_idle_seconds:
        limits.append(f"saved after {route.save_idle_seconds:g} s without a request")
    return f"{to}; {slots}; {', '.join(limits)}"


def _identity(identity: Identity) -> str:
    steps = [f"header {name}" for name in identity.headers]
    steps += [f"body {name}" for name in identity.body]
    if identity.history:
        steps.append("history")
    if identity.system_prompt:
        steps.append("system prompt")
    strict = "; X-Session-ID: 32 hex digits only" if identity.strict_hex else ""
    return f"session from, in order: {', '.join([*steps, 'default'])}{strict}"


def _clients(clients: tuple[Client, ...], gateway: Gateway) -> list[str]:
    if clients:
        return [f"client {client.name}{' (admin)' if client.admin else ''}" for client in clients]
    where = "from anywhere" if gateway.allow_anonymous else "from this machine"
    return [f"clients: everybody {where}, no keys asked"]


def _prompts(history: PromptHistory) -> str:
    if not history.sessions:
        return "prompts: not compared"
    kept = "with their texts" if history.keep_prompts else "digests and lengths only"
    return (
        f"prompts: the last two of {history.sessions} sessions are compared, {kept}, at most "
        f"{history.mib:g} MiB"
    )


def _logging(logging: Logging) -> str:
    others = [f"{level} for {name}" for name, level in logging.levels.items()]
    return f"log: {logging.format}, {', '.join([f'from {logging.level} on', *others])}"
