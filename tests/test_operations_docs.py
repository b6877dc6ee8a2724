"""docs/operations.md explains every word that people see."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from slotgate.slots.choice import Verdict
from slotgate.slots.reasons import Reason
from slotgate.telemetry.explanations import Finding
from slotgate.telemetry.journal import Totals

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by the word in their first cell."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)
    found = {}
    for line in re.findall(r"^\| (`.*)\|$", section, re.MULTILINE):
        words, *cells = line.split(" | ")
        for word in re.findall(r"`([^`]+)`", words):
            found[word] = [cell.strip() for cell in cells]
    return found


def test_every_verdict_is_explained() -> None:
    assert set(rows("Verdicts")) == {verdict.value for verdict in Verdict}


def test_every_reason_is_explained_with_what_to_do() -> None:
    found = rows("Reasons")
    assert set(found) == {reason.value for reason in Reason if reason.value}
    assert all(len(cells) == 2 and all(cells) for cells in found.values())


def test_every_finding_is_explained_with_what_to_do() -> None:
    found = {word.removesuffix(" at message N") for word in rows("Findings")}
    assert found == {finding.value for finding in Finding if finding.value}


def test_every_total_is_explained() -> None:
    totals = {field.name for field in attrs.fields(Totals)} | {"hit_ratio"}
    assert set(rows("Totals")) == totals


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", text):
            file, anchor = target
            there = page if not file else page.parent / file
            assert there.is_file(), f"{page.name}: {file}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
                assert anchor in slugs, f"{page.name}: {file}#{anchor}"
