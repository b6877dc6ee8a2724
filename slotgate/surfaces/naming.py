"""
Which surface a path belongs to.
"""

from __future__ import annotations

#: llama-server's own way to generate, which no other server has.
_OWN = frozenset({"/completion", "/infill"})


def surface_of(path: str) -> str:
    """``openai``, ``anthropic``, ``ollama``, or ``llama`` for llama-server's own."""
    if path.startswith("/api/"):
        return "ollama"
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "llama" if path in _OWN else "openai"
