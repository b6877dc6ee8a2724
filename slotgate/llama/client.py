"""
The control calls: what slotgate itself asks a llama-server, one log line for each that acts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from attrs import define, field
from twisted.logger import Logger

from slotgate.llama import errors, wire
from slotgate.llama.calls import Calls
from slotgate.llama.control import Control

_T = TypeVar("_T")


@define
class LlamaClient:
    """
    The control side of one model of a server, as :class:`~slotgate.llama.control.Control` says.

    No call of it loads a model.
    """

    _calls: Calls
    #: The id by which a router knows the model; empty: the server has one model and needs no name.
    _model: str = ""
    _log: Logger = field(factory=Logger, init=False)

    async def slot(self, slot_id: int) -> wire.SlotStatus:
        """
        As :class:`Control` says; ``Junk`` when the server has no slot of this number.
        """
        for status in await self._slots():
            if status.id == slot_id:
                return status
        raise errors.Junk(f"/slots shows no slot {slot_id}")

    async def working(self) -> bool:
        """As :class:`Control` says."""
        return any(status.busy for status in await self._slots())

    async def _slots(self) -> tuple[wire.SlotStatus, ...]:
        return await self._calls.get(self._target("/slots"), wire.slots_from)

    async def props(self) -> wire.Props:
        """As :class:`Control` says."""
        return await self._calls.get(self._target("/props"), wire.props_from)

    async def shape(self) -> str:
        """As :class:`Control` says."""
        return await self._calls.get("/v1/models", partial(wire.shape_from, model=self._model))

    async def save(self, slot_id: int, file: str) -> wire.Saved:
        """As :class:`Control` says."""
        return await self._act(
            slot_id, "save", {"filename": file}, wire.saved_from, lambda s: (s.tokens, s.size)
        )

    async def restore(self, slot_id: int, file: str) -> wire.Restored:
        """As :class:`Control` says."""
        return await self._act(
            slot_id, "restore", {"filename": file}, wire.restored_from, lambda r: (r.tokens, r.size)
        )

    async def erase(self, slot_id: int) -> int:
        """As :class:`Control` says."""
        return await self._act(slot_id, "erase", {}, wire.erased_from, lambda n: (n, 0))

    def _target(self, path: str) -> str:
        """
        The path for our model. Asked for a model that is not loaded, a router loads it, unloads
        another one for that, and "saves" 36 bytes over a good file, unless it is told not to.
        """
        if not self._model:
            return path
        return f"{path}?model={quote(self._model, safe='')}&autoload=false"

    async def _act(
        self,
        slot_id: int,
        action: str,
        body: dict[str, str],
        read: Callable[[object], _T],
        measure: Callable[[_T], tuple[int, int]],
    ) -> _T:
        # an erase needs a body too: a router reads the model from it, and some builds hang
        # without one
        target = f"/slots/{slot_id}?action={action}"
        place = f"slot {slot_id}"
        if self._model:
            target, body = f"{target}&autoload=false", {"model": self._model, **body}
            place = f"{self._model} {place}"
        call = f"{self._calls.server.name} {action} {body.get('filename', '-')} ({place})"
        began = self._calls.clock.seconds()
        try:
            answer = await self._calls.post(target, body)
            result = read(answer)
        except errors.ControlError as error:
            seconds = self._calls.clock.seconds() - began
            if isinstance(error, errors.KeyRefused):
                self._log.warn("{call}: {error}", call=call, error=error)
            elif isinstance(error, errors.Refused) and error.status == 400 and action == "restore":
                self._log.info("{call}: miss: {error}", call=call, error=error)
            else:
                self._log.warn(
                    "{call}: failed after {seconds:.1f} s: {error}",
                    call=call,
                    seconds=seconds,
                    error=error,
                )
            raise
        tokens, size = measure(result)
        self._log.info(
            "{call}: ok ({tokens} tokens, {megabytes:.1f} MB, {seconds:.2f} s)",
            call=call,
            tokens=tokens,
            megabytes=size / 1e6,
            seconds=self._calls.clock.seconds() - began,
        )
        return result


_check: type[Control] = LlamaClient
