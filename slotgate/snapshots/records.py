"""
What the index records: snapshots, and what was left in slots.
"""

from __future__ import annotations

from attrs import frozen

from slotgate.sessions import Session, SessionKey
from slotgate.snapshots.fingerprints import Fingerprint


@frozen
class Snapshot:
    """The record of one saved slot. The fields are the table's columns, in its order."""

    #: The client's name, empty where no keys are asked for.
    client: str
    route: str
    session: str
    #: The server that wrote the file, by its name in the configuration.
    server: str
    slot: int
    #: The file's name in the server's folder.
    file: str
    #: Grows with every save where the folder is visible, else 1 and 2 in turn.
    generation: int
    tokens: int
    #: Bytes the server said it wrote.
    size: int
    #: xxh3 of the file's bytes, taken when it was saved; empty where none was asked for.
    checksum: str
    #: These three: :class:`~slotgate.snapshots.fingerprints.Fingerprint`.
    model: str
    model_file: str
    build: str
    #: How the prompt in it begins (:mod:`slotgate.prompts.beginning`).
    beginning: str
    #: Where the session id came from, as in ``X-Slotgate-Source``.
    source: str
    #: Seconds since the epoch.
    created: float
    #: Seconds since the epoch; a restore counts as use.
    used: float

    @property
    def key(self) -> SessionKey:
        """The session it belongs to."""
        return SessionKey(self.client or None, self.route, self.session)

    @property
    def written_by(self) -> Fingerprint:
        """What wrote it."""
        return Fingerprint(self.model, self.model_file, self.build)


@frozen
class SeenFolder:
    """What a folder of slot files was when it was seen last."""

    #: Tells it from another one at the same path; empty: none of our files were in it.
    identity: str
    #: There were files with names of ours in it when it was seen first: somebody else's.
    shared: bool = False


@frozen
class Use:
    """What the snapshots of one route on one server take."""

    server: str
    route: str
    files: int
    bytes: int


@frozen
class Left:
    """What a slot held when a lease of it ended."""

    #: Without its policy: that is the route's, whatever it says by then.
    session: Session
    #: Nothing of it was to be saved.
    saved: bool
    #: ``id_task`` and ``n_prompt_tokens`` of the slot then.
    task: int
    tokens: int
