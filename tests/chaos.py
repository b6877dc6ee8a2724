"""
Chaos: everything that can go wrong between a slot and its file, in any order, and the rules that
hold all the same.

:class:`Chaos` is a hypothesis state machine over a :class:`World`. ``test_chaos_fake.py`` drives it
on the fake llama-server, without sockets and without real time; ``test_chaos_real.py`` drives it
against a real llama-server and a real twistd. By default both are short and always the same.
``SLOTGATE_CHAOS=20000`` makes the fake's run about so many steps long, and random::

    SLOTGATE_CHAOS=20000 pytest tests/test_chaos_fake.py

What a failure prints is a test: the steps, one method call a line.
"""

from __future__ import annotations

import os
from typing import Literal, Protocol, get_args

from attrs import define, field
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slotgate.testing._answers import templated
from slotgate.testing._slots import common_beginning, tokenize

SESSIONS = "ABCDE"
#: How many tokens of an answer are asked for.
ANSWER = 8
#: A conversation that is longer begins anew, in characters.
LONG = 900

Change = Literal["grow", "edit", "short"]
Damage = Literal["cut", "half", "empty", "removed", "flipped", "junk", "long", "link", "swapped"]

sessions = st.sampled_from(SESSIONS)
changes: st.SearchStrategy[Change] = st.sampled_from(("grow", "grow", "grow", "edit", "short"))
DAMAGES = get_args(Damage)
damages: st.SearchStrategy[Damage] = st.sampled_from(DAMAGES)
numbers = st.integers(0, 7)


def as_text(tokens: list[int] | tuple[int, ...]) -> str:
    """Tokens as a text of as many characters, which is quick to compare."""
    return "".join(map(chr, tokens))


def in_common(left: str, right: str) -> int:
    """How many tokens two token texts begin with alike."""
    return common_beginning([ord(c) for c in left], [ord(c) for c in right])


@define
class Conversation:
    """
    What one session has said. Each session's prompts begin with its name, so whose tokens
    a file or a slot holds can be told from them.
    """

    name: str
    messages: list[dict[str, str]] = field(factory=list)
    #: All prompts sent so far with the answers asked for, as token texts.
    sent: set[str] = field(factory=set)
    turns: int = 0

    def next(self, change: Change) -> list[dict[str, str]]:
        """The messages of the next request."""
        self.turns += 1
        if change == "short":
            return [{"role": "user", "content": f"{self.name}?"}]
        size = sum(len(message["content"]) for message in self.messages)
        if not self.messages or size > LONG or change == "edit":
            edition = self.turns if change == "edit" else 0
            text = f"{self.name}{edition:03d} " * 90
            self.messages = [{"role": "system", "content": text}]
        # of one length for all sessions, so that they often have as many tokens
        self.messages.append({"role": "user", "content": f"{self.name}{self.turns % 7} and " * 20})
        return list(self.messages)

    def answered(self, messages: list[dict[str, str]], text: str) -> None:
        """The model answered these messages."""
        if messages == self.messages:
            self.messages.append({"role": "assistant", "content": text})

    def sends(self, messages: list[dict[str, str]], says: str = "") -> str:
        """
        A request goes out; its prompt as a token text.

        :param says: what the model will say, where that is known.
        """
        prompt = as_text(tokenize(templated(messages)))
        self.sent.add(prompt + as_text(tokenize(says[:ANSWER], begin=False)))
        return prompt

    def holds(self, text: str) -> bool:
        """Whether tokens are the beginning of one of this session's conversations."""
        return any(sent.startswith(text) for sent in self.sent)


def digits(name: str) -> str:
    """The session id: one that stands for itself in a file's name."""
    return name.lower() * 32


class World(Protocol):
    """Where chaos happens: a llama-server, a slotgate in front of it, and their clients."""

    def ask(self, session: str, change: Change, stream: bool) -> None:
        """A request of a session begins. Nobody waits for it."""

    def leave(self, number: int) -> None:
        """The client of one of the running requests goes away."""

    def settle(self) -> None:
        """Wait until every request has its answer."""

    def come_back(self, session: str) -> None:
        """A session asks, and finds its snapshot if it has one that fits."""

    def restart_server(self) -> None:
        """llama-server is killed and started again."""

    def stranger(self, tokens: int) -> None:
        """Somebody uses the server past slotgate."""

    def erase(self) -> None:
        """Somebody empties the slot."""

    def damage(self, session: str, how: Damage) -> None:
        """Something happens to the file of a session's snapshot."""

    def restart_slotgate(self, clean: bool) -> None:
        """slotgate is stopped, or killed, and started again."""

    def check(self) -> None:
        """
        The rules.

        :raises AssertionError: one is broken.
        """

    def close(self) -> None:
        """The end."""


class Chaos(RuleBasedStateMachine):
    """What a fake and a real llama-server can be made to go through alike."""

    world: World

    @rule(session=sessions, change=changes, stream=st.booleans())
    def turn(self, session: str, change: Change, stream: bool) -> None:
        self.world.ask(session, change, stream)
        self.world.settle()

    @rule(several=st.lists(sessions, min_size=2, max_size=3))
    def turns(self, several: list[str]) -> None:
        for session in several:
            self.world.ask(session, "grow", stream=False)
            self.world.settle()

    @rule(several=st.lists(st.tuples(sessions, changes), min_size=2, max_size=3))
    def turns_at_once(self, several: list[tuple[str, Change]]) -> None:
        for session, change in several:
            self.world.ask(session, change, stream=True)

    @rule(session=sessions)
    def come_back(self, session: str) -> None:
        self.world.come_back(session)

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        self.world.leave(number)

    @rule(before=sessions, session=sessions)
    def come_back_after(self, before: str, session: str) -> None:
        self.world.come_back(before)
        self.world.come_back(session)

    @rule()
    def restart_server(self) -> None:
        self.world.restart_server()

    @rule(tokens=st.integers(20, 900))
    def stranger(self, tokens: int) -> None:
        self.world.stranger(tokens)

    @rule()
    def erase(self) -> None:
        self.world.erase()

    @rule(session=sessions, other=sessions, how=damages)
    def damage(self, session: str, other: str, how: Damage) -> None:
        self.damage_one(session, other, how)

    def damage_one(self, session: str, other: str, how: Damage) -> None:
        """To the file of a session that comes back, unless that is in the slot."""
        for name in (session, other):
            self.world.ask(name, "grow", stream=False)
            self.world.settle()
        self.world.damage(session, how)
        self.world.ask(session, "grow", stream=False)
        self.world.settle()

    @rule(clean=st.booleans())
    def restart_slotgate(self, clean: bool) -> None:
        self.world.restart_slotgate(clean)

    @invariant()
    def rules_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.settle()
            self.world.check()
        finally:
            self.world.close()


def profile(steps: int, per_example: int) -> settings:
    """About so many steps: the same ones each time, unless ``SLOTGATE_CHAOS`` asks for more."""
    asked = int(os.environ.get("SLOTGATE_CHAOS", "0"))
    return settings(
        max_examples=max(1, (asked or steps) // per_example),
        stateful_step_count=per_example,
        derandomize=not asked,
        deadline=None,
        database=None,
        # explaining a failure runs it a few hundred times more
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
