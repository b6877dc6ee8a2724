"""
The benchmark runs and prints every figure; what the figures are depends on the machine.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
#: The figures of the table, and how many of its five columns have one.
FIGURES = {
    "time to first byte, short answer, median, ms": 5,
    "time to first byte, short answer, p95, ms": 5,
    "time to first byte, stream, median, ms": 5,
    "time to first byte, stream, p95, ms": 5,
    "requests, 1 connection, 1/s": 4,
    "requests, 32 connections, 1/s": 4,
    "CPU per request, 1 connection, us": 2,
    "CPU per request, 32 connections, us": 2,
    "CPU per streamed chunk, us": 2,
    "memory per waiting request, kB": 2,
}
AIMS = {
    "added time to first byte, short answer, median",
    "added time to first byte, stream, median",
    "CPU per streamed chunk",
    "memory per waiting request, for the server",
    "memory per waiting request, for the slot",
}


@pytest.fixture(scope="module")
def printed() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.relay", "--quick"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "count"), FIGURES.items())
def test_every_figure_is_printed_and_a_number(printed: str, name: str, count: int) -> None:
    [line] = [line for line in printed.splitlines() if line.startswith(f"{name} ")]
    columns = line.removeprefix(name).split()
    figures = [float(column.lstrip("x")) for column in columns if column != "-"]
    assert len(columns) == 5
    assert len(figures) == count
    assert all(math.isfinite(figure) for figure in figures)


def test_what_takes_time_takes_more_than_none(printed: str) -> None:
    for line in printed.splitlines():
        if line.startswith(("time ", "requests, ", "CPU per request, ")):
            columns = re.split(r"\s{2,}", line)[1:4]
            assert all(float(column) > 0 for column in columns if column != "-"), line


def test_every_aim_is_judged(printed: str) -> None:
    judged = re.findall(
        r"^(.+): (-?[\d.]+) (?:ms|us|kB) \(aim: under [\d.]+\) (OK|MISSED)$", printed, re.MULTILINE
    )
    assert {name for name, _, _ in judged} == AIMS
    for name, value, verdict in judged:
        limit = re.search(rf"{re.escape(name)}: .*under ([\d.]+)", printed)
        assert limit is not None
        assert (float(value) < float(limit[1])) == (verdict == "OK")


def test_it_says_where_it_ran(printed: str) -> None:
    assert printed.startswith(f"Python {sys.version_info.major}.")
    assert "core" in printed.splitlines()[0]
