"""
The options that a llama-server was started with, where its command line is known.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from attrs import frozen

#: ``--cache-ram`` where nobody has set it, in MiB (b11434, b11549).
DEFAULT_CACHE_RAM_MIB = 8192


@frozen
class Options:
    """A command line of llama-server: its long options and their short forms."""

    args: tuple[str, ...]
    #: The folder that its relative paths start from; empty: it is not known.
    started_in: str = ""

    def value(self, *names: str) -> str | None:
        """The value of an option; of several the last one counts, as it does there."""
        found = None
        for option, value in zip(self.args, self.args[1:], strict=False):
            if option in names:
                found = value
        return found

    def number(self, *names: str) -> float | None:
        """The value of an option whose value is a number."""
        try:
            number = float(self.value(*names) or "")
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    @property
    def slot_save_path(self) -> str:
        """The folder of slot files, whole as far as that is known; empty: none."""
        path = self.value("--slot-save-path")
        return os.path.normpath(Path(self.started_in, path)) if path else ""

    @property
    def parallel(self) -> int | None:
        """The number of slots; ``None``: the server's choice: four that share one cache."""
        number = self.number("-np", "--parallel")
        return None if number is None or number < 1 else int(number)

    @property
    def cache_ram_mib(self) -> int:
        """How much of prompts it keeps in memory, in MiB; -1: without a limit."""
        number = self.number("-cram", "--cache-ram")
        return DEFAULT_CACHE_RAM_MIB if number is None else int(number)

    @property
    def sleep_seconds(self) -> float | None:
        """After how many idle seconds it drops the model; ``None``: never."""
        number = self.number("--sleep-idle-seconds")
        return None if number is None or number < 0 else number

    @property
    def swa_full(self) -> bool:
        """Whether all of a sliding-window model's cache is kept."""
        return "--swa-full" in self.args
