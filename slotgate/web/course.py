"""
One request's course from its arrival to its end, and what is told of it then.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from slotgate.llama.wire import Usage
from slotgate.prompts.comparison import Change, Comparison
from slotgate.prompts.history import PromptHistory
from slotgate.prompts.parts import BLOCK
from slotgate.prompts.sentences import about_last, reusable, sentence
from slotgate.prompts.texts import has_media
from slotgate.slots.choice import End, Verdict
from slotgate.slots.lease import Lease
from slotgate.slots.reasons import Cause, Reason
from slotgate.snapshots.fates import Fate
from slotgate.surfaces.naming import surface_of
from slotgate.surfaces.usage import Ends
from slotgate.telemetry.events import Served, Telemetry
from slotgate.telemetry.explanations import Reuse, explain
from slotgate.web.asked import Asked

_log = Logger()


@define(eq=False)
class Course:
    """How a request goes. Times are of the clock, in seconds."""

    asked: Asked
    #: As the client asked.
    path: str
    began: float
    _clock: IReactorTime
    #: ``None``: it uses no slot of ours.
    lease: Lease | None = None
    #: When its turn was.
    ready: float | None = field(default=None, init=False)
    _first_byte: float | None = field(default=None, init=False)
    ends: Ends = field(factory=Ends, init=False)
    end: End = field(default=End.UNSENT, init=False)
    #: The server may have worked on it.
    reached: bool = field(default=False, init=False)
    #: It will be sent another time, and its course is told then.
    again: bool = field(default=False, init=False)

    def starts(self) -> float:
        """Its turn has come; when that was."""
        self.ready = self._clock.seconds()
        return self.ready

    def answered(self, streams: bool) -> None:
        """
        The answer begins.

        :param streams: with a part of it, so that the server works on it now.
        """
        self.reached = True
        self._first_byte = self._clock.seconds()
        if streams and self.lease is not None:
            self.lease.working()

    @property
    def verdict(self) -> Verdict:
        """How it found its cache."""
        return Verdict.BYPASS if self.lease is None else self.lease.verdict

    @property
    def cause(self) -> Cause:
        """Why it was cold, or past the cache."""
        if not self.asked.route.cache:
            return Cause(Reason.NO_CACHE)
        if self.lease is None:
            return Cause(Reason.NOT_LOADED)
        if self.lease.verdict is Verdict.BYPASS and self.asked.side:
            return Cause(Reason.SIDE_REQUEST)
        return self.lease.cause

    def usage(self) -> Usage | None:
        """What the answer said of its tokens; notes that it broke off where it said an error."""
        if self.end is not End.COMPLETE:
            return None
        usage = self.ends.usage()
        if usage is None and self.ends.failed():
            self.end = End.CUT
        return usage

    def tell(self, usage: Usage | None, prompts: PromptHistory, telemetry: Telemetry) -> None:
        """Tell how it went, once it is over: in one line of the log, and to whoever listens."""
        asked, lease, over = self.asked, self.lease, self._clock.seconds()
        compared = self._compared(usage, prompts)
        reuse = self._reuse(compared, usage)
        explanation = explain(self.verdict, self.cause, usage, reuse, asked.side)
        session = asked.want.session
        served = Served(
            began=self.began,
            seconds=over - self.began,
            waited=(over if self.ready is None else self.ready) - self.began,
            switched=0.0 if lease is None else lease.switched,
            first_byte=None if self._first_byte is None else self._first_byte - self.began,
            surface=surface_of(self.path),
            server=asked.route.server,
            route=asked.route.model,
            model=asked.place.model or asked.model or "",
            address=None if lease is None else asked.place.address,
            session=session.key if session else None,
            source=asked.source,
            verdict=self.verdict,
            reason=self.cause.reason,
            end=self.end,
            usage=usage,
            explanation=explanation,
            prompt="" if compared is None else _told_of(compared, usage),
        )
        if session is not None and self._is_last:
            prompts.answered(session.key, usage, self.verdict.value, explanation.sentence)
        _write(served, asked)
        telemetry.served(served)

    @property
    def _is_last(self) -> bool:
        """Whether the server has worked on it, so that the next prompt is compared with it."""
        return self.reached and self.end in (End.COMPLETE, End.CUT)

    def _reuse(self, compared: Comparison | None, usage: Usage | None) -> Reuse | None:
        """What could be reused: of what both prompts share, what was in the slot."""
        lease = self.lease
        if compared is None or usage is None or lease is None:
            return None
        first, possible = compared.first, reusable(compared, usage.read + usage.reused)
        held = lease.held
        told = (
            held is not None
            # an older snapshot is of another prompt than the one that was compared
            and (lease.verdict is not Verdict.RESTORED or lease.cause.fate is Fate.SAVED)
            and not has_media(self.asked.generation.fields)
        )
        return Reuse(
            possible=min(possible, held or 0) if told else None,
            differs_at=None if first is None else first.number,
            role="" if first is None else first.role,
        )

    def _compared(self, usage: Usage | None, prompts: PromptHistory) -> Comparison | None:
        want = self.asked.want
        if want.session is None or not self._is_last:
            return None
        parent = want.parent.key if want.parent is not None else None
        return prompts.note(want.session.key, self.asked.generation.fields, parent)


def _told_of(compared: Comparison, usage: Usage | None) -> str:
    """How two prompts differ, and what of the new one could be reused and was."""
    told = [sentence(compared)]
    grown = compared.change in (Change.SAME, Change.GROWN)
    if not grown or compared.last.characters >= BLOCK:
        # two questions in turn have nothing in common but what a client puts into each
        told.append(about_last(compared))
    if usage is not None:
        # an estimate by characters; what was reused could be
        possible = max(reusable(compared, usage.read + usage.reused), usage.reused)
        told.append(f"about {possible} tokens can be reused, {usage.reused} were")
    return "; ".join(told)


def _write(served: Served, asked: Asked) -> None:
    """One line for people, and the same as fields for programs."""
    usage, explanation, client = served.usage, served.explanation, asked.want.client
    what = "; ".join(filter(None, (served.reason.value, explanation.finding_text)))
    tokens = "no token counts"
    if usage is not None:
        tokens = f"{usage.read} of {usage.read + usage.reused} tokens read"
        if usage.generated is not None:
            tokens += f", {usage.generated} generated"
    _log.info(
        "{session}{whose} ({source}{side}) on {route}: {cache}{why}, {end}; {tokens};"
        " waited {waited:.2f} s of {seconds:.2f} s{because}{compared}",
        session=served.session.shown if served.session else "none",
        whose=f" of {client}" if client else "",
        client=client,
        source=served.source,
        side=f", {asked.side}" if asked.side else "",
        route=asked.place.model or served.route,
        cache=served.verdict.value,
        why=f" ({what})" if what else "",
        end=served.end.value,
        tokens=tokens,
        waited=served.waited,
        seconds=served.seconds,
        because=f"; {explanation.sentence}" if what and explanation.sentence else "",
        compared=f"; {served.prompt}" if served.prompt else "",
        surface=served.surface,
        server=served.server,
        reason=served.reason.value,
        finding=explanation.finding.value,
        explanation=explanation.sentence,
        prompt=served.prompt,
        read=usage.read if usage else None,
        reused=usage.reused if usage else None,
        generated=usage.generated if usage else None,
        switched=served.switched,
        first_byte=served.first_byte,
    )
