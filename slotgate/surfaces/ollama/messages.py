"""
Ollama's messages, images and tools as those of ``/v1/chat/completions``.
"""

from __future__ import annotations

import base64
import binascii
import json

from slotgate.surfaces.ollama._json import Fields, WrongType

#: The beginnings of files that llama-server may get; anything else is offered as a JPEG, and it
#: says what is wrong with it.
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}


def message(fields: Fields) -> dict[str, object]:
    """
    One message of a chat.

    :raises WrongType: a field of it has another type than Ollama's.
    """
    translated: dict[str, object] = {"role": fields.text("role").lower()}
    translated["content"] = content(fields.text("content"), fields)
    if thinking := fields.text("thinking"):
        translated["reasoning_content"] = thinking
    if name := fields.text("tool_name"):
        translated["name"] = name
    if call_id := fields.text("tool_call_id"):
        translated["tool_call_id"] = call_id
    if calls := [_tool_call(call) for call in fields.objects("tool_calls")]:
        translated["tool_calls"] = calls
    return translated


def content(text: str, fields: Fields) -> str | list[dict[str, object]]:
    """
    The content of a message: its text, or parts where it has images.

    :param fields: what the ``images`` are in.
    :raises WrongType: they are no list of base64 strings.
    """
    images = fields.texts("images")
    if not images:
        return text
    parts: list[dict[str, object]] = [{"type": "text", "text": text}] if text else []
    for number, image in enumerate(images):
        try:
            parts.append(_media(image))
        except (ValueError, binascii.Error):
            name = f"{fields.where}images[{number}]"
            raise WrongType(f'field "{name}": illegal base64 data') from None
    return parts


def _media(image: str) -> dict[str, object]:
    """
    :raises ValueError: it is no base64.
    """
    written = image.replace("\r", "").replace("\n", "")
    data = base64.b64decode(written, validate=True)
    if kind := _audio(data):
        return {"type": "input_audio", "input_audio": {"data": written, "format": kind}}
    url = f"data:{media_type(data)};base64,{written}"
    return {"type": "image_url", "image_url": {"url": url}}


def media_type(data: bytes) -> str:
    """The type of an image by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for beginning, kind in _IMAGES.items():
        if data.startswith(beginning):
            return kind
    return "image/jpeg"


def _audio(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    # a JPEG begins with ff d8, a frame of MPEG audio with eleven ones
    mpeg = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] != 0xD8
    return "mp3" if mpeg or data.startswith(b"ID3") else ""


def _tool_call(call: Fields) -> dict[str, object]:
    function = call.inner("function") or Fields({}, f"{call.where}function.")
    arguments = function.inner("arguments")
    translated: dict[str, object] = {"type": "function"}
    if call_id := call.text("id"):
        translated["id"] = call_id
    translated["function"] = {
        "name": function.text("name"),
        "arguments": json.dumps(arguments.values if arguments else {}),
    }
    return translated


def tools(fields: Fields) -> list[dict[str, object]]:
    """
    The tools of a request, which are OpenAI's. Ollama does not insist on their type.

    :raises WrongType: they are no list of objects with a function.
    """
    translated = []
    for tool in fields.objects("tools"):
        function = tool.inner("function")
        if function is None:
            tool.refuse("function", "object")
        function.text("name")
        function.text("description")
        function.inner("parameters")
        translated.append({**tool.values, "type": tool.text("type") or "function"})
    return translated
