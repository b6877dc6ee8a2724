"""
What ``slotgate top`` shows, as lines: no terminal and no clock in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slotgate.commands.tables import NONE, as_number, count, duration, size, table
from slotgate.plain import cut, printable

_Row = Mapping[str, Any]

_SLOTS = ("SLOT", "MODEL", "STATE", "SESSION", "TOKENS", "SAVED", "WAITING")
_REQUESTS = ("WHEN", "SESSION", "ROUTE", "CACHE", "READ", "REUSED", "NEW", "WAITED", "TOOK", "WHY")
#: Lines of requests that are worth giving up lines of slots for.
_SOME_REQUESTS = 5


def render(status: _Row, width: int, height: int, problem: str = "") -> list[str]:
    """
    The picture.

    :param status: what ``GET /slotgate/status`` says; what is missing in it is not shown.
    :param width: of the terminal, in columns; no line is longer.
    :param height: in lines; there are no more.
    :param problem: why the status is not the newest.
    """
    head = [_totals(status), _disk(status), *_servers(status, width)]
    if problem:
        head.insert(0, f"! {printable(problem)}")
    slots, requests = _rows(status.get("slots")), _rows(status.get("requests"))
    room = height - len(head)
    most_slots = max(3, room - _SOME_REQUESTS - 4)
    lines = [*head, "", *_shortened(_slot_table(slots, width), most_slots)]
    room = height - len(lines) - 1
    if room > 1:
        lines += ["", *_request_table(requests[: room - 1], width)]
    return [cut(line, width) for line in lines[:height]]


def _totals(status: _Row) -> str:
    totals = _row(status.get("totals"))
    at = as_number(status.get("time"))
    parts = ["slotgate" + (f" {_clock(at)}" if at is not None else "")]
    parts.append(f"{count(totals.get('requests'))} requests")
    parts.append(
        f"{count(totals.get('tokens_read'))} tokens read, "
        f"{count(totals.get('tokens_reused'))} reused{_share(totals.get('hit_ratio'))}"
    )
    if (saved := as_number(totals.get("seconds_saved"))) is not None:
        parts.append(f"{duration(saved)} saved")
    return " · ".join(parts)


def _disk(status: _Row) -> str:
    totals, disk = _row(status.get("totals")), _row(status.get("disk"))
    parts = [f"disk: {count(disk.get('files'))} files, {size(disk.get('bytes'))}"]
    if as_number(disk.get("limit_bytes")):
        parts[0] += f" of {size(disk['limit_bytes'])}"
    if as_number(disk.get("free_bytes")) is not None:
        parts.append(f"{size(disk['free_bytes'])} free")
    for name, by in (("saves", "written"), ("restores", "read")):
        parts.append(f"{count(totals.get(name))} {name}, {size(totals.get(f'bytes_{by}'))} {by}")
    return " · ".join(parts)


def _servers(status: _Row, width: int) -> list[str]:
    lines = []
    for server in _rows(status.get("servers")):
        models = [
            f"{model.get('id')} {model.get('status') or ''}".strip()
            for model in _rows(server.get("models"))
        ]
        words = [str(server.get("url") or NONE), str(server.get("mode") or "")]
        if not server.get("reachable"):
            # it names the address
            words = [str(server.get("problem") or f"{words[0]} NOT REACHABLE")]
        line = f"{server.get('name')}: {' '.join(filter(None, words))}"
        line += f" · {', '.join(models)}" if models else ""
        lines.append(cut(printable(line), width))
    return lines


def _slot_table(slots: list[_Row], width: int) -> list[str]:
    several = len({str(slot.get("server")) for slot in slots}) > 1
    rows = [
        [
            f"{slot.get('server')}/{slot.get('slot')}" if several else str(slot.get("slot")),
            str(slot.get("model") or NONE),
            str(slot.get("state") or NONE),
            str(slot.get("session") or NONE),
            count(slot.get("tokens")),
            _yes(slot),
            count(slot.get("waiting")),
        ]
        for slot in slots
    ]
    right, yielding = ("TOKENS", "WAITING"), ("SESSION", "MODEL", "SLOT")
    return table(_SLOTS, rows, width=width, right=right, yielding=yielding)


def _yes(slot: _Row) -> str:
    if not slot.get("session"):
        return NONE
    return "yes" if slot.get("saved") else "no"


def _request_table(requests: list[_Row], width: int) -> list[str]:
    rows = [
        [
            _clock(as_number(request.get("time"))),
            str(request.get("session") or NONE),
            str(request.get("route") or NONE),
            str(request.get("cache") or NONE),
            count(request.get("read")),
            count(request.get("reused")),
            count(request.get("generated")),
            duration(request.get("waited")),
            duration(request.get("seconds")),
            str(request.get("sentence") or request.get("reason") or ""),
        ]
        for request in requests
    ]
    right = ("READ", "REUSED", "NEW", "WAITED", "TOOK")
    yielding = ("WHY", "SESSION", "ROUTE", "CACHE")
    return table(_REQUESTS, rows, width=width, right=right, yielding=yielding)


def _shortened(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more slots"]


def _share(value: object) -> str:
    ratio = as_number(value)
    return "" if ratio is None else f" ({ratio:.0%})"


def _clock(at: float | None) -> str:
    try:
        return NONE if at is None else f"{datetime.fromtimestamp(at):%H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return NONE


def _row(value: object) -> _Row:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> list[_Row]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
