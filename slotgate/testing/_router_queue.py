"""
Who waits for a model of the fake router. No I/O, no time.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred

M = TypeVar("M")


@define(eq=False)
class Waiter:
    """
    A request that waits for a model.

    :ivar queued: whether it holds the model's place in the queue; one that came while the model
        was loading holds none.
    """

    deferred: Deferred[None]
    queued: bool


@define(eq=False)
class Queue(Generic[M]):
    """
    The models that are waited for, in the order in which they were asked for first; only the first
    one may be loaded, and the next one not before its waiters have it.
    """

    _places: list[M] = field(factory=list)
    _claimed: set[M] = field(factory=set)
    _waiters: dict[M, list[Waiter]] = field(factory=dict)

    def add(self, model: M, waiter: Waiter) -> None:
        """
        Wait, at the model's place if somebody waits for it already.
        """
        self._waiters.setdefault(model, []).append(waiter)
        if waiter.queued and model not in self._places:
            self._places.append(model)

    def drop(self, model: M, waiter: Waiter) -> None:
        """
        Wait no more; the last one gives the model's place up.
        """
        left = self._waiters.get(model, [])
        if waiter in left:
            left.remove(waiter)
            if not any(other.queued for other in left):
                self._give_up(model)

    def _give_up(self, model: M) -> None:
        if model in self._places:
            self._places.remove(model)
        self._claimed.discard(model)

    def settle(self, model: M) -> None:
        """
        What was claimed is done; the place is given up unless somebody waits anew.
        """
        self._claimed.discard(model)
        if not self._waiters.get(model):
            self._give_up(model)

    def first(self) -> M | None:
        """
        The model whose turn it is to be loaded, unless that is under way.
        """
        if self._places and self._places[0] not in self._claimed:
            return self._places[0]
        return None

    def claim(self, model: M) -> None:
        """
        The model is being loaded.
        """
        self._claimed.add(model)

    def needed(self) -> int:
        """
        The number of models that wait to be loaded.
        """
        return len(self._places) - len(self._claimed)

    def wants(self, model: M) -> bool:
        """
        Whether somebody in the queue waits for a model.
        """
        return model in self._places

    def waiters(self, model: M) -> list[Waiter]:
        """
        Take out who waits for a model; its place stays.
        """
        return self._waiters.pop(model, [])

    def served(self, model: M) -> list[Waiter]:
        """
        Give a model's place up, and take out who waits for it.
        """
        self._give_up(model)
        return self.waiters(model)
