"""
Whether restores help at all: some models and builds read everything again after one.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from slotgate.llama.wire import Usage

#: After so many useless restores in a row no more are tried.
LIMIT = 3

#: After so many seconds without restores one is tried again: prompts can have been the cause.
RETRY_SECONDS = 900.0

#: A restore of which less than this part was reused was useless.
USEFUL_SHARE = 0.05


@define(eq=False)
class Usefulness:
    """
    Counts the useless restores of one server and model.

    Invariant: restores are off only after :data:`LIMIT` useless ones in a row, by one build, since
    the server's start, and for :data:`RETRY_SECONDS` at a time.
    """

    _server: str
    _clock: IReactorTime
    _in_a_row: int = field(default=0, init=False)
    _given_up: float = field(default=0.0, init=False)
    _build: str = field(default="", init=False)
    _log: Logger = field(factory=Logger, init=False)

    def allows(self, build: str) -> bool:
        """Whether a restore is worth trying."""
        if build != self._build:
            self._build = build
            self._in_a_row = 0
        return self.helps

    @property
    def helps(self) -> bool:
        """Whether restores help, as far as is known; after a while one more is tried."""
        rested = self._clock.seconds() - self._given_up >= RETRY_SECONDS
        return self._in_a_row < LIMIT or rested

    def begin_anew(self) -> None:
        """The server was started anew: another build or other options may help now."""
        self._in_a_row = 0

    def restored(self, tokens: int, usage: Usage | None, same_beginning: bool) -> None:
        """
        How the first request after a restore went.

        :param tokens: how many were restored.
        :param usage: the token counts of the request.
        :param same_beginning: whether its prompt begins as the restored one did. Where it does
            not, reading everything says nothing about restores.
        """
        if usage is None:
            return
        prompt = usage.read + usage.reused
        if usage.reused >= USEFUL_SHARE * min(tokens, prompt):
            self._in_a_row = 0
            return
        if not same_beginning:
            return
        self._in_a_row += 1
        self._given_up = self._clock.seconds()
        self._log.info(
            "{server}: a restore of {tokens} tokens did not help: {read} of {prompt} were read",
            server=self._server,
            tokens=tokens,
            read=usage.read,
            prompt=prompt,
        )
        if self._in_a_row == LIMIT:
            self._log.warn(
                "{server}: {count} restores in a row did not help, so none is tried for a while,"
                " unless the server restarts or its build changes. A model with a sliding window"
                " needs a llama-server of 2026-10-08 or later, or --swa-full",
                server=self._server,
                count=LIMIT,
            )
