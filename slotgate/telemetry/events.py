"""
What is told of requests, slots and snapshots, and to whom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define, field, frozen
from twisted.logger import Logger

from slotgate.llama.wire import Usage
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import End, Verdict
from slotgate.slots.reasons import Reason
from slotgate.slots.steps import Step
from slotgate.snapshots.fates import Fate
from slotgate.snapshots.records import Snapshot
from slotgate.telemetry.explanations import Explanation


@frozen
class Served:
    """A request that used the model, once it is over. Times are in seconds."""

    #: When it came, in seconds since the epoch.
    began: float
    #: From then to its end.
    seconds: float
    #: For the model and the slot: the queue and the switch together.
    waited: float
    #: The switch alone.
    switched: float
    #: From its arrival to the first byte of the answer; ``None``: there was none.
    first_byte: float | None
    #: ``openai``, ``anthropic``, ``ollama`` or ``llama`` (llama-server's own paths).
    surface: str
    server: str
    #: The route as the configuration writes it.
    route: str
    #: The model as the server calls it, as far as that is known.
    model: str
    #: ``None``: it used no slot of ours.
    address: Address | None
    session: SessionKey | None
    #: Where the session id came from (``X-Slotgate-Source``).
    source: str
    verdict: Verdict
    reason: Reason
    end: End
    usage: Usage | None
    #: Why it read what it read.
    explanation: Explanation
    #: How its prompt differs from the session's last one; empty: there is none to compare with.
    prompt: str = ""


class Listener(Protocol):
    """Is told what happens. Every call returns at once."""

    def served(self, served: Served) -> None:
        """A request is over."""

    def stepped(self, step: Step) -> None:
        """Something was done to a slot."""

    def dropped(self, snapshot: Snapshot, fate: Fate) -> None:
        """A snapshot was deleted."""

    def failed(self, server: str, kind: str) -> None:
        """
        A server did not answer a request.

        :param kind: ``unreachable`` or ``silent``.
        """

    def rejected(self, status: int) -> None:
        """slotgate itself did not take a request, and answered with that status."""


@define(eq=False)
class Telemetry:
    """
    Tells all listeners.

    Invariant: a listener that fails costs a log line, never a request.
    """

    _listeners: tuple[Listener, ...] = ()
    _log: Logger = field(factory=Logger, init=False)

    def served(self, served: Served) -> None:
        """As :class:`Listener` says."""
        self._each(lambda listener: listener.served(served))

    def stepped(self, step: Step) -> None:
        """As :class:`Listener` says."""
        self._each(lambda listener: listener.stepped(step))

    def dropped(self, snapshot: Snapshot, fate: Fate) -> None:
        """As :class:`Listener` says."""
        self._each(lambda listener: listener.dropped(snapshot, fate))

    def failed(self, server: str, kind: str) -> None:
        """As :class:`Listener` says."""
        self._each(lambda listener: listener.failed(server, kind))

    def rejected(self, status: int) -> None:
        """As :class:`Listener` says."""
        self._each(lambda listener: listener.rejected(status))

    def _each(self, tell: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            try:
                tell(listener)
            except Exception:
                self._log.failure("{listener} was told in vain", listener=type(listener).__name__)
