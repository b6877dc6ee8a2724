"""
The log: how an event becomes a line, which events do, and where the lines go under twistd.
"""

from slotgate.logs.formats import as_json, as_text
from slotgate.logs.levels import levels

__all__ = ["as_json", "as_text", "levels"]
