"""
What a client sent, in the form that decisions are made on.
"""

from __future__ import annotations

from io import BytesIO
from typing import cast
from urllib.parse import parse_qs, unquote

from twisted.web.http import Request
from twisted.web.iweb import IRequest

#: What browsers ask for by themselves is none of a client's requests either.
_LOOKED_AT = frozenset({"/slotgate", "/favicon.ico"})


def is_looked_at(path: str) -> bool:
    """Whether a person with a browser asks for it, and no client of a model."""
    return path in _LOOKED_AT or path.startswith("/slotgate/")


def path_of(request: IRequest) -> str:
    """
    The path, decoded as the server does: decisions are made on what is forwarded.
    """
    return unquote(request.uri.partition(b"?")[0].decode("latin-1"), "utf-8", "replace")


def loads_model(request: IRequest) -> bool:
    """Whether a router may load the model for it; it takes anything but these two for a no."""
    query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"))
    return query.get("autoload", ["1"])[-1] in ("1", "true")


def body_of(request: IRequest) -> bytes:
    """
    The whole body; it is in memory (:mod:`slotgate.web.limits`).
    """
    content = cast(Request, request).content
    return content.getvalue() if isinstance(content, BytesIO) else b""
