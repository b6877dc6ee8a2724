"""Where slotgate listens, as its endpoint strings say it, and what the doctor makes of that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from relay_gateway import self_signed

from slotgate._config.listening import Listening, listening, reach
from slotgate.config import Config, Gateway, Identity, Server
from slotgate.doctor import machine
from slotgate.doctor.gateway import addresses, is_ours

CHECKOUT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [
        ("tcp:8000", Listening("http", "", 8000)),
        ("tcp:interface=127.0.0.1:port=8000", Listening("http", "127.0.0.1", 8000)),
        (r"tcp6:8000:interface=\:\:1", Listening("http", "::1", 8000)),
        ("tcp6:8000", Listening("http", "::", 8000)),
        ("unix:/run/s.sock:mode=660", Listening("unix", path="/run/s.sock")),
    ],
)
def test_an_endpoint(endpoint: str, found: Listening) -> None:
    assert listening(endpoint) == (found,)


def test_an_endpoint_with_tls(tmp_path: Path) -> None:
    (tmp_path / "tls.pem").write_bytes(b"".join(self_signed()))
    endpoint = f"ssl:port=8443:interface=127.0.0.1:privateKey={tmp_path}/tls.pem"
    assert listening(endpoint) == (Listening("https", "127.0.0.1", 8443),)
    assert reach(endpoint) == "local"
    assert reach(endpoint.replace("127.0.0.1", "10.0.0.5")) == "beyond"


def test_what_systemd_hands_over_is_not_known() -> None:
    assert listening("systemd:domain=INET:index=0") == ()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("10.0.0.5", "http://10.0.0.5:80"),
    ],
)
def test_how_it_is_reached_from_here(host: str, url: str) -> None:
    assert Listening("http", host, 80).url == url


def config_of(tmp_path: Path, *listen: str) -> Config:
    gateway = Gateway(listen=listen, state_dir=tmp_path)
    return Config(gateway, {"a": Server("a")}, (), Identity(), ())


@pytest.mark.parametrize(
    ("endpoint", "url", "ours"),
    [
        ("tcp:8000:interface=127.0.0.1", "http://127.0.0.1:8000", True),
        ("tcp:8000:interface=127.0.0.1", "http://localhost:8000/v1", True),
        ("tcp:interface=127.0.0.1:port=8000", "http://127.0.0.1:8000", True),
        ("tcp:8000", "http://127.0.0.1:8000", True),
        (r"tcp6:8000:interface=\:\:1", "http://[::1]:8000", True),
        ("tcp:8000:interface=10.0.0.5", "http://10.0.0.5:8000", True),
        ("tcp:80:interface=127.0.0.1", "http://127.0.0.1", True),
        ("tcp:8000:interface=10.0.0.5", "http://127.0.0.1:8000", False),
        ("tcp:8000:interface=127.0.0.2", "http://127.0.0.1:8000", False),
        ("tcp:8000", "http://10.0.0.5:8000", False),
        ("tcp:8001", "http://127.0.0.1:8000", False),
        ("unix:/run/s.sock", "http://127.0.0.1:8000", False),
    ],
)
def test_an_address_is_slotgates_own(tmp_path: Path, endpoint: str, url: str, ours: bool) -> None:
    assert is_ours(config_of(tmp_path, endpoint), url) is ours


def test_addresses_that_are_not_known_before_the_start_are_none(tmp_path: Path) -> None:
    gone = f"ssl:8443:privateKey={tmp_path}/gone.pem"
    config = config_of(tmp_path, "tcp:0", "systemd:domain=INET:index=0", gone, "tcp:8000")
    assert addresses(config) == [Listening("http", "", 8000)]


def test_a_lock_of_another_file_system_with_the_same_number_is_not_ours(tmp_path: Path) -> None:
    lock, other = tmp_path / "lock", tmp_path / "other"
    lock.touch()
    other.touch()
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 7 08:01:{os.stat(lock).st_ino} 0 EOF\n"
    )
    (tmp_path / "7" / "fd" / "3").symlink_to(other)
    assert machine.lock_holder(lock, tmp_path) is None
    (tmp_path / "7" / "fd" / "4").symlink_to(lock)
    assert machine.lock_holder(lock, tmp_path) == 7


def test_the_doctor_needs_no_surface_and_no_reader_of_toml() -> None:
    code = (
        "import pathlib, slotgate.doctor\n"
        "for file in pathlib.Path(slotgate.doctor.__file__).parent.glob('[a-z]*.py'):\n"
        "    __import__('slotgate.doctor.' + file.stem)\n"
        "import sys\n"
        "print(*[name for name in sys.modules if name.startswith('slotgate.surfaces')])\n"
        "private = 'slotgate._config.toml'\n"
        "print(*[name for name, module in sys.modules.items() if name.startswith('slotgate.doctor')"
        " and any(getattr(one, '__module__', '') == private for one in vars(module).values())])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
