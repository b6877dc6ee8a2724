"""
Why a request found its cache as it did: one word for each cause, and what it means.
"""

from __future__ import annotations

import enum

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
    AWAY = "server away"
    # bypass
    SIDE_REQUEST = "side request"
    NO_CACHE = "route without cache"
    NO_SESSION = "no session"
    NOT_LOADED = "model not loaded"


#: What each means, for people.
MEANINGS = {
    Reason.NONE: "",
    Reason.NEW_SESSION: "the first request of this session, so there was nothing to reuse",
    Reason.NO_SNAPSHOT: "the session was not saved before its slot was used for something else",
    Reason.EVICTED: "its snapshot was deleted to keep the limits of the route or of the disk",
    Reason.OTHER_MODEL: "its snapshot was written by another model or another build",
    Reason.DAMAGED: "its snapshot could not be restored",
    Reason.TOO_SHORT: "it had fewer tokens than min_tokens, which are not worth a file",
    Reason.TOO_LONG: "its snapshot has more tokens than the slot holds now",
    Reason.NOT_HELPFUL: "restores did not help with this model, so none is tried for a while",
    Reason.ISOLATED: "it does not go on with its session, and clients are kept apart",
    Reason.AWAY: "the server did not answer when the slot was looked at",
    Reason.SIDE_REQUEST: "a request beside the conversation, which must not cost it its cache",
    Reason.NO_CACHE: "cache = false on its route",
    Reason.NO_SESSION: "the request names no session, and nothing tells which it belongs to",
    Reason.NOT_LOADED: "the server does not know the model, or does not load it",
}

_OF_FATES = {
    None: Reason.NEW_SESSION,
    Fate.EVICTED: Reason.EVICTED,
    Fate.OTHER_MODEL: Reason.OTHER_MODEL,
    Fate.DAMAGED: Reason.DAMAGED,
    Fate.TOO_SHORT: Reason.TOO_SHORT,
}


def reason_of(fate: Fate | None) -> Reason:
    """Why a session without a snapshot starts cold."""
    return _OF_FATES.get(fate, Reason.NO_SNAPSHOT)
