"""
The Anthropic surface: where it says the system prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from slotgate.surfaces.openai import text_of


def system(fields: Mapping[str, object]) -> str:
    """The ``system`` field of ``/v1/messages``: a string or text blocks."""
    return text_of(fields.get("system"))
