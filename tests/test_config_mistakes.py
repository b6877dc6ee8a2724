"""
Every mistake in the configuration is one line that names its place.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from slotgate._config.loading import parse_config
from slotgate._config.settings import UNSUPPORTED
from slotgate.config import Config, ConfigError, Route, load_config

HOME = {"HOME": "/home/me"}
ROUTE = '[[routes]]\nmodel = "*"\nserver = "local"\n'
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
GATEWAY = "[gateway]\n"
LOCAL = "[servers.local]\n"
IDENTITY = "[identity]\n"
CLIENT = '[[clients]]\nname = "a"\n'
WITH_KEY = CLIENT + 'key = "k"\n'


def read(text: str, base: Path = Path("/etc/slotgate"), /, **environ: str) -> Config:
    return parse_config(text, {**HOME, **environ}, base)


def mistakes(text: str, base: Path = Path("/etc/slotgate"), /, **environ: str) -> list[str]:
    """The lines of the refusal, without the name of the file."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {**HOME, **environ}, base)
    return [line.removeprefix("slotgate.toml: ") for line in caught.value.lines]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # keys and tables
        ("gatway = 1", 'unknown key "gatway" (did you mean "gateway"?)'),
        (GATEWAY + "lisen = []", 'gateway: unknown key "lisen" (did you mean "listen"?)'),
        (GATEWAY + "zzz = 1", 'gateway: unknown key "zzz"'),
        (LOCAL + 'name = "x"', 'servers.local: unknown key "name"'),
        (LOCAL + "api_key_fil = 1", "servers.local: unknown key \"api_key_fil\" (did you mean "
         '"api_key_file"?)'),
        (LOCAL + "router.x = 1", 'servers.local.router: unknown key "x"'),
        (ROUTE + "slts = 1", 'routes[0]: unknown key "slts" (did you mean "slots"?)'),
        ("gateway = 5", "gateway: expected a table, got a number"),
        ("servers = 5", "servers: expected tables [servers.NAME], got a number"),
        ("[servers]", "servers: there is no server"),
        ('[servers]\nurl = "http://a"', "servers.url: expected a table [servers.url], got text"),
        ('[servers."a b"]', "servers.\"a b\": a server's name is letters, digits, '.', '_', '-', "
         "at most 64"),
        ("routes = []", "routes: there is no route: add [[routes]]"),
        ("[routes]", "routes: expected tables [[routes]], got a table"),
        ("routes = [1]", "routes[0]: expected a table, got a number"),
        ("[clients]", "clients: expected tables [[clients]], got a table"),
        ('clients = ["secret"]', "clients[0]: expected a table, got text"),
        (LOCAL + "router = true", "servers.local.router: expected a table, got true or false"),
        # types: nothing is coerced
        (GATEWAY + "listen = 5", "gateway.listen: expected a list, got 5"),
        (GATEWAY + 'listen = "tcp:1"', 'gateway.listen: expected a list, got "tcp:1"'),
        (GATEWAY + "listen = [5]", "gateway.listen[0]: expected text, got 5"),
        (GATEWAY + "listen = []", "gateway.listen: the list must not be empty"),
        (GATEWAY + "state_dir = 1", "gateway.state_dir: expected text, got 1"),
        (GATEWAY + 'state_dir = ""', "gateway.state_dir: must not be empty"),
        (GATEWAY + "max_queue = 1.0", "gateway.max_queue: expected a whole number, got 1.0"),
        (GATEWAY + "max_queue = true", "gateway.max_queue: expected a whole number, got true"),
        (GATEWAY + "allow_anonymous = 1", "gateway.allow_anonymous: expected true or false, got 1"),
        (LOCAL + 'poll_seconds = "fast"', 'servers.local.poll_seconds: expected a number, got '
         '"fast"'),
        (LOCAL + "poll_seconds = true", "servers.local.poll_seconds: expected a number, got true"),
        (LOCAL + "poll_seconds = 2020-01-01", "servers.local.poll_seconds: expected a number, got "
         "a date or time"),
        (ROUTE + 'cache = "yes"', 'routes[0].cache: expected true or false, got "yes"'),
        (ROUTE + "slot = true", "routes[0].slot: expected a whole number, got true"),
        (ROUTE + "slots = [false]", "routes[0].slots[0]: expected a whole number, got false"),
        (ROUTE + "slots = 0", "routes[0].slots: expected a list, got 0"),
        (IDENTITY + 'system_prompt = "no"', 'identity.system_prompt: expected true or false, got '
         '"no"'),
        # ranges
        (GATEWAY + "drain_seconds = -1", "gateway.drain_seconds: must be at least 0, got -1"),
        (GATEWAY + "stall_seconds = 0", "gateway.stall_seconds: must be more than 0, got 0"),
        (GATEWAY + "stall_seconds = nan", "gateway.stall_seconds: expected a finite number, got "
         "nan"),
        (GATEWAY + "stall_seconds = inf", "gateway.stall_seconds: expected a finite number, got "
         "inf"),
        (GATEWAY + "stall_seconds = 1e9", "gateway.stall_seconds: must be at most 1000000, got "
         "1000000000.0"),
        (GATEWAY + f"max_body_mib = 0x{'f' * 5000}", "gateway.max_body_mib: must be at most "
         "1048576, got a huge number"),
        (GATEWAY + "max_body_mib = 0.0", "gateway.max_body_mib: must be more than 0, got 0.0"),
        (GATEWAY + "max_queue = -1", "gateway.max_queue: must be at least 0, got -1"),
        (LOCAL + "control_timeout_seconds = -0.5", "servers.local.control_timeout_seconds: must be "
         "more than 0, got -0.5"),
        (LOCAL + "read_timeout_seconds = 0", "servers.local.read_timeout_seconds: must be more "
         "than 0, got 0"),
        (LOCAL + "poll_seconds = 0", "servers.local.poll_seconds: must be at least 0.01, got 0"),
        (LOCAL + 'router.tracker = "enforced"', "servers.local.router.tracker: expected one of "
         'enforce, observe, off, got "enforced" (did you mean "enforce"?)'),
        (LOCAL + "router.models_max = -1", "servers.local.router.models_max: must be at least 0, "
         "got -1"),
        (ROUTE + "min_tokens = -1", "routes[0].min_tokens: must be at least 0, got -1"),
        # addresses
        (LOCAL + 'url = ""', "servers.local.url: must not be empty"),
        (LOCAL + 'url = "localhost:8080"', "servers.local.url: must begin with http:// or "
         'https://, got "localhost:8080"'),
        (LOCAL + 'url = "ftp://a"', "servers.local.url: must begin with http:// or https://, got "
         '"ftp://a"'),
        (LOCAL + 'url = "http://"', 'servers.local.url: "http://" has no usable host or port'),
        (LOCAL + 'url = "http://a:0"', 'servers.local.url: "http://a:0" has no usable host or '
         "port"),
        (LOCAL + 'url = "http://a:70000"', 'servers.local.url: "http://a:70000" is no address like '
         "http://127.0.0.1:8080"),
        (LOCAL + 'url = "http://a b/"', 'servers.local.url: "http://a b/" has no usable host or '
         "port"),
        (LOCAL + 'url = "http://a/b c"', 'servers.local.url: "http://a/b c" has a character that '
         "must be written as %XX"),
        (LOCAL + 'url = "http://a/?"', "servers.local.url: must not have a query or a fragment"),
        (LOCAL + 'url = "http://a/#b"', "servers.local.url: must not have a query or a fragment"),
        (LOCAL + 'url = "http://u:secret@a"', "servers.local.url: must not have a user or a "
         "password: use api_key"),
        (LOCAL + 'url = "http://a\\r\\nX: y"', "servers.local.url: has a control character: "
         '"http://a\\r\\nX: y"'),
        (LOCAL + '[servers.b]\nurl = "http://127.0.0.1:8080/v1"\n' + ROUTE,
         "servers.b.url: the same address as servers.local"),
        (LOCAL + 'ca_file = "ca.pem"\nurl = "https://a"', "servers.local.ca_file: cannot read "
         "/etc/slotgate/ca.pem: No such file or directory"),
        (LOCAL + 'slot_save_path = "a\\u0000b"', "servers.local.slot_save_path: has a control "
         'character: "a\\u0000b"'),
        # keys
        (LOCAL + 'api_key = "a"\napi_key_env = "B"', "servers.local.api_key_env: there is api_key "
         "already: write only one of them"),
        (LOCAL + "api_key = 5", "servers.local.api_key: expected text, got a number"),
        (LOCAL + "api_key_file = 5", "servers.local.api_key_file: expected text, got a number"),
        (LOCAL + 'api_key = "a\\nb"', "servers.local.api_key: has a control character, which no "
         "header can carry"),
        (LOCAL + 'api_key = "ключ"', "servers.local.api_key: has a character outside Latin-1, "
         "which no header can carry"),
        (LOCAL + 'api_key = " a"', "servers.local.api_key: begins or ends with a space, which "
         "headers lose"),
        (LOCAL + 'api_key_file = "none"', "servers.local.api_key_file: cannot read "
         "/etc/slotgate/none: No such file or directory"),
        (LOCAL + 'api_key_env = "NONE"', 'servers.local.api_key_env: the environment variable '
         '"NONE" is not set'),
        (CLIENT, "clients[0].key: missing: write one of key, key_file, key_env"),
        ('[[clients]]\nkey = "k"', "clients[0].name: missing"),
        ('[[clients]]\nname = ""\nkey = "k"', "clients[0].name: must not be empty"),
        (CLIENT + 'key = ""', "clients[0].key: must not be empty"),
        (CLIENT + 'key_env = ""', "clients[0].key_env: must not be empty"),
        (WITH_KEY + '[[clients]]\nname = "a"\nkey = "l"', 'clients[1].name: clients[0] has the '
         'name "a" already'),
        (WITH_KEY + '[[clients]]\nname = "b"\nkey = "k"', "clients[1].key: clients[0] has the same "
         "key"),
        # routes
        ('[[routes]]\nserver = "local"', "routes[0].model: missing"),
        ('[[routes]]\nmodel = "*"', "routes[0].server: missing"),
        ('[[routes]]\nmodel = ""\nserver = "local"', "routes[0].model: must not be empty"),
        ('[[routes]]\nmodel = "*"\nserver = "remote"', 'routes[0].server: no server is called '
         '"remote" (there is: local)'),
        (ROUTE + ROUTE, 'routes[1].model: routes[0] has the model "*" already'),
        (ROUTE + "slot = 0\nslots = [0]", "routes[0].slots: there is slot already: write only one "
         "of slot and slots"),
        (ROUTE + "slots = []", "routes[0].slots: the list must not be empty"),
        (ROUTE + "slots = [-1]", "routes[0].slots[0]: must be at least 0, got -1"),
        (ROUTE + "slots = [1, 1]", "routes[0].slots[1]: 1 is there twice"),
        (ROUTE + "slot = -1", "routes[0].slot: must be at least 0, got -1"),
        # identity
        (IDENTITY + 'headers = ["a b"]', 'identity.headers[0]: "a b" is no name of a header'),
        (IDENTITY + 'headers = ["a", "b:"]', 'identity.headers[1]: "b:" is no name of a header'),
        (IDENTITY + 'headers = [""]', 'identity.headers[0]: "" is no name of a header'),
        (IDENTITY + 'headers = ["A", "a"]', 'identity.headers[1]: "a" is there twice'),
        (IDENTITY + 'body = ["a..b"]', 'identity.body[0]: "a..b" has an empty part between its '
         "dots"),
        # what comes later
        (LOCAL + 'verify = "md5"', 'servers.local.verify: expected one of size, xxh3, got "md5"'),
        (LOCAL + "min_free_gib = -1", "servers.local.min_free_gib: must be at least 0, got -1"),
        (ROUTE + "slots = [0, 1]", "routes[0].slots: not supported yet: more than one slot of a "
         "route"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_its_place(text: str, line: str) -> None:
    assert mistakes(text) == [line]


def test_an_unsupported_setting_has_a_reader_and_a_key() -> None:
    assert set(UNSUPPORTED) <= {field.name for field in attrs.fields(Route)}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b" \r\n", "is empty"),
        (b"\xff\xfe", "is no text file"),
    ],
)
def test_a_key_file_must_hold_a_key(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "k").write_bytes(content)
    expected = [f"clients[0].key_file: {tmp_path / 'k'} {line}"]
    assert mistakes(CLIENT + 'key_file = "k"', tmp_path) == expected


def test_a_key_file_that_is_a_folder_is_named(tmp_path: Path) -> None:
    expected = [f"servers.local.api_key_file: cannot read {tmp_path}: Is a directory"]
    assert mistakes(LOCAL + 'api_key_file = "."', tmp_path) == expected


def test_certificates_need_https_and_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "empty.pem").write_text("")
    assert mistakes(LOCAL + 'ca_file = "ca.pem"', tmp_path) == [
        "servers.local.ca_file: is of use only with an https url"
    ]
    assert mistakes(LOCAL + 'url = "https://a"\nca_file = "empty.pem"', tmp_path) == [
        f"servers.local.ca_file: {tmp_path / 'empty.pem'} has no PEM certificate in it"
    ]


def test_several_mistakes_are_told_at_once() -> None:
    text = (
        GATEWAY
        + 'listen = ["tcp:x", "nonsense"]\nstall_seconds = 0\n'
        + LOCAL
        + "url = 1\nrouter.tracker = 2\n"
        + ROUTE
        + "slot = 'a'\nx = 1\ny = 2"
    )
    places = [line.split(":")[0] for line in mistakes(text, LLAMA_MODELS_MAX="x")]
    assert places == [
        "environment",
        "gateway.listen[0]",
        "gateway.listen[1]",
        "gateway.stall_seconds",
        "servers.local.url",
        "servers.local.router.tracker",
        "routes[0].slot",
        "routes[0]",
        "routes[0]",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[gateway]\nlisten = [\n", "line 3, column 1"),
        ("a = 1\nb = x", "line 2, column 5"),
        ("a = 1\na = 2", "line 2, column 6"),
    ],
)
def test_text_that_is_no_toml_is_one_line_with_its_place(text: str, place: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith("not valid TOML: ")
    assert place in line


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 10_000])
def test_what_breaks_the_parser_is_one_line_too(text: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith("not valid TOML: ")


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda path: None, "cannot read it: No such file or directory"),
        (lambda path: path.mkdir(), "cannot read it: Is a directory"),
        (lambda path: path.write_bytes(b"a = '\xff'"), "not UTF-8 (byte 5)"),
        (lambda path: path.write_text("x = 1"), 'unknown key "x"'),
    ],
)
def test_a_file_is_called_by_its_path(
    tmp_path: Path, prepare: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "a.toml"
    prepare(path)
    with pytest.raises(ConfigError) as caught:
        load_config(path, HOME)
    assert caught.value.lines == [f"{path}: {reason}"]


def test_a_path_that_cannot_be_a_file_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Path("a\0\nb"), HOME)
    assert caught.value.lines == ["a\\x00\\nb: cannot read it: embedded null byte"]


# Listening

LOOPBACK = [
    "tcp:11434:interface=127.0.0.1",
    "tcp:11434:interface=127.8.9.10",
    "tcp:11434:interface=localhost",
    "tcp:11434:interface=\\\\:\\\\:1",
    "tcp6:11434:interface=\\\\:\\\\:1",
    "unix:/run/slotgate.sock:mode=660",
    "systemd:domain=INET:index=0",
    "systemd:domain=UNIX:name=web",
]
BEYOND = ["tcp:11434", "tcp:11434:interface=0.0.0.0", "tcp:1:interface=192.168.1.2", "tcp6:11434"]


@pytest.mark.parametrize("endpoint", LOOPBACK)
def test_this_machine_needs_no_clients(endpoint: str) -> None:
    assert read(GATEWAY + f'listen = ["{endpoint}"]')


@pytest.mark.parametrize("endpoint", BEYOND)
def test_beyond_this_machine_needs_clients_or_consent(endpoint: str) -> None:
    text = GATEWAY + f'listen = ["unix:/run/x", "{endpoint}"]\n'
    assert mistakes(text) == [
        f'gateway.listen[1]: "{endpoint}" listens beyond this machine, and no [[clients]] are '
        'there to ask for keys: add ":interface=127.0.0.1" to it, [[clients]], or '
        "allow_anonymous = true to [gateway]"
    ]
    assert read(text + "allow_anonymous = true")
    assert read(text + WITH_KEY)


def test_a_plugins_endpoint_is_taken_for_a_public_one() -> None:
    text = GATEWAY + 'listen = ["haproxy:tcp:11434"]\n'
    (line,) = mistakes(text)
    assert "listens nobody knows where" in line
    assert read(text + WITH_KEY)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http:8080", "Unknown endpoint type: 'http'"),
        ("tcp", "missing 1 required positional argument: 'port'"),
        ("tcp:http", "invalid literal for int() with base 10: 'http'"),
        ("tcp:1:host=a", "got an unexpected keyword argument 'host'"),
        ("tcp:1\\\\", "a backslash at its end"),
        ("ssl:1:privateKey=/none.pem", "No such file or directory (/none.pem)"),
        ("unix:/run/x:mode=rw", "invalid literal for int() with base 8: 'rw'"),
    ],
)
def test_what_twisted_cannot_listen_on_is_told_with_its_reason(endpoint: str, reason: str) -> None:
    (line,) = mistakes(GATEWAY + f'listen = ["{endpoint}"]')
    assert line.startswith("gateway.listen[0]: ")
    assert line.endswith(f'is no endpoint like "tcp:11434:interface=127.0.0.1": {reason}')


@pytest.mark.parametrize("endpoint", ["tcp:65536:interface=127.0.0.1", "tcp:-1"])
def test_a_port_must_exist(endpoint: str) -> None:
    (line,) = mistakes(GATEWAY + f'allow_anonymous = true\nlisten = ["{endpoint}"]')
    assert "there is no port" in line


@pytest.mark.parametrize(
    "endpoint",
    ["systemd:", "systemd:domain=INET", "systemd:domain=X:index=0", "systemd:domain=INET:index=a"],
)
def test_the_form_of_a_systemd_endpoint_is_checked(endpoint: str) -> None:
    (line,) = mistakes(GATEWAY + f'listen = ["{endpoint}"]')
    assert "systemd:domain=INET:name=…" in line


def test_reading_installs_no_reactor_and_importing_brings_no_cattrs() -> None:
    code = (
        "import sys, slotgate.config\n"
        "assert not {'cattrs', 'klein', 'twisted.internet'} & set(sys.modules)\n"
        "slotgate.config.load_config(None, {'HOME': '/h'})\n"
        "from slotgate._config.listening import reach\n"
        "assert reach('tcp6:1') == 'beyond'\n"
        "assert not {'klein', 'twisted.internet.reactor'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent, timeout=60
    )
