"""
Tool calls, put together from their parts: Ollama's clients get them whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from attrs import define, field

from slotgate.surfaces.ollama._json import dump
from slotgate.surfaces.ollama._pieces import CallPart, Unusable


@define
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(factory=list)


@define
class Calls:
    """The tool calls of one answer."""

    _calls: dict[int, _Call] = field(factory=dict, init=False)

    def add(self, parts: Iterable[CallPart]) -> None:
        """Take in what an event says of them."""
        for part in parts:
            call = self._calls.setdefault(part.index, _Call())
            call.id += part.id
            call.name += part.name
            call.arguments.append(part.arguments)

    def whole(self, *, cut: bool) -> list[dict[str, object]]:
        """
        All of them, in their order.

        :param cut: the answer came to its limit: a call that is not whole is left out.
        :raises Unusable: the arguments of one are no JSON object.
        """
        found: list[dict[str, object]] = []
        for index, call in sorted(self._calls.items()):
            arguments = _arguments("".join(call.arguments))
            if arguments is None:
                if cut:
                    continue
                raise Unusable(f"the arguments of the tool call {call.name!r} are no JSON object")
            function = {"index": index, "name": call.name, "arguments": arguments}
            found.append(
                {"id": call.id, "function": function} if call.id else {"function": function}
            )
        return found


def _arguments(written: str) -> dict[str, object] | None:
    if not written.strip():
        return {}
    try:
        arguments = json.loads(written)
        # Python reads what it must not write: infinite numbers, and objects that are just too deep
        # for standing in an answer
        dump([[[[[[[[arguments]]]]]]]])
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
