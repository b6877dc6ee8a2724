"""Where the log goes under twistd, and that nothing of it happens elsewhere."""

from __future__ import annotations

import json
import os
import syslog
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from gateway import CLOCK
from processes import BIN, ProcessCase, Program, end_daemon
from twisted.application.service import Application, IService, MultiService
from twisted.logger import ILogObserver, Logger, globalLogPublisher
from twisted.python.components import Componentized
from twisted.python.usage import UsageError
from zope.interface.verify import verifyObject

from slotgate._config.loading import parse_config
from slotgate.config import Logging
from slotgate.logs.twistd import LoggingService, observer_for
from slotgate.service import make_service
from slotgate.tap import Options

TWISTD, SLOTGATE = BIN / "twistd", BIN / "slotgate"
FILE = ("--config", "slotgate.toml")
JSON_LOG = '[logging]\nformat = "json"'
DAEMON: dict[str, Any] = {"nodaemon": False, "logfile": None, "logger": None, "syslog": False}


def lines(text: str) -> list[dict[str, Any]]:
    """A log of JSON, each line of which must be an object."""
    return [json.loads(line) for line in text.splitlines()]


class ProcessLogTests(ProcessCase):
    """Real processes."""

    async def end(self, program: Program, *, reach: bool = True) -> None:
        if reach:
            # it says that it listens before it handles signals
            self.assertEqual((await self.get("/api/sessions")).status, 200)
        program.send("TERM")
        await program.exited
        await program.gone

    async def test_json_from_the_first_line_to_the_last(self) -> None:
        self.write_config(more=JSON_LOG)
        program = await self.start_twistd()
        await self.end(program)
        said = [line["message"] for line in lines(program.output)]
        self.assertRegex(said[0], r"^twistd \S+ .*starting up\.$")
        self.assertEqual(said[-1], "Server Shut Down.")
        self.assertEqual(program.errors, "")

    async def test_the_option_wins_over_the_file(self) -> None:
        self.write_config(more=JSON_LOG)
        program = await self.serving(SLOTGATE, "run", *FILE, "--log-format", "text")
        await self.end(program)
        self.assertNotIn("{", program.output)
        self.write_config()
        program = await self.serving(SLOTGATE, "run", *FILE, "--log-format", "json")
        await self.end(program)
        for line in lines(program.output):
            self.assertLessEqual({"time", "level", "namespace", "message"}, set(line))

    async def test_levels_hold_from_the_first_line(self) -> None:
        only = {"slotgate": "info", "twisted": "error", "log_legacy": "error"}
        table = ", ".join(f'"{name}" = "{level}"' for name, level in only.items())
        self.write_config(more=f'[logging]\nlevel = "error"\nlevels = {{ {table} }}')
        program = await self.start_twistd()
        await self.end(program)
        for line in program.output.splitlines():
            self.assertIn("[slotgate.", line)

    async def test_a_daemon_logs_json_into_its_file_and_rotates_it(self) -> None:
        self.write_config(more=JSON_LOG)
        program = self.run_program(TWISTD, "--logfile", "own.log", "slotgate", *FILE)
        self.assertEqual((await program.exited, program.printed), (0, ""))
        pid = int((self.folder / "twistd.pid").read_text())
        self.addCleanup(end_daemon, pid)
        log, old = self.folder / "own.log", self.folder / "own.log.1"
        self.assertIn("slotgate listens on", lines(log.read_text())[-1]["message"])
        os.kill(pid, 10)  # SIGUSR1
        await self.until(old.exists)
        os.kill(pid, 15)
        await self.until(lambda: "Server Shut Down" in log.read_text())
        self.assertTrue(lines(old.read_text()))
        self.assertEqual(lines(log.read_text())[-1]["message"], "Server Shut Down.")
        self.assertFalse((self.folder / "twistd.log").exists())

    async def until(self, true: Any) -> None:
        while not true():
            await self.pause(0.02)

    async def test_an_observer_of_the_operators_wins(self) -> None:
        (self.folder / "mine.py").write_text(
            "from twisted.logger import textFileLogObserver\n"
            "def observer():\n"
            "    return textFileLogObserver(open('mine.log', 'w'))\n"
        )
        self.write_config(more=JSON_LOG)
        program = self.run_program(
            *("/usr/bin/env", f"PYTHONPATH={self.folder}:{os.environ.get('PYTHONPATH', '')}"),
            *(TWISTD, "-n", "--logger", "mine.observer", "slotgate", *FILE),
        )
        log = self.folder / "mine.log"
        await self.until(lambda: log.exists() and "slotgate listens on" in log.read_text())
        await self.end(program, reach=False)
        self.assertEqual(program.output, "")
        self.assertNotIn('{"', log.read_text())

    async def test_a_file_that_can_not_be_written_is_one_line(self) -> None:
        self.write_config()
        status, program = await self.ended(
            TWISTD, "-n", "-l", self.folder / "no" / "file", "slotgate", *FILE
        )
        self.assertEqual((status, program.output), (1, ""))
        self.assertRegex(program.errors, r"^can not log to \S+: No such file or directory\n$")

    async def test_a_mistaken_format_is_said(self) -> None:
        self.write_config()
        status, program = await self.ended(TWISTD, "-n", "slotgate", "--log-format", "jason")
        self.assertEqual(status, 1)
        self.assertIn("--log-format is one of text, json", program.output.splitlines()[-1])
        status, program = await self.ended(SLOTGATE, "run", "--log-format", "jason")
        self.assertEqual(status, 2)


class InstallingTests(ProcessCase):
    """Who gets an observer."""

    def test_an_application_gets_it_as_its_component(self) -> None:
        application = cast(Componentized, Application("slotgate"))
        made = object()
        service = LoggingService(lambda: cast(ILogObserver, made))
        service.setServiceParent(application)
        self.assertIs(application.getComponent(ILogObserver), made)
        self.assertIn(service, list(cast(Any, IService(application))))

    def test_an_application_with_its_own_keeps_it(self) -> None:
        application = cast(Componentized, Application("slotgate"))
        own = object()
        application.setComponent(ILogObserver, own)
        LoggingService(lambda: self.fail("made")).setServiceParent(application)
        self.assertIs(application.getComponent(ILogObserver), own)

    def test_within_another_service_nothing_happens(self) -> None:
        house = MultiService()
        service = LoggingService(lambda: self.fail("made"))
        service.setServiceParent(house)
        self.assertEqual(list(house), [service])

    def test_twistds_logger_option_and_no_twistd_are_left_alone(self) -> None:
        self.assertIsNone(observer_for(Logging(), None))
        self.assertIsNone(observer_for(Logging(), {**DAEMON, "logger": "a.b"}))

    def test_a_daemon_can_not_log_to_stdout(self) -> None:
        make = observer_for(Logging(), {**DAEMON, "logfile": "-"})
        assert make is not None
        with self.assertRaises(SystemExit):
            make()

    def test_an_embedded_gateway_installs_none(self) -> None:
        before = list(globalLogPublisher._observers)
        config = parse_config(
            self.config.format(port=0, url="http://127.0.0.1:9", state=self.folder / "s",
                               slots=self.slots, server="", more=JSON_LOG),
            {}, self.folder,
        )  # fmt: skip
        gateway = make_service(config, CLOCK)
        gateway.startService()
        self.addCleanup(gateway.stopService)
        self.assertEqual(list(globalLogPublisher._observers), before)

    def test_the_option_reaches_what_a_reload_reads_too(self) -> None:
        file = self.write_config(more=JSON_LOG)
        options = Options()
        options.parseOptions(["--config", str(file), "--log-format", "text"])
        self.assertEqual(options.config.logging.format, "text")
        self.assertEqual(options.load(), options.config)
        with self.assertRaises(UsageError):
            Options().parseOptions(["--log-format", "jason"])


@attrs.define
class Syslog:
    """What was written to syslog."""

    opened: list[tuple[Any, ...]] = attrs.field(factory=list)
    written: list[tuple[int, str]] = attrs.field(factory=list)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Syslog:
    seen = Syslog()
    monkeypatch.setattr(syslog, "openlog", lambda *given: seen.opened.append(given))
    monkeypatch.setattr(syslog, "syslog", lambda *given: seen.written.append(given))
    return seen


@pytest.mark.parametrize("format_", ["text", "json"])
def test_syslog_gets_a_priority_by_level_and_one_line_for_each(
    format_: Any, written: Syslog
) -> None:
    runner = {**DAEMON, "syslog": True, "prefix": "llamas"}
    make = observer_for(Logging(format=format_), runner)
    assert make is not None
    observer = make()
    verifyObject(ILogObserver, observer)
    log = Logger(namespace="slotgate", observer=observer)
    log.debug("not wanted")
    log.warn("a\nb\0c")
    log.critical("end")
    assert written.opened == [("llamas", 0, syslog.LOG_USER)]
    (first, line), (last, _) = written.written
    assert (first, last) == (syslog.LOG_WARNING, syslog.LOG_CRIT)
    if format_ == "json":
        assert json.loads(line)["message"] == "a\nb\0c"
    else:
        assert line == "[slotgate#warn] a\\nb\\x00c"


def test_the_documentation_shows_the_fields_of_a_line() -> None:
    page = (Path(__file__).parent.parent / "docs" / "logs.md").read_text()
    for name in ("time", "level", "namespace", "message", "traceback"):
        assert f"`{name}`" in page
