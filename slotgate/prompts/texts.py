"""
A request's prompt as texts with roles: what is compared, and shown where prompts are kept.

The texts are not what a model gets to read: its template writes them in a way of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from xxhash import xxh3_64_hexdigest

from slotgate.messages import MOST_MESSAGES, content_of, count_of, said_by

#: A role and a text.
Said: TypeAlias = tuple[str, str]

TOOLS, SYSTEM, USER, ASSISTANT, TOOL = "tools", "system", "user", "assistant", "tool"
PROMPT, OTHER = "prompt", "other"

#: Roles by what clients call them; what else they call a role is not repeated.
_ROLES = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "model": ASSISTANT,
    "tool": TOOL,
    "function": TOOL,
}

#: What kinds of parts that are no text are called.
_MEDIA = ("image", "audio", "video", "document", "file")


def chat_of(fields: Mapping[str, object]) -> list[Said] | None:
    """
    The tools, the system prompt and the messages of a chat on any surface.

    :returns: ``None``: it is no chat, or one that nobody would send.
    :raises RecursionError: it is nested too deeply.
    """
    messages = fields.get("messages", fields.get("input"))
    if isinstance(messages, str):
        messages = [{"role": USER, "content": messages}]
    if not isinstance(messages, list) or not messages or count_of(messages) > MOST_MESSAGES:
        return None
    said: list[Said] = []
    if tools := fields.get("tools"):
        said.append((TOOLS, _json(content_of(tools))))
    for name in ("instructions", "system"):
        if content := fields.get(name):
            said.append((SYSTEM, _content(content_of(content))))
    said += map(_message, messages)
    return said


def has_media(fields: Mapping[str, object]) -> bool:
    """Whether a chat has images or the like in it, whose tokens characters do not tell."""
    return any(map(_shows_media, _items(fields.get("messages", fields.get("input")))))


def _shows_media(item: Mapping[str, object]) -> bool:
    """Whether a message, a part of one, or what a tool said in one has media in it."""
    kind = item.get("type")
    if item.get("images") or (isinstance(kind, str) and any(name in kind for name in _MEDIA)):
        return True
    parts = _items(item.get("content"))
    return any(
        _shows_media(part) or any(map(_shows_media, _items(part.get("content")))) for part in parts
    )


def _items(value: object) -> Iterable[Mapping[str, object]]:
    return (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def plain_of(fields: Mapping[str, object]) -> list[Said] | None:
    """
    The texts of a plain completion, in the order in which a server reads them.

    :returns: ``None``: there are none.
    :raises RecursionError: it is nested too deeply.
    """
    prompt = fields.get("prompt")
    if "input_prefix" in fields or "input_suffix" in fields:
        return list(_infill(fields, prompt))
    if isinstance(prompt, list):
        if len(prompt) > MOST_MESSAGES and not isinstance(prompt[0], int):
            return None
        if not any(type(piece) is int for piece in prompt):
            return [(PROMPT, _prompt(one)) for one in prompt] or None
    return [(PROMPT, _prompt(prompt))] if prompt else None


def _infill(fields: Mapping[str, object], prompt: object) -> Iterable[Said]:
    extra = fields.get("input_extra")
    for one in extra if isinstance(extra, list) else ():
        yield "file", _json(one) if isinstance(one, Mapping) else str(one)
    prefix, suffix = fields.get("input_prefix", ""), fields.get("input_suffix", "")
    yield "prefix", _prompt(prefix) + _prompt(prompt or "")
    yield "suffix", _prompt(suffix)


def _prompt(prompt: object) -> str:
    """A prompt, which can be given as tokens, or as both; tokens are written as numbers."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        return " ".join(
            piece if isinstance(piece, str) else str(piece) if type(piece) is int else _json(piece)
            for piece in prompt
        )
    if isinstance(prompt, Mapping) and isinstance(text := prompt.get("prompt_string"), str):
        data = prompt.get("multimodal_data")
        shown = (_marker("image", one) for one in (data if isinstance(data, list) else ()))
        return "".join((text, *shown))
    return _json(prompt)


def _message(message: object) -> Said:
    said = said_by(message)
    if not isinstance(said, dict):
        return OTHER, _json(said)
    role = said.pop("role", None)
    kind = said.pop("type", None)
    content = said.pop("content", "")
    shown = _ROLES.get(role, OTHER) if isinstance(role, str) else _role_of(str(kind))
    if shown is USER and _is_result(content):
        shown = TOOL
    text = _content(content)
    if isinstance(images := said.pop("images", None), list):
        # Ollama's own way
        text = "\n".join((text, *(_marker("image", one) for one in images)))
    # what does not make its role clear is part of what it says
    rest = {"type": kind, **said} if kind is not None else said
    if shown is OTHER and role is not None:
        rest["role"] = role
    if rest:
        text = f"{text}\n{_json(rest)}" if text else _json(rest)
    return shown, text


def _role_of(kind: str) -> str:
    """Whose an item of a Responses request is that has no role."""
    if kind.endswith("_output"):
        return TOOL
    return ASSISTANT if kind.endswith("_call") or kind == "reasoning" else OTHER


def _is_result(content: object) -> bool:
    """Whether a message is what a tool said: on Anthropic's surface it comes as the user's."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, dict) and one.get("type") == "tool_result" for one in content)
    )


def _content(content: object) -> str:
    """A content, or a part of one, in words."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_content, content))
    if not isinstance(content, Mapping):
        return _json(content)
    kind = content.get("type")
    if isinstance(kind, str):
        for name in _MEDIA:
            if name in kind:
                return _marker(name, content)
    if isinstance(inner := content.get("content"), list):
        # what a tool said can have images in it
        rest = {name: value for name, value in content.items() if name != "content"}
        return f"{_json(rest)}\n{_content(inner)}"
    return _json(content)


def _marker(name: str, content: object) -> str:
    """What stands for data: its size, and a digest, so that others look different."""
    data = max(_strings(content), key=len, default="")
    digest = xxh3_64_hexdigest(data.encode("utf-8", "surrogatepass"))[:8]
    if data.startswith(("http://", "https://", "file://")):
        return f"[{name} at an address, {digest}]"
    # most is written in base64
    size = len(data) * 3 // 4
    shown = f"{(size + 500) // 1000} kB" if size >= 1000 else f"{size} bytes"
    return f"[{name} {shown}, {digest}]"


def _strings(content: object) -> Iterable[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _strings(value)
    elif isinstance(content, list):
        for value in content:
            yield from _strings(value)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
