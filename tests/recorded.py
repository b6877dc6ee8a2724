"""
The requests of real clients in ``tests/clients``.

Each file is one client, each request what it sends, where that is known from, and what slotgate
must make of it. A ``session`` of ``null``: the request names none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.surfaces import openai
from slotgate.surfaces.generation import PATHS


@frozen
class Recorded:
    """One request of a client."""

    what: str
    facts: str
    headers: Mapping[str, str]
    path: str
    body: Mapping[str, Any]
    session: str | None
    source: str | None
    #: The reason that the log gives; empty: a main request.
    side: str
    because: str

    def sent(self, spelling: str = "") -> Headers:
        """The headers; ``spelling``: a method of str for their names."""
        headers = Headers()
        for name, value in self.headers.items():
            headers.addRawHeader(getattr(name, spelling)() if spelling else name, value)
        return headers

    @property
    def system_prompt(self) -> str:
        return PATHS.get(self.path, openai.chat_system)(self.body)


def recorded() -> list[Any]:
    """Every request, as a parameter with the client's name in its id."""
    parameters = []
    for file in sorted(Path(__file__).parent.joinpath("clients").glob("*.json")):
        for fields in json.loads(file.read_text(encoding="utf-8"))["requests"]:
            one = Recorded(**fields)
            parameters.append(pytest.param(one, id=f"{file.stem}: {one.what}"))
    return parameters
