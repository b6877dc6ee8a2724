"""
The answer through slotgate is the server's own, for good requests and for bad ones; what is
different is in ``docs/clients.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import differential_cases as cases
import pytest
from differential import NOT_COMPARED, Answer, Case, Pair, running
from differential_exceptions import Different, different
from test_ollama_real import TEMPLATE

from slotgate.surfaces.generation import PATHS
from slotgate.testing import models

DOCS = Path(__file__).parent.parent / "docs" / "clients.md"


def parameters(*groups: Iterable[Any]) -> list[Any]:
    """The cases, by their names."""
    return [
        pytest.param(case, id=getattr(case, "case", case).name)
        for group in groups
        for case in group
    ]


SAME = parameters(
    cases.chats(),
    cases.bad_chats(),
    cases.completions(),
    cases.responses(),
    cases.messages(),
    cases.others(),
    cases.paths(),
    cases.headers(),
    cases.bodies(),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with (
        mock.patch.object(models, "CHAT_TEMPLATE", TEMPLATE),
        running(tmp_path_factory.mktemp("differential")) as both,
    ):
        yield both


def in_session(case: Case) -> Case:
    """The same, in a session that no other case has."""
    return case.with_headers({"X-Slotgate-Session": "".join(filter(str.isalnum, case.name))})


@pytest.mark.parametrize("case", SAME)
def test_the_answer_is_the_same(pair: Pair, case: Case) -> None:
    case = in_session(case)
    generates = case.method == "POST" and case.target.partition("?")[0] in PATHS
    if generates:
        direct, through = pair.erase()
        assert through.compared == direct.compared
    direct, through = pair.both(case)
    assert through.compared == direct.compared
    if generates and direct.status == 200:
        # now from the cache
        direct, through = pair.both(case)
        assert through.compared == direct.compared


@pytest.mark.parametrize("case", parameters(cases.bad_messages()))
def test_errors_of_messages_say_the_same_in_anthropics_shape(pair: Pair, case: Case) -> None:
    direct, through = pair.both(in_session(case))
    assert (through.status, through.reason) == (direct.status, direct.reason)
    assert set(through.json) == {"type", "error"}
    assert set(through.json["error"]) == {"type", "message"}
    assert through.json["type"] == "error"
    assert through.error == direct.error


@pytest.mark.parametrize("exception", parameters(different()))
def test_what_is_different_is_as_documented(pair: Pair, exception: Different) -> None:
    direct, through = pair.both(in_session(exception.case))
    assert (direct.status, through.status) == (exception.direct, exception.through)
    assert exception.says in through.body.decode()


def test_the_clients_choice_of_cache_and_slot_is_not_taken(pair: Pair) -> None:
    body = {"prompt": "Once upon a time", "n_predict": 4, "seed": 1, "temperature": 0}
    asked = json.dumps({**body, "cache_prompt": False, "id_slot": 7}).encode()
    case = in_session(Case("cache and slot", "POST", "/completion", asked))
    pair.erase()
    pair.both(case)
    direct, through = pair.both(case)
    # the server takes slot 7 of 1 for slot 0
    assert (direct.json["id_slot"], through.json["id_slot"]) == (0, 0)
    assert direct.json["timings"]["cache_n"] == 0
    assert through.json["timings"]["cache_n"] == len("Once upon a time")
    assert through.json["content"] == direct.json["content"]


def test_an_id_for_resuming_a_stream_does_not_reach_the_server(pair: Pair) -> None:
    body = {"messages": cases.HELLO, "max_tokens": 4, "seed": 1, "temperature": 0, "stream": True}
    sent = {"X-Conversation-Id": "abc", "Content-Type": "application/json"}
    case = Case("resume", "POST", "/v1/chat/completions", json.dumps(body).encode(), sent)
    pair.erase()
    direct, through = pair.both(case)
    assert through.headers["x-slotgate-source"] == "header:x-conversation-id"
    assert through.compared == direct.compared
    direct, through = pair.both(Case("replay", "GET", "/v1/stream?conv_id=abc&from=0"))
    assert (direct.status, through.status) == (200, 404)


def test_counters_have_the_same_names(pair: Pair) -> None:
    direct, through = pair.both(Case("metrics", "GET", "/metrics"))
    for answer in (direct, through):
        assert answer.status == 200
    lines = [
        [line.partition(" ")[0] for line in answer.body.decode().splitlines()]
        for answer in (direct, through)
    ]
    assert lines[0] == lines[1]
    assert "llamacpp:prompt_tokens_total" in lines[0]


def test_nothing_else_is_evened_out() -> None:
    body = b'{"id":"chatcmpl-%s","created":17,"timings":{"cache_n":3,"prompt_ms":1.5e-3}}' % (
        b"aZ" * 16
    )
    answer = Answer(200, "OK", {"server": "llama.cpp", "date": "today"}, body)
    assert answer.compared == (
        200,
        "OK",
        {"server": "llama.cpp"},
        b'{"id":"#","created":#,"timings":{"cache_n":3,"prompt_ms":#}}',
    )
    for told in (b'{"content":"prompt_ms:1"}', b'{"prompt_n":4,"tokens":[1]}', b'{"model":"a"}'):
        assert Answer(200, "OK", {}, told).compared[3] == told


def test_all_that_is_different_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    section = text.partition("## What is different through slotgate\n")[2].partition("\n## ")[0]
    for documented in {exception.documented for exception in different()}:
        assert f"| {documented} |" in section
    for name in NOT_COMPARED:
        assert name.removesuffix("*") in section.lower(), name
