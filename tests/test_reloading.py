"""What of a configuration changes while the gateway runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotgate._config.loading import parse_config
from slotgate.config import Config
from slotgate.reloading import merged

BEGIN = """
[gateway]
stall_seconds = 10
[servers.a]
url = "http://127.0.0.1:1"
[servers.b]
url = "http://127.0.0.1:2"
[[routes]]
model = "*"
server = "a"
"""


def config(text: str) -> Config:
    return parse_config(text, {}, Path("/etc"))


RUNNING = config(BEGIN)


def test_nothing_new_changes_nothing() -> None:
    assert merged(RUNNING, config(BEGIN)) == (RUNNING, [], [])


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("stall_seconds = 10", "stall_seconds = 20", "gateway.stall_seconds"),
        ('server = "a"', 'server = "a"\nmax_files = 3', "routes"),
        ('server = "a"', 'server = "a"\n[[routes]]\nmodel = "x"\nserver = "a"', "routes"),
        ("[[routes]]", "[identity]\nsystem_prompt = false\n[[routes]]", "identity"),
    ],
)
def test_what_each_request_asks_for_changes_at_once(old: str, new: str, name: str) -> None:
    read = config(BEGIN.replace(old, new))
    assert merged(RUNNING, read) == (read, [name], [])


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("stall_seconds = 10", 'stall_seconds = 10\nstate_dir = "/x"', "gateway.state_dir"),
        ("stall_seconds = 10", "stall_seconds = 10\nmax_queue = 3", "gateway.max_queue"),
        ("127.0.0.1:1", "127.0.0.1:3", "servers"),
        ('server = "a"', 'server = "b"', "routes (they need slots that are not in use)"),
        ('server = "a"', 'server = "a"\nslot = 1', "routes (they need slots that are not in use)"),
        ("[[routes]]", '[[clients]]\nname = "a"\nkey = "k"\n[[routes]]', "clients"),
    ],
)
def test_what_was_built_at_the_start_stays_and_is_named(old: str, new: str, name: str) -> None:
    assert merged(RUNNING, config(BEGIN.replace(old, new))) == (RUNNING, [], [name])


def test_a_key_can_be_changed_where_keys_are_asked_for() -> None:
    keys = BEGIN + '[[clients]]\nname = "a"\nkey = "k"\n'
    read = config(keys.replace('"k"', '"l"'))
    assert merged(config(keys), read) == (read, ["clients"], [])


def test_what_can_not_change_does_not_hold_up_what_can() -> None:
    text = BEGIN.replace("stall_seconds = 10", "stall_seconds = 20\nmax_queue = 3")
    now, changed, stays = merged(RUNNING, config(text))
    assert (now.gateway.stall_seconds, now.gateway.max_queue) == (20, 64)
    assert (changed, stays) == (["gateway.stall_seconds"], ["gateway.max_queue"])
