"""Which session a request belongs to."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import Recorded, recorded
from twisted.web.http_headers import Headers

from slotgate._config.toml import Wrong
from slotgate._config.values import header_source
from slotgate.config import Identity
from slotgate.identity import Identified, identify, names_sub_agent
from slotgate.sessions import SessionKey, session_digits

DEFAULTS = Identity()
A_UUID = "0b9a7c5d-1111-4222-8333-444455556666"
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


@pytest.mark.parametrize("request_", recorded())
@pytest.mark.parametrize("spelling", ["", "lower", "upper"])
def test_the_session_of_a_client_is_found(request_: Recorded, spelling: str) -> None:
    body, system = request_.body, request_.system_prompt
    identified = identify(request_.sent(spelling), body, system, DEFAULTS)
    if request_.session is None:
        assert identified.source in ("system", "default")
    else:
        assert (identified.id, identified.source) == (request_.session, request_.source)
    assert not identified.refused


def test_every_source_of_the_defaults_is_some_clients() -> None:
    sources = {one.values[0].source for one in recorded()}
    # two that older versions of slotgate promised, and what several clients call a chat
    unclaimed = {"header:conversation-id", "body:conversation_id", "body:chat_id", "body:id"}
    # never first: Codex sends it beside session_id
    unclaimed |= {"header:conversation_id", "body:client_metadata.thread_id"}
    named = {f"header:{name}" for name in DEFAULTS.headers if "*" not in name}
    assert named | {f"body:{name}" for name in DEFAULTS.body} <= sources | unclaimed


@pytest.mark.parametrize("position", range(len(DEFAULTS.headers) - 1))
def test_an_earlier_header_wins_over_a_later_one(position: int) -> None:
    names = DEFAULTS.headers[position : position + 2]
    first, second = (name.replace("*", "acme") for name in names)
    earlier, later = A_UUID, A_UUID.replace("0b", "1c")
    assert found({second: later})[0] == later
    sent = {second: later, first: earlier}
    # a session and a thread of Codex are one id
    expected = f"{earlier}:{later}" if "thread-id" in sent and first == "session-id" else earlier
    assert found(sent) == (expected, f"header:{first}")


@pytest.mark.parametrize("position", range(len(DEFAULTS.body) - 1))
def test_an_earlier_field_wins_over_a_later_one(position: int) -> None:
    first, second = DEFAULTS.body[position : position + 2]
    body: dict[str, object] = {}
    for name, letter in ((second, "b"), (first, "a")):
        value = A_UUID.replace("0b", f"0{letter}")
        outer, _, inner = name.partition(".")
        if name == "metadata.user_id":
            value = f"user_x_account__session_{value}"
        if inner:
            body[outer] = {inner: value, **dict(body.get(outer) or {})}  # type: ignore[call-overload]
        else:
            body[outer] = value
    assert found({}, body) == (A_UUID.replace("0b", "0a"), f"body:{first}")


def test_header_names_are_found_in_any_case() -> None:
    assert found({"X-SESSION-ID": "a"}) == ("a", "header:x-session-id")


def test_a_header_wins_over_the_body_and_the_body_over_the_system_prompt() -> None:
    body: dict[str, object] = {"chat_id": "c"}
    assert found({"x-session-id": "s"}, body, "You are.")[1] == "header:x-session-id"
    assert found({}, body, "You are.") == ("c", "body:chat_id")


@pytest.mark.parametrize("empty", ["", "   "])
def test_an_empty_value_is_absent_and_the_next_source_is_asked(empty: str) -> None:
    assert found({"x-session-id": empty}, {"session_id": empty, "chat_id": "c"}) == (
        "c",
        "body:chat_id",
    )


def test_a_placeholder_that_nobody_filled_in_is_absent() -> None:
    headers = {"x-openwebui-chat-id": "{{CHAT_ID}}", "x-session-id": "s"}
    assert found(headers, {"session_id": "{{LIBRECHAT_BODY_CONVERSATIONID}}"})[0] == "s"
    assert found({}, {"session_id": "{{chat}}"})[1] == "default"


def test_what_is_ours_comes_first_wherever_the_lists_have_it() -> None:
    settings = Identity(headers=("x-a", "x-slotgate-session"), body=("b", "slotgate_session"))
    ours: dict[str, object] = {"b": "b", "slotgate_session": "mine"}
    assert found({"x-a": "a"}, ours, settings=settings) == ("mine", "body:slotgate_session")
    assert found({"x-a": "a", "x-slotgate-session": "s"}, ours, settings=settings)[0] == "s"
    without = Identity(headers=("x-a",), body=("b",))
    assert found({"x-a": "a"}, ours, settings=without) == ("a", "header:x-a")


@pytest.mark.parametrize("name", ["session-id", "session_id", "thread-id", "conversation_id"])
@pytest.mark.parametrize(
    ("value", "more", "is_one"),
    [
        ("s", {}, False),
        ("s", {"user-agent": "curl/8"}, False),
        ("s", {"user-agent": "codex_cli_rs/0.1"}, True),
        ("s", {"originator": "Codex Desktop"}, True),
        (A_UUID.upper(), {}, True),
        (HEX, {}, True),
        (f"{A_UUID}0", {}, False),
    ],
)
def test_names_of_codex_count_from_codex_or_with_a_uuid(
    name: str, value: str, more: dict[str, str], is_one: bool
) -> None:
    assert (found({name: value, **more}) == (value, f"header:{name}")) is is_one


@pytest.mark.parametrize(
    ("value", "session"),
    [
        (f'{{"device_id": "d", "session_id": "{A_UUID}"}}', A_UUID),
        (f"user_ab12_account__session_{A_UUID}", A_UUID),
        (f"user_ab12_account_{HEX}_session_{A_UUID}", A_UUID),
        ("user_ab12_account__session_", None),
        ("user-7", None),
        ('{"session_id": ""}', None),
        ('{"session_id": ["a"]}', None),
        ('["session_id"]', None),
        ("{", None),
        ("[" * 4000, None),
        (f'{{"session_id": "{A_UUID}", "device_id": "{"d" * 5000}"}}', None),
    ],
)
def test_the_user_id_of_claude_code_holds_a_session(value: str, session: str | None) -> None:
    identified = found({}, {"metadata": {"user_id": value}})
    assert identified == ((session, "body:metadata.user_id") if session else ("default", "default"))


def test_a_session_and_its_sub_agents_are_the_same_by_header_and_by_body() -> None:
    agent = {"X-Claude-Code-Agent-Id": "a1"}
    body: dict[str, object] = {"metadata": {"user_id": f'{{"session_id": "{A_UUID}"}}'}}
    by_header = found({"X-Claude-Code-Session-Id": A_UUID, **agent})[0]
    assert by_header == found(agent, body)[0] == f"{A_UUID}:a1"
    assert found({}, body)[0] == A_UUID


def test_an_agent_that_makes_an_id_too_long_is_refused() -> None:
    headers = Headers({"x-claude-code-session-id": [A_UUID], "x-claude-code-agent-id": ["a" * 256]})
    assert identify(headers, {}, "", DEFAULTS).id is None


@pytest.mark.parametrize(
    ("headers", "body", "named"),
    [
        ({"x-claude-code-agent-id": "a"}, {}, True),
        ({"x-claude-code-agent-id": ""}, {}, False),
        ({"session-id": "s", "thread-id": "t"}, {}, True),
        ({"session-id": "s", "thread-id": "s"}, {}, False),
        ({"session-id": "s"}, {}, False),
        ({}, {"prompt_cache_key": "s", "client_metadata": {"thread_id": "t"}}, True),
        ({}, {"prompt_cache_key": "s", "client_metadata": {"thread_id": "s"}}, False),
        ({}, {"prompt_cache_key": "s", "client_metadata": 7}, False),
    ],
)
def test_a_sub_agent_names_itself(
    headers: dict[str, str], body: dict[str, object], named: bool
) -> None:
    sent = Headers({name: [value] for name, value in headers.items()})
    assert names_sub_agent(sent, body) is named
    assert (":" in str(found({**headers, "user-agent": "codex"}, body)[0])) is (
        named and "x-claude-code-agent-id" not in headers
    )


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("x-acme-session-id", "abcd-1234", True),
        ("x-acme-session-id", "abc-123", False),
        ("x-acme-session-id", "two words", False),
        ("x-acme-session-id", "me@example.org", False),
        ("x-parent-session-id", "ses_4f1c9be20ffe", False),
        ("x-acme-parent-session-id", "ses_4f1c9be20ffe", False),
        ("x-slotgate-parent-session-id", "ses_4f1c9be20ffe", False),
        ("acme-session-id", "abcd-1234", False),
        (f"x-{'a' * 200}-session-id", "abcd-1234", False),
    ],
)
def test_a_pattern_finds_sessions_of_clients_that_nobody_listed(
    name: str, value: str, is_one: bool
) -> None:
    assert (found({name: value}) == (value, f"header:{name}")) is is_one


def test_a_pattern_never_finds_ours_and_users() -> None:
    settings = Identity(headers=("x-slotgate-*", "x-openwebui-*"))
    headers = {"x-slotgate-session": "abcd-1234", "x-openwebui-user-id": "abcd-1234"}
    assert found(headers, settings=settings)[1] == "default"
    assert found({**headers, "x-openwebui-chat-id": "abcd-1234"}, settings=settings) == (
        "abcd-1234",
        "header:x-openwebui-chat-id",
    )


def test_of_several_headers_that_a_pattern_finds_the_first_by_name_counts() -> None:
    sent = {"X-B-Session-Id": "bbbb-1234", "X-A-Session-Id": "aaaa-1234"}
    assert found(sent) == ("aaaa-1234", "header:x-a-session-id")
    assert found({**sent, "X-A-Session-Id": ""}) == ("bbbb-1234", "header:x-b-session-id")


def test_a_header_found_by_a_pattern_is_read_as_by_its_name() -> None:
    settings = Identity(headers=("x-*-session-id",))
    sent = {"X-Claude-Code-Session-Id": A_UUID, "X-Claude-Code-Agent-Id": "a1"}
    assert found(sent, settings=settings)[0] == f"{A_UUID}:a1"


@pytest.mark.parametrize("pattern", ["*", "x-*", "*-id", "*key", "auth*"])
def test_a_pattern_that_finds_secrets_is_a_mistake_in_the_file(pattern: str) -> None:
    with pytest.raises(Wrong, match="would find"):
        header_source(pattern)
    assert header_source("X-*-Session-Id") == "x-*-session-id"


def test_fields_of_users_are_in_no_default() -> None:
    names = (*DEFAULTS.headers, *DEFAULTS.body)
    assert not {name for name in names if "user" in name} - {"metadata.user_id"}
    assert "safety_identifier" not in names


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


JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted({name.partition(".")[0] for name in DEFAULTS.body}))
INNER = st.sampled_from(["session_id", "thread_id", "user_id"])
BODIES = st.dictionaries(FIELDS, JSON | st.dictionaries(INNER, JSON))
NAMES = st.sampled_from(
    [name.replace("*", "acme") for name in DEFAULTS.headers]
    + ["user-agent", "originator", "x-claude-code-agent-id", "x-parent-session-id"]
)
SENT = st.dictionaries(NAMES.map(str.encode) | st.binary(min_size=1), st.lists(st.binary()))


@settings(deadline=None)
@given(SENT, BODIES, st.booleans())
def test_whatever_is_sent_has_a_session_or_none(
    sent: dict[bytes, list[bytes]], body: dict[str, object], strict: bool
) -> None:
    headers = Headers()
    for name, values in sent.items():
        for value in values:
            try:
                headers.addRawHeader(name, value)
            except ValueError:  # Twisted's parser would have refused it too
                return
    identified = identify(headers, body, "", Identity(strict_hex=strict))
    names_sub_agent(headers, body)
    # it becomes a header line
    assert identified.source.isascii()
    assert identified.source.isprintable()
    assert identified.id is None or 0 < len(identified.id) <= 256


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
