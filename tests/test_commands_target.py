"""Which gateway a command talks to, and with whose key."""

from __future__ import annotations

from pathlib import Path

import pytest
from relay_gateway import self_signed

from slotgate.commands.failed import CommandFailed
from slotgate.commands.target import KEY_VARIABLE, Target, target_of

ADMINS = """
[[clients]]
name = "webui"
key = "webui-key"
[[clients]]
name = "me"
key = "my-key"
admin = true
[[clients]]
name = "you"
key = "your-key"
admin = true
"""


def written(folder: Path, listen: str = "", more: str = "") -> Path:
    file = folder / "g.toml"
    lines = f"listen = {listen}\nallow_anonymous = true\n" if listen else ""
    file.write_text(f'[gateway]\nstate_dir = "s"\n{lines}{more}')
    return file


def test_without_anything_it_is_the_default() -> None:
    assert target_of(None, None, None, {}) == Target("http://127.0.0.1:11434")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ('["tcp:8000:interface=127.0.0.1"]', "http://127.0.0.1:8000"),
        ('["tcp:port=8000:interface=10.0.0.5"]', "http://10.0.0.5:8000"),
        ('["tcp:8000:interface=0.0.0.0"]', "http://127.0.0.1:8000"),
        ('["tcp:8000"]', "http://127.0.0.1:8000"),
        (r'["tcp:8000:interface=\\:\\:1"]', "http://[::1]:8000"),
        (r'["tcp:8000:interface=\\:\\:"]', "http://[::1]:8000"),
        ('["unix:/tmp/x.sock", "tcp:0:interface=127.0.0.1", "tcp:8001"]', "http://127.0.0.1:8001"),
        ('["tcp:interface=127.0.0.1:port=8000"]', "http://127.0.0.1:8000"),
    ],
)
def test_the_first_tcp_port_of_a_configuration(tmp_path: Path, listen: str, url: str) -> None:
    assert target_of(None, written(tmp_path, listen), None, {}).url == url


def test_a_configuration_without_a_port_to_know_of(tmp_path: Path) -> None:
    file = written(tmp_path, '["unix:/tmp/x.sock", "tcp:0"]')
    with pytest.raises(CommandFailed, match="give --url"):
        target_of(None, file, None, {})
    assert target_of("http://[::1]:9/", file, None, {}).url == "http://[::1]:9"


def test_an_endpoint_with_tls_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tls.pem").write_bytes(b"".join(self_signed()))
    tls = f"ssl:8443:privateKey={tmp_path}/tls.pem"
    assert target_of(None, written(tmp_path, f'["{tls}", "tcp:80"]'), None, {}).url == (
        "http://127.0.0.1:80"
    )
    with pytest.raises(CommandFailed, match="give --url"):
        target_of(None, written(tmp_path, f'["{tls}"]'), None, {})


def test_a_mistaken_configuration_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"^[^\n]*gatway[^\n]*$"):
        target_of(None, written(tmp_path, more="[gatway]\n[rutes]\n"), None, {})


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://a b", "",
     "http://u:p@x", "http://x?key=1", "http://x#y", "http://\x1b"],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(CommandFailed, match="--url must be like"):
        target_of(url, None, None, {})


def test_whose_key(tmp_path: Path) -> None:
    file = written(tmp_path, more=ADMINS)
    assert target_of(None, file, None, {}).key == "my-key"
    assert target_of(None, file, None, {KEY_VARIABLE: " k\n"}).key == "k"
    assert target_of(None, file, "MINE", {KEY_VARIABLE: "k", "MINE": "mine"}).key == "mine"
    assert target_of(None, written(tmp_path), None, {}).key is None
    with pytest.raises(CommandFailed, match="MINE is not set"):
        target_of(None, file, "MINE", {})


def test_a_key_that_could_be_no_header_is_not_shown() -> None:
    with pytest.raises(CommandFailed) as failed:
        target_of(None, None, None, {KEY_VARIABLE: "secret\r\nX: y"})
    assert "secret" not in str(failed.value)
    assert "secret" not in repr(Target("http://x", "secret"))
