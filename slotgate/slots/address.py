"""
Which slot is meant.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Address:
    """One slot: the same number is another slot for each model of a router."""

    #: The server's name in the configuration.
    server: str
    #: The id by which a router knows the model; empty: the server has one model.
    model: str
    slot: int

    def __str__(self) -> str:
        model = f" {self.model}" if self.model else ""
        return f"{self.server}{model} slot {self.slot}"
