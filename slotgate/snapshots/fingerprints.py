"""
What wrote a snapshot, and whether it fits what would read it.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Fingerprint:
    """What a snapshot remembers of its server."""

    #: Path and metadata of the model, as the server tells them.
    model: str
    #: Size and time of the model's file; empty where this process does not see it.
    model_file: str
    #: The build of llama.cpp. A snapshot of another one is tried: most fit.
    build: str


def misfit(written: Fingerprint, now: Fingerprint) -> str:
    """
    Why a snapshot must not be restored; empty when it may be.

    :param written: what wrote it.
    :param now: what would read it.
    """
    if written.model != now.model:
        return f"written by another model: {written.model}, now {now.model}"
    if written.model_file and now.model_file and written.model_file != now.model_file:
        return "the model's file has changed"
    return ""
