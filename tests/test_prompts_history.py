"""The last prompts of sessions, within their bounds."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from prompt_pairs import SYSTEM, TALK, TURNS, chat, said, words

from slotgate import config
from slotgate.llama.wire import Usage
from slotgate.prompts.comparison import Change
from slotgate.prompts.history import PromptHistory
from slotgate.sessions import SessionKey

MIB = 1024 * 1024


def key(session: str, client: str | None = None, route: str = "*") -> SessionKey:
    return SessionKey(client, route, session)


def history(sessions: int = 10, most: int = MIB, *, keep: bool = False) -> PromptHistory:
    return PromptHistory(sessions, most, keep)


def test_a_prompt_is_compared_with_the_last_one_of_its_session() -> None:
    prompts = history()
    assert prompts.note(key("a"), chat(*TALK)) is None
    assert prompts.note(key("b"), chat(*TALK)) is None
    grown = prompts.note(key("a"), chat(*TALK, *TURNS[5:7]))
    assert grown is not None
    assert grown.change is Change.GROWN
    again = prompts.note(key("a"), chat(*TALK, *TURNS[5:7]))
    assert again is not None
    assert again.change is Change.SAME
    remembered = prompts.last_two(key("a"))
    assert remembered is not None
    assert remembered.compared() == again


def test_the_first_prompt_of_a_fork_is_compared_with_its_parents_last_one() -> None:
    prompts = history()
    prompts.note(key("a"), chat(*TALK))
    fork = prompts.note(key("b"), chat(*TALK, *TURNS[5:7]), key("a"))
    assert fork is not None
    assert (fork.change, fork.of_parent) == (Change.GROWN, True)
    # afterwards it has one of its own
    second = prompts.note(key("b"), chat(*TALK, *TURNS[5:7]), key("a"))
    assert second is not None
    assert (second.change, second.of_parent) == (Change.SAME, False)
    assert prompts.note(key("c"), chat(*TALK), key("unknown")) is None
    remembered = prompts.last_two(key("c"))
    assert remembered is not None
    assert not remembered.of_parent


def test_what_came_of_a_request_is_remembered_until_the_next_one() -> None:
    prompts = history()
    prompts.answered(key("a"), None, "cold", "new session")
    assert not prompts.known(key("a"))
    prompts.note(key("a"), chat(*TALK))
    prompts.answered(key("a"), Usage(3, 4), "cold", "new session")
    remembered = prompts.last_two(key("a"))
    assert remembered is not None
    assert (remembered.usage, remembered.cache) == (Usage(3, 4), "cold")
    prompts.note(key("a"), chat(*TALK))
    remembered = prompts.last_two(key("a"))
    assert remembered is not None
    assert (remembered.usage, remembered.cache, remembered.verdict) == (None, "", "")


def test_after_a_prompt_that_says_nothing_there_is_none_to_compare_with() -> None:
    prompts = history()
    prompts.note(key("a"), chat(*TALK))
    assert prompts.note(key("a"), {"messages": "odd"}) is not None
    assert prompts.note(key("a"), {"messages": 7}) is None
    assert not prompts.known(key("a"))
    assert prompts.size == 0


def test_the_sessions_used_longest_ago_go_first() -> None:
    prompts = history(sessions=2)
    for session in ("a", "b", "a", "c"):
        prompts.note(key(session), chat(*TALK))
    assert [prompts.known(key(session)) for session in "abc"] == [True, False, True]


def test_none_are_remembered_where_none_are_wanted() -> None:
    prompts = history(sessions=0)
    for _ in range(2):
        assert prompts.note(key("a"), chat(*TALK)) is None
    assert (len(prompts), prompts.size) == (0, 0)


def test_names() -> None:
    prompts = history()
    for one in (key("a"), key("a", route="m"), key("a", "me"), key("b", "me")):
        prompts.note(one, chat(*TALK))
    assert prompts.named(None, "a") == [key("a"), key("a", route="m"), key("a", "me")]
    assert prompts.named("me", "a") == [key("a", "me")]
    prompts.forget(key("a", "me"))
    prompts.forget(key("a", "me"))
    assert prompts.named("me", "a") == []


def test_one_prompt_that_is_too_large_does_not_push_the_others_out() -> None:
    prompts = history(most=20_000)
    prompts.note(key("a"), chat(*TALK))
    prompts.note(key("b"), chat(said("user", words("long", 1_000_000))))
    assert [prompts.known(key(session)) for session in "ab"] == [True, False]


def test_the_defaults_are_those_of_the_configuration() -> None:
    found = PromptHistory.of(config.PromptHistory())
    assert (found.sessions, found.most_bytes, found.keep_prompts) == (500, 32 * MIB, False)


@pytest.mark.parametrize("letters", ["word", "wörd"])
@pytest.mark.parametrize("keep", [False, True])
def test_it_takes_as_much_memory_as_it_says(keep: bool, letters: str) -> None:
    def prompt(session: int, turns: int) -> Any:
        texts = (words(f"{letters} {session} {turn}", 1500) for turn in range(turns))
        # as a request comes: nothing of it is shared with another one
        return json.loads(json.dumps(chat(SYSTEM, *(said("user", text) for text in texts))))

    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    prompts = history(sessions=100, most=100 * MIB, keep=keep)
    for session in range(30):
        for turns in (20, 22, 23):
            prompts.note(key(f"session {session}"), prompt(session, turns))
        prompts.answered(key(f"session {session}"), Usage(1, 2), "resident", "It was there.")
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0.98 * taken < prompts.size < 1.1 * taken


def test_500_sessions_stay_within_their_bounds() -> None:
    prompts = PromptHistory.of(config.PromptHistory(sessions=500, mib=2))
    long = [said("user", words(f"word {turn}", 2000)) for turn in range(12)]
    for session in range(600):
        for turns in (10, 12):
            fields = chat(said("system", f"{session}"), *long[:turns])
            prompts.note(key(f"session {session}"), fields)
            assert prompts.size <= 2 * MIB
    assert 300 < len(prompts) <= 500
    assert prompts.known(key("session 599"))
    assert not prompts.known(key("session 0"))
    for session in range(600):
        prompts.forget(key(f"session {session}"))
    assert prompts.size == 0


def test_nothing_of_a_prompt_is_in_what_a_log_could_show() -> None:
    prompts = history(keep=True)
    for _ in range(2):
        found = prompts.note(key("a"), chat(said("user", "canary")))
    shown = f"{prompts!r} {prompts.last_two(key('a'))!r} {found!r}"
    assert "canary" not in shown
