"""
What is done to slots, told to whoever counts and shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from slotgate.llama.errors import ControlError, Unreachable
from slotgate.llama.wire import Restored, Saved
from slotgate.sessions import SessionKey
from slotgate.slots.address import Address


class Action(enum.Enum):
    """A control call that changes a slot or writes it."""

    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


class Result(enum.Enum):
    """How a control call ended."""

    OK = "ok"
    #: The server refused it: a full disk, a file that does not fit.
    REFUSED = "refused"
    #: It gave no answer.
    LOST = "lost"
    #: It was due and not asked for: nothing can be saved, or there is no room.
    SKIPPED = "skipped"


@frozen
class Step:
    """One control call of a switch, an idle save, a stop or the session API."""

    action: Action
    result: Result
    address: Address
    #: Whose cache it was about, as far as that is known.
    session: SessionKey | None
    #: When it began, and how long it took, in seconds of the clock.
    began: float
    seconds: float
    tokens: int = 0
    #: Written or read.
    bytes: int = 0


Tell: TypeAlias = Callable[[Step], None]

_T = TypeVar("_T", Saved, Restored, int)


def nobody(step: Step) -> None:
    """Told where nobody counts."""


@frozen
class Stepping:
    """Takes the steps of one slot, and tells of each."""

    _address: Address
    _clock: IReactorTime
    _tell: Tell

    def skip(self, action: Action, session: SessionKey) -> None:
        """Tell of a step that was due and is not taken."""
        now = self._clock.seconds()
        self._tell(Step(action, Result.SKIPPED, self._address, session, now, 0.0))

    async def take(self, action: Action, session: SessionKey | None, call: Awaitable[_T]) -> _T:
        """
        Wait for a control call.

        :param call: gives what the server answered; of an erase the number of tokens.
        :raises ControlError: as the call does.
        """
        began = self._clock.seconds()
        result, tokens, size = Result.LOST, 0, 0
        try:
            done = await call
            result = Result.OK
            tokens, size = (done, 0) if isinstance(done, int) else (done.tokens, done.size)
            return done
        except ControlError as error:
            result = Result.LOST if isinstance(error, Unreachable) else Result.REFUSED
            raise
        finally:
            seconds = self._clock.seconds() - began
            self._tell(Step(action, result, self._address, session, began, seconds, tokens, size))
