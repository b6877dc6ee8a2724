"""
The demo from the first line to the last: what is started, what is played, what is compared.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from json import dumps
from pathlib import Path
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import CancelledError

from slotgate.demo.conversations import conversations
from slotgate.demo.gateway import DemoGateway
from slotgate.demo.player import Played, Player, client, player
from slotgate.demo.screen import Screen
from slotgate.demo.table import HEADING, row, total
from slotgate.testing.real import RealServer, RealServerOptions

LOAD_SECONDS = 300.0
"""A cold disk and a slow machine: the model is 98 MB."""

CONTEXT_TOKENS = 6144
"""Enough for the prompts of a model that has one token per byte, too."""

BATCH_TOKENS = 512
"""A server whose client has gone works on to the end of the batch: about two seconds."""


class ServerEnded(Exception):
    """
    A llama-server ended that nobody had asked to.
    """


@frozen
class Pass:
    """
    The turns of all sessions, played in turn, with a restart of the server before the last round.

    :ivar said: each session's answers. A pass adds those that are missing, so that a second one
        asks exactly what the first one did.
    """

    screen: Screen
    play: Player
    restart: Callable[[], Awaitable[None]]
    said: Mapping[str, list[str]]
    turns: list[Played] = field(factory=list)

    async def run(self) -> None:
        """
        Play the pass, a line of the table each turn.
        """
        script = conversations()
        rounds = len(script[0].questions)
        self.screen.line(HEADING)
        for turn in range(rounds):
            if turn == rounds - 1:
                await self.restart()
            for conversation in script:
                answers = self.said[conversation.session]
                played = await self.play(conversation, answers[:turn])
                if len(answers) == turn:
                    answers.append(played.answer)
                self.turns.append(played)
                self.screen.line(row(played))


async def show(reactor: Any, screen: Screen, model: Path, stay: bool) -> None:
    """
    Run the demo; everything it starts has ended when it returns, raises or is cancelled.

    :param model: the GGUF file.
    :param stay: keep gateway and server running at the end, until cancelled.
    """
    said: dict[str, list[str]] = {c.session: [] for c in conversations()}
    http = client(reactor)
    async with AsyncExitStack() as ends:
        room = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="slotgate-demo-")))
        (slots := room / "slots").mkdir()

        async def start(title: str) -> RealServer:
            options = RealServerOptions(
                model, slot_save_path=slots, context=CONTEXT_TOKENS, batch=BATCH_TOKENS
            )
            server = RealServer(reactor, options, start_seconds=LOAD_SECONDS)
            ends.push_async_callback(server.stop)
            async with screen.waiting(title):
                await server.start()
            return server

        async def play(server: RealServer, url: str) -> list[Played]:
            async def restart() -> None:
                async with screen.waiting("  llama-server killed (SIGKILL) and started again"):
                    await server.restart()

            played = Pass(screen, player(http, reactor, url), restart, said)
            await played.run()
            return played.turns

        server = await start(f"llama-server, one slot, {model.name}")
        gateway = DemoGateway(reactor, server.url, slots, room / "state")
        ends.push_async_callback(gateway.stop)
        ends.push_async_exit(_at_once(server))
        gateway.start()
        screen.line(f"slotgate at {gateway.url}, in front of {server.url}")
        screen.line()
        screen.line("Three sessions take turns, through slotgate:")
        through = await play(server, gateway.url)

        screen.line()
        direct_server = await start("The same turns, straight to another llama-server like it")
        straight = await play(direct_server, direct_server.url)
        await direct_server.stop()

        screen.line()
        screen.line(total("with slotgate", through))
        screen.line(total("straight to the server", straight))
        if stay:
            screen.line()
            screen.line(f"slotgate stays at {gateway.url} until Ctrl-C. Try, twice:")
            screen.line(f"  {curl(gateway.url)}")
            try:
                await server.ended()
            except CancelledError:
                return
            raise ServerEnded(f"the llama-server at {server.url} ended")


def _at_once(server: RealServer) -> Callable[..., Awaitable[None]]:
    """
    End the server before the gateway when the demo did not come to its own end, so that nobody
    waits until what it reads is read.
    """

    async def unless_whole(failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            await server.kill()

    return unless_whole


def curl(url: str) -> str:
    """
    A command line that starts a session of one's own, and finds it again the next time.
    """
    body = {"messages": [{"role": "user", "content": "Tell me a joke."}], "max_tokens": 24}
    words = ["curl", "-i", f"{url}/v1/chat/completions"]
    words += ["-H", "Content-Type: application/json", "-H", "X-Session-ID: my-chat"]
    return shlex.join([*words, "-d", dumps(body)])
