"""
Misbehaviour that a real llama-server cannot be asked for, to be planned on a fake one.

Each is used as ``fake.plan(Hang(), path="/v1/chat/completions")``. Where one has an ``after``, it
is the number of bytes of the body that still reach the client; None strikes before the headers.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import Deferred


class Wire(Protocol):
    """
    What a fault can do to an answer.
    """

    async def answer(self, status: int, content_type: str, body: bytes) -> None:
        """
        Send a whole answer.
        """

    def end(self) -> None:
        """
        Send the mark that ends the body, as if it were complete.
        """

    def raw(self, data: bytes) -> None:
        """
        Send bytes past HTTP and close.
        """

    def close(self) -> None:
        """
        Close the connection after what was sent (FIN).
        """

    def abort(self) -> None:
        """
        Drop the connection at once (RST).
        """

    def die(self) -> None:
        """
        Let the whole server die.
        """

    async def hold(self, released: Deferred[None]) -> None:
        """
        Send nothing until released or until the client goes away.
        """


class Fault(Protocol):
    """
    One way to misbehave.

    :cvar instead: whether the request is not carried out at all; otherwise only its answer suffers.
    """

    instead: ClassVar[bool]

    @property
    def after(self) -> int | None:
        """
        How many bytes of the body are sent before the fault strikes; None: not even headers.
        """

    async def strike(self, wire: Wire) -> None:
        """
        Misbehave. What is not yet sent then follows, where the connection still lives.
        """


@define(eq=False)
class Hang:
    """
    Say nothing more, before the headers or in mid-body, until released. The slot stays busy.
    """

    instead: ClassVar[bool] = False
    after: int | None = None
    _released: Deferred[None] = field(factory=Deferred, init=False)

    def release(self) -> None:
        """
        Go on as if nothing had been.
        """
        if not self._released.called:
            self._released.callback(None)

    async def strike(self, wire: Wire) -> None:
        await wire.hold(self._released)


@frozen
class Abort:
    """
    Drop the connection (RST).
    """

    instead: ClassVar[bool] = False
    after: int | None = None

    async def strike(self, wire: Wire) -> None:
        wire.abort()


@frozen
class Close:
    """
    Close the connection in an orderly way (FIN), though the body is not complete.
    """

    instead: ClassVar[bool] = False
    after: int | None = None

    async def strike(self, wire: Wire) -> None:
        wire.close()


@frozen
class EndEarly:
    """
    End the body as if it were complete: only what is missing in it tells.
    """

    instead: ClassVar[bool] = False
    after: int = 0

    async def strike(self, wire: Wire) -> None:
        wire.end()


@frozen
class Die:
    """
    Let the server die: all connections drop, nothing listens, all slots are forgotten.
    """

    instead: ClassVar[bool] = False
    after: int | None = None

    async def strike(self, wire: Wire) -> None:
        wire.die()


@frozen
class NotHttp:
    """
    Answer with something that is not HTTP.
    """

    instead: ClassVar[bool] = True
    after: ClassVar[None] = None
    data: bytes = b"\x00\x01 this is not HTTP\r\n\r\n"

    async def strike(self, wire: Wire) -> None:
        wire.raw(self.data)


@frozen
class Answer:
    """
    Answer with this instead of doing what was asked: by default something that is not JSON.
    """

    instead: ClassVar[bool] = True
    after: ClassVar[None] = None
    status: int = 200
    body: bytes = b"{this is not JSON"
    content_type: str = "application/json; charset=utf-8"

    async def strike(self, wire: Wire) -> None:
        await wire.answer(self.status, self.content_type, self.body)


@frozen
class Refuse:
    """
    Answer with an error in llama-server's shape instead of doing what was asked.
    """

    instead: ClassVar[bool] = True
    after: ClassVar[None] = None
    status: int = 500
    message: str = "refused by a test"
    kind: str = "server_error"

    async def strike(self, wire: Wire) -> None:
        from slotgate.testing._answers import LlamaError

        error = LlamaError(self.status, self.message, self.kind)
        await wire.answer(self.status, "application/json; charset=utf-8", error.body())
