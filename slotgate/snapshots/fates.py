"""
What became of sessions that have no snapshot, or not their newest: the answer to "why was it
cold?".
"""

from __future__ import annotations

import enum
from collections import OrderedDict

from attrs import define, field

from slotgate.sessions import SessionKey

#: Of so many sessions it is remembered; about 300 bytes each.
MOST = 10_000


class Fate(enum.Enum):
    """What became of a session's cache since it was in a slot."""

    #: It was in a slot, and has not been saved since.
    IN_SLOT = "in a slot"
    #: All of it is on disk.
    SAVED = "saved"
    # it is not worth a file
    TOO_SHORT = "too short"
    PASSING = "one of many questions"
    # it could not be saved
    UNSUPPORTED = "not saved by the server"
    NO_ROOM = "no room on the disk"
    FAILED = "save failed"
    NOT_HELPFUL = "restores do not help"
    # its snapshot went
    EVICTED = "evicted"
    OTHER_MODEL = "other model"
    DAMAGED = "damaged"
    #: A client deleted it.
    DELETED = "deleted"
    #: The file was gone.
    MISSING = "file missing"
    # its slot went before it was saved
    RESTARTED = "server restarted"
    UNLOADED = "model unloaded"
    #: Somebody used the slot past slotgate.
    OVERWRITTEN = "used by another client"
    #: The server emptied it, as automatic slots do with those that are idle.
    EMPTIED = "emptied by the server"
    #: A client emptied it, through slotgate.
    CLEARED = "cleared"
    # it can not be told
    FOLDER_AWAY = "folder away"


@define(eq=False)
class Fates:
    """
    The fates of the sessions of one server, the latest of each. In memory only: after our start
    nothing is known of what has no record.

    Invariant: at most :data:`MOST`; those noted longest ago go first.
    """

    _fates: OrderedDict[SessionKey, Fate] = field(factory=OrderedDict, init=False)

    def note(self, key: SessionKey, fate: Fate) -> None:
        """This became of a session."""
        self._fates[key] = fate
        self._fates.move_to_end(key)
        while len(self._fates) > MOST:
            self._fates.popitem(last=False)

    def of(self, key: SessionKey) -> Fate | None:
        """``None``: it was never here, as far as is known."""
        return self._fates.get(key)
