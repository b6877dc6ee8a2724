"""
The page of the documentation says what the code does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import attrs
import pytest

from slotgate._config.loading import parse_config
from slotgate._config.settings import ALTERNATIVES, HIDDEN, VARIABLES, Scope
from slotgate._config.toml import Structurer
from slotgate.config import (
    Client,
    ConfigError,
    Gateway,
    Identity,
    Logging,
    PromptHistory,
    Route,
    Router,
    Server,
)

DOCS = Path(__file__).parent.parent / "docs" / "configuration.md"
STRUCTURER = Structurer(Scope(Path("/"), {}).readers(lambda value: value), ALTERNATIVES, HIDDEN)

HEADINGS = {
    "`[gateway]`": Gateway,
    "`[servers.NAME]`": Server,
    "`[servers.NAME.router]`": Router,
    "`[[routes]]`": Route,
    "`[identity]`": Identity,
    "`[[clients]]`": Client,
    "`[prompt_history]`": PromptHistory,
    "`[logging]`": Logging,
}


def documented(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading: the cells by the name in the first."""
    section = re.split(r"^## ", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(heading + "\n")]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, flags=re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" |")] for name, cells in rows}


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_key_is_documented_with_its_meaning(heading: str) -> None:
    rows = documented(heading)
    assert list(rows) == STRUCTURER.keys(HEADINGS[heading])
    assert all(len(cells) == 3 and cells[1] for cells in rows.values())


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_documented_defaults_are_the_real_ones(heading: str) -> None:
    cls = HEADINGS[heading]
    rows = documented(heading)
    readers = Scope(Path("/"), {}).readers(lambda value: value)[cls]
    for field in attrs.fields(cls):
        if field.name in HIDDEN.get(cls, ()) or field.name in ("state_dir", "router", "levels"):
            continue
        several = field.name in ALTERNATIVES
        key = ALTERNATIVES[field.name][0] if several else field.name
        cell = rows[key][0]
        if field.default is attrs.NOTHING:
            assert cell == "required", key
            continue
        value = tomllib.loads(f"x = {cell.strip('`')}")["x"]
        default = readers[field.name]({key: value} if several else value)
        assert default == field.default, key
        # The reader must not be what makes them equal.
        assert several or default is None or type(value) in (type(default), int, list), key


def test_every_numeric_key_is_documented_with_its_unit() -> None:
    for heading, cls in HEADINGS.items():
        for field in attrs.fields(cls):
            if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
                assert documented(heading)[field.name][2], field.name


def test_every_variable_is_documented_with_its_key() -> None:
    section = {cls: heading for heading, cls in HEADINGS.items()}
    assert documented("Environment variables") == {
        variable.name: [section[variable.cls], f"`{variable.key}`"] for variable in VARIABLES
    }


def test_the_documented_examples_do_what_the_page_says() -> None:
    environ = {"HOME": "/home/me", "GPU1_KEY": "g", "WEBUI_KEY": "w", "OPERATOR_KEY": "o"}
    blocks = re.findall(
        r"^```toml\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
        DOCS.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    assert len(blocks) == 5
    for text, lines in blocks:
        if lines:
            with pytest.raises(ConfigError) as caught:
                parse_config(text, environ, Path("/etc"))
            assert str(caught.value) == lines.strip()
        else:
            assert parse_config(text, environ, Path("/etc"))
