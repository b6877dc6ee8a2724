"""
``slotgate sessions``: the session API at a terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from slotgate.commands.client import GatewayClient, path_of
from slotgate.commands.comparison import comparison
from slotgate.commands.failed import CommandFailed
from slotgate.commands.output import INTERRUPTED, complain, put_out
from slotgate.commands.running import failed, run
from slotgate.commands.session_tables import cleared_lines, details, listing, names
from slotgate.commands.target import add_arguments, target_of
from slotgate.plain import printable

_PATH = ("api", "sessions")
_PAGE = 1000
_WITH_ID = ("show", "delete", "save")
#: What cannot be undone, and is asked about.
_DESTRUCTIVE = ("delete", "clear")
#: Of a comparison: which session it is about.
_NAMES = ("id", "source", "route", "client")
#: What a list would say of a session that has nothing but remembered prompts.
_NOT_KEPT = {
    "model": None,
    "tokens": None,
    "bytes": 0,
    "created": None,
    "last_used": None,
    "resident": False,
    "saved": False,
    "generation": None,
}
#: Seconds for an answer. A change waits until the request that runs in the slot has ended.
_READ_SECONDS, _CHANGE_SECONDS = 30.0, 600.0


@frozen
class Wanted:
    """What the command is to do."""

    action: str
    #: Which session, where the action is about one.
    id: str = ""
    #: Only the session on this route.
    route: str | None = None
    #: Print the API's JSON instead of a table.
    as_json: bool = False

    @property
    def parameters(self) -> dict[str, str]:
        """Of the call."""
        return {} if self.route is None else {"route": self.route}


def main(argv: Sequence[str]) -> int:
    """
    Run the command.

    :param argv: the arguments after ``sessions``.
    :returns: the exit status: 0, 1 when it could not be done.
    """
    parser = _parser()
    given = parser.parse_intermixed_args(argv)
    if (given.id is not None) != (given.action in _WITH_ID):
        needs = "needs a session's id" if given.id is None else "takes no id"
        parser.error(f"{given.action} {needs}")
    if given.route is not None and given.action == "list":
        parser.error("list takes no --route")
    wanted = Wanted(given.action, given.id or "", given.route, given.json)
    try:
        target = target_of(given.url, given.config, given.key_env, os.environ)
        if wanted.action in _DESTRUCTIVE and not given.yes and not _confirmed(wanted):
            return 1
    except CommandFailed as error:
        return failed(error)
    except KeyboardInterrupt:
        complain("")
        return INTERRUPTED
    changes = wanted.action in (*_DESTRUCTIVE, "save")
    timeout = given.timeout or (_CHANGE_SECONDS if changes else _READ_SECONDS)
    width = shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None

    async def work(reactor: Any) -> int:
        client = GatewayClient(target, timeout, reactor)
        put_out(await carried_out(client, wanted, time.time(), width))
        return 0

    return run(work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slotgate sessions",
        # --key must not pass for --key-env
        allow_abbrev=False,
        description="List, show, delete and save the sessions of a gateway that runs, "
        "and clear its slots.",
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "show", "delete", "clear", "save"],
        help="what to do (default: list); clear empties the slots and leaves what is on disk",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="the session's id, as it is listed")
    parser.add_argument(
        "--route", metavar="MODEL", help="only the session on this route, or only its slot"
    )
    parser.add_argument("--json", action="store_true", help="the API's JSON, for scripts")
    parser.add_argument("--yes", "-y", action="store_true", help="delete and clear without asking")
    parser.add_argument(
        *("--timeout",),
        type=_seconds,
        metavar="SECONDS",
        help=f"how long an answer may take (default: {_READ_SECONDS:g}, for changes "
        f"{_CHANGE_SECONDS:g}: they wait for the request that runs)",
    )
    add_arguments(parser)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1_000_000:
        raise ValueError
    return value


def _confirmed(wanted: Wanted) -> bool:
    """
    Whether the person at the terminal wants it.

    :raises CommandFailed: nobody is there to be asked.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        raise CommandFailed(f"{wanted.action} is not done unasked: add --yes")
    on = "" if wanted.route is None else f" on route {printable(wanted.route)}"
    if wanted.action == "delete":
        asked = f"Delete session {printable(wanted.id)}{on}?"
    else:
        slots = "every slot" if wanted.route is None else f"the slot of{on.removeprefix(' on')}"
        asked = f"Empty {slots}? What is not saved has to be read again."
    # stdout is the result's
    complain(f"{asked} [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def carried_out(client: GatewayClient, wanted: Wanted, now: float, width: int | None) -> str:
    """
    Do it.

    :param now: in seconds since the epoch.
    :param width: of the terminal; ``None``: it is none.
    :returns: what is to be printed.
    :raises CommandFailed: it could not be done.
    """
    if wanted.action == "list":
        answer = await _listed(client)
        lines = listing(answer, now, width)
    elif wanted.action == "show":
        answer = await _shown(client, wanted)
        lines = []
        for each in answer["sessions"]:
            lines += [*details(each["session"], now), "", *comparison(each["prompt"], width), ""]
        del lines[-1:]
    elif wanted.action == "clear":
        answer = await client.call("POST", path_of(*_PATH, "clear"), wanted.parameters)
        lines = cleared_lines(answer.get("cleared"))
    elif wanted.action == "delete":
        answer = await client.call("DELETE", path_of(*_PATH, wanted.id), wanted.parameters)
        lines = [f"deleted {name}" for name in names(answer.get("deleted"))]
    else:
        answer = await client.call("POST", path_of(*_PATH, wanted.id, "save"), wanted.parameters)
        lines = [f"saved {name}" for name in names(answer.get("saved"))]
    if wanted.as_json:
        return json.dumps(answer, indent=2) + "\n"
    return "".join(f"{line}\n" for line in lines)


async def _listed(client: GatewayClient) -> dict[str, Any]:
    """All pages. A session that is used meanwhile moves up, so it may come twice."""
    found: dict[tuple[object, ...], Any] = {}
    answer: dict[str, Any] = {}
    offset = 0
    while True:
        page = {"limit": _PAGE, "offset": offset}
        answer = await client.call("GET", path_of(*_PATH), page)
        rows = answer.get("sessions")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise CommandFailed(f"{client.target.url} answers, but not with sessions")
        for row in rows:
            found.setdefault((row.get("client"), row.get("id"), row.get("route")), row)
        offset += len(rows)
        total = answer.get("total")
        if not rows or not isinstance(total, int) or offset >= total:
            break
    totals = {name: answer.get(name) for name in ("total", "bytes")}
    return {"sessions": list(found.values()), **totals}


async def _shown(client: GatewayClient, wanted: Wanted) -> dict[str, Any]:
    """
    The sessions of an id, each with the comparison of its last two prompts. Of some there is
    nothing but that: they are neither in a slot nor on disk.
    """
    rows = [
        row
        for row in (await _listed(client))["sessions"]
        if row.get("id") == wanted.id and wanted.route in (None, row.get("route"))
    ]
    prompts = {_whose(prompt): prompt for prompt in await _prompts(client, wanted)}
    shown = [{"session": row, "prompt": prompts.pop(_whose(row), None)} for row in rows]
    for prompt in prompts.values():
        named = {name: prompt[name] for name in _NAMES if name in prompt}
        shown.append({"session": {**named, **_NOT_KEPT}, "prompt": prompt})
    if not shown:
        on = "" if wanted.route is None else f" on route {printable(wanted.route)}"
        raise CommandFailed(f"no session {printable(wanted.id)}{on}", 404)
    return {"sessions": shown}


def _whose(row: Mapping[str, Any]) -> tuple[object, object]:
    """What tells a session from others of its id."""
    return row.get("client"), row.get("route")


async def _prompts(client: GatewayClient, wanted: Wanted) -> list[dict[str, Any]]:
    """The last two prompts of each session of an id, compared."""
    path = path_of(*_PATH, wanted.id, "prompt")
    try:
        answer = await client.call("GET", path, wanted.parameters)
    except CommandFailed as error:
        # 405: a gateway that does not compare prompts yet
        if error.status in (404, 405):
            return []
        raise
    prompts = answer.get("prompts")
    return [one for one in prompts if isinstance(one, dict)] if isinstance(prompts, list) else []
