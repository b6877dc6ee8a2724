"""The ``slotgate`` command: what it understands, and where it hands over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gateway import CHAT
from processes import BIN, ProcessCase
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from slotgate import cli
from slotgate.listening import url_of

SLOTGATE = BIN / "slotgate"
FILE = ("--config", "slotgate.toml")


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("demo", "slotgate.demo.main"),
        ("doctor", "slotgate.doctor.command.main"),
        ("sessions", "slotgate.commands.sessions.main"),
        ("top", "slotgate.commands.top.main"),
    ],
)
def test_commands_with_arguments_of_their_own_get_them_all(
    command: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    pytest.importorskip(place.rpartition(".")[0])

    def main(argv: Sequence[str]) -> int:
        given.append(list(argv))
        return 2

    monkeypatch.setattr(place, main)
    assert cli.main([command, "--json", "--config", "x", "--", "-y"]) == 2
    assert given == [["--json", "--config", "x", "--", "-y"]]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for command in ("run", "check", "doctor", "sessions", "top", "demo"):
        assert f"\n    {command} " in printed


@pytest.mark.parametrize("argv", [[], ["serve"], ["run", "--log-format", "xml"], ["run", "x"]])
def test_what_is_not_understood(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        ([], ["slotgate"]),
        (["-c", "f.toml"], ["slotgate", "--config", "f.toml"]),
        (["--log-format", "json"], ["slotgate", "--log-format", "json"]),
    ],
)
def test_run_is_twistd_in_the_foreground(
    argv: list[str], given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("slotgate.cli.load_config", lambda path: None)
    monkeypatch.setattr("twisted.scripts.twistd.run", lambda: seen.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["slotgate"])
    assert cli.main(["run", *argv]) == 0
    assert seen == [["--nodaemon", "--pidfile=", *given]]


def test_check_says_last_what_it_did_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slotgate.toml"
    file.write_text('[gateway]\nstate_dir = "state"\n')
    assert cli.main(["check", "--config", str(file)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "the servers were not asked: slotgate doctor does that"


def test_asking_for_help_loads_no_gateway() -> None:
    program = "import sys; from slotgate import cli; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "slotgate.config" in loaded
    assert not loaded & {"twisted.internet.reactor", "klein", "treq", "slotgate.service"}


@pytest.mark.parametrize(
    ("address", "description", "url"),
    [
        (IPv4Address("TCP", "127.0.0.1", 1), "tcp:1", "http://127.0.0.1:1"),
        (IPv4Address("TCP", "127.0.0.1", 1), "ssl:1:privateKey=k", "https://127.0.0.1:1"),
        (IPv6Address("TCP", "::1", 1), "tcp6:1", "http://[::1]:1"),
        (UNIXAddress(b"/run/slotgate.sock"), "unix:/run/slotgate.sock", "unix:/run/slotgate.sock"),
        (UNIXAddress("/tmp/a\n"), "unix:x", "unix:/tmp/a\\n"),
        (UNIXAddress(b"\0name"), "systemd:x", "unix:\\x00name"),
    ],
)
def test_where_it_listens_is_written_as_a_client_writes_it(
    address: IAddress, description: str, url: str
) -> None:
    assert url_of(address, description) == url


class CommandsTests(ProcessCase):
    """The commands as processes, against a gateway that is one too."""

    async def test_sessions_of_a_gateway_that_runs(self) -> None:
        llama = await self.start_llama()
        admin = '[[clients]]\nname = "me"\nkey = "admin-secret"\nadmin = true'
        self.write_config(llama.url, more=admin)
        await self.start_twistd()
        where = ("--url", self.base)
        said = {"messages": [{"role": "user", "content": "word " * 100}], "max_tokens": 2}
        for session in ("tax/2026", "..?#ü"):
            headers = {"Authorization": "Bearer admin-secret"}
            answer = await self.post(CHAT, {**said, "chat_id": session}, headers)
            self.assertEqual(answer.status, 200)

        status, listed = await self.ended(SLOTGATE, "sessions", *FILE, *where)
        self.assertEqual((status, listed.errors), (0, ""))
        self.assertRegex(listed.output, r"(?m)^tax/2026 +me +\* +on disk ")
        status, told = await self.ended(SLOTGATE, "sessions", *FILE, *where, "--json")
        ids = {row["id"] for row in json.loads(told.output)["sessions"]}
        self.assertEqual(ids, {"tax/2026", "..?#ü"})

        status, refused = await self.ended(SLOTGATE, "sessions", *where)
        self.assertEqual((status, refused.output), (1, ""))
        self.assertRegex(refused.errors, r"^slotgate: [^\n]*asks for a key: set SLOTGATE_API_KEY")
        status, refused = await self.ended(SLOTGATE, "sessions", "delete", "..?#ü", *FILE, *where)
        self.assertEqual(status, 1)
        self.assertIn("add --yes", refused.errors)
        status, done = await self.ended(
            SLOTGATE, "sessions", "delete", "..?#ü", "--yes", *FILE, *where
        )
        self.assertEqual((status, done.output), (0, "deleted ..?#ü of me (route *)\n"))

        status, once = await self.ended(SLOTGATE, "top", *FILE, *where)
        self.assertEqual((status, once.errors), (0, ""))
        self.assertIn("tax/2026", once.output)
        self.assertNotIn("\x1b", once.output)
        for program in (listed, told, refused, done, once):
            self.assertNotIn("secret", program.printed)

    async def test_nobody_listens(self) -> None:
        for command in (("sessions",), ("top",), ("sessions", "clear", "--yes")):
            status, program = await self.ended(SLOTGATE, *command, "--url", "http://127.0.0.1:9")
            self.assertEqual((status, program.output), (1, ""))
            self.assertRegex(program.errors, r"^slotgate: nothing listens at [^\n]+\n$")
