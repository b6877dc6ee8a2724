"""
A generation on its way: the lease, the server, the answer, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import define, evolve, field
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from slotgate.llama.upstream import UpstreamError, UpstreamUnreachable
from slotgate.prompts.history import PromptHistory
from slotgate.reloading import Settings
from slotgate.slots.backend import Backend
from slotgate.slots.choice import End
from slotgate.slots.pool import SlotPool
from slotgate.slots.reasons import Reason
from slotgate.surfaces.anthropic import translation_of
from slotgate.surfaces.generation import Generation, body_for
from slotgate.surfaces.translation import Translation
from slotgate.telemetry.events import Telemetry
from slotgate.web.asked import Asked, Understanding
from slotgate.web.course import Course
from slotgate.web.forward import Forward, ModelLost
from slotgate.web.rejected import Rejected
from slotgate.web.relay import Ended
from slotgate.web.requests import path_of
from slotgate.web.waiting import Chance, rejections, with_model

#: When the slot is looked at while a request runs, to learn by which ``id_task`` it shows it. One
#: that is over by then leaves little time for anybody else's.
LOOK_AFTER_SECONDS = 0.05

#: So many routes are said to have no cache; each of them once, and for each reason.
_MOST_NAMED = 1000

#: Makes what becomes of an answer, of when the request came and when its turn was, in seconds.
Translate: TypeAlias = Callable[[float, float], Translation | None]


class _Misplaced(Exception):
    """A router was taken for a server with one model."""


@define
class Generations:
    """Answers the requests that use a slot."""

    _settings: Settings
    _understanding: Understanding
    _pool: SlotPool
    _backends: Mapping[str, Backend]
    _forward: Forward
    _clock: IReactorTime
    _prompts: PromptHistory
    _telemetry: Telemetry
    #: The routes that were said to have no cache, and why.
    _named: set[tuple[str, Reason]] = field(factory=set, init=False)
    _log: Logger = field(factory=Logger, init=False)

    async def answer(self, request: IRequest, path: str) -> None:
        """
        Relay one request, with its session in the slot.

        :raises Rejected: slotgate does not take the request.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        asked = await self._understanding.of(request, path)
        await self.serve(request, path, asked, lambda began, ready: translation_of(path))

    async def serve(self, request: IRequest, path: str, asked: Asked, translate: Translate) -> None:
        """
        Relay one request that was understood.

        :param path: as the client asked.
        :param translate: makes what becomes of the answer.
        :raises Rejected: slotgate does not take the request.
        :raises UpstreamError: the server gave no answer, and nothing was written yet.
        """
        began = self._clock.seconds()
        backend = self._backends[asked.route.server]

        async def attempt(chance: Chance) -> None:
            await self._answer(request, Course(asked, path, began, self._clock), translate, chance)

        try:
            await with_model(backend, asked.place, attempt)
        except _Misplaced:
            # what came up at the address meanwhile has many models
            asked = evolve(asked, place=await backend.found(asked.route, asked.asked))
            await with_model(backend, asked.place, attempt)

    async def _answer(
        self, request: IRequest, course: Course, translate: Translate, chance: Chance
    ) -> None:
        """
        :raises ModelLost: the model went away, and may be asked for again.
        :raises _Misplaced: its place turned out to be another one.
        """
        asked = course.asked
        backend = self._backends[asked.route.server]
        address = backend.still(asked.place).address
        if not asked.route.cache or address is None:
            self._name_once(course)
        if address is None:
            body = body_for(asked.generation, None, asked.model)
            try:
                await self._relay(request, course, body, translate, chance)
            finally:
                self._over(course)
            return
        try:
            with rejections():
                lease = await self._pool.at(address).lease(asked.want)
        except (CancelledError, Rejected):
            self._log.info(
                "{session}{whose} ({source}) on {route}: left the queue after {waited:.2f} s",
                session=_shown(asked),
                whose=f" of {asked.want.client}" if asked.want.client else "",
                client=asked.want.client,
                source=asked.source,
                route=asked.place.model or asked.route.model,
                waited=self._clock.seconds() - course.began,
            )
            raise
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
        course.lease = lease
        looking = self._clock.callLater(LOOK_AFTER_SECONDS, lease.working)
        try:
            body = body_for(asked.generation, lease.slot_id, asked.model, may_reuse=lease.may_reuse)
            await self._relay(request, course, body, translate, chance)
        finally:
            if looking.active():
                looking.cancel()
            if course.end is End.COMPLETE:
                # two turns of the reactor: the first one hands the answer to the kernel, and the
                # client need not wait for our book-keeping
                self._clock.callLater(0, self._clock.callLater, 0, self._over, course)
            else:
                self._over(course)

    def _over(self, course: Course) -> None:
        """Give the lease back, and tell how the request went."""
        usage = None
        try:
            usage = course.usage()
        finally:
            if course.lease is not None:
                course.lease.release(course.end, usage)
        if course.lease is not None and course.end in (End.COMPLETE, End.CUT):
            course.asked.went_on()
        if course.again:
            return
        try:
            course.tell(usage, self._prompts, self._telemetry)
        except Exception:
            # a request that was answered must not fail for what is told of it
            self._log.failure("it can not be told how a request went")

    def _name_once(self, course: Course) -> None:
        """Say why requests of a route are relayed without a cache, once."""
        route, reason = course.asked.route.model, course.cause.reason
        if (route, reason) in self._named or len(self._named) >= _MOST_NAMED:
            return
        self._named.add((route, reason))
        self._log.info(
            "requests of route {route} are relayed without a cache: {reason}, {meaning}",
            route=route,
            reason=reason.value,
            meaning=course.cause.meaning,
        )

    async def _relay(
        self,
        request: IRequest,
        course: Course,
        body: bytes,
        translate: Translate,
        chance: Chance,
    ) -> None:
        asked = course.asked
        told = {
            "X-Slotgate-Session": _shown(asked),
            "X-Slotgate-Source": asked.source,
            "X-Slotgate-Cache": course.verdict.value,
        }
        server = self._settings.config.servers[asked.route.server]
        translation = translate(course.began, course.starts())
        course.end = End.CUT
        try:
            ended, status = await self._forward(
                request,
                server,
                body,
                told,
                course.ends,
                course.answered,
                target=_target(request, asked.generation),
                resend=chance.resend,
                translation=translation,
            )
        except ModelLost:
            course.again = True
            raise
        except CancelledError:
            # the client went away; the server may work on it all the same
            course.reached = True
            raise
        except UpstreamError as error:
            course.reached = not isinstance(error, UpstreamUnreachable) or error.sent
            raise
        if ended is Ended.COMPLETE:
            course.end = End.COMPLETE if status == 200 else End.REFUSED


def _shown(asked: Asked) -> str:
    session = asked.want.session
    return session.key.shown if session else "none"


def _target(request: IRequest, generation: Generation) -> bytes:
    """The client's own target, where its surface is the server's too."""
    return request.uri if path_of(request) == generation.path else generation.path.encode()
