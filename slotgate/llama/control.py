"""
What the slots need of a server.
"""

from __future__ import annotations

from typing import Protocol

from slotgate.llama.wire import Props, Restored, Saved, SlotStatus


class Control(Protocol):
    """
    The control calls for slots.

    Every one raises a :class:`~slotgate.llama.errors.ControlError` when the server does not do
    what it was asked.
    """

    async def slot(self, slot_id: int) -> SlotStatus:
        """One slot as the server shows it now. Wakes a server that sleeps."""

    async def working(self) -> bool:
        """Whether any slot works, on whoever's request. Wakes a server that sleeps."""

    async def props(self) -> Props:
        """What the server says of itself. Does not wake a server that sleeps."""

    async def shape(self) -> str:
        """The shape of the server's model, one line. Does not wake a server that sleeps."""

    async def save(self, slot_id: int, file: str) -> Saved:
        """Write the slot to a file in the server's folder, in place."""

    async def restore(self, slot_id: int, file: str) -> Restored:
        """
        Load the slot from a file. A refusal empties the slot; a truncated file kills the server.
        """

    async def erase(self, slot_id: int) -> int:
        """Empty the slot; how many tokens it held."""
