"""The rules hold in whatever order things go wrong, on the fake llama-server."""

from __future__ import annotations

from math import inf
from typing import Any

from chaos import DAMAGES, SESSIONS, Change, Chaos, Damage, profile, sessions
from chaos_fake import MODELS, Event, FakeWorld, Moment, Setup
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from twisted.trial.unittest import SynchronousTestCase

events: tuple[Event, ...] = ("restart", "die", "stranger", "wipe", "kill", "leave", "damage")
#: A file may not be damaged between the last look at it and its restore: nobody can help.
surprises: st.SearchStrategy[Any] = st.tuples(
    st.tuples(
        st.sampled_from(("before", "after")),
        st.sampled_from(("look", "save", "save", "restore", "restore", "chat", "chat", "erase")),
    ),
    st.sampled_from((*events, "stranger", "kill")),
).filter(lambda planned: planned != (("before", "restore"), "damage"))
setups = st.builds(
    Setup,
    verify=st.sampled_from(("size", "xxh3")),
    visible=st.sampled_from((True, True, True, True, False)),
    slots=st.sampled_from((True, True, True, False)),
    isolated=st.sampled_from((False, False, True)),
    notices=st.booleans(),
    max_files=st.sampled_from((0, 0, 1, 3)),
    idle_seconds=st.sampled_from((0.0, 0.0, 20.0)),
    speed=st.sampled_from((inf, 2000.0, 300.0)),
)


def accident(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A method of the world, to be called with such arguments."""
    return st.tuples(st.just(name), st.tuples(*arguments))


accidents = st.one_of(
    accident("disk_full", st.sampled_from((None, 0, 36, 3000))),
    accident("dies_while_saving"),
    accident(
        "misbehave",
        st.sampled_from(("hang", "close", "junk", "noise", "refuse", "key", "missing")),
        st.sampled_from((None, "save", "restore", "erase")),
        st.integers(1, 3),
    ),
    accident("restart_server", st.just(""), st.sampled_from((700, 4096))),
    accident("loads_for", st.sampled_from((5, 200))),
    accident("speed", st.sampled_from((inf, 30_000, 50)), st.sampled_from((0.0, 0.0, 2.0))),
    accident("set_clock", st.sampled_from((-86_400.0, 86_400.0))),
)


class FakeChaos(Chaos):
    """With all that only a fake can be asked to do."""

    world: FakeWorld

    @initialize(setup=setups)
    def begin(self, setup: Setup) -> None:
        self.world = FakeWorld(setup)

    @rule(surprise=surprises, several=st.lists(sessions, min_size=1, max_size=3))
    def surprise(self, surprise: tuple[Moment, Event], several: list[str]) -> None:
        self.world.plan(*surprise)
        for session in several:
            self.world.ask(session, "grow", stream=True)

    @rule(
        planned=st.lists(surprises, min_size=1, max_size=2),
        stream=st.booleans(),
        pair=st.permutations(SESSIONS).map(lambda names: names[:3]),
    )
    def ambush(self, planned: list[tuple[Moment, Event]], stream: bool, pair: list[str]) -> None:
        """In the midst of a switch from one session to another that has been there before."""
        first, second, third = pair
        for session in (first, second):
            self.world.ask(session, "grow", stream)
            self.world.settle()
        for surprise in planned:
            self.world.plan(*surprise)
        self.world.ask(first, "grow", stream)
        self.world.settle()
        self.world.ask(third, "grow", stream)

    @rule(
        hows=st.permutations(DAMAGES).map(lambda hows: hows[:2]),
        names=st.permutations(SESSIONS),
    )
    def damages(self, hows: list[Damage], names: list[str]) -> None:
        """One after another, each to the file of a session that comes back."""
        for number, how in enumerate(hows):
            self.damage_one(names[number], names[number + 1], how)

    @rule(accident=accidents)
    def accident(self, accident: tuple[str, tuple[Any, ...]]) -> None:
        name, arguments = accident
        getattr(self.world, name)(*arguments)

    @rule(seconds=st.sampled_from((0.01, 1, 60, 300)))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(model=st.sampled_from(MODELS), several=st.lists(sessions, min_size=1, max_size=2))
    def other_model(self, model: str, several: list[str]) -> None:
        self.world.restart_server(model)
        for session in several:
            self.world.come_back(session)

    @rule()
    def twin(self) -> None:
        self.world.twin()


FakeChaosTest: Any = FakeChaos.TestCase
FakeChaosTest.settings = profile(steps=2010, per_example=30)


class FoundTests(SynchronousTestCase):
    """What chaos has found once, step by step."""

    def begin(self, **setup: Any) -> FakeWorld:
        world = FakeWorld(Setup(**setup))
        self.addCleanup(world.close)
        return world

    def turns(self, world: FakeWorld, names: str, change: Change = "grow") -> None:
        for name in names:
            world.ask(name, change, stream=False)
            world.settle()

    def test_killed_when_a_session_was_restored_that_is_as_long_as_the_one_before(self) -> None:
        # id_task and tokens are what slotgate left: a restore changes neither
        world = self.begin()
        self.turns(world, "AB")
        world.plan(("after", "restore"), "kill")
        world.ask("A", "grow", stream=False)
        self.assertEqual(world.planned, 0)
        self.turns(world, "C")
        world.check()

    def test_a_short_request_to_a_server_that_shows_no_slots(self) -> None:
        world = self.begin(slots=False)
        self.turns(world, "AB")
        self.turns(world, "A", "short")
        self.turns(world, "B")
        world.check()

    def test_a_file_that_is_cut_while_another_one_is_saved(self) -> None:
        world = self.begin()
        self.turns(world, "AB")
        world.plan(("before", "save"), "damage")
        self.turns(world, "A")
        self.assertEqual(world.planned, 0)
        world.check()
