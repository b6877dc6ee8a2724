"""
What was said in a conversation so far, as digests: one for each message, each made of the one
before, so that two conversations share a beginning exactly as far as their digests agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from attrs import frozen

#: Bytes of one digest: enough that two messages never meet by chance.
DIGEST_BYTES = 16

#: What of a message is not said in the prompt again, or by other words: clients drop it, or send
#: it only sometimes.
_PASSING = frozenset(
    {"reasoning_content", "reasoning", "thinking", "refusal", "annotations", "audio", "id"}
    | {"status", "cache_control", "timestamp", "prefix"}
)


#: At the beginning of a line, and within it: a text of megabytes is looked through once.
_BILLING = re.compile(
    r"^(x-anthropic-billing-header:[^\n]{0,200}?\bcch=)[^;\s]{1,64}", re.MULTILINE
)

#: What models think aloud, which clients cut from older answers.
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_THINKING = ("thinking", "redacted_thinking", "reasoning")

#: Of more messages or parts no history is made: no client has so many, and it takes long.
MOST_MESSAGES = 20_000


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
    if _parts_of(messages) > MOST_MESSAGES:
        return None
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    bare = hashlib.blake2b(digest_size=DIGEST_BYTES)
    size = 0
    begins = [fields.get(part) for part in ("tools", "instructions", "system")]
    for part in begins:
        size += _add(_without_billing(_content(part)), digest)
    start = digest.digest() if any(begins) else b""
    digests: list[bytes] = []
    bares: list[bytes] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if not digests and role in ("system", "developer"):
            size += _add(_message(message), digest)
            start = digest.digest()
        else:
            size += _add(_message(message), digest, bare)
            digests.append(digest.digest())
            bares.append(bare.digest())
    return History(tuple(digests), tuple(bares), start, size) if digests else None


def _parts_of(messages: Sequence[object]) -> int:
    """How many messages and parts of messages there are."""
    contents = [one.get("content") for one in messages if isinstance(one, Mapping)]
    return len(messages) + sum(len(one) for one in contents if isinstance(one, list))


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


def _message(message: object) -> object:
    if not isinstance(message, Mapping):
        return message
    kept = {
        name: value
        for name, value in message.items()
        if name not in _PASSING and value not in (None, [], "")
    }
    if kept.get("type") == "message":
        del kept["type"]
    if "content" in kept:
        kept["content"] = _content(kept["content"])
    if kept.get("role") == "assistant" and isinstance(kept.get("content"), str):
        kept["content"] = _THOUGHTS.sub("", kept["content"])
    if "tool_calls" in kept:
        kept["tool_calls"] = _calls(kept["tool_calls"])
    if "arguments" in kept:
        kept["arguments"] = _arguments(kept["arguments"])
    return kept


def _content(content: object) -> object:
    """A text, or what is in the parts; parts that are all text are one text."""
    if not isinstance(content, list):
        return content
    parts = [
        _part(part)
        for part in content
        if not (isinstance(part, Mapping) and part.get("type") in _THINKING)
    ]
    if all(isinstance(part, str) for part in parts):
        return "".join(str(part) for part in parts)
    return parts


def _part(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    if part.get("type") in ("text", "input_text", "output_text") and isinstance(
        part.get("text"), str
    ):
        return part["text"]
    kept = {name: value for name, value in part.items() if name not in _PASSING - {"id"}}
    if "content" in kept:
        kept["content"] = _content(kept["content"])
    if "arguments" in kept:
        kept["arguments"] = _arguments(kept["arguments"])
    return kept


def _calls(calls: object) -> object:
    if not isinstance(calls, list):
        return calls
    kept = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            kept.append([function.get("name"), _arguments(function.get("arguments"))])
        else:
            kept.append(call)
    return kept


def _arguments(arguments: object) -> object:
    """OpenAI's surface spells them as JSON in a text, Ollama's as an object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
