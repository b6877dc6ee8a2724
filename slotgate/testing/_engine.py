"""
The fake server's work: requests run in slots, one at a time in each, as fast as the clock allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from slotgate.testing._slots import Slot, choose, tokenize, wrapped


@frozen
class Speed:
    """
    How fast the fake works, on the clock it was given.

    :ivar prefill: tokens of a prompt read per second.
    :ivar generation: tokens written per second.
    :ivar slot_file_seconds: how long a save or a restore takes.
    """

    prefill: float = inf
    generation: float = inf
    slot_file_seconds: float = 0.0


@frozen
class Job:
    """
    What a request asks of the model.

    :ivar prompt: its tokens, the template applied.
    :ivar limit: how many tokens may be written, -1 for as many as the model wants.
    :ivar id_slot: the slot asked for, -1 for any.
    :ivar stream: whether the answer is sent while it is written.
    :ivar reuse: whether what the slot holds may be used.
    """

    prompt: Sequence[int]
    limit: int
    id_slot: int = -1
    stream: bool = False
    reuse: bool = True
    params: dict[str, Any] = field(factory=dict)


@define
class Progress:
    """
    What became of a job so far.
    """

    slot_id: int
    prompt_tokens: int
    cached: int
    prompt_seconds: float = 0.0
    predicted: int = 0
    predicted_seconds: float = 0.0
    text: str = ""
    stopped_by_limit: bool = True

    def timings(self) -> dict[str, float]:
        """
        The ``timings`` object; times are in milliseconds.
        """
        read = self.prompt_tokens - self.cached
        return {
            "cache_n": self.cached,
            "prompt_n": read,
            "prompt_ms": self.prompt_seconds * 1000,
            "prompt_per_token_ms": self.prompt_seconds * 1000 / read,
            "prompt_per_second": read / self.prompt_seconds if self.prompt_seconds else 0.0,
            "predicted_n": self.predicted,
            "predicted_ms": self.predicted_seconds * 1000,
            "predicted_per_token_ms": self.predicted_seconds * 1000 / max(self.predicted, 1),
            "predicted_per_second": (
                self.predicted / self.predicted_seconds if self.predicted_seconds else 0.0
            ),
        }


class Listener(Protocol):
    """
    Who hears of a job's progress: the side that answers the client.
    """

    @property
    def gone(self) -> bool:
        """
        Whether the client has gone away.
        """

    async def begun(self) -> None:
        """
        The job has its slot.
        """

    async def started(self, progress: Progress) -> None:
        """
        The prompt is read.
        """

    async def wrote(self, progress: Progress, text: str) -> None:
        """
        A token was written; a special one has no text.
        """

    async def finished(self, progress: Progress) -> None:
        """
        The answer is complete; the slot is still busy until this returns.
        """


class Settings(Protocol):
    """
    What a test may change at any time.

    :ivar context: tokens in one slot.
    :ivar batch: tokens read in one go; between two of them the server notices things.
    :ivar says: what the model writes when it may write as much as it wants.
    :ivar notices_disconnect: whether a job whose client has gone ends after the current batch.
        b11434 does so; b11549 reads the prompt to its end, and writes an answer that is not
        streamed to its end too.
    """

    clock: IReactorTime
    context: int
    speed: Speed
    batch: int
    says: str
    notices_disconnect: bool


@define(eq=False)
class Engine:
    """
    Runs jobs in slots and keeps whoever needs a busy slot waiting, first come, first served.

    :ivar tokens_read: over all jobs, without those found in a cache.
    """

    settings: Settings
    slots: list[Slot]
    tokens_read: int = 0
    tokens_cached: int = 0
    tokens_written: int = 0
    closed: bool = False
    _tasks: int = 0
    _turns: int = 0
    _waiting: list[tuple[Callable[[], Slot | None], Deferred[Slot]]] = field(factory=list)
    _serving: bool = False
    _passing: set[Deferred[None]] = field(factory=set)

    def next_task(self) -> int:
        """
        Number whatever the server is asked to do; a request's number is its slot's ``id_task``.
        """
        self._tasks += 1
        return self._tasks - 1

    def slot_for(self, job: Job) -> Deferred[Slot]:
        """
        Wait for the slot a job asks for, or for the best one; it is the caller's until released.
        """
        if job.id_slot == -1:
            return self._take(lambda: choose(self.slots, job.prompt))
        return self.idle_slot(job.id_slot)

    def idle_slot(self, slot_id: int) -> Deferred[Slot]:
        """
        Wait until a slot is idle; it is the caller's until released.

        Cancelling the Deferred gives the place in the queue up.
        """
        slot = wrapped(self.slots, slot_id)
        return self._take(lambda: None if slot.processing else slot)

    def _take(self, find: Callable[[], Slot | None]) -> Deferred[Slot]:
        def give_up(deferred: Deferred[Slot]) -> None:
            self._waiting.remove(entry)

        deferred: Deferred[Slot] = Deferred(give_up)
        entry = (find, deferred)
        self._waiting.append(entry)
        self._serve()
        return deferred

    def release(self, slot: Slot) -> None:
        """
        Give a slot back and let the next one that waits for it have it.
        """
        slot.end()
        self._serve()

    def _serve(self) -> None:
        # whoever is served may release its slot before it returns: a loop, no recursion, for a
        # queue of any length
        if self._serving:
            return
        self._serving = True
        try:
            while (served := self._next()) is not None:
                slot, deferred = served
                slot.processing = True
                deferred.callback(slot)
        finally:
            self._serving = False

    def _next(self) -> tuple[Slot, Deferred[Slot]] | None:
        for entry in self._waiting:
            slot = entry[0]()
            if slot is not None:
                self._waiting.remove(entry)
                return slot, entry[1]
        return None

    def run(self, slot: Slot, job: Job, listener: Listener) -> Deferred[None]:
        """
        Run a job in a slot that is the caller's, and release it at its end.

        It goes on without its client, as far as the real one does.
        """
        return Deferred.fromCoroutine(self._run(slot, job, listener))

    async def _run(self, slot: Slot, job: Job, listener: Listener) -> None:
        self._turns += 1
        cached = slot.begin(self.next_task(), self._turns, job.prompt, job.params, reuse=job.reuse)
        self.tokens_cached += cached
        progress = Progress(slot.id, len(job.prompt), cached)
        try:
            await listener.begun()
            if self._given_up(job, listener):
                return
            if await self._read(slot, job, progress, listener):
                await listener.started(progress)
                if await self._write(slot, job, progress, listener):
                    await listener.finished(progress)
        finally:
            self.release(slot)

    async def _read(self, slot: Slot, job: Job, progress: Progress, listener: Listener) -> bool:
        for start in range(progress.cached, len(job.prompt), self.settings.batch):
            tokens = job.prompt[start : start + self.settings.batch]
            slot.tokens += tokens  # /slots counts the batch in flight too
            progress.prompt_seconds += await self.passing(len(tokens) / self.settings.speed.prefill)
            slot.read += len(tokens)
            self.tokens_read += len(tokens)
            if listener.gone and self.settings.notices_disconnect:
                return False
        return True

    async def _write(self, slot: Slot, job: Job, progress: Progress, listener: Listener) -> bool:
        words = list(self.settings.says)
        room = self.settings.context - len(job.prompt)
        limit = min(job.limit, room) if job.limit >= 0 else room
        progress.stopped_by_limit = limit <= len(words)
        count = limit if progress.stopped_by_limit else len(words) + 1
        for number in range(count):
            progress.predicted_seconds += await self.passing(1 / self.settings.speed.generation)
            text = words[number] if number < len(words) else ""  # else the end-of-text token
            slot.predicted = progress.predicted = number + 1
            self.tokens_written += 1
            progress.text += text
            if number < count - 1:  # the last one is never read back
                slot.tokens += tokenize(text, begin=False)
            await listener.wrote(progress, text)
            if self._given_up(job, listener):
                return False
        return True

    def _given_up(self, job: Job, listener: Listener) -> bool:
        """
        Whether something could not be sent, or would not be.
        """
        return listener.gone and (job.stream or self.settings.notices_disconnect)

    async def passing(self, seconds: float) -> float:
        """
        Let time pass on the clock; none at all when there is none to pass.
        """
        if seconds > 0:
            delay: Deferred[None] = deferLater(self.settings.clock, seconds)
            self._passing.add(delay)
            try:
                await delay
            except CancelledError:
                if self.closed:
                    raise ServerGone from None
                raise
            finally:
                self._passing.discard(delay)
        return seconds

    @property
    def processing(self) -> int:
        """
        The number of slots at work.
        """
        return sum(slot.processing for slot in self.slots)

    @property
    def deferred(self) -> int:
        """
        The number of requests that wait for a slot.
        """
        return len(self._waiting)

    def close(self) -> None:
        """
        Drop everything: whatever waits for a slot or for time to pass fails.
        """
        self.closed = True
        waiting, self._waiting = self._waiting, []
        for _, deferred in waiting:
            deferred.errback(ServerGone())
        for delay in list(self._passing):
            delay.cancel()


class ServerGone(Exception):
    """
    The fake died while this waited.
    """
