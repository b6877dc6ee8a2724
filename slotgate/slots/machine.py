"""
The states of a slot, as far as slotgate knows it, and what leads from one to another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen
from automat import TypeMachineBuilder

from slotgate.sessions import Session


@frozen
class Mark:
    """
    What ``GET /slots`` shows of a slot at rest. Another mark means another content.
    """

    #: ``id_task``: the request that used the slot last.
    task: int
    #: ``n_prompt_tokens``: how many tokens are in it.
    tokens: int


@frozen
class Unknown:
    """Nobody can say what the slot holds."""


@frozen
class Empty:
    """The slot holds nothing."""


@frozen
class Gone:
    """There is no slot to speak of: the server is down, or the model unloaded or asleep."""


@frozen
class Holding:
    """The slot holds a session's tokens and nothing else."""

    session: Session
    #: Nothing of it is to be saved: the session's snapshot is the same, or it is not certain that
    #: all of it is the session's.
    saved: bool
    #: ``None`` where the server does not show its slots: then nobody can check.
    mark: Mark | None = None
    #: How many tokens an answer said are in it; ``None`` where it did not say.
    told: int | None = None


Content = Unknown | Empty | Gone | Holding


@frozen
class Erased:
    """What went from a slot."""

    #: What was in it, as far as we knew.
    content: Content
    #: How many tokens the server dropped.
    tokens: int


class SlotMachine(Protocol):
    """
    The life of one slot.

    ``unknown``
        After our start, after lost contact, after somebody else used it. Never saved.
    ``empty``
        Nothing is in it.
    ``dirty``
        It holds a session whose snapshot is older, or that has none.
    ``saved``
        It holds a session of which nothing is to be saved: the session's snapshot is the same, or
        it is not certain that all of it is the session's.
    ``leased``
        A lease uses it. What is in it changes meanwhile, and only the lease's holder knows how:
        the content went out with :meth:`take` and comes back with the ``found_*`` inputs.
    ``draining``
        The client of the lease went away; the slot may still work. It is nobody's until
        ``/slots`` shows it idle.
    ``gone``
        The server is down, the model unloaded or asleep.

    The outputs only hand out or keep data. They must not raise: the state has changed by then.
    """

    def take(self) -> Content:
        """Begin a lease: the content is the caller's to change and to put back."""

    def drain(self) -> None:
        """The lease's client went away."""

    def lose(self) -> None:
        """The slot went away while nobody used it; a lease finds that out by itself."""

    def found_unknown(self) -> None:
        """End a lease after which the content can not be told."""

    def found_empty(self) -> None:
        """End a lease with nothing in the slot."""

    def found_gone(self) -> None:
        """End a lease without a slot."""

    def found_dirty(self, held: Holding) -> None:
        """End a lease with tokens that no snapshot has."""

    def found_saved(self, held: Holding) -> None:
        """End a lease with a content that is on disk."""

    def content(self) -> Content:
        """What is in the slot; :class:`Unknown` while a lease changes it."""

    def state(self) -> str:
        """The state's name, for people."""


def _machine() -> Callable[[None], SlotMachine]:
    builder = TypeMachineBuilder(SlotMachine, type(None))

    def held(machine: SlotMachine, core: None, held: Holding) -> Holding:
        return held

    unknown = builder.state("unknown")
    empty = builder.state("empty")
    gone = builder.state("gone")
    dirty = builder.state("dirty", held)
    saved = builder.state("saved", held)
    leased = builder.state("leased")
    draining = builder.state("draining")

    for plain, said in ((unknown, Unknown()), (empty, Empty()), (gone, Gone())):
        plain.upon(SlotMachine.take).to(leased).returns(said)
        plain.upon(SlotMachine.content).loop().returns(said)
        plain.upon(SlotMachine.lose).to(gone).returns(None)
    for used in (leased, draining):
        used.upon(SlotMachine.drain).to(draining).returns(None)
        used.upon(SlotMachine.lose).loop().returns(None)
        used.upon(SlotMachine.content).loop().returns(Unknown())
        used.upon(SlotMachine.found_empty).to(empty).returns(None)
        used.upon(SlotMachine.found_gone).to(gone).returns(None)
        used.upon(SlotMachine.found_dirty).to(dirty).returns(None)
        used.upon(SlotMachine.found_saved).to(saved).returns(None)
        used.upon(SlotMachine.found_unknown).to(unknown).returns(None)

    @dirty.upon(SlotMachine.lose).to(gone)
    @saved.upon(SlotMachine.lose).to(gone)
    def let_go(machine: SlotMachine, core: None, held: Holding) -> None:
        return None

    @dirty.upon(SlotMachine.take).to(leased)
    @saved.upon(SlotMachine.take).to(leased)
    @dirty.upon(SlotMachine.content).loop()
    @saved.upon(SlotMachine.content).loop()
    def hand_out(machine: SlotMachine, core: None, held: Holding) -> Content:
        return held

    for every in (unknown, empty, gone, dirty, saved, leased, draining):
        every.upon(SlotMachine.state).loop().returns(every.name)
    return builder.build()


_build = _machine()


def new_machine() -> SlotMachine:
    """A slot of which nothing is known yet."""
    return _build(None)


def put_back(machine: SlotMachine, content: Content) -> None:
    """End the lease with this content in the slot."""
    match content:
        case Unknown():
            machine.found_unknown()
        case Empty():
            machine.found_empty()
        case Gone():
            machine.found_gone()
        case Holding(saved=True):
            machine.found_saved(content)
        case Holding():
            machine.found_dirty(content)
