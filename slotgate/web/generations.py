"""
A generation on its way: the lease, the server, the answer, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from attrs import define, evolve, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from slotgate.reloading import Settings
from slotgate.slots.backend import Backend
from slotgate.slots.choice import End, Verdict
from slotgate.slots.lease import Lease
from slotgate.slots.pool import SlotPool
from slotgate.surfaces.anthropic import translation_of
from slotgate.surfaces.generation import Generation, body_for
from slotgate.surfaces.translation import Translation
from slotgate.surfaces.usage import Ends
from slotgate.web.asked import Asked, Understanding
from slotgate.web.forward import Forward, ModelLost
from slotgate.web.relay import Ended
from slotgate.web.requests import path_of
from slotgate.web.waiting import Chance, rejections, with_model

#: When the slot is looked at while a request runs, to learn by which ``id_task`` it shows it. One
#: that is over by then leaves little time for anybody else's.
LOOK_AFTER_SECONDS = 0.05


#: Makes what becomes of an answer, of when the request came and when its turn was, in seconds.
Translate: TypeAlias = Callable[[float, float], Translation | None]


class _Misplaced(Exception):
    """A router was taken for a server with one model."""


@define
class _Course:
    """A request that has a lease, and how it goes."""

    asked: Asked
    lease: Lease
    #: When it came, and how long it waited for its lease, in seconds.
    began: float
    waited: float
    ends: Ends = field(factory=Ends)
    end: End = End.UNSENT


@define
class Generations:
    """Answers the requests that use a slot."""

    _settings: Settings
    _understanding: Understanding
    _pool: SlotPool
    _backends: Mapping[str, Backend]
    _forward: Forward
    _clock: IReactorTime
    _log: Logger = field(factory=Logger, init=False)

    async def answer(self, request: IRequest, path: str) -> None:
        """
        Relay one request, with its session in the slot.

        :raises Rejected: slotgate does not take the request.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        asked = await self._understanding.of(request, path)
        await self.serve(request, asked, lambda began, ready: translation_of(path))

    async def serve(self, request: IRequest, asked: Asked, translate: Translate) -> None:
        """
        Relay one request that was understood.

        :param translate: makes what becomes of the answer.
        :raises Rejected: slotgate does not take the request.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        began = self._clock.seconds()
        backend = self._backends[asked.route.server]
        try:
            answer = partial(self._answer, request, asked, translate, began)
            await with_model(backend, asked.place, answer)
        except _Misplaced:
            # what came up at the address meanwhile has many models
            asked = evolve(asked, place=await backend.found(asked.route, asked.asked))
            answer = partial(self._answer, request, asked, translate, began)
            await with_model(backend, asked.place, answer)

    async def _answer(
        self, request: IRequest, asked: Asked, translate: Translate, began: float, chance: Chance
    ) -> None:
        """
        :raises ModelLost: the model went away, and may be asked for again.
        :raises _Misplaced: its place turned out to be another one.
        """
        backend = self._backends[asked.route.server]
        address = backend.still(asked.place).address
        if address is None:
            body = body_for(asked.generation, None, asked.model)
            translation = translate(began, self._clock.seconds())
            end = await self._relay(
                request, asked, body, Verdict.BYPASS, translation, resend=chance.resend
            )
            self._log.info(
                "no slot for it on {route}: bypass, {end}",
                route=asked.model or asked.route.model,
                end=end.value,
            )
            return
        with rejections():
            lease = await self._pool.at(address).lease(asked.want)
        if lease.lost and chance.again:
            lease.release(End.UNSENT)
            raise ModelLost(sent=False)
        if not address.model:
            try:
                misplaced = await backend.is_other(asked.place)
            except BaseException:
                # CancelledError: the client went away
                lease.release(End.UNSENT)
                raise
            if misplaced:
                lease.release(End.UNSENT)
                raise _Misplaced
        course = _Course(asked, lease, began, self._clock.seconds() - began)
        looking = self._clock.callLater(LOOK_AFTER_SECONDS, lease.working)
        try:
            body = body_for(asked.generation, lease.slot_id, asked.model, may_reuse=lease.may_reuse)
            course.end = End.CUT
            course.end = await self._relay(
                request,
                asked,
                body,
                lease.verdict,
                translate(began, self._clock.seconds()),
                course.ends,
                lease.working,
                resend=chance.resend,
            )
        finally:
            if looking.active():
                looking.cancel()
            if course.end is End.COMPLETE:
                # two turns of the reactor: the first one hands the answer to the kernel, and the
                # client need not wait for our book-keeping
                self._clock.callLater(0, self._clock.callLater, 0, self._over, course)
            else:
                self._over(course)

    def _over(self, course: _Course) -> None:
        """Give the lease back, and tell in one line how the request went."""
        end, usage = course.end, None
        try:
            if end is End.COMPLETE:
                usage = course.ends.usage()
                if usage is None and course.ends.failed():
                    end = End.CUT
        finally:
            course.lease.release(end, usage)
        if end in (End.COMPLETE, End.CUT):
            course.asked.went_on()
        self._log.info(
            "{session} ({source}{side}) on {route}: {cache}, {end};"
            " {read} tokens read, {reused} reused, {generated} generated;"
            " waited {waited:.2f} s of {seconds:.2f} s",
            session=_shown(course.asked),
            source=course.asked.source,
            side=f", {course.asked.side}" if course.asked.side else "",
            route=course.asked.place.model or course.asked.route.model,
            cache=course.lease.verdict.value,
            end=end.value,
            read=usage.read if usage else None,
            reused=usage.reused if usage else None,
            generated=usage.generated if usage else None,
            waited=course.waited,
            seconds=self._clock.seconds() - course.began,
        )

    async def _relay(
        self,
        request: IRequest,
        asked: Asked,
        body: bytes,
        verdict: Verdict,
        translation: Translation | None,
        ends: Ends | None = None,
        streaming: Callable[[], None] | None = None,
        *,
        resend: bool,
    ) -> End:
        told = {
            "X-Slotgate-Session": _shown(asked),
            "X-Slotgate-Source": asked.source,
            "X-Slotgate-Cache": verdict.value,
        }
        server = self._settings.config.servers[asked.route.server]
        ended, status = await self._forward(
            request,
            server,
            body,
            told,
            ends,
            streaming,
            target=_target(request, asked.generation),
            resend=resend,
            translation=translation,
        )
        if ended is not Ended.COMPLETE:
            return End.CUT
        return End.COMPLETE if status == 200 else End.REFUSED


def _target(request: IRequest, generation: Generation) -> bytes:
    """The client's own target, where its surface is the server's too."""
    return request.uri if path_of(request) == generation.path else generation.path.encode()


def _shown(asked: Asked) -> str:
    return asked.want.session.key.shown if asked.want.session else "none"
