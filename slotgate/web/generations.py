"""
A generation on its way: the lease, the server, the answer, and what came of it.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from slotgate.reloading import Settings
from slotgate.slots.choice import End, Verdict
from slotgate.slots.lease import Lease, QueueFull, Stopping
from slotgate.slots.pool import SlotPool
from slotgate.slots.slot import Slot
from slotgate.surfaces.generation import body_for
from slotgate.surfaces.usage import Ends
from slotgate.web.asked import Asked, Understanding
from slotgate.web.forward import Forward
from slotgate.web.rejected import Rejected
from slotgate.web.relay import Ended

#: What a client that was not let in is told to wait, in seconds: about one short answer.
RETRY_AFTER_SECONDS = 5


@define
class Generations:
    """Answers the requests that use a slot."""

    _settings: Settings
    _understanding: Understanding
    _pool: SlotPool
    _forward: Forward
    _clock: IReactorTime
    _log: Logger = field(factory=Logger, init=False)

    async def answer(self, request: IRequest, path: str) -> None:
        """
        Relay one request, with its session in the slot.

        :raises Rejected: slotgate does not take the request.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        asked = self._understanding.of(request, path)
        slot = self._pool.for_route(asked.route)
        began = self._clock.seconds()
        if slot is None:
            await self._relay(request, asked, asked.generation.raw, Verdict.BYPASS, Ends())
            return
        lease = await self._lease(slot, asked)
        waited = self._clock.seconds() - began
        ends, end = Ends(), End.UNSENT
        try:
            body = body_for(asked.generation, lease.slot_id, asked.model)
            end = End.CUT
            end = await self._relay(request, asked, body, lease.verdict, ends)
        finally:
            usage = ends.usage() if end is End.COMPLETE else None
            lease.release(end, usage)
            self._log.info(
                "{session} ({source}) on {route}: {cache}, {end};"
                " {read} tokens read, {reused} reused, {generated} generated;"
                " waited {waited:.2f} s of {seconds:.2f} s",
                session=_shown(asked),
                source=asked.source,
                route=asked.route.model,
                cache=lease.verdict.value,
                end=end.value,
                read=usage.read if usage else None,
                reused=usage.reused if usage else None,
                generated=usage.generated if usage else None,
                waited=waited,
                seconds=self._clock.seconds() - began,
            )

    async def _lease(self, slot: Slot, asked: Asked) -> Lease:
        try:
            return await slot.lease(asked.want)
        except QueueFull as error:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise Rejected(503, f"{error}; try again", retry) from error
        except Stopping as error:
            raise Rejected(503, "slotgate is stopping") from error

    async def _relay(
        self, request: IRequest, asked: Asked, body: bytes, verdict: Verdict, ends: Ends
    ) -> End:
        told = {
            "X-Slotgate-Session": _shown(asked),
            "X-Slotgate-Source": asked.source,
            "X-Slotgate-Cache": verdict.value,
        }
        server = self._settings.config.servers[asked.route.server]
        ended, status = await self._forward(request, server, body, told, ends)
        if ended is not Ended.COMPLETE or ends.failed():
            return End.CUT
        return End.COMPLETE if status == 200 else End.REFUSED


def _shown(asked: Asked) -> str:
    return asked.want.session.key.shown if asked.want.session else "none"
