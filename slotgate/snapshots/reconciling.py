"""
Index and folders brought together before slotgate starts to serve. Blocking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from twisted.logger import Logger

from slotgate.config import Server
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import SeenFolder

_log = Logger()


async def reconcile(index: Index, servers: Iterable[Server]) -> None:
    """
    Drop the records whose file is not what they say, and delete the files of ours that have no
    record: a kill in the middle of a save leaves one.

    Files of others are never touched, and a folder that can not be read, or whose disk seems not
    to be mounted, is left alone. So are the files in a folder that had some when this installation
    saw it first: they are another one's, which may be running. An installation whose folder was
    empty then needs ``sweep = false`` where it lets another one use it too: it has no records of
    the other's files.
    """
    by_path: dict[Path, list[Server]] = {}
    for server in servers:
        if server.slot_save_path is not None:
            by_path.setdefault(server.slot_save_path.resolve(), []).append(server)
    for path, sharing in by_path.items():
        folder = Folder(path)
        try:
            found, identity = folder.ours(), folder.identity()
        except OSError as error:
            _log.warn("can not list {folder}: {error}", folder=str(path), error=error)
            continue
        before = await index.seen(str(path))
        names = {server.name for server in sharing}
        recorded = {one.file for one in await index.all() if one.server in names}
        # files that a record of ours knows came with us
        shared = bool(set(found) - recorded) if before is None else before.shared
        known = "" if before is None else before.identity
        if recorded and (known == "" or (not found and known != identity)):
            # once its files are missed for good they are a miss each, which costs no other one
            _log.warn(
                "{folder} is another folder than before; is its disk not mounted, or another path"
                " meant? The records are kept",
                folder=str(path),
            )
            await index.saw(str(path), SeenFolder(identity if found else "", shared))
            continue
        await index.saw(str(path), SeenFolder(identity, shared))
        whole = await _drop_records(index, folder, names)
        left = set(found) - whole
        if not shared and all(server.sweep for server in sharing):
            _sweep(folder, left)
        elif shared and left:
            _log.warn(
                "{folder} has {count} slot files that no session here has. They were there before:"
                " another slotgate, or this one with another state_dir, may use them. They are left"
                " alone; delete them by hand if nobody does",
                folder=str(path),
                count=len(left),
            )


async def _drop_records(index: Index, folder: Folder, servers: Collection[str]) -> set[str]:
    """The files that have a record and are what it says."""
    whole = set()
    for snapshot in await index.all():
        if snapshot.server not in servers:
            continue
        if problem := folder.problem(snapshot.file, snapshot.size):
            _log.info(
                "{file} of session {session} is dropped: {problem}",
                file=snapshot.file,
                session=snapshot.key.shown,
                problem=problem,
            )
            await index.forget(snapshot)
        else:
            whole.add(snapshot.file)
    return whole


def _sweep(folder: Folder, files: Iterable[str]) -> None:
    for file in files:
        try:
            folder.remove(file)
        except OSError as error:
            _log.warn("can not delete {file}: {error}", file=file, error=error)
        else:
            _log.info("{file} is deleted: no session has it", file=file)
