"""
The numbers at the top, and the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.template import Tag

from slotgate.dashboard.markup import (
    Column,
    Content,
    badge,
    name,
    nothing,
    section,
    table,
    tag,
)
from slotgate.dashboard.numbers import count, duration, percent, plural, size
from slotgate.dashboard.plots import split_bar

_Json = Mapping[str, Any]

_LONGEST_FOLDER = 80


def totals(numbers: _Json, disk: _Json) -> Tag:
    """What slotgate did since its start."""
    read, reused = numbers["tokens_read"], numbers["tokens_reused"]
    ratio = numbers["hit_ratio"]
    found = numbers["hits"] + numbers["misses"]
    tiles = [
        _tile(
            "Tokens not read again",
            count(reused),
            f"{count(read)} were read",
            _ratio_bar(ratio, "reused", "read", f"{percent(ratio)} reused"),
        ),
        _tile(
            "Hit ratio",
            percent(ratio),
            f"of all prompt tokens; a cache for {count(numbers['hits'])} of"
            f" {plural(found, 'request')}",
        ),
        _tile(
            "Time saved",
            duration(numbers["seconds_saved"]),
            "reading, less what switches took",
        ),
        _tile(
            "Switches",
            f"{count(numbers['restores'])} restores",
            f"{plural(numbers['saves'], 'save')}, {count(numbers['evictions'])} evicted",
        ),
        _tile(
            "Written",
            size(numbers["bytes_written"]),
            f"{size(numbers['bytes_read'])} read back",
        ),
        _disk_tile(disk),
    ]
    errors = numbers["upstream_errors"]
    failed = [_failures(errors)] if errors else []
    heading = tag("h2", "Since the start", id="totals-heading", class_="silent")
    return tag(
        "section",
        heading,
        tag("dl", *tiles, class_="tiles"),
        *failed,
        id="totals",
        aria_labelledby="totals-heading",
    )


def _failures(errors: int) -> Tag:
    text = f"{plural(errors, 'request')} got no answer from a server. The log says which."
    return tag("p", badge("look", "bad"), " ", text, class_="finding warn")


def _tile(what: str, value: str, more: str, plot: Content = "") -> Tag:
    return tag(
        "div",
        tag("dt", what),
        tag("dd", value, class_="value"),
        tag("dd", plot, class_="plot") if plot else "",
        tag("dd", more, class_="more"),
        class_="tile",
    )


def _ratio_bar(ratio: float | None, kind: str, rest: str, label: str) -> Content:
    if ratio is None:
        return ""
    return split_bar([(kind, ratio), (rest, 1 - ratio)], label)


def _disk_tile(disk: _Json) -> Tag:
    used, limit, free = disk["bytes"], disk["limit_bytes"], disk["free_bytes"]
    more = f"{size(free)} free" if free is not None else "free space not known"
    plot: Content = ""
    if limit:
        more = f"of {size(limit)} allowed, {more}"
        plot = _use(used, limit)
    elif used is not None and free:
        plot = _use(used, used + free)
    return _tile("On disk", size(used), more, plot)


def _use(used: float | None, limit: float) -> Content:
    if used is None:
        return ""
    part = min(used / limit, 1.0)
    kind = "full" if part > 0.9 else "used"
    return split_bar([(kind, part), ("behind", 1 - part)], f"{percent(part)} used")


def disk(disk: _Json) -> Tag:
    """What snapshots take, beside what they may take."""
    if disk["bytes"] is None:
        return section("disk", "Disk", nothing("The index does not answer; the log says why."))
    columns = [Column("Route"), Column("Server"), Column("Files", number=True), Column("Used")]
    rows = [
        (
            f"{route['server']} {route['route']}",
            [
                name(route["route"]),
                name(route["server"]),
                _of(count(route["files"]), route["max_files"], count),
                _used(route),
            ],
        )
        for route in disk["routes"]
    ]
    folders = [_folder(server) for server in disk["servers"]]
    content = table("Snapshots by route", columns, rows) if rows else nothing("No snapshots yet.")
    return section("disk", "Disk", content, tag("ul", *folders, class_="folders"))


def _of(text: str, limit: int, say: Any) -> str:
    return f"{text} of {say(limit)}" if limit else text


def _used(route: _Json) -> Content:
    text = _of(size(route["bytes"]), route["max_bytes"], size)
    parts = [
        used / limit
        for used, limit in (
            (route["bytes"], route["max_bytes"]),
            (route["files"], route["max_files"]),
        )
        if limit
    ]
    if not parts:
        return tag("div", text, tag("span", " no limit", class_="dim"))
    return tag("div", text, _use(max(parts), 1.0), class_="with-bar")


def _folder(server: _Json) -> Tag:
    folder, free = server["folder"], server["free_bytes"]
    if folder is None:
        told: Content = "slot_save_path is not set: nothing is known of its disk"
    else:
        told = [tag("code", name(folder, _LONGEST_FOLDER)), f": {size(free)} free"]
        if server["min_free_bytes"]:
            told.append(f", {size(server['min_free_bytes'])} kept free")
    low = free is not None and free < server["min_free_bytes"]
    warning = [" ", badge("full", "bad")] if low else []
    return tag("li", tag("strong", name(server["server"])), " ", told, *warning)
