"""
Model names: Ollama's have a tag, llama-server's need none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

#: The tag that Ollama's clients put to a name that has none.
LATEST = ":latest"


def tagged(model: str) -> str:
    """
    A server's name for a model as ``/api/tags`` and ``/api/ps`` list it: always with a tag.

    Clients that ask for ``name`` look for ``name:latest`` in the list. A colon before the last
    slash belongs to a registry's port, not to a tag.
    """
    return model if ":" in model.rpartition("/")[2] else model + LATEST


def resolved(asked: str, known: Collection[str]) -> str:
    """
    The name to look for a route and a model with: the name as it was said where it is known,
    else the one without ``:latest``.

    :param known: the names of models and routes, as far as they are known.
    """
    if asked in known:
        return asked
    bare = asked.removesuffix(LATEST)
    if bare not in known and bare + LATEST in known:
        return bare + LATEST
    return bare or asked


def digest(model: str) -> str:
    """
    64 hex digits that stand for a model: clients tell models apart by them.

    They are not those of the file, which nobody has read.
    """
    return hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()
