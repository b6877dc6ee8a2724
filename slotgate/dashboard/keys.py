"""
Which session is meant, in a query or a form.
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlencode

from slotgate.sessions import SessionKey
from slotgate.web.rejected import Rejected

_MOST_FIELDS = 20


def query_of(key: SessionKey, **more: str) -> str:
    """
    A session as a query. Ids are whatever clients send, half of a surrogate pair included.
    """
    fields = {**more, "id": key.id, "route": key.route}
    if key.client is not None:
        fields["client"] = key.client
    return urlencode(fields, errors="surrogatepass", quote_via=quote)


def fields_of(query: str) -> dict[str, str]:
    """
    The fields of a query or a form.

    :raises Rejected: it is none.
    """
    try:
        given = parse_qs(
            query, keep_blank_values=True, errors="surrogatepass", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise Rejected(400, "these fields can not be read") from None
    if any(len(values) > 1 for values in given.values()):
        raise Rejected(400, "a field is given more than once")
    return {name: values[0] for name, values in given.items()}


def key_of(fields: dict[str, str]) -> SessionKey:
    """
    The session that fields name.

    :raises Rejected: they name none.
    """
    if not fields.get("id") or "route" not in fields:
        raise Rejected(400, "the address names no session")
    return SessionKey(fields.get("client"), fields["route"], fields["id"])
