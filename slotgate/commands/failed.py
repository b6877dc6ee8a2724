"""
A command that could not do what it was asked to.
"""

from __future__ import annotations


class CommandFailed(Exception):
    """
    Why, in one line for the person at the terminal.

    :ivar status: of the gateway's answer; 0: there was none, or it was no gateway's.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
