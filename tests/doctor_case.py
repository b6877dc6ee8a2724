"""
The doctor in this process, in front of servers that a test starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway import CLOCK, GatewayCase

from slotgate._config.loading import parse_config
from slotgate.doctor import server, slot_files
from slotgate.doctor.command import examine
from slotgate.doctor.findings import Finding, Level, exit_status
from slotgate.doctor.report import Report, lines_of

CONFIG = """
[gateway]
listen = ["tcp:1:interface=127.0.0.1"]
state_dir = "state"
[servers.local]
url = "{url}"
slot_save_path = "{slots}"
min_free_gib = 0.001
{server}
[[routes]]
model = "*"
server = "local"
{route}
"""


class DoctorCase(GatewayCase):
    """Asks the doctor about a configuration."""

    timeout = 30

    def setUp(self) -> None:
        super().setUp()
        self.patch(server, "BETWEEN_SECONDS", 0.02)
        self.patch(slot_files, "MOST_SECONDS", 0.01)
        self.told: list[str] = []

    async def ask(self, url: str, measure: int = 0, config: str = CONFIG, **values: Any) -> Report:
        """What the doctor finds out about the server ``local``."""
        known = {"url": url, "slots": self.slots, "server": "", "route": "", **values}
        text = config.format(**known)
        parsed = parse_config(text, {}, self.folder)
        self.own, reports = await examine(CLOCK, parsed, measure, self.told.append)
        self.report = reports[0]
        self.text = "\n".join(lines_of(self.report))
        return self.report

    def found(self, check: str) -> list[Finding]:
        """The findings of a check."""
        return [finding for finding in self.report.findings if finding.check == check]

    def assert_finds(self, check: str, level: Level, text: str, change: str = "") -> None:
        """There is one finding like this."""
        for finding in self.found(check):
            if finding.level is level and text in finding.text and change in finding.change:
                return
        self.fail(f"no {level.value} {check}: {text!r} with {change!r} in:\n{self.text}")

    def assert_exit(self, status: int) -> None:
        """The report means this exit status."""
        self.assertEqual(exit_status(self.report.findings), status, self.text)

    def files(self) -> list[str]:
        """The files in the folder of slots."""
        return sorted(path.name for path in self.slots.iterdir())

    def new_slots(self, name: str) -> Path:
        """Another folder."""
        folder = self.folder / name
        folder.mkdir()
        return folder
