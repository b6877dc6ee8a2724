"""
Waiting for a model and a slot: what is done then, and what a client is told that is not let in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from attrs import frozen

from slotgate.slots.arrivals import ModelFailed
from slotgate.slots.backend import Backend, Place
from slotgate.slots.lease import QueueFull, Stopping
from slotgate.web.forward import ModelLost
from slotgate.web.rejected import Rejected

#: What a client that was not let in is told to wait, in seconds: about one short answer.
RETRY_AFTER_SECONDS = 5

#: How often a router's model is asked for before its answer is taken as it is: a file is restored
#: twice before it is given up, and can end the model's process each time.
MODEL_ATTEMPTS = 3


@contextmanager
def rejections() -> Iterator[None]:
    """
    Turn what waiting for a model or a slot can end in into an answer.

    :raises Rejected: instead of that.
    """
    try:
        yield
    except QueueFull as error:
        retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        raise Rejected(503, f"{error}; try again", retry) from error
    except Stopping as error:
        raise Rejected(503, "slotgate is stopping") from error
    except ModelFailed as error:
        raise Rejected(500, str(error)) from error


@frozen
class Chance:
    """What may be done when the model goes away before anything was written to the client."""

    #: Whether the model may be asked for another time.
    again: bool = False
    #: Whether a request that was sent may be sent another time: once.
    resend: bool = False


async def with_model(
    backend: Backend, place: Place, send: Callable[[Chance], Awaitable[None]]
) -> None:
    """
    Do something with the model of a place, once it is loaded.

    :param send: does it; may raise :class:`ModelLost` where it is told so.
    :raises Rejected: it will not be loaded, or nobody is let in.
    """
    if place.admissions is None or place.model is None:
        await send(Chance())
        return
    sent = False
    for left in range(MODEL_ATTEMPTS - 1, -1, -1):
        with rejections():
            admission = await place.admissions.enter(place.model)
        try:
            await send(Chance(again=left > 0, resend=left > 0 and not sent))
            return
        except ModelLost as lost:
            sent = sent or lost.sent
            await backend.missed(admission)
        finally:
            admission.release()
