"""
A save that is tried, so that nobody loses anything by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from attrs import frozen
from twisted.internet.defer import TimeoutError as DeferredTimeout

from slotgate.doctor.facts import Probe, Saving
from slotgate.doctor.files import delete, probe_name, size_of
from slotgate.doctor.threads import in_thread
from slotgate.llama import errors
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.wire import SlotStatus

_T = TypeVar("_T")

#: A slot with more tokens than this is not saved only to see whether that works: its file can
#: have gigabytes.
MOST_TOKENS = 32768

DISK_SECONDS = 10.0

#: A name that llama-server refuses, but only after it has seen that it has a folder (b11434,
#: b11549): nothing is written, and no slot is touched.
_NO_NAME = "/"


@frozen
class Place:
    """Where slot files lie, as far as we see it."""

    reactor: Any
    folder: Path | None

    async def size(self, file: str) -> int | None:
        """The size of a file of ours; ``None``: it is not seen."""
        folder = self.folder
        return None if folder is None else await self._do(lambda: size_of(folder, file), None)

    async def delete(self, file: str) -> str:
        """Why a file of ours could not be deleted; empty: it is gone, or not seen here."""
        folder = self.folder
        if folder is None:
            return ""
        return await self._do(lambda: delete(folder, file), "the disk does not answer")

    async def _do(self, work: Callable[[], _T], late: _T) -> _T:
        try:
            return await in_thread(self.reactor, DISK_SECONDS, work)
        except DeferredTimeout:
            return late


async def has_folder(calls: Calls, slot: int) -> bool | None:
    """
    Whether a server with one model was started with ``--slot-save-path``; ``None``: unclear.
    """
    try:
        await calls.post(f"/slots/{slot}?action=save", {"filename": _NO_NAME})
    except errors.Unsupported:
        return False
    except errors.Refused as error:
        return True if error.status == 400 else None
    except errors.ControlError:
        pass
    return None


def slot_to_probe(slots: Iterable[SlotStatus]) -> SlotStatus | None:
    """The slot that is the least trouble to save: idle, and with as little in it as there is."""
    idle = [slot for slot in slots if not slot.busy and (slot.tokens or 0) <= MOST_TOKENS]
    return min(idle, key=lambda slot: (slot.tokens or 0, slot.id), default=None)


async def probe(
    control: LlamaClient, place: Place, slots: Iterable[SlotStatus], theirs: Place
) -> Saving:
    """
    Save a slot to a file of our own, look for the file, and delete it.

    :param slots: how they were just now.
    :param theirs: the folder of the server's command line: where our file may be instead.
    """
    slot = slot_to_probe(slots)
    if slot is None:
        return Saving(True, why="every slot is busy, or holds a long prompt")
    file = probe_name()
    try:
        saved = await control.save(slot.id, file)
    except errors.Unsupported as error:
        return Saving(False, why=str(error), failed=True)
    except errors.ControlError as error:
        await place.delete(file)
        return Saving(True, why=str(error), failed=True)
    seen = await place.size(file)
    kept = await place.delete(file)
    elsewhere = ""
    if seen is None and await theirs.size(file) == saved.size and not await theirs.delete(file):
        elsewhere = str(theirs.folder)
    return Saving(True, Probe(slot.id, file, saved.tokens, saved.size, seen, kept, elsewhere))
