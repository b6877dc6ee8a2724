"""
A model's own server behind the fake router.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from attrs import define, field
from twisted.web.http import Request

from slotgate.testing._engine import Engine
from slotgate.testing._front_door import Call
from slotgate.testing._reply import Reply
from slotgate.testing.fake import FakeLlamaServer
from slotgate.testing.faults import Fault

Happening = Literal["sleeping", "woken", "dead"]


def _nobody(happening: Happening) -> None:
    """
    Whoever hears nothing.
    """


@define(eq=False)
class Child(FakeLlamaServer):
    """
    A llama-server that does not listen: the router hands it what it has let in.

    It is the same object whenever its model is loaded; what it was asked, and the tokens it read,
    are those of all its processes.

    :ivar heard: told when it falls asleep, wakes and dies by itself.
    """

    heard: Callable[[Happening], None] = field(default=_nobody, kw_only=True)
    _read_before: int = field(default=0, init=False)

    @property
    def tokens_read(self) -> int:
        """
        The prompt tokens that all its processes really read.
        """
        return self._read_before + self.engine.tokens_read

    @property
    def at_work(self) -> int:
        """
        The number of requests in its slots and before them.
        """
        return self.engine.processing + self.engine.deferred

    def fault_for(self, call: Call) -> Fault | None:
        """
        The fault planned on it for a request.
        """
        return self._door.fault_for(call)

    def pass_on(self, request: Request, call: Call, reply: Reply) -> Any:
        """
        Answer a request of the router.
        """
        return self._door.pass_on(request, call, reply)

    # its process

    def begin(self) -> None:
        """
        A process starts; it loads until :meth:`ready`.
        """
        self.end()
        self.died = False
        self.loading = True

    def ready(self) -> None:
        """
        The model is loaded: its idle time begins.
        """
        self.loading = False
        self.awake()

    def end(self) -> None:
        """
        Its process is gone, or takes no more: what runs and waits in it fails.
        """
        self.died = True
        self.loading = self.sleeping = False
        old = self.engine
        self._unload()
        self._read_before += old.tokens_read
        self.engine.tokens_read = 0

    def die(self) -> None:
        """
        Its process dies at once.
        """
        self.heard("dead")

    def fall_asleep(self) -> None:
        # the router knows first, or it would choose a model that hears nothing more
        FakeLlamaServer.fall_asleep(self)
        self.heard("sleeping")

    def awake(self) -> Engine:
        woken = self.sleeping
        engine = FakeLlamaServer.awake(self)
        if woken:
            self.heard("woken")
        return engine
