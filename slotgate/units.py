"""
Numbers of bytes for people.
"""

from __future__ import annotations


def size(number: float) -> str:
    """Bytes, in the unit that leaves the fewest digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def gib(number: float) -> str:
    """Bytes, as GiB, the unit of the limits in the configuration."""
    return f"{number / 1024**3:.1f} GiB"


def megabytes(number: float) -> str:
    """Bytes of a file, as MB, the unit that disks are said to have; few ones as they are."""
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number:g} bytes"
