"""
What a configuration file, the environment, and their absence mean.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slotgate._config.describe import describe
from slotgate._config.loading import parse_config
from slotgate._config.settings import VARIABLES
from slotgate.config import (
    Client,
    Config,
    ConfigError,
    Gateway,
    Identity,
    Route,
    Router,
    Server,
    load_config,
)

HOME = {"HOME": "/home/me"}
ROUTE = '[[routes]]\nmodel = "*"\nserver = "local"\n'
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"


def read(text: str, base: Path = Path("/etc/slotgate"), /, **environ: str) -> Config:
    return parse_config(text, {**HOME, **environ}, base)


def mistakes(text: str, base: Path = Path("/etc/slotgate"), /, **environ: str) -> list[str]:
    """The lines of the refusal, without the name of the file."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {**HOME, **environ}, base)
    return [line.removeprefix("slotgate.toml: ") for line in caught.value.lines]


def server(line: str, /, **environ: str) -> Server:
    return read(f"[servers.local]\n{line}", **environ).servers["local"]


# What a file means


def test_no_file_means_one_server_one_route_and_loopback() -> None:
    config = load_config(None, HOME)
    assert config == Config(
        gateway=Gateway(state_dir=Path("/home/me/.local/state/slotgate")),
        servers={"local": Server("local", url="http://127.0.0.1:8080")},
        routes=(Route("*", "local"),),
        identity=Identity(),
        clients=(),
    )
    assert config.gateway.listen == ("tcp:11434:interface=127.0.0.1",)


def test_an_empty_file_means_the_same_as_none() -> None:
    assert read("") == load_config(None, HOME)


def test_a_single_server_without_routes_gets_every_model() -> None:
    config = read('[servers.gpu]\nurl = "http://10.0.0.2:8080"')
    assert list(config.servers) == ["gpu"]
    assert config.routes == (Route("*", "gpu"),)


def test_several_servers_need_routes() -> None:
    text = '[servers.a]\n[servers.b]\nurl = "http://127.0.0.1:8081"'
    assert mistakes(text) == ["routes: there is no route: add [[routes]]"]


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "key").write_text("from-a-file\n")
    config = read(
        """
        [gateway]
        listen = ["tcp:0", "unix:/run/x"]
        state_dir = "state"
        drain_seconds = 0
        max_body_mib = 1.5
        max_queue = 0
        stall_seconds = 5
        allow_anonymous = true
        [servers.local]
        url = "https://gpu:8443"
        api_key_file = "key"
        ca_file = "ca.pem"
        slot_save_path = "~/slots"
        control_timeout_seconds = 3
        poll_seconds = 0.25
        read_timeout_seconds = 7
        [servers.local.router]
        tracker = "observe"
        models_max = 0
        [[routes]]
        model = "m"
        server = "local"
        upstream_model = "org/m"
        cache = false
        slot = 3
        save_idle_seconds = 0
        min_tokens = 0
        max_files = 0
        max_gib = 0
        [identity]
        headers = ["X-Chat"]
        body = ["metadata.chat"]
        history = false
        system_prompt = false
        strict_hex = true
        [[clients]]
        name = "webui"
        key_env = "WEBUI_KEY"
        admin = true
        """,
        tmp_path,
        WEBUI_KEY="from-the-environment",
    )
    assert config == Config(
        gateway=Gateway(("tcp:0", "unix:/run/x"), tmp_path / "state", 0.0, 1.5, 0, 5.0, True),
        servers={
            "local": Server(
                name="local",
                url="https://gpu:8443",
                api_key="from-a-file",
                ca_file=tmp_path / "ca.pem",
                slot_save_path=Path("/home/me/slots"),
                control_timeout_seconds=3.0,
                poll_seconds=0.25,
                read_timeout_seconds=7.0,
                router=Router("observe", 0),
            )
        },
        routes=(Route("m", "local", "org/m", False, (3,), 0.0, 0, 0, 0.0),),
        identity=Identity(("x-chat",), ("metadata.chat",), False, False, True),
        clients=(Client("webui", "from-the-environment", True),),
    )


def test_slot_and_slots_end_in_the_same_field() -> None:
    assert read(ROUTE + "slot = 2").routes[0].slots == (2,)
    assert read(ROUTE + "slots = [2]").routes[0].slots == (2,)


def test_an_integer_stands_for_a_number_and_becomes_one() -> None:
    assert isinstance(server("poll_seconds = 2").poll_seconds, float)


def test_empty_texts_mean_not_set() -> None:
    found = server(
        'api_key = ""\napi_key_file = ""\napi_key_env = ""\nca_file = ""\nslot_save_path = ""'
    )
    assert found == Server("local")


def test_the_api_key_may_come_from_the_environment() -> None:
    assert server('api_key = ""\napi_key_env = "K"', K="secret").api_key == "secret"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://gpu.example/llama/v1", "https://gpu.example/llama"),
        ("https://gpu.example/v1/llama", "https://gpu.example/v1/llama"),
        ("HTTP://GPU_1", "http://gpu_1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_an_address_loses_its_end(written: str, kept: str) -> None:
    assert server(f'url = "{written}"').url == kept


def test_relative_paths_start_from_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "a.toml").write_text('[gateway]\nstate_dir = "state"')
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("etc/a.toml"), HOME)
    assert config.gateway.state_dir == folder / "state"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "/var/state"}, "/var/state/slotgate"),
        ({"XDG_STATE_HOME": "relative"}, "/home/me/.local/state/slotgate"),
        ({}, "/home/me/.local/state/slotgate"),
    ],
)
def test_the_state_folder_follows_xdg(environ: dict[str, str], folder: str) -> None:
    assert read("", **environ).gateway.state_dir == Path(folder)


def test_two_routes_may_have_the_same_slot() -> None:
    text = ROUTE + '[[routes]]\nmodel = "other"\nserver = "local"\n'
    assert [route.slots for route in read(text).routes] == [(0,), (0,)]


# The environment


def test_variables_are_defaults_of_every_route_and_server() -> None:
    config = read(
        ROUTE + '[[routes]]\nmodel = "b"\nserver = "local"\nslots = [4]',
        LLAMA_SLOT="2",
        LLAMA_SLOT_SAVE_PATH="/slots",
        LLAMA_MODELS_MAX="3",
        LLAMA_CACHE_MAX_FILES="0",
        LLAMA_CACHE_MAX_GIB="0",
        LLAMA_SAVE_IDLE_SECONDS="0",
    )
    assert [route.slots for route in config.routes] == [(2,), (4,)]
    assert config.servers["local"].slot_save_path == Path("/slots")
    assert config.servers["local"].router.models_max == 3


def test_the_file_wins_over_a_variable_even_a_bad_one() -> None:
    text = '[servers.local]\nslot_save_path = "/mine"\n' + ROUTE + "slot = 1\nmax_files = 0"
    config = read(text, LLAMA_SLOT="x", LLAMA_SLOT_SAVE_PATH="/theirs", LLAMA_CACHE_MAX_FILES="9")
    assert config.routes[0].slots == (1,)
    assert config.servers["local"].slot_save_path == Path("/mine")


def test_an_empty_variable_is_none() -> None:
    assert read("", **{variable.name: "" for variable in VARIABLES}) == read("")


def test_a_relative_path_in_a_variable_starts_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = read("", LLAMA_SLOT_SAVE_PATH="slots")
    assert config.servers["local"].slot_save_path == tmp_path / "slots"
    config = read("", LLAMA_SLOT_SAVE_PATH="~/slots")
    assert config.servers["local"].slot_save_path == Path("/home/me/slots")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LLAMA_SLOT", "one", 'expected a whole number, got "one"'),
        ("LLAMA_SLOT", "-1", "must be at least 0, got -1"),
        ("LLAMA_SLOT_SAVE_PATH", "/a\tb", 'has a control character: "/a\\tb"'),
        ("LLAMA_CACHE_MAX_FILES", "1.5", 'expected a whole number, got "1.5"'),
        ("LLAMA_CACHE_MAX_GIB", "nan", "expected a finite number, got nan"),
        ("LLAMA_MODELS_MAX", "many", 'expected a whole number or "auto", got "many"'),
        ("LLAMA_SAVE_IDLE_SECONDS", "30s", 'expected a number, got "30s"'),
    ],
)
def test_a_bad_variable_is_named_once(name: str, value: str, message: str) -> None:
    text = ROUTE + '[[routes]]\nmodel = "b"\nserver = "local"'
    assert mistakes(text, **{name: value}) == [f"environment: {name}: {message}"]


def test_without_a_file_a_bad_variable_is_the_only_thing_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {**HOME, "LLAMA_SLOT": "x"})
    assert caught.value.lines == ['environment: LLAMA_SLOT: expected a whole number, got "x"']


# In words


def test_the_description_names_everything_but_keys(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    config = read(
        """
        [gateway]
        listen = ["tcp:11434", "unix:/run/x"]
        state_dir = "/var/lib/slotgate"
        [servers.big]
        url = "https://gpu:8443"
        api_key = "secret-1"
        slot_save_path = "slots"
        [servers.small]
        url = "http://127.0.0.1:8081"
        slot_save_path = "gone"
        [[routes]]
        model = "coder"
        server = "big"
        upstream_model = "org/coder"
        slot = 2
        [[routes]]
        model = "*"
        server = "small"
        cache = false
        [identity]
        headers = ["x-chat"]
        body = ["chat_id"]
        [[clients]]
        name = "webui"
        key = "secret-2"
        [[clients]]
        name = "root"
        key = "secret-3"
        admin = true
        """,
        tmp_path,
    )
    times = (
        "a look at a busy slot every 1 s, 120 s for a control call, "
        "3600 s of silence within a response, 120 s for a model to load"
    )
    checks = "files checked by size, 1 GiB of the disk kept free, leftovers swept"
    assert describe(config) == [
        "listen: tcp:11434",
        "listen: unix:/run/x",
        "state: /var/lib/slotgate",
        "limits: bodies of 64 MiB, 64 waiting requests per slot, 60 s for a client that reads "
        "nothing, 30 s to end responses at a stop",
        f"server big: https://gpu:8443; with a key; slot folder {tmp_path / 'slots'}; "
        f"{checks}; {times}",
        "server small: http://127.0.0.1:8081; without a key; slot folder "
        f"{tmp_path / 'gone'} (there is no such folder now); {checks}; {times}",
        'route 0: "coder" to server big as "org/coder"; slot 2; snapshots from 64 tokens',
        'route 1: "*" to server small; relayed only, nothing is saved',
        "session from, in order: header x-chat, body chat_id, history, system prompt, default",
        "client webui",
        "client root (admin)",
        "prompts: the last two of 500 sessions are compared, digests and lengths only, "
        "at most 32 MiB",
        "log: text, from info on",
    ]


def test_the_description_says_who_may_come_without_a_key() -> None:
    assert "clients: everybody from this machine, no keys asked" in describe(read(""))
    config = read("[gateway]\nallow_anonymous = true")
    assert "clients: everybody from anywhere, no keys asked" in describe(config)


def test_the_description_says_what_is_remembered_and_logged() -> None:
    text = """
        [prompt_history]
        keep_prompts = true
        [logging]
        format = "json"
        levels = {"slotgate.slots" = "debug"}
    """
    *_, prompts, log = describe(read(text))
    assert (
        prompts
        == "prompts: the last two of 500 sessions are compared, with their texts, at most 32 MiB"
    )
    assert log == "log: json, from info on, debug for slotgate.slots"
    assert "prompts: not compared" in describe(read("[prompt_history]\nsessions = 0"))
