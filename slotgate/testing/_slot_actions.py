"""
``POST /slots/<id>?action=…``: saving, restoring and erasing a slot, with real files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from slotgate.testing._answers import LlamaError
from slotgate.testing._front_door import Call
from slotgate.testing._slot_files import BadSlotFile, SlotFileFormat
from slotgate.testing._slots import Slot

_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')


@frozen
class Save:
    """
    Write the slot's cache to a file, in place.
    """

    slot_id: int
    filename: str


@frozen
class Restore:
    """
    Read the slot's cache from a file.
    """

    slot_id: int
    filename: str


@frozen
class Erase:
    """
    Empty the slot.
    """

    slot_id: int


Action = Save | Restore | Erase


class Folder(Protocol):
    """
    What an action needs of the server.
    """

    context: int
    disk_full_after: int | None

    @property
    def slot_save_path(self) -> Path | None:
        """
        Where the files are.
        """

    @property
    def file_format(self) -> SlotFileFormat:
        """
        What they look like.
        """


def parse_action(slot_id: str, call: Call) -> Action:
    """
    Read a request; an id is only refused when it does not begin with a number.

    :raises LlamaError: as the real one refuses.
    """
    number = re.match(r"\s*[+-]?\d+", slot_id)
    if number is None:
        raise LlamaError(400, "Invalid slot ID")
    match call.query.get("action"):
        case "save":
            return Save(int(number[0]), _filename(call))
        case "restore":
            return Restore(int(number[0]), _filename(call))
        case "erase":
            return Erase(int(number[0]))
        case _:
            raise LlamaError(400, "Invalid action")


def _filename(call: Call) -> str:
    body = call.body_object()
    if "filename" not in body:
        raise LlamaError(400, "[json.exception.out_of_range.403] key 'filename' not found")
    name = body["filename"]
    if not isinstance(name, str):
        raise LlamaError(400, "[json.exception.type_error.302] type must be string")
    if not allowed_filename(name):
        raise LlamaError(400, "Invalid filename")
    return name


def allowed_filename(name: str) -> bool:
    """
    Whether llama-server takes this as a slot file's name.
    """
    return (
        0 < len(name.encode()) <= 255
        and not _FORBIDDEN.search(name)
        and ".." not in name
        and name[0] != " "
        and name[-1] not in " ."
    )


def act(action: Action, slot: Slot, folder: Folder) -> dict[str, Any]:
    """
    Carry an action out.

    :returns: the answer's body.
    :raises LlamaError: a restore that failed, which empties the slot; a save that did not fit.
    :raises slotgate.testing._slot_files.DeadlySlotFile: when the real server would abort.
    """
    if isinstance(action, Erase):
        return {"id_slot": action.slot_id, "n_erased": slot.clear()}
    path = (folder.slot_save_path or Path()) / action.filename
    answer = {"id_slot": action.slot_id, "filename": action.filename}
    if isinstance(action, Save):
        return {**answer, **_save(path, slot, folder)}
    return {**answer, **_restore(path, slot, folder)}


def _save(path: Path, slot: Slot, folder: Folder) -> dict[str, Any]:
    data = folder.file_format.encode(slot.tokens)
    fits = data[: folder.disk_full_after]
    try:
        path.write_bytes(fits)
    except OSError:
        fits = b""
    if len(fits) < len(data):
        raise LlamaError(500, "Unable to save slot", "server_error")
    return {"n_saved": len(slot.tokens), "n_written": len(data), "timings": {"save_ms": 0.1}}


def _restore(path: Path, slot: Slot, folder: Folder) -> dict[str, Any]:
    slot.clear()
    try:
        data = path.read_bytes()
        tokens = folder.file_format.decode(data)
        if len(tokens) > folder.context:
            raise BadSlotFile("longer than the context")
    except (OSError, BadSlotFile):
        raise LlamaError(
            400,
            "Unable to restore slot: No available space in KV cache or invalid slot save file",
        ) from None
    slot.tokens = list(tokens)
    return {"n_restored": len(tokens), "n_read": len(data), "timings": {"restore_ms": 0.1}}
