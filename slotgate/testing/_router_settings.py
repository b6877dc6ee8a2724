"""
How the fake router's models are started, and how ``/models`` tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from slotgate.testing._engine import Speed
from slotgate.testing.fake import FakeLlamaServer

_BINARY = "/usr/bin/llama-server"


@define(eq=False)
class FakeModel:
    """
    How one model is started. A test may change ``aliases``, ``cache_ram``, ``broken``,
    ``load_seconds``, ``unload_seconds`` and ``more_args`` at any time, the rest on ``child(name)``.

    :ivar model_path: files of another path do not fit; empty: ``/models/<name>.gguf``.
    :ivar aliases: more names for it.
    :ivar slot_save_path: its folder of slot files; None: the router's.
    :ivar total_slots: slots (``--parallel``).
    :ivar context: tokens in one slot; ``--ctx-size`` is that of all of them.
    :ivar sleep_idle_seconds: idle seconds until it sleeps, None: never.
    :ivar speed: how fast it works.
    :ivar batch: tokens read in one go.
    :ivar says: what it writes when it may write as much as it wants.
    :ivar cache_ram: MiB of ``--cache-ram``; told only, the fake has no such cache. None: not set.
    :ivar broken: whether its file cannot be loaded: its process then ends with exit code 1.
    :ivar load_seconds: how long it takes until it is loaded, or until that has failed.
    :ivar unload_seconds: how long its process takes to end after an unload.
    :ivar more_args: what else stands in its command line.
    """

    model_path: str = ""
    aliases: Sequence[str] = ()
    slot_save_path: Path | None = None
    total_slots: int = 1
    context: int = 4096
    sleep_idle_seconds: float | None = None
    speed: Speed = field(factory=Speed)
    batch: int = 2048
    says: str = "Certainly. This is what a small model says."
    cache_ram: int | None = 0
    broken: bool = False
    load_seconds: float = 0.0
    unload_seconds: float = 0.0
    more_args: Sequence[str] = ()


def options(server: FakeLlamaServer, model: FakeModel) -> dict[str, str]:
    """
    The options of a model's command line that a preset may set, without dashes, in their order.
    """
    idle, folder = server.sleep_idle_seconds, server.slot_save_path
    found = {
        "sleep-idle-seconds": None if idle is None else f"{idle:g}",
        "slot-save-path": None if folder is None else f"{folder}/",
        "batch-size": str(server.batch),
        "ctx-size": str(server.context * server.total_slots),
        "cache-ram": None if model.cache_ram is None else str(model.cache_ram),
        "model": server.model_path,
        "parallel": str(server.total_slots),
    }
    return {name: value for name, value in found.items() if value is not None}


def args(server: FakeLlamaServer, model: FakeModel, port: int) -> list[str]:
    """
    The command line, as ``/models`` tells it.

    :param port: of its process; 0 before the first.
    """
    head = [_BINARY, "--host", "127.0.0.1", "--log-colors", "off", "--port", str(port)]
    rest = [part for name, value in options(server, model).items() for part in (f"--{name}", value)]
    return [*head, "--alias", server.alias, *rest, *model.more_args]


def preset(server: FakeLlamaServer, model: FakeModel) -> str:
    """
    The same as a section of a preset file.
    """
    lines = [f"{name} = {value}\n" for name, value in options(server, model).items()]
    return "".join([f"[{server.alias}]\n", "log-colors = off\n", *lines, "\n"])
