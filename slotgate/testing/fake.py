"""
A fake llama-server in this process: the real one's answers, slots and slot files, without a model.

It behaves as llama-server b11549 does with one model; slotgate's own contract suite runs unchanged
against it and against the real one. On top of that it can be told to misbehave
(:mod:`slotgate.testing.faults`), to be slow on a clock (:class:`Speed`), and what it was asked
(:attr:`FakeLlamaServer.calls`).

Importing this module imports Klein, which installs the default reactor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.resource import IResource

from slotgate.testing._engine import Engine, Speed
from slotgate.testing._front_door import Call, FrontDoor
from slotgate.testing._listening import Listening
from slotgate.testing._routes import Routes
from slotgate.testing._slot_files import SlotFileFormat
from slotgate.testing._slots import Slot
from slotgate.testing.faults import Fault

__all__ = ["Call", "FakeLlamaServer", "Speed"]


@define(eq=False)
class FakeLlamaServer:
    """
    A llama-server with one model.

    :ivar clock: the time it lives in: a reactor, or a ``Clock`` for tests.
    :ivar slot_save_path: the folder of slot files; None: started without ``--slot-save-path``.
    :ivar model_path: what ``/props`` tells; files of another path do not fit.
    :ivar alias: the model's name towards clients.
    :ivar total_slots: how many conversations it keeps at once.
    :ivar context: tokens in one slot.
    :ivar api_key: asked of everything but ``/health``; empty: none.
    :ivar slots_endpoint: whether ``GET /slots`` answers.
    :ivar speed: how fast it works, by default instantly.
    :ivar batch: tokens read in one go.
    :ivar says: what the model writes when it may write as much as it wants.
    :ivar notices_disconnect: whether it notices that a client has gone away, as b11434 does: what
        waits is dropped, what runs ends after the current batch. b11549 (False) carries out what it
        was asked, and only a stream ends, at the first token it cannot send.
    :ivar sleep_idle_seconds: idle seconds until the model is unloaded, None: never.
    :ivar loading: while True everything answers 503 ``Loading model``.
    :ivar sleeping: whether the model is unloaded; the next request but a few wakes it, empty.
    :ivar disk_full_after: bytes of a slot file that still fit on the disk, None: all.
    :ivar died: whether it has died; :meth:`restart` brings it up again.
    :ivar calls: every request it saw, in order.
    :ivar engine: the model and its slots, for the routes; another one after each start.
    """

    clock: IReactorTime
    slot_save_path: Path | None = None
    model_path: str = "/models/tiny.gguf"
    alias: str = "tiny"
    total_slots: int = 1
    context: int = 4096
    api_key: str = ""
    slots_endpoint: bool = True
    speed: Speed = field(factory=Speed)
    batch: int = 2048
    says: str = "Certainly. This is what a small model says."
    notices_disconnect: bool = False
    sleep_idle_seconds: float | None = None
    loading: bool = False
    sleeping: bool = field(default=False, init=False)
    disk_full_after: int | None = None
    died: bool = field(default=False, init=False)
    calls: list[Call] = field(factory=list, init=False)
    engine: Engine = field(init=False, repr=False)
    _door: FrontDoor = field(init=False)
    _listening: Listening = field(init=False)
    _idle: IDelayedCall | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.engine = self._loaded()
        self._door = Routes(self).door
        self._listening = Listening(self._door)

    def _loaded(self) -> Engine:
        return Engine(self, [Slot(number) for number in range(self.total_slots)])

    # what a test does with it

    def resource(self) -> IResource:
        """
        The fake as a resource, for ``treq.testing.StubTreq`` or a site of one's own.
        """
        return self._door

    def listen(self, reactor: Any) -> Deferred[int]:
        """
        Listen on a free port of 127.0.0.1.

        :returns: fires with the port.
        """
        return Deferred.fromCoroutine(self._listening.start(reactor))

    @property
    def port(self) -> int:
        """
        The TCP port, once it listened.
        """
        return self._listening.port

    @property
    def url(self) -> str:
        """
        Its address, once it listened.
        """
        return f"http://127.0.0.1:{self.port}"

    @property
    def control_calls(self) -> list[Call]:
        """
        The saves, restores and erases among the calls.
        """
        return [c for c in self.calls if c.method == "POST" and c.path.startswith("/slots/")]

    @property
    def tokens_read(self) -> int:
        """
        The prompt tokens it really read, as ``/metrics`` counts them.
        """
        return self.engine.tokens_read

    def plan(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str | None = None,
        action: str | None = None,
        times: int = 1,
    ) -> None:
        """
        Let the next matching requests meet a fault.

        :param path: without the query.
        :param action: ``save``, ``restore`` or ``erase``.
        :param times: how many requests.
        """
        self._door.plan(fault, method=method, path=path, action=action, times=times)

    def seen(
        self, *, method: str | None = None, path: str | None = None, action: str | None = None
    ) -> Deferred[Call]:
        """
        Wait for a request.

        :returns: fires with the first matching call, at once when there has been one.
        """
        return self._door.seen(method=method, path=path, action=action)

    def die(self) -> None:
        """
        Die at once: listen no more, drop all connections, forget all slots.
        """
        self.died = True
        self._listening.drop()
        self._unload()

    def restart(self) -> Deferred[int]:
        """
        Come up again with empty slots, at the same port where it had listened.

        :returns: fires with the port.
        """
        return Deferred.fromCoroutine(self._restart())

    async def _restart(self) -> int:
        await self.stop()
        self.died = self.sleeping = False
        self.engine = self._loaded()
        return await self._listening.again()

    def stop(self) -> Deferred[None]:
        """
        End it in a test's cleanup.

        :returns: fires when nothing of it is left in the reactor.
        """
        self._unload()
        return Deferred.fromCoroutine(self._listening.stop())

    def fall_asleep(self) -> None:
        """
        Unload the model, as ``--sleep-idle-seconds`` does.
        """
        self._unload()
        self.sleeping = True

    def _unload(self) -> None:
        if self._idle is not None and self._idle.active():
            self._idle.cancel()
        old, self.engine = self.engine, self._loaded()
        self.engine.tokens_read = old.tokens_read
        old.close()

    # the model, for the routes: a router would look it up here

    def awake(self) -> Engine:
        """
        The model for a request that needs it: wakes it and begins its idle time anew.
        """
        self.sleeping = False
        if self.sleep_idle_seconds is not None:
            if self._idle is not None and self._idle.active():
                self._idle.cancel()
            self._idle = self.clock.callLater(self.sleep_idle_seconds, self._idled)
        return self.engine

    def _idled(self) -> None:
        if self.engine.processing:
            self.awake()
        else:
            self.fall_asleep()

    @property
    def file_format(self) -> SlotFileFormat:
        """
        What this model's slot files look like.
        """
        return SlotFileFormat(self.model_path)
