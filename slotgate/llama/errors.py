"""
How a control call can fail, told apart because each means something else for the slot.
"""

from __future__ import annotations


class ControlError(Exception):
    """A control call did not do what it should; the request it was made for goes on."""


class Unreachable(ControlError):
    """No answer: nobody listens, the connection broke, or the time was up."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        #: False: the call never reached the server, so it did nothing there.
        self.sent = sent


class ProcessLost(Unreachable):
    """A router lost the process of the model, or it does not listen yet."""


class Loading(ControlError):
    """The server is loading its model (503): neither a miss nor a refusal."""


class NotLoaded(ControlError):
    """A router has not loaded the model, so there is no slot of it."""


class Nameless(ControlError):
    """A router wants to know which model is meant: it was taken for a server with one model."""


class KeyRefused(ControlError):
    """The server does not accept our key (401, 403)."""


class Unsupported(ControlError):
    """The server was started without this endpoint (404, 501)."""


class Refused(ControlError):
    """The server answered that it can not: a file that is missing or does not fit, a full disk."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Junk(ControlError):
    """The answer is not what a llama-server says."""


def nobody_there(error: ControlError) -> bool:
    """
    Whether nobody listens at the address. A router that does not answer in time may only be busy:
    it has few threads, and each running answer takes one (``--threads-http``).
    """
    return isinstance(error, Unreachable) and not isinstance(error, ProcessLost) and not error.sent
