"""
What somebody looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from attrs import evolve, frozen

#: Minutes that the time line may show.
MINUTES = (2, 5, 10)
#: Sessions on a page.
PAGE = 25

_LONGEST_OFFSET = 9


@frozen
class View:
    """How much of the time line, and which sessions."""

    minutes: int = 5
    offset: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> View:
        """What an address asks for; what makes no sense is left out."""
        view = cls()
        if fields.get("minutes", "") in [str(minutes) for minutes in MINUTES]:
            view = evolve(view, minutes=int(fields["minutes"]))
        offset = fields.get("offset", "")
        if offset.isascii() and offset.isdigit() and len(offset) <= _LONGEST_OFFSET:
            view = evolve(view, offset=int(offset) // PAGE * PAGE)
        return view

    @property
    def query(self) -> str:
        """As the end of an address."""
        return "?" + urlencode({"minutes": self.minutes, "offset": self.offset})

    def with_minutes(self, minutes: int) -> View:
        """The same with another time line."""
        return evolve(self, minutes=minutes)

    def at(self, offset: int) -> View:
        """The same with other sessions."""
        return evolve(self, offset=max(offset, 0))
