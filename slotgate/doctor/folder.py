"""
Findings about slot files: whether they are written, where, and on what disk.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from slotgate.doctor.facts import Folder, Model, Probe, ServerFacts
from slotgate.doctor.findings import (
    WHO,
    Finding,
    advice,
    of_models,
    ok,
    on_command_line,
    on_server,
    problem,
)
from slotgate.llama.models import Status
from slotgate.units import gib, megabytes

_EXAMPLE = "/var/cache/llama-slots"
#: Less than this much above ``min_free_gib`` is soon full, in bytes.
_TIGHT = 2 * 1024**3
#: A slower disk makes each switch wait, in bytes a second.
_SLOW = 50e6
#: So many files are named at once.
_NAMED = 10


def of_files(facts: ServerFacts) -> list[Finding]:
    """All about slot files."""
    if not facts.slots_used:
        return []
    found = [*_folder(facts), *of_models(facts, _saves), *of_models(facts, _lands)]
    if facts.folder is not None and facts.folder.exists:
        found += _disk(facts, facts.folder)
    if facts.router is not None and all(m.status is not Status.LOADED for m in facts.models):
        text = "no model is loaded, so nothing was saved to try it"
        found.append(advice("save", text, "ask one of its models something, and ask again"))
    return found


def _theirs(facts: ServerFacts) -> str:
    """The server's folder as it was told it; empty: not known."""
    folders = (m.options.slot_save_path for m in facts.models if m.options is not None)
    return next(filter(None, folders), "").rstrip("/")


def _folder(facts: ServerFacts) -> Iterator[Finding]:
    folder = facts.folder
    to = _theirs(facts) or _EXAMPLE
    change = on_server(facts, f'slot_save_path = "{to}"')
    if folder is None:
        yield advice(
            "folder",
            "slot_save_path is not set, so slot files are never checked or deleted",
            f"{change}, the folder of llama-server --slot-save-path",
        )
    elif not folder.exists:
        why = folder.trouble or "there is no such folder here"
        yield problem("folder", f"{folder.path}: {why}", f"mkdir -p {folder.path}, or {change}")
    elif not folder.writable:
        yield problem(
            "folder",
            f"{folder.path} can not be written by us, so no file in it is ever deleted",
            f"run slotgate as the user of llama-server, or let its group write {folder.path}",
        )
    if folder is not None and folder.left:
        files = "1 file" if len(folder.left) == 1 else f"{len(folder.left)} files"
        yield advice(
            "folder",
            f"{files} ({megabytes(folder.left_bytes)}) of a slotgate doctor that was killed"
            f" lie in {folder.path}; one can be what a slot held then",
            "rm " + " ".join(shlex.quote(str(folder.path / name)) for name in folder.left[:_NAMED]),
        )


def _saves(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    saving = model.saving
    folder = facts.server.slot_save_path or _EXAMPLE
    if saving.folder is False:
        yield problem(
            "save",
            f"{WHO}it saves no slots, since it was started without --slot-save-path",
            on_command_line(f"--slot-save-path {folder}"),
        )
    elif saving.failed:
        yield problem(
            "save",
            f"{WHO}a save failed: {saving.why}",
            "look whether the folder of --slot-save-path is there, its disk has room, and"
            " llama-server may write there",
        )
    elif saving.probe is not None:
        probe = saving.probe
        yield ok(
            "save",
            f"{WHO}slot {probe.slot} was saved to try it, {probe.tokens} tokens,"
            f" {megabytes(probe.written)}",
        )
    elif saving.why or (model.hidden and facts.router is None):
        why = saving.why or "its slots are not seen, so one could be busy"
        yield advice("save", f"{WHO}no save was tried: {why}", "ask again when nobody uses it")
    elif saving.folder:
        untried = ", and no save was tried: slotgate runs, and only it uses these slots"
        yield ok("save", f"{WHO}it has a --slot-save-path{untried if facts.slotgate_runs else ''}")


def _lands(facts: ServerFacts, model: Model) -> Iterator[Finding]:
    """Whether the server's folder is ours."""
    folder, probe = facts.folder, model.saving.probe
    if folder is None or not folder.exists:
        return
    theirs = "" if model.options is None else model.options.slot_save_path.rstrip("/")
    if probe is not None:
        yield from _seen(facts, folder, probe, theirs)
    elif theirs and theirs != str(folder.path):
        yield advice(
            "folder",
            f"{WHO}its slot files go to {theirs}, and slot_save_path is {folder.path}: is that"
            " the same folder?",
            on_server(facts, f'slot_save_path = "{theirs}"'),
        )
    elif theirs and facts.slotgate_runs:
        yield ok("folder", f"{WHO}its slot files go to {folder.path}")
    elif not theirs and facts.slotgate_runs and model.saving.folder is not False:
        yield advice(
            "folder",
            f"{WHO}not known whether its slot files go to {folder.path}, for no save was tried",
            "stop slotgate, and ask again",
        )


def _seen(facts: ServerFacts, folder: Folder, probe: Probe, theirs: str) -> Iterator[Finding]:
    if probe.seen is None:
        stays = f"the file {probe.file} ({megabytes(probe.written)}) stays where it is"
        if probe.elsewhere:
            stays = f"it was in {probe.elsewhere}"
        yield problem(
            "folder",
            f"{WHO}what it saved is not in {folder.path}; {stays}",
            on_server(facts, f'slot_save_path = "{theirs or "FOLDER"}"')
            + ", the folder of llama-server --slot-save-path as this machine sees it",
        )
    elif probe.seen != probe.written:
        yield problem(
            "folder",
            f"{WHO}it says that it wrote {probe.written} bytes, and the file in {folder.path}"
            f" has {probe.seen}",
        )
    elif probe.kept:
        yield problem(
            "folder",
            f"{WHO}what it saved is in {folder.path} and can not be deleted by us"
            f" ({probe.kept}): {probe.file}",
            "run slotgate as the user of llama-server",
        )
    else:
        yield ok("folder", f"{WHO}what it saves is in {folder.path}, and we can delete it")


def _disk(facts: ServerFacts, folder: Folder) -> Iterator[Finding]:
    least = facts.server.min_free_gib
    free = f"{gib(folder.free_bytes)} of the disk are free, and min_free_gib is {least:g}"
    spare = folder.free_bytes - least * 1024**3
    change = f"make room, or {on_server(facts, 'min_free_gib = …')}"
    if spare <= 0:
        yield problem("disk", f"{free}: nothing is saved", change)
    elif spare < _TIGHT:
        yield advice("disk", f"{free}: there is little room for sessions", change)
    if folder.trouble:
        yield problem("disk", f"a file in {folder.path} could not be written: {folder.trouble}")
    elif folder.write_speed:
        speed = (
            f"written at {folder.write_speed / 1e6:,.0f} MB/s and read at"
            f" {folder.read_speed / 1e6:,.0f} MB/s"
        )
        if folder.write_speed < _SLOW:
            yield advice("disk", f"the disk is slow: {speed}", "a folder on a faster disk")
        elif spare >= _TIGHT:
            yield ok("disk", f"{free}; {speed}")
    elif spare >= _TIGHT and folder.writable:
        yield ok("disk", free)
