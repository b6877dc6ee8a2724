"""
Why a request found its cache as it did: one word for each cause, and what it means. No I/O.
"""

from __future__ import annotations

import enum

from attrs import frozen

from slotgate.snapshots.fates import Fate


class Reason(enum.Enum):
    """Why a request started cold, or past the cache. The value is the word that people see."""

    #: It did not: the cache was there.
    NONE = ""
    # cold
    NEW_SESSION = "new session"
    NO_SNAPSHOT = "no snapshot"
    EVICTED = "evicted"
    OTHER_MODEL = "other model"
    DAMAGED = "damaged"
    TOO_SHORT = "too short"
    TOO_LONG = "too long"
    NOT_HELPFUL = "restores do not help"
    ISOLATED = "kept apart"
    SERVER_AWAY = "server away"
    INDEX_AWAY = "index away"
    FOLDER_AWAY = "folder away"
    # bypass
    SIDE_REQUEST = "side request"
    NO_CACHE = "route without cache"
    NO_SESSION = "no session"
    NOT_LOADED = "model not loaded"


#: What each means, for people.
_MEANINGS = {
    Reason.NONE: "",
    Reason.NEW_SESSION: "slotgate knows of no earlier request of this session",
    Reason.NO_SNAPSHOT: "it was not saved before its slot was used for something else",
    Reason.EVICTED: "its snapshot was deleted to keep the limits of the route or of the disk",
    Reason.OTHER_MODEL: "its snapshot was written by another model",
    Reason.DAMAGED: "its snapshot could not be restored",
    Reason.TOO_SHORT: "it had fewer tokens than min_tokens, which are not worth a file",
    Reason.TOO_LONG: "its snapshot has more tokens than the slot holds now",
    Reason.NOT_HELPFUL: "restores did not help with this model, so none is tried for a while",
    Reason.ISOLATED: "it does not go on with its session, and clients are kept apart",
    Reason.SERVER_AWAY: "the server did not say what is in the slot",
    Reason.INDEX_AWAY: "the index did not say whether there is a snapshot",
    Reason.FOLDER_AWAY: "the folder of the slot files is not there now",
    Reason.SIDE_REQUEST: "a request beside the conversation, which must not cost it its cache",
    Reason.NO_CACHE: "cache = false on its route",
    Reason.NO_SESSION: "the request names no session, and nothing tells which it belongs to",
    Reason.NOT_LOADED: "the server does not know the model, or does not load it",
}

#: How a session came to have no snapshot.
_STORIES = {
    Fate.SAVED: "its snapshot is not there any more",
    Fate.PASSING: "it was taken for one of many single questions, which are not worth a file",
    Fate.UNSUPPORTED: "the server saves no slots: start it with --slot-save-path",
    Fate.NO_ROOM: "there was no room on the disk to save it",
    Fate.FAILED: "it could not be saved; the log says why",
    Fate.DELETED: "its snapshot was deleted by a client",
    Fate.MISSING: "the file of its snapshot was gone",
    Fate.RESTARTED: "the server was restarted, or its model fell asleep, before it was saved",
    Fate.UNLOADED: "its model was unloaded, fell asleep or crashed before it was saved",
    Fate.OVERWRITTEN: "another client used the slot, past slotgate, before it was saved",
    Fate.EMPTIED: "its slot was emptied, past slotgate, before it was saved",
    Fate.CLEARED: "its slot was cleared before it was saved",
}

_OF_FATES = {
    None: Reason.NEW_SESSION,
    Fate.EVICTED: Reason.EVICTED,
    Fate.OTHER_MODEL: Reason.OTHER_MODEL,
    Fate.DAMAGED: Reason.DAMAGED,
    Fate.TOO_SHORT: Reason.TOO_SHORT,
    Fate.NOT_HELPFUL: Reason.NOT_HELPFUL,
    Fate.FOLDER_AWAY: Reason.FOLDER_AWAY,
}


@frozen
class Cause:
    """Why a request was cold, or past the cache, and what had happened before."""

    reason: Reason
    #: What had become of the session's cache since its last request; ``None``: it is a new one.
    fate: Fate | None = None

    @property
    def meaning(self) -> str:
        """In words; empty: the cache was there."""
        if self.reason is Reason.NO_SNAPSHOT and self.fate in _STORIES:
            return _STORIES[self.fate]
        return _MEANINGS[self.reason]


def cause_of(fate: Fate | None) -> Cause:
    """Why a session without a snapshot starts cold."""
    return Cause(_OF_FATES.get(fate, Reason.NO_SNAPSHOT), fate)
