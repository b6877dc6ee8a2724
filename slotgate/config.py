"""
The configuration: what each setting means, its default, and the TOML it is read from.

A field here is the key of the same name in the file; the file knows a few more keys that end in
the same field (``slot``, ``api_key_file``, ...): ``ALTERNATIVES`` in ``_config.settings``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from attrs import field, frozen


@frozen
class Router:
    """How the models of a router are followed (``[servers.NAME.router]``)."""

    tracker: Literal["enforce", "observe", "off"] = "enforce"
    #: How many models the router holds at once; ``None`` ("auto"): as it says; 0: no limit.
    models_max: int | None = None


@frozen
class Server:
    """One llama-server address (``[servers.NAME]``)."""

    name: str
    url: str = "http://127.0.0.1:8080"
    #: The key that slotgate shows the server; already read from ``api_key_file``/``api_key_env``.
    api_key: str | None = field(default=None, repr=False)
    #: Trusted certificates for https, a PEM file; ``None``: the system's.
    ca_file: Path | None = None
    #: The folder of ``--slot-save-path`` as this process sees it. Without it files are never
    #: deleted or checked.
    slot_save_path: Path | None = None
    #: How long one control call (save, restore, erase, a look at the slots) may take.
    control_timeout_seconds: float = 120.0
    #: The longest wait between two looks at a busy slot.
    poll_seconds: float = 1.0
    #: The longest silence of the server within a relayed request: before the first byte and
    #: between two.
    read_timeout_seconds: float = 3600.0
    #: How long a request waits for a server that is loading its model.
    load_wait_seconds: float = 120.0
    #: What of a snapshot's file is checked before it is restored: its size, or its checksum too.
    verify: Literal["size", "xxh3"] = "size"
    #: Delete, at our start, files of ours that no session has.
    sweep: bool = True
    #: The disk of ``slot_save_path`` keeps at least this much free, in GiB.
    min_free_gib: float = 1.0
    router: Router = Router()


@frozen
class Route:
    """What a model name stands for (``[[routes]]``)."""

    #: The name the client asks for; an exact name wins over a pattern (:mod:`fnmatch`).
    model: str
    #: The name of the server in ``[servers]``.
    server: str
    #: What the server calls the model; empty: the client's name without a leading ``openai/``.
    upstream_model: str = ""
    #: False: requests are relayed and nothing is saved or restored.
    cache: bool = True
    slots: tuple[int, ...] = (0,)
    #: Save a slot that had no request for this long; 0: only when it is needed, or at our stop.
    save_idle_seconds: float = 0.0
    #: Caches of fewer tokens are not worth a file.
    min_tokens: int = 64
    #: At most this many snapshots of the route; 0: no limit.
    max_files: int = 0
    #: At most this many GiB of snapshots of the route; 0: no limit.
    max_gib: float = 0.0
    #: Make the same of what some clients write anew into each system prompt: Claude Code's
    #: ``cch=``, before 2.1.181.
    normalise: bool = False


@frozen
class Identity:
    """Where a request's session id is looked for, in order (``[identity]``)."""

    #: Names, and patterns with ``*``; :mod:`slotgate.identity` says which names are read
    #: specially.
    headers: tuple[str, ...] = (
        "x-slotgate-session",
        "x-openwebui-chat-id",
        "x-claude-code-session-id",
        "x-session-id",
        "x-session-affinity",
        "session-id",
        "session_id",
        "thread-id",
        "conversation_id",
        "x-litellm-session-id",
        "agent-session-id",
        "x-goose-session-id",
        "goose-session-id",
        "x-hermes-session-id",
        "x-kilocode-taskid",
        "x-task-id",
        "x-coder-chat-id",
        "x-conversation-id",
        "conversation-id",
        "x-smg-routing-key",
        "x-*-session-id",
    )
    #: Fields of the JSON body; a dot goes one object deeper.
    body: tuple[str, ...] = (
        "slotgate_session",
        "prompt_cache_key",
        "promptCacheKey",
        "session_id",
        "litellm_session_id",
        "metadata.session_id",
        "client_metadata.thread_id",
        "metadata.user_id",
        "conversation_id",
        "chat_id",
        "id",
    )
    #: Recognise the conversations of clients that name none by what was said in them.
    history: bool = True
    #: Where there is no conversation either, fall back on ``sys-`` and 16 hex digits of the system
    #: prompt's SHA-256.
    system_prompt: bool = True
    #: Accept only 32 lower-case hex digits in ``X-Session-ID``; anything else is no session.
    strict_hex: bool = False


@frozen
class Client:
    """Somebody with a key (``[[clients]]``)."""

    name: str
    key: str = field(repr=False)
    admin: bool = False


@frozen
class Gateway:
    """The listening side (``[gateway]``)."""

    #: Twisted endpoint strings.
    listen: tuple[str, ...] = ("tcp:11434:interface=127.0.0.1",)
    #: Where the index lies.
    state_dir: Path = field(factory=lambda: Path("~/.local/state/slotgate").expanduser())
    #: How long running responses may take to end when slotgate stops.
    drain_seconds: float = 30.0
    #: Larger request bodies are refused with 413.
    max_body_mib: float = 64.0
    #: Waiting requests per slot; beyond: 503 with ``Retry-After``.
    max_queue: int = 64
    #: A client that reads nothing of its response for this long is cut.
    stall_seconds: float = 60.0
    #: Allow listening beyond loopback without ``[[clients]]``.
    allow_anonymous: bool = False
    #: Names for this machine in the ``Host`` of a request, beyond those that it has anyway.
    hosts: tuple[str, ...] = ()
    #: Origins of pages that may read answers, as a browser writes them, or ``"*"``: all.
    cors_origins: tuple[str, ...] = ()


@frozen
class PromptHistory:
    """
    What is remembered of the last prompts, to tell how the next one differs
    (``[prompt_history]``).
    """

    #: Of so many sessions, those used last; 0: of none, and prompts are not compared.
    sessions: int = 500
    #: At most so much memory for all of them, in MiB.
    mib: float = 32.0
    #: Keep the texts too, so that they can be read side by side. Without it only digests and
    #: lengths are kept.
    keep_prompts: bool = False


@frozen
class Logging:
    """What goes into the log, and how (``[logging]``)."""

    #: Lines for people, or one JSON object a line.
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warn", "error", "critical"] = "info"
    #: Levels of namespaces and what is below them: ``{"slotgate.slots": "debug"}``.
    levels: Mapping[str, str] = field(factory=dict)


@frozen
class Config:
    """The whole configuration."""

    gateway: Gateway
    servers: Mapping[str, Server]
    routes: tuple[Route, ...]
    identity: Identity
    clients: tuple[Client, ...] = ()
    prompt_history: PromptHistory = PromptHistory()
    logging: Logging = Logging()


class ConfigError(ValueError):
    """
    A configuration that cannot be used. The message has one line for each mistake; every line
    says in which file (or environment variable) and at which key, and contains no secret.
    """

    @property
    def lines(self) -> list[str]:
        """One line for each mistake."""
        return str(self).split("\n")


def load_config(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """
    Read the configuration.

    :param path: the TOML file; ``None``: the defaults, which is one server at
        ``http://127.0.0.1:8080`` and one route ``*``.
    :param environ: where the variables of older setups and of ``api_key_env`` are looked up.
    :raises ConfigError: when the file cannot be read or anything in it is wrong.
    """
    # Imported here because the reader needs the classes above, and `import slotgate` no cattrs.
    from slotgate._config.loading import load

    return load(path, environ)
