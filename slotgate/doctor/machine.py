"""
What this machine says of a server that runs on it, and of itself (Linux; elsewhere: nothing).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from slotgate.doctor.options import Options

_LISTENS = "0A"


def is_local(url: str) -> bool:
    """Whether an address is one of loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def memory_available(proc: Path = Path("/proc")) -> int:
    """Memory that programs could still get, in bytes; 0: not known."""
    try:
        text = (proc / "meminfo").read_text()
    except OSError:
        return 0
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def options_at(port: int, proc: Path = Path("/proc")) -> Options | None:
    """
    The command line of the llama-server that listens on a port of this machine.

    :returns: ``None`` where it is not to be seen: another user's, in a container, or a program
        that llama-server is only a part of.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return None
    for folder in proc.iterdir():
        if not folder.name.isdigit() or not _has(folder, sockets):
            continue
        try:
            command = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        program, *arguments = [part.decode("utf-8", "replace") for part in command]
        if Path(program).name.startswith("llama-server"):
            return Options(tuple(arguments), _folder_of(folder))
    return None


def _folder_of(process: Path) -> str:
    """The working directory of a process; empty where it is not to be seen."""
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def lock_holder(path: Path, proc: Path = Path("/proc")) -> int | None:
    """
    The process that holds a file's lock, found out without touching the lock.

    :returns: ``None``: nobody, as far as is known: a process of another container is not seen.
    """
    try:
        inode = path.stat().st_ino
        lines = (proc / "locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; the device is told otherwise by some
        # file systems than by stat
        found = re.match(rf"\d+: FLOCK +\S+ +WRITE +(\d+) +\S+:{inode} ", line)
        if found and _may_hold(proc / found[1], path):
            return int(found[1])
    return None


def _may_hold(process: Path, path: Path) -> bool:
    """
    Whether a process has a file open, as far as we may see: a file of another file system can
    have the same number.
    """
    try:
        opened = list((process / "fd").iterdir())
    except OSError:
        return True
    return any(_same(one, path) for one in opened)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _listening(port: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS:
                _, _, number = fields[1].rpartition(":")
                if int(number, 16) == port:
                    yield fields[9]


def _has(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(one.readlink()) in sockets for one in (process / "fd").iterdir())
    except OSError:
        return False
