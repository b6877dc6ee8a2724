"""
Whatever a file holds: it is read, or refused line by line, and no key is shown.
"""

from __future__ import annotations

import json
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotgate._config.describe import describe
from slotgate._config.loading import parse_config
from slotgate._config.settings import ALTERNATIVES, HIDDEN, VARIABLES, Scope
from slotgate._config.toml import Structurer
from slotgate.config import Client, ConfigError, Gateway, Identity, Route, Server

HOME = {"HOME": "/home/me"}
BASE = Path("/etc/slotgate")

STRUCTURER = Structurer(Scope(Path("/"), {}).readers(lambda value: value), ALTERNATIVES, HIDDEN)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-2, 3),
    st.floats(),
    ANY_TEXT,
    st.dates(),
    st.sampled_from(
        [
            "",
            "local",
            "auto",
            "tcp:1",
            "tcp:0:interface=127.0.0.1",
            "unix:/x",
            "http://a",
            "~",
            "~x/",
        ]
    ),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)


def tables_of(cls: type) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(STRUCTURER.keys(cls)) | ANY_TEXT
    return st.dictionaries(keys, VALUE, max_size=5) | VALUE


DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "gateway": tables_of(Gateway),
        "servers": st.dictionaries(st.just("local") | ANY_TEXT, tables_of(Server), max_size=2),
        "routes": st.lists(tables_of(Route), max_size=3),
        "identity": tables_of(Identity),
        "clients": st.lists(tables_of(Client), max_size=3),
        "junk": VALUE,
    },
)


def written(value: object) -> str:
    """The value in TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(k)} = {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else repr(value)


def toml(document: dict[str, object]) -> str:
    return "\n".join(f"{key} = {written(value)}" for key, value in document.items())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENT, st.dictionaries(st.sampled_from([v.name for v in VARIABLES]), ANY_TEXT))
def test_junk_is_either_read_or_refused_line_by_line(
    document: dict[str, object], environ: dict[str, str]
) -> None:
    text = toml(document)
    assert tomllib.loads(text).keys() == document.keys()
    try:
        config = parse_config(text, {**HOME, **environ}, BASE)
    except ConfigError as error:
        for line in str(error).split("\n"):
            assert re.match(r"(slotgate\.toml|environment): \S", line), line
            assert line.isprintable()
    else:
        assert all(line.isprintable() for line in describe(config))


MISTAKES = {
    "gateway.drain_seconds": ("gateway", "drain_seconds", st.just(-1) | ANY_TEXT),
    "gateway.max_queue": ("gateway", "max_queue", st.booleans() | st.floats()),
    "gateway.listen": ("gateway", "listen", st.integers() | ANY_TEXT),
    "servers.local.url": ("servers", "url", st.integers() | st.lists(st.integers())),
    "servers.local.poll_seconds": ("servers", "poll_seconds", st.floats(max_value=0)),
    "servers.local.api_key": ("servers", "api_key", st.integers() | st.just("\n")),
    "routes[0].cache": ("routes", "cache", st.integers() | ANY_TEXT),
    "routes[0].slots": ("routes", "slots", st.integers() | st.just([])),
    "routes[0].max_files": ("routes", "max_files", st.integers(max_value=-1) | st.floats()),
    "identity.body": ("identity", "body", st.booleans() | ANY_TEXT),
    "clients[0].admin": ("clients", "admin", st.integers() | ANY_TEXT),
}


@settings(deadline=None)
@given(st.data())
def test_each_mistake_has_its_own_line(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(MISTAKES)), unique=True, min_size=1))
    tables: dict[str, dict[str, object]] = {
        "gateway": {},
        "servers": {},
        "routes": {"model": "*", "server": "local"},
        "identity": {},
        "clients": {"name": "a", "key": "k"},
    }
    for place in chosen:
        section, key, values = MISTAKES[place]
        tables[section][key] = data.draw(values)
    text = toml(
        {
            **tables,
            "servers": {"local": tables["servers"]},
            "routes": [tables["routes"]],
            "clients": [tables["clients"]],
        }
    )
    with pytest.raises(ConfigError) as caught:
        parse_config(text, HOME, BASE)
    assert sorted(line.split(": ")[1] for line in caught.value.lines) == sorted(chosen)


@settings(deadline=None)
@given(
    st.sampled_from(["api_key", "key"]),
    st.text(st.characters(max_codepoint=500, exclude_categories=["Cs"]), min_size=9, max_size=20),
    st.booleans(),
)
def test_no_key_is_ever_shown(key: str, secret: str, other_mistake: bool) -> None:
    secret = f"hush{secret}"
    section = "[servers.local]\n" if key == "api_key" else "[[clients]]\nname = 'a'\n"
    text = f"{section}{key} = {written(secret)}\n" + ("[gateway]\nx = 1" if other_mistake else "")
    try:
        told = "\n".join([*describe(config := parse_config(text, HOME, BASE)), repr(config)])
    except ConfigError as error:
        told = str(error)
    assert "hush" not in told
