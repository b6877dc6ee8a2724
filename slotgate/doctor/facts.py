"""
What was seen of a server, before anybody says what it means.
"""

from __future__ import annotations

import enum
from pathlib import Path

from attrs import frozen

from slotgate.config import Route, Server
from slotgate.doctor.options import Options
from slotgate.llama.models import RouterProps, Status
from slotgate.llama.wire import SlotStatus


class Contact(enum.Enum):
    """What became of the first questions."""

    ANSWERS = enum.auto()
    #: Nobody there, TLS failed, or the time was up.
    UNREACHABLE = enum.auto()
    #: HTTP, but nothing that a llama-server says.
    FOREIGN = enum.auto()
    #: slotgate itself.
    SLOTGATE = enum.auto()
    KEY_REFUSED = enum.auto()
    LOADING = enum.auto()


@frozen
class Header:
    """What a model's file says of its attention."""

    architecture: str
    #: Tokens that its sliding-window layers see; 0: there are none.
    window: int
    #: Whether it has layers whose state can not be cut back: a hybrid or recurrent model.
    recurrent: bool

    @property
    def whole(self) -> bool:
        """Whether every layer keeps all of the prompt, so that a slot file has all there is."""
        return not self.window and not self.recurrent


@frozen
class Probe:
    """A save that was tried."""

    slot: int
    file: str
    #: Tokens in the slot, and bytes that the server says it wrote.
    tokens: int
    written: int
    #: The file's size as we see it; ``None``: it is not in our folder.
    seen: int | None
    #: Why it could not be deleted; empty: it is gone, or was never seen.
    kept: str = ""
    #: The folder of the server's command line, where it was found and deleted; empty: it was not.
    elsewhere: str = ""


@frozen
class Saving:
    """Whether slots can be saved."""

    #: Whether the server has a folder; ``None``: not known.
    folder: bool | None
    probe: Probe | None = None
    #: Why there was no probe, or why it failed.
    why: str = ""
    failed: bool = False


@frozen
class Slots:
    """Two looks at the slots, a second apart."""

    first: tuple[SlotStatus, ...]
    second: tuple[SlotStatus, ...]

    def used(self, slot: int) -> bool:
        """Whether somebody worked in a slot while we looked."""
        looks = [status for look in (self.first, self.second) for status in look]
        ours = [status for status in looks if status.id == slot]
        return any(status.busy for status in ours) or len({s.task for s in ours}) > 1


@frozen
class Model:
    """One model of a server."""

    #: The id by which a router knows it; empty: the only one.
    id: str
    status: Status
    #: A router's other names for it.
    aliases: tuple[str, ...] = ()
    path: str = ""
    total_slots: int | None = None
    #: ``None``: its command line is not seen.
    options: Options | None = None
    #: ``None``: not looked at, or not shown.
    slots: Slots | None = None
    #: Why its slots were not seen; empty: they were, or were not looked at.
    hidden: str = ""
    header: Header | None = None
    saving: Saving = Saving(None)


@frozen
class Folder:
    """The folder of slot files as we see it."""

    path: Path
    exists: bool
    #: Whether we may list it and delete in it.
    writable: bool = False
    free_bytes: int = 0
    #: Bytes a second; 0: not measured.
    write_speed: float = 0.0
    read_speed: float = 0.0
    #: What went wrong.
    trouble: str = ""
    #: Files of a doctor that was killed, and their bytes together.
    left: tuple[str, ...] = ()
    left_bytes: int = 0


@frozen
class ServerFacts:
    """All that was seen of one server."""

    server: Server
    #: Those that lead to it.
    routes: tuple[Route, ...]
    contact: Contact
    #: The error, in the words of whoever noticed it.
    said: str = ""
    #: Its URL with the other scheme, where that is what answers; empty: it is not.
    answers_at: str = ""
    build: str = ""
    router: RouterProps | None = None
    models: tuple[Model, ...] = ()
    #: ``None``: none is configured.
    folder: Folder | None = None
    #: Whether it is on this machine.
    local: bool = False
    #: Memory of this machine that is left, in bytes; 0: not known.
    memory_available: int = 0
    #: Whether a slotgate with this configuration runs.
    slotgate_runs: bool = False

    @property
    def slots_used(self) -> tuple[int, ...]:
        """The slots that routes use, of each model."""
        return tuple(sorted({slot for route in self.routes if route.cache for slot in route.slots}))


@frozen
class Measured:
    """What a switch costs, as it was measured."""

    model: str
    #: Tokens of the prompt, and how long they took to read, in seconds.
    tokens: int
    read_seconds: float
    save_seconds: float
    restore_seconds: float
    size: int
    #: Of the question after the restore: tokens that were in the slot, and that had to be read.
    reused: int
    read_again: int

    @property
    def helped(self) -> bool:
        """Whether the restore saved reading."""
        return self.reused > self.read_again


@frozen
class Measurement:
    """How measuring went."""

    #: ``None``: it could not be measured.
    measured: Measured | None
    #: Why not.
    why: str = ""
    #: What else there is to know: sentences.
    notes: tuple[str, ...] = ()
    #: What is not as it was before: sentences.
    troubles: tuple[str, ...] = ()
