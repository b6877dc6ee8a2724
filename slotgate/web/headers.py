"""
Which headers pass the gateway, each way.
"""

from __future__ import annotations

from twisted.web.http_headers import Headers

#: They speak about one connection, not about the message (RFC 9110, 7.6.1). ``Proxy-*`` goes too.
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"trailers", b"transfer-encoding", b"upgrade")
)

#: Set anew for the server, or not its business.
_NOT_UPSTREAM = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    # The client's key opens the gateway; the server has its own.
    b"authorization",
    b"x-api-key",
    # llama-server would keep generating for a client that has gone, and let a second request with
    # the same id cancel the first.
    b"x-conversation-id",
}


def request_headers(client: Headers, api_key: str | None) -> Headers:
    """
    What the server is sent of a client's headers.

    :param api_key: the server's own key.
    """
    kept = _without(client, _NOT_UPSTREAM)
    if api_key:
        kept.setRawHeaders(b"Authorization", [b"Bearer " + api_key.encode()])
    return kept


def response_headers(server: Headers) -> Headers:
    """
    What a client is sent of a server's headers.

    Which pages may read an answer is not for the server to say: llama-server allows every one.
    """
    return _without(server, _HOP_BY_HOP, b"access-control-")


def _without(headers: Headers, dropped: frozenset[bytes], *prefixes: bytes) -> Headers:
    named = {
        token.strip().lower()
        for value in headers.getRawHeaders(b"Connection", ())
        for token in value.split(b",")
    }
    kept = Headers()
    for name, values in headers.getAllRawHeaders():
        lower = name.lower()
        begins = (b"proxy-", b"x-slotgate-", *prefixes)
        if lower in dropped or lower in named or lower.startswith(begins):
            continue
        kept.setRawHeaders(name, list(values))
    return kept
