"""
What was said in a conversation so far, as digests: one for each message, each made of the one
before, so that two conversations share a beginning exactly as far as their digests agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from attrs import frozen

from slotgate.messages import MOST_MESSAGES, content_of, count_of, said_by

#: Bytes of one digest: enough that two messages never meet by chance.
DIGEST_BYTES = 16

#: At the beginning of a line, and within it: a text of megabytes is looked through once.
_BILLING = re.compile(
    r"^(x-anthropic-billing-header:[^\n]{0,200}?\bcch=)[^;\s]{1,64}", re.MULTILINE
)


@frozen
class History:
    """The history that a request carries."""

    #: After each message that is not of the system prompt.
    digests: tuple[bytes, ...]
    #: The same as if there were no system prompt and no tools.
    bare: tuple[bytes, ...]
    #: The digest of tools and system prompt; empty where there are none.
    start: bytes
    #: Characters of all of it.
    size: int

    @property
    def tip(self) -> bytes:
        """The digest of all of it."""
        return self.digests[-1]

    def extends(self, tip: bytes) -> bool:
        """Whether all of a conversation with that tip is the beginning of this one."""
        return tip in self.digests


def history_of(fields: Mapping[str, object]) -> History | None:
    """
    The history in a request of any surface, in time proportional to its length.

    Texts and text parts are the same, the arguments of tool calls count by what they say and not
    by how it is spelled, and images by their data.

    :param fields: the request's JSON.
    :returns: ``None`` where there is no conversation: plain completions, or nothing but a system
        prompt.
    """
    try:
        return _history_of(fields)
    except RecursionError:
        # the server will have something to say about that
        return None


def _history_of(fields: Mapping[str, object]) -> History | None:
    messages = fields.get("messages", fields.get("input"))
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        return None
    if count_of(messages) > MOST_MESSAGES:
        return None
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    bare = hashlib.blake2b(digest_size=DIGEST_BYTES)
    size = 0
    begins = [fields.get(part) for part in ("tools", "instructions", "system")]
    for part in begins:
        size += _add(_without_billing(content_of(part)), digest)
    start = digest.digest() if any(begins) else b""
    digests: list[bytes] = []
    bares: list[bytes] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if not digests and role in ("system", "developer"):
            size += _add(said_by(message), digest)
            start = digest.digest()
        else:
            size += _add(said_by(message), digest, bare)
            digests.append(digest.digest())
            bares.append(bare.digest())
    return History(tuple(digests), tuple(bares), start, size) if digests else None


def _add(said: object, *digests: hashlib.blake2b) -> int:
    """Add something to digests, with its length, so that no two things can run together."""
    written = json.dumps(said, sort_keys=True).encode("ascii")
    for digest in digests:
        digest.update(len(written).to_bytes(8, "big"))
        digest.update(written)
    return len(written)


def _without_billing(content: object) -> object:
    """A system prompt without what Claude Code writes anew into each."""
    return _BILLING.sub(r"\1", content, count=1) if isinstance(content, str) else content
