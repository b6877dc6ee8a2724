"""
The demo's client: plays one turn of a conversation and tells what it cost.
"""

from __future__ import annotations

from json import loads
from typing import Any, Protocol

from attrs import frozen
from treq.client import HTTPClient
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import Agent, HTTPConnectionPool, ResponseFailed
from twisted.web.http_headers import Headers

from slotgate.demo.conversations import Conversation

TURN_SECONDS = 300.0
"""Longer than any turn on a slow machine: a hanging demo ends in words."""

ANSWER_TOKENS = 20


class TurnFailed(Exception):
    """
    A turn had no usable answer; the message says what came instead.
    """


@frozen
class Played:
    """
    One turn, as its response told it.

    :ivar cache: ``X-Slotgate-Cache``; ``-`` when nothing but the server answered.
    :ivar prompt_tokens: the length of the prompt.
    :ivar read_tokens: how many of them the model had to read (``timings.prompt_n``).
    :ivar seconds: from the first byte of the request to the last of the response.
    """

    session: str
    turn: int
    cache: str
    prompt_tokens: int
    read_tokens: int
    seconds: float
    answer: str


class Player(Protocol):
    """
    Plays a turn somewhere.
    """

    async def __call__(self, conversation: Conversation, answers: list[str]) -> Played: ...


def client(reactor: Any) -> HTTPClient:
    """
    A client that opens a connection for each request: a turn never meets a closing one.
    """
    pool = HTTPConnectionPool(reactor, persistent=False)
    return HTTPClient(Agent(reactor, pool=pool))


def player(http: HTTPClient, clock: IReactorTime, url: str) -> Player:
    """
    A player of turns at the address, which is slotgate's or a llama-server's.
    """

    async def play(conversation: Conversation, answers: list[str]) -> Played:
        started = clock.seconds()
        try:
            response = await http.post(
                f"{url}/v1/chat/completions",
                headers=Headers({"X-Session-ID": [conversation.session]}),
                json={
                    "messages": conversation.messages(answers),
                    "max_tokens": ANSWER_TOKENS,
                    "temperature": 0,
                },
                timeout=TURN_SECONDS,
            )
            content = await response.content().addTimeout(TURN_SECONDS, clock)
        except (ConnectError, ResponseFailed, TimeoutError) as error:
            raise TurnFailed(f"no answer from {url}: {error!r}") from error
        seconds = clock.seconds() - started
        if response.code != 200:
            shown = content[:500].decode("utf-8", "replace")
            raise TurnFailed(f"{url} answered {response.code}: {shown}")
        said = loads(content)
        return Played(
            session=conversation.session,
            turn=len(answers) + 1,
            cache=(response.headers.getRawHeaders("X-Slotgate-Cache") or ["-"])[0],
            prompt_tokens=said["usage"]["prompt_tokens"],
            read_tokens=said["timings"]["prompt_n"],
            seconds=seconds,
            answer=said["choices"][0]["message"]["content"],
        )

    return play
