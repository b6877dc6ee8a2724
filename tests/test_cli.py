"""The ``slotgate`` command: what it understands, and where it hands over."""

from __future__ import annotations

import json
import os
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


def _shell(tmp_path: Path, line: str) -> tuple[int, str, str]:
    """What a shell's line comes to: the command's status, and both outputs."""
    (tmp_path / "slotgate.toml").write_text(
        '[gateway]\nstate_dir = "state"\n[servers.local]\nurl = "http://127.0.0.1:9"\n'
    )
    script = f'slotgate() {{ "{SLOTGATE}" "$@"; }}; {line}'
    # argparse itself hides what becomes of its help where nothing is buffered
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


_PRINTING = ("check", "doctor", "doctor --json", "--help", "sessions --help")


@pytest.mark.parametrize("command", _PRINTING)
def test_a_reader_that_went_away_is_nobodys_fault(command: str, tmp_path: Path) -> None:
    config = "" if "help" in command else " -c slotgate.toml"
    # the reader has ended before anything is printed
    line = f"{{ sleep 0.2; slotgate {command}{config}; }} | true; exit ${{PIPESTATUS[0]}}"
    assert _shell(tmp_path, line) == (141, "", "")


@pytest.mark.parametrize("command", _PRINTING)
@pytest.mark.parametrize(
    ("where", "said"),
    [(">/dev/full", "stdout: No space left on device"), (">&-", "stdout is closed")],
)
def test_a_stdout_that_takes_nothing_is_one_line(
    command: str, where: str, said: str, tmp_path: Path
) -> None:
    if "help" in command and where == ">&-":
        pytest.skip("argparse prints its help to stderr then")
    config = "" if "help" in command else " -c slotgate.toml"
    status, _, errors = _shell(tmp_path, f"slotgate {command}{config} {where}")
    assert (status, errors) == (1, f"slotgate: {said}\n")


def test_a_closed_stderr_does_not_put_errors_into_the_output(tmp_path: Path) -> None:
    line = "slotgate sessions --url http://127.0.0.1:9 2>&-"
    assert _shell(tmp_path, line) == (1, "", "")


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

        for command in ("sessions", "sessions --json", "sessions show tax/2026", "top --once"):
            line = f"{SLOTGATE} {command} -c slotgate.toml --url {self.base}"
            for end, expected in (
                (">/dev/full", (1, "slotgate: stdout: No space left on device\n")),
                (">&-", (1, "slotgate: stdout is closed\n")),
                ("| true; exit ${PIPESTATUS[0]}", (141, "")),
            ):
                ended, program = await self.ended("/bin/bash", "-c", f"{line} {end}")
                self.assertEqual((ended, program.errors), expected, (command, end))
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
