"""
What the slots hold, remembered over our own restart.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from slotgate.sessions import Policy
from slotgate.slots.machine import Content, Holding, Mark
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Left


@define(eq=False)
class Memory:
    """
    What was left in the slots of one server.

    It is only ever a belief: the first look at the slot confirms it by its mark, or refutes it.
    """

    _server: str
    _index: Index
    #: What a route's settings say now; those of then may have changed meanwhile.
    _policy: Callable[[str], Policy]
    _log: Logger = field(factory=Logger, init=False)

    async def left(self, model: str, slot_id: int) -> Content | None:
        """What the slotgate before us left in a slot; ``None`` when nothing is known."""
        try:
            left = await self._index.left_in(self._server, model, slot_id)
        except Exception:
            self._log.failure("{server}: what was left is not known", server=self._server)
            return None
        if left is None:
            return None
        session = evolve(left.session, policy=self._policy(left.session.key.route))
        return Holding(session, left.saved, Mark(left.task, left.tokens))

    async def forget(self, model: str, slot_id: int) -> None:
        """The slot's content is about to change: killed from here on we leave it unknown."""
        try:
            await self._index.leave(self._server, model, slot_id, None)
        except Exception:
            self._log.failure("{server}: what was left stays written", server=self._server)

    def leave(self, model: str, slot_id: int, content: Content) -> None:
        """
        Remember what a slot holds now. Nobody waits for it: a kill in between costs a restore.
        """
        left = None
        if isinstance(content, Holding) and content.mark is not None:
            left = Left(content.session, content.saved, content.mark.task, content.mark.tokens)
        written = Deferred.fromCoroutine(self._index.leave(self._server, model, slot_id, left))
        written.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(IndexAway):
            self._log.failure("{server}: what is left is not written", failure, server=self._server)
