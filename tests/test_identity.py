"""Which session a request belongs to."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.web.http_headers import Headers

from slotgate.config import Identity
from slotgate.identity import Identified, identify
from slotgate.sessions import SessionKey, session_digits

DEFAULTS = Identity()
HEX = "3f9a0c1d5b7e4a2c8d6f1e0b9a7c5d3e"


def found(
    headers: dict[str, str] | None = None,
    body: dict[str, object] | None = None,
    system: str = "",
    settings: Identity = DEFAULTS,
) -> tuple[str | None, str]:
    sent = Headers({name: [value] for name, value in (headers or {}).items()})
    identified = identify(sent, body or {}, system, settings)
    return identified.id, identified.source


@pytest.mark.parametrize("position", range(len(DEFAULTS.headers) - 1))
def test_an_earlier_header_wins_over_a_later_one(position: int) -> None:
    first, second = DEFAULTS.headers[position : position + 2]
    assert found({second: "b", first: "a"}) == ("a", f"header:{first}")


def test_header_names_are_found_in_any_case() -> None:
    assert found({"X-SESSION-ID": "a"}) == ("a", "header:x-session-id")


def test_a_header_wins_over_the_body_and_the_body_over_the_system_prompt() -> None:
    body: dict[str, object] = {"chat_id": "c"}
    assert found({"session-id": "s"}, body, "You are.")[1] == "header:session-id"
    assert found({}, body, "You are.") == ("c", "body:chat_id")


@pytest.mark.parametrize("empty", ["", "   "])
def test_an_empty_value_is_absent_and_the_next_source_is_asked(empty: str) -> None:
    assert found({"x-session-id": empty}, {"session_id": empty, "chat_id": "c"}) == (
        "c",
        "body:chat_id",
    )


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("0b9a7c5d-1111-4222-8333-444455556666", True),
        (HEX, True),
        ("chat-42", True),
        ("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV", True),
        ("chatcmpl-7Pp4RZIno0Dzw62YMaZVEd3tlYO5vwws", False),
        ("7", False),
        ("a title", False),
    ],
)
def test_the_field_id_counts_only_where_it_looks_like_a_chat_id(value: str, is_one: bool) -> None:
    assert (found({}, {"id": value})[1] == "body:id") is is_one


def test_a_dotted_field_goes_into_objects() -> None:
    settings = Identity(body=("metadata.chat_id",))
    assert found({}, {"metadata": {"chat_id": "c"}}, settings=settings) == (
        "c",
        "body:metadata.chat_id",
    )
    assert found({}, {"metadata": "text"}, settings=settings)[1] == "default"


def test_a_number_is_an_id_and_true_is_none() -> None:
    assert found({}, {"session_id": 7}) == ("7", "body:session_id")
    assert found({}, {"session_id": True})[1] == "default"


def test_the_system_prompt_is_the_session_where_nothing_names_one() -> None:
    digest = hashlib.sha256("You are a pirate. Été.".encode()).hexdigest()[:16]
    assert found(system="You are a pirate. Été.") == (f"sys-{digest}", "system")


def test_without_anything_there_is_the_default_session() -> None:
    assert found() == ("default", "default")
    assert found(system="You are.", settings=Identity(system_prompt=False)) == (
        "default",
        "default",
    )


@pytest.mark.parametrize("value", ["a" * 257, "a\tb", "a\x7fb", "a\ud800b"])
def test_a_value_that_can_not_be_an_id_makes_no_session(value: str) -> None:
    identified = identify(Headers(), {"session_id": value, "chat_id": "c"}, "You are.", DEFAULTS)
    assert (identified.id, identified.source) == (None, "none")
    assert "body:session_id" in identified.refused
    assert "a" * 257 not in identified.refused


def test_256_characters_are_an_id() -> None:
    assert found({"x-session-id": "a" * 256})[0] == "a" * 256


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (HEX, Identified(HEX, "header:x-session-id")),
        (HEX.upper(), Identified(None, "none")),
        (HEX + "0", Identified(None, "none")),
        (HEX + "\n", Identified(HEX, "header:x-session-id")),
    ],
)
def test_strict_hex_accepts_32_hex_digits_and_nothing_else(
    value: str, expected: Identified
) -> None:
    settings = Identity(strict_hex=True)
    assert found({"X-Session-ID": value}, {"chat_id": "c"}, "You are.", settings) == (
        expected.id,
        expected.source,
    )
    assert found({"x-slotgate-session": HEX}, settings=settings) == (None, "none")


@given(st.dictionaries(st.sampled_from(["session_id", "chat_id", "id"]), st.text() | st.none()))
def test_every_id_that_is_accepted_fits_a_header_line_and_a_file_name(body: dict[str, str]) -> None:
    session = found({}, dict(body))[0]
    if session is None:
        return
    key = SessionKey("somebody", "route", session)
    assert key.shown.isascii()
    assert key.shown.isprintable()
    assert " " not in key.shown
    assert len(session_digits(key, b"secret")) == 32


def test_a_hex_id_names_its_file_only_where_no_client_key_is_involved() -> None:
    assert session_digits(SessionKey(None, "r", HEX), b"s") == HEX
    assert session_digits(SessionKey("ann", "r", HEX), b"s") != HEX


def test_names_of_different_clients_and_installations_never_meet() -> None:
    names = {
        session_digits(SessionKey(client, "r", session), secret)
        for client in (None, "ann", "bob")
        for session in ("chat", "chat\0", "")
        for secret in (b"one", b"two")
    }
    assert len(names) == 18
