"""
Stand-ins for tests without a reactor: a database in memory, and a llama-server's slot whose
content is the name of what is in it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.task import Clock

from slotgate.llama.errors import ControlError
from slotgate.llama.wire import Props, Restored, Saved, SlotStatus
from slotgate.sessions import Policy
from slotgate.slots.address import Address
from slotgate.slots.memory import Memory
from slotgate.slots.slot import Slot
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.database import Direct, prepare
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.store import Snapshots

T = TypeVar("T")


def memory_database() -> Direct:
    """An index in memory."""
    # a lease that a test leaves open ends when the garbage collector throws its coroutine away,
    # on whichever thread that runs
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    prepare(connection)
    return Direct(connection)


def at_once(function: Callable[..., T], *args: object) -> Deferred[T]:
    """Blocking calls without a thread."""
    return execute(function, *args)


def snapshots(
    clock: Clock,
    folder: Folder | None = None,
    database: Direct | None = None,
    **settings: Any,
) -> Snapshots:
    """The snapshots of server "local"."""
    index = Index(database or memory_database())
    return Snapshots("local", index, folder, at_once, b"secret", clock, **settings)


def slot(
    llama: ScriptedLlama,
    clock: Clock,
    kept: Snapshots,
    max_queue: int = 64,
    load_wait_seconds: float = 120.0,
) -> Slot:
    """Slot 0 of server "local"."""
    address = Address("local", "", 0)
    return Slot(
        address=address,
        control=llama,
        snapshots=kept,
        view=View(str(address), 0, llama, clock, 1.0, load_wait_seconds),
        usefulness=Usefulness("local", clock),
        memory=Memory("local", kept.index, lambda _: Policy(64)),
        clock=clock,
        max_queue=max_queue,
        sleep_seconds=lambda: None,
    )


@define
class ScriptedLlama:
    """
    A server with one slot. ``content`` is who is in it; a request puts somebody in.

    ``faults`` holds errors for coming calls by action; ``gates`` Deferreds that they wait for.
    """

    folder: Folder | None = None
    content: str | None = None
    tokens: int | None = None
    task: int | None = None
    busy: bool = False
    #: File name to (content, tokens).
    files: dict[str, tuple[str | None, int]] = field(factory=dict)
    calls: list[str] = field(factory=list)
    looks: int = 0
    asked: int = 0
    model: str = "/models/a.gguf"
    build: str = "b1"
    n_ctx: int = 4096
    total_slots: int = 1
    sleeping: bool = False
    faults: dict[str, list[ControlError]] = field(factory=dict)
    gates: dict[str, Deferred[None]] = field(factory=dict)

    def request(self, content: str, tokens: int = 100) -> None:
        """A client's request, of ours or of somebody else's."""
        self.task = 0 if self.task is None else self.task + 1
        self.content, self.tokens = content, tokens

    def restart(self) -> None:
        """The process ended and a new one listens."""
        self.content = self.tokens = self.task = None

    async def _do(self, action: str) -> None:
        await self.gates.get(action, succeed(None))
        if self.faults.get(action):
            raise self.faults[action].pop(0)

    async def slot(self, slot_id: int) -> SlotStatus:
        self.looks += 1
        await self._do("look")
        if self.sleeping:
            self.sleeping = False
            self.restart()
        return SlotStatus(slot_id, self.busy, self.task, self.tokens, self.n_ctx)

    async def working(self) -> bool:
        return (await self.slot(0)).busy

    async def props(self) -> Props:
        self.asked += 1
        await self._do("props")
        return Props(self.total_slots, self.model, self.build, self.sleeping)

    async def shape(self) -> str:
        return "n_vocab 259"

    async def save(self, slot_id: int, file: str) -> Saved:
        assert not self.busy, "a control call for a busy slot"
        self.calls.append(f"save {self.content}")
        await self._do("save")
        tokens = self.tokens or 0
        self.files[file] = (self.content, tokens)
        size = 36 + tokens
        if self.folder is not None:
            (self.folder.path / file).write_bytes(b"x" * size)
        return Saved(tokens, size, 1.0)

    async def restore(self, slot_id: int, file: str) -> Restored:
        assert not self.busy, "a control call for a busy slot"
        self.calls.append(f"restore {self.files.get(file, ('nothing', 0))[0]}")
        self.content, self.tokens = None, 0
        await self._do("restore")
        self.content, self.tokens = self.files[file]
        return Restored(self.tokens, 36 + self.tokens, 1.0)

    async def erase(self, slot_id: int) -> int:
        assert not self.busy, "a control call for a busy slot"
        self.calls.append(f"erase {self.content}")
        await self._do("erase")
        dropped = self.tokens or 0
        self.content, self.tokens = None, 0
        return dropped
