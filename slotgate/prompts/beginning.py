"""
Prompts compared without a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

#: How much of a prompt counts as its beginning, in characters: enough to tell prompts apart, and
#: little enough that a conversation's first messages have it.
BEGINNING_CHARACTERS = 1024

#: What a prompt begins with, in the order that templates write it.
_PARTS = ("system", "instructions", "messages", "input", "prompt", "input_prefix")


def beginning(fields: Mapping[str, object]) -> str:
    """
    A digest of how a request's prompt begins; empty where the prompt is too short to tell.

    Two requests with the same digest begin with the same tokens, up to about a quarter as many as
    :data:`BEGINNING_CHARACTERS`. A cache of one that does not help the other is no use at all.
    """
    # templates that know tools write them first
    tools = json.dumps(fields.get("tools"))
    written = ""
    # piece by piece: a prompt can have megabytes
    for piece in json.JSONEncoder().iterencode([fields[part] for part in _PARTS if part in fields]):
        written += piece[:BEGINNING_CHARACTERS]
        if len(written) >= BEGINNING_CHARACTERS:
            said = f"{tools}\0{written[:BEGINNING_CHARACTERS]}"
            return hashlib.sha256(said.encode()).hexdigest()[:32]
    return ""
