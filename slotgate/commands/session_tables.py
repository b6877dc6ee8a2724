"""
Sessions as lines for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotgate.commands.tables import NONE, ago, count, size, table
from slotgate.plain import printable

_Row = Mapping[str, Any]


def listing(answer: _Row, now: float, width: int | None) -> list[str]:
    """All sessions, and how much of the disk they take."""
    rows: Sequence[_Row] = answer["sessions"]
    if not rows:
        return ["no sessions"]
    whose = any("client" in row for row in rows)
    headings = ["SESSION", *(["CLIENT"] if whose else []), "ROUTE", "STATE", "TOKENS", "SIZE"]
    headings.append("LAST USED")
    lines = table(
        headings,
        [
            [
                str(row.get("id")),
                *([str(row.get("client") or NONE)] if whose else []),
                str(row.get("route")),
                state(row),
                count(row.get("tokens")),
                size(row.get("bytes") or None),
                ago(row.get("last_used"), now),
            ]
            for row in rows
        ],
        width=width,
        right=("TOKENS", "SIZE"),
        yielding=("SESSION", "CLIENT", "ROUTE"),
    )
    plural = "" if len(rows) == 1 else "s"
    return [*lines, "", f"{len(rows)} session{plural}, {size(answer.get('bytes'))} on disk"]


def state(row: _Row) -> str:
    """Where a session's cache is."""
    if not row.get("resident"):
        return "on disk" if row.get("saved", True) else "nothing of it is kept"
    return "in a slot, saved" if row.get("saved") else "in a slot, not saved"


def details(row: _Row, now: float) -> list[str]:
    """One session."""
    used, created = row.get("last_used"), row.get("created")
    facts = [
        ("session", str(row.get("id"))),
        ("client", str(row["client"]) if row.get("client") else ""),
        ("route", str(row.get("route"))),
        ("found by", str(row.get("source") or "")),
        ("state", state(row)),
        ("tokens", count(row.get("tokens"))),
        ("on disk", size(row.get("bytes")) if row.get("bytes") else "nothing"),
        ("first saved", f"{created} ({ago(created, now)})" if created else ""),
        ("last used", f"{used} ({ago(used, now)})" if used else ""),
        ("written by", str(row.get("model") or "")),
    ]
    widest = max(len(name) for name, value in facts if value)
    return [f"{name:<{widest}}  {printable(value)}" for name, value in facts if value]


def names(rows: object) -> Iterable[str]:
    """Each session by its id and what tells it from others of that id."""
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            of = f" of {row['client']}" if row.get("client") else ""
            yield printable(f"{row.get('id')}{of} (route {row.get('route')})")


def cleared_lines(rows: object) -> list[str]:
    """What was in the slots that were emptied."""
    lines = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        model = f", {row['model']}" if row.get("model") else ""
        line = f"cleared slot {row.get('slot')} of {row.get('server')}{model}"
        line += f": {count(row.get('tokens'))} tokens"
        session = row.get("session")
        if isinstance(session, dict):
            kept = "saved" if session.get("saved") else "not saved"
            line += f" of session {session.get('id')}, {kept}"
        lines.append(printable(line))
    return lines or ["no slot of yours to clear"]
