"""
The decisions of a switch: what a look at the slot says about our belief, what to do for the
session that wants the slot, and what the slot holds after its request. No I/O.
"""

from __future__ import annotations

import enum

from attrs import evolve, frozen

from slotgate.llama.wire import SlotStatus, Usage
from slotgate.sessions import Policy, Session
from slotgate.slots.machine import Content, Empty, Gone, Holding, Mark, Unknown
from slotgate.snapshots.fates import Fate


@frozen
class Want:
    """Who wants a slot."""

    #: ``None``: a request of no session; it uses the slot and nothing of it is kept.
    session: Session | None
    #: The client's name, where clients have keys.
    client: str | None = None
    #: Clients have keys of their own and must not read each other's tokens.
    isolated: bool = False
    #: The session that a new one begins as.
    parent: Session | None = None
    #: What the slot holds, or the session's snapshot, is not how this request begins, and the
    #: server may have kept others' prompts in its own memory: it looks there for a better start
    #: whenever a prompt shares little with a slot that is not empty (``--cache-ram``, b11549).
    anew: bool = False

    def is_for(self, content: Content) -> bool:
        """Whether the session is the one in the slot."""
        return (
            self.session is not None
            and isinstance(content, Holding)
            and content.session.key == self.session.key
        )


class End(enum.Enum):
    """How a lease's request ended."""

    #: The whole response came.
    COMPLETE = "complete"
    #: The server worked on the request and it did not come to its end.
    CUT = "cut"
    #: The server answered with an error.
    REFUSED = "refused"
    #: It was a call that changes the slot without leaving a mark.
    TOUCHED = "touched"
    #: The server never got it.
    UNSENT = "unsent"


class Verdict(enum.Enum):
    """How a request found its cache (``X-Slotgate-Cache``)."""

    RESIDENT = "resident"
    RESTORED = "restored"
    FORKED = "forked"
    COLD = "cold"
    BYPASS = "bypass"


def seen(content: Content, status: SlotStatus | None) -> Content:
    """
    What may still be believed of a slot after a look at it (rule 2).

    :param content: what we think is in it.
    :param status: ``None`` where the server does not show its slots; then we have only our word.
    """
    if status is None:
        return Unknown() if isinstance(content, Gone) else content
    if status.tokens == 0 and not status.busy:
        return Empty()
    if isinstance(content, Holding) and content.mark == mark_of(status) is not None:
        return content
    # a fresh slot shows no tokens, and neither does one that was restored and not used since
    return Unknown()


def mark_of(status: SlotStatus) -> Mark | None:
    """What identifies the content of a slot at rest; ``None`` when nothing does."""
    if status.busy or status.task is None or not status.tokens:
        return None
    return Mark(status.task, status.tokens)


def worth_saving(content: Content) -> Holding | None:
    """The session to save before the slot is used for another one."""
    if not isinstance(content, Holding) or content.saved or content.session.policy.passing:
        return None
    return None if is_short(content) else content


def fate_of(content: Content, *, taken: bool) -> Fate:
    """
    What became of a session's cache that a request has just used.

    :param content: what the slot holds now.
    :param taken: somebody else used the slot after it.
    """
    if isinstance(content, Holding):
        if content.session.policy.passing:
            return Fate.PASSING
        return Fate.TOO_SHORT if is_short(content) else Fate.IN_SLOT
    if isinstance(content, Empty):
        return Fate.EMPTIED
    return Fate.OVERWRITTEN if taken else Fate.IN_SLOT


def is_short(held: Holding) -> bool:
    """Whether a slot's content is known to have too few tokens to be worth a file."""
    return held.mark is not None and held.mark.tokens < held.session.policy.min_tokens


def idle_seconds(policy: Policy, sleep_seconds: float | None) -> float | None:
    """
    After how many seconds without a request a slot is saved; ``None``: when it is needed.

    :param sleep_seconds: after how many the model falls asleep and drops its slots. Half of them
        leave time for the save.
    """
    limits = [policy.idle_seconds] if policy.idle_seconds else []
    if sleep_seconds is not None:
        limits.append(sleep_seconds / 2)
    return min(limits, default=None)


def must_erase(content: Content, want: Want) -> bool:
    """
    Whether what is in the slot may not be the start of this request.

    It is never erased for anybody who may read it: llama-server reuses the part that agrees.
    """
    if not want.isolated or isinstance(content, Empty):
        return False
    if want.anew:
        return True
    return not (isinstance(content, Holding) and content.session.key.client == want.client)


@frozen
class Sent:
    """What was known of the slot when a request was sent."""

    content: Content
    #: The slot's ``id_task`` then.
    task: int | None
    #: How many tokens had just been restored, if they were.
    restored_tokens: int | None = None


@frozen
class Over:
    """How a lease's request ended."""

    end: End
    #: The token counts of the response; ``None`` where it gave none.
    usage: Usage | None = None
    #: The ``id_task`` that the slot showed while the request ran, if somebody looked.
    task: int | None = None


def after_request(
    sent: Sent, over: Over, status: SlotStatus | None, want: Want, saved_tokens: int
) -> Content:
    """
    What the slot holds once a lease's request is over.

    :param status: the idle slot now; ``None`` where the server does not show its slots.
    :param saved_tokens: tokens of the session's snapshot, 0 without one.
    """
    if over.end is End.TOUCHED:
        return Unknown()
    if status is None:
        if over.end is End.UNSENT:
            return sent.content
        if over.end is not End.COMPLETE or want.session is None:
            return Unknown()
        return Holding(want.session, saved=False, told=_expected(over.usage))
    if status.tokens == 0:
        return Empty()
    mark = mark_of(status)
    if status.task == sent.task:
        return _untouched(sent, mark)
    if mark is None or want.session is None or over.end in (End.UNSENT, End.REFUSED):
        # an error can come before anything was read: the tokens may be those from before
        return Unknown()
    if over.end is End.COMPLETE and over.usage is not None:
        if not _agrees(mark.tokens, over.usage):
            return Unknown()
        # as many tokens as ours: only the id_task can tell a stranger's, where it is known
        certain = over.task in (None, status.task)
        return Holding(want.session, saved=not certain, mark=mark)
    if mark.tokens < saved_tokens:
        # part of a prompt: true tokens, but the snapshot is the better start
        return Unknown()
    # only the id_task can tell whether somebody else's request came after ours. Where it is not
    # known this is a start for the same session, and nothing to save
    return Holding(want.session, saved=over.task != status.task, mark=mark)


def _untouched(sent: Sent, mark: Mark | None) -> Content:
    """What a slot holds that no request has reached: unless a call without a mark did."""
    content = sent.content
    if mark is None or not isinstance(content, Holding):
        return Unknown()
    if content.mark is None and mark.tokens == sent.restored_tokens:
        return evolve(content, mark=mark)
    return content if content.mark == mark else Unknown()


def _agrees(tokens: int, usage: Usage) -> bool:
    """
    Whether a slot holds what an answer says: the prompt, and what was generated but for the last
    token, which was never read. Measured on b11434 and b11549.
    """
    if usage.generated is None:
        return tokens >= usage.reused + usage.read
    return tokens == _expected(usage)


def _expected(usage: Usage | None) -> int | None:
    if usage is None or usage.generated is None:
        return None
    return usage.reused + usage.read + max(usage.generated - 1, 0)


def saved_right(held: Holding, tokens: int) -> bool:
    """
    Whether a save wrote what was believed to be in the slot.

    :param tokens: ``n_saved`` of the server's answer.
    """
    if held.mark is not None:
        return tokens == held.mark.tokens
    return held.told in (None, tokens)
