"""
What a client is told whose request is not let in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slotgate.slots.admission import Admission, ModelFailed
from slotgate.slots.backend import Place
from slotgate.slots.lease import QueueFull, Stopping
from slotgate.web.rejected import Rejected

#: What a client that was not let in is told to wait, in seconds: about one short answer.
RETRY_AFTER_SECONDS = 5


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


async def admitted(place: Place) -> Admission | None:
    """
    Wait until the model of a place is loaded; ``None`` where nothing has to be waited for.

    :raises Rejected: it will not be.
    """
    if place.admissions is None or place.model is None:
        return None
    with rejections():
        return await place.admissions.enter(place.model)
