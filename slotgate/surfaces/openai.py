"""
The OpenAI surface and llama-server's own endpoints: where they say the system prompt.
"""

from __future__ import annotations

from collections.abc import Mapping


def text_of(content: object) -> str:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in parts if isinstance(text, str))


def chat_system(fields: Mapping[str, object]) -> str:
    """The system and developer messages that a chat begins with."""
    messages = fields.get("messages")
    if not isinstance(messages, list):
        return ""
    texts = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ("system", "developer"):
            break
        texts.append(text_of(message.get("content")))
    return "\n".join(texts)


def responses_system(fields: Mapping[str, object]) -> str:
    """The instructions of a Responses request."""
    instructions = fields.get("instructions")
    return instructions if isinstance(instructions, str) else ""


def no_system(fields: Mapping[str, object]) -> str:
    """Plain completions have no system prompt."""
    return ""
