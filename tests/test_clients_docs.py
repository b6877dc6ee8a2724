"""The page about clients says what the code does, and its examples work."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from attrs import frozen
from gateway import FakeGatewayCase
from recorded import recorded

from slotgate._config.loading import parse_config
from slotgate.config import Identity
from slotgate.identity import UNNAMED

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:11434"


def blocks(language: str) -> list[str]:
    """The examples in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    """What is under a heading."""
    (text,) = [part for part in re.split(r"^## ", TEXT, flags=re.M) if part.startswith(heading)]
    return text


def named(kind: str) -> list[str]:
    """The headers, or the fields, of the table of what names a conversation."""
    rows = re.findall(rf"^\| {kind}s? (.*?) \|", section("What names"), flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@frozen
class Curl:
    """A command of the page, and the response headers that are shown under it."""

    target: str
    headers: dict[str, str]
    data: bytes
    shown: dict[str, str]


def curls() -> Iterator[Curl]:
    """All of them."""
    for block in blocks("console"):
        for command in block.split("$ ")[1:]:
            line, *output = command.splitlines()
            words = iter(shlex.split(line))
            assert next(words) == "curl"
            target, headers, data = "", {}, b""
            for word in words:
                if word == "-H":
                    name, _, value = next(words).partition(": ")
                    headers[name] = value
                elif word == "-d":
                    data = next(words).encode()
                elif not word.startswith("-"):
                    target = word.removeprefix(ADDRESS)
            assert target.startswith("/")
            yield Curl(target, headers, data, dict(row.split(": ") for row in output[1:]))


def test_the_sources_are_the_real_ones_in_their_order() -> None:
    assert named("header") == list(Identity().headers)
    assert named("field") == list(Identity().body)


@pytest.mark.parametrize("request_", recorded())
def test_every_source_of_a_recorded_client_is_there(request_) -> None:  # type: ignore[no-untyped-def]
    if request_.source in (None, *UNNAMED):
        return
    kind, _, name = request_.source.partition(":")
    listed = named("header" if kind == "header" else "field")
    guessed = name.startswith("x-") and name.endswith("-session-id")
    assert name in listed or guessed


@pytest.mark.parametrize("language", ["json", "yaml", "toml"])
def test_the_settings_are_well_formed(language: str) -> None:
    read = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}[language]
    examples = blocks(language)
    assert examples
    for example in examples:
        assert read(example)


def test_slotgates_own_settings_are_right() -> None:
    (own,) = [example for example in blocks("toml") if "[gateway]" in example]
    config = parse_config(own, {"HOME": "/home/me"}, ROOT)
    assert [client.key for client in config.clients] == ["a-long-random-key"]
    assert "a-long-random-key" in section("From a container").partition("```\n")[2]


def test_every_address_is_where_slotgate_listens() -> None:
    addresses = set(re.findall(r"http://[\w.]+:\d+", TEXT))
    assert {address.rpartition(":")[2] for address in addresses} == {"11434"}


def test_every_client_has_a_section_and_every_link_a_place() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, flags=re.MULTILINE)
    places = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= places
    for file, place in re.findall(r"\]\((\w+\.md)(?:#([\w-]+))?\)", TEXT):
        other = (ROOT / "docs" / file).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", other, flags=re.MULTILINE)
        assert not place or place in {re.sub(r"[^\w -]", "", title.lower()) for title in titles}


class ExampleTests(FakeGatewayCase):
    """The commands of the page, through slotgate."""

    async def test_every_command_works_and_shows_what_the_page_shows(self) -> None:
        sources = set()
        for curl in curls():
            sent = {"Content-Type": "application/x-www-form-urlencoded", **curl.headers}
            answer = await self.request("POST", curl.target, sent, curl.data)
            self.assertEqual(answer.status, 200, (curl, answer.body))
            source = answer.headers["x-slotgate-source"]
            sources.add(source)
            for name, value in curl.shown.items():
                got = answer.headers[name.lower()]
                if source == "history" and name == "X-Slotgate-Session":
                    got, value = got.partition("-")[0], value.partition("-")[0]
                self.assertEqual(got, value, (curl, name))
        self.assertEqual(sources, {"header:x-session-id", "body:slotgate_session", "history"})
