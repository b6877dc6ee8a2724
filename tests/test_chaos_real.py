"""The rules hold in whatever order things go wrong, on a real llama-server and a real twistd."""

from __future__ import annotations

from typing import Any

from chaos import Chaos, profile
from chaos_real import RealWorld
from hypothesis.stateful import initialize


class RealChaos(Chaos):
    """What a real server can be made to go through."""

    world: RealWorld

    @initialize()
    def begin(self) -> None:
        self.world = RealWorld()


RealChaosTest: Any = RealChaos.TestCase
RealChaosTest.settings = profile(steps=180, per_example=30)
