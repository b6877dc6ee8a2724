"""
Side requests: what a client asks beside its conversation, such as a title for it.

They often carry the conversation's session id, and an answer to them would push the conversation
out of its slot. That a request is one says nothing of how its prompt begins: a compaction begins
as the conversation does, a title's prompt mostly does not.

A sub-agent that names itself has a session of its own and is no side request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from attrs import frozen
from twisted.web.http_headers import Headers

from slotgate.identity import names_sub_agent
from slotgate.surfaces.openai import text_of

SUB_AGENT = "sub-agent"
COMPACTION = "compaction"
AUTOCOMPLETE = "autocomplete"
TITLE = "title"
PROBE = "probe"

#: How much of a text counts as its beginning, in characters.
_BEGINNING = 800

#: The longest text of a probe, in characters: "quota", "test", "Hi".
_PROBE_TEXT = 200

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict")

# Instructions that stand alone before what they are about. Without tools and without an answer in
# the request they are no agent that happens to be told the same.
_INSTRUCTIONS = (
    (TITLE, "You are a title generator"),  # opencode, Kilo
    (TITLE, "Analyze if this message indicates a new conversation topic"),  # Claude Code
    (TITLE, "Generate a concise, sentence-case title (3-7 words)"),  # Claude Code, newer
    (TITLE, "You are an expert in crafting pithy titles for chatbot conversations"),  # Copilot
    # aider
    ("commit message", "You are an expert software engineer that generates concise, one-line Git"),
    (COMPACTION, "*Briefly* summarize this partial conversation about programming"),  # aider
)

# What the last user message begins with, after the conversation or instead of it.
_LAST_WORDS = (
    (TITLE, "Provide a concise, 5-word-or-less title for the conversation"),  # LibreChat
    (TITLE, "Analyze this conversation and provide:\n1. The detected language"),  # LibreChat
    (TITLE, "Please write a 5-10 word title for the following conversation:"),  # Claude Code
    (TITLE, "Generate a concise 3-7 word title for this conversation, omitting"),  # Zed
    (COMPACTION, "You are performing a CONTEXT CHECKPOINT COMPACTION"),  # Codex
    (AUTOCOMPLETE, "You are a HOLE FILLER"),  # Continue, with chat models
)

# The same, somewhere at the beginning: after a line or two that change from version to version.
_IN_LAST_WORDS = (
    (TITLE, "reply with a title for the chat that is 3-4 words"),  # Continue
    # Claude Code
    (COMPACTION, "Your task is to create a detailed summary of the conversation so far, paying"),
)

# Systems of whole conversations that are to be summed up.
_SUMMARIZERS = (
    "You are a helpful AI assistant tasked with summarizing conversations",  # opencode, Claude Code
    "You are an anchored context summarization assistant",  # opencode, newer
)

_OPEN_WEBUI_HEADING = "### Task:"
# "Respond to the user query using the provided context" under the same heading is a real turn
_OPEN_WEBUI_TASKS = (
    (TITLE, "Generate a concise"),
    ("tags", "Generate 1-3 broad tags"),
    ("follow-ups", "Suggest 3-5 relevant follow-up"),
    ("search query", "Analyze the chat history to determine the necessity of generating search"),
    (AUTOCOMPLETE, "You are an autocompletion system"),
    ("image prompt", "Generate a detailed prompt for am image generation task"),
)
_OPEN_WEBUI_EMOJI = "Your task is to reflect the speaker's likely facial expression"
_OPEN_WEBUI_MERGE = "You have been provided with a set of responses from various models"

# One of them begins or ends each prompt that asks a model to fill in the middle.
_FILL_IN = ("<|fim_", "<fim_", "<fim-", "<\uff5cfim\u2581", "<MID>", "[SUFFIX]")
#: The longest of them, and white space, in characters.
_FILL_IN_EDGE = 24


@frozen
class _Said:
    """What a request says, as far as it is looked at."""

    system: str
    #: Text of each user message, or the prompt.
    users: Sequence[str]
    #: Whether there are messages of anybody but the system and the user.
    answered: bool
    tools: bool
    streaming: bool

    @property
    def last(self) -> str:
        return _beginning(self.users[-1]) if self.users else ""


def side_request(headers: Headers, path: str, fields: Mapping[str, object]) -> str:
    """
    Why a request is a side request, in a word or two for the log; empty: it is none.

    What the client says of its request counts more than what the request looks like.

    :param path: the path of the request, without its query.
    :param fields: the request's JSON.
    """
    marked = _marked(headers, fields)
    if marked is not None:
        return marked
    if _fills_in(path, fields):
        return AUTOCOMPLETE
    said = _said(path, fields)
    if _is_probe(said, fields):
        return PROBE
    return _by_instructions(said) or _by_last_words(said) or _by_open_webui(said)


def _marked(headers: Headers, fields: Mapping[str, object]) -> str | None:
    """What headers say; empty: a main request; ``None``: they say nothing."""
    task = _header(headers, "x-openwebui-task")
    # Open WebUI before 0.9.7 does not know the placeholder and sends it as it is
    if task is not None and "{{" not in task:
        return "" if task.lower() in ("", "none") else "openwebui task"
    by_claude = _marked_by_claude_code(headers)
    return by_claude if by_claude is not None else _marked_by_codex(headers, fields)


def _marked_by_claude_code(headers: Headers) -> str | None:
    agent = bool(_header(headers, "x-claude-code-agent-id"))
    match _header(headers, "x-claude-code-request-class"):
        case "main":
            return ""
        case "subagent" | "workflow":
            return "" if agent else SUB_AGENT
        case "compaction":
            return COMPACTION
        case None | "":
            pass
        case _:
            return "claude-code auxiliary"
    if _header(headers, "x-claude-code-compaction"):
        return COMPACTION
    if _header(headers, "x-app") == "cli-bg" and not agent:
        return "claude-code background"
    return None


def _marked_by_codex(headers: Headers, fields: Mapping[str, object]) -> str | None:
    label = _header(headers, "x-openai-subagent")
    try:
        turn = json.loads(_header(headers, "x-codex-turn-metadata") or "null")
    except (ValueError, RecursionError):
        turn = None
    kind = turn.get("request_kind") if isinstance(turn, dict) else None
    if label == "compact" or kind == "compaction":
        return COMPACTION
    if (label or kind == "subagent") and not names_sub_agent(headers, fields):
        return SUB_AGENT
    return None


def _fills_in(path: str, fields: Mapping[str, object]) -> bool:
    """Whether text at a cursor is asked for."""
    if path.rstrip("/").endswith("/infill"):
        return True
    if "messages" in fields:
        return False
    if isinstance(suffix := fields.get("suffix"), str) and suffix:
        return True
    prompt = fields.get("prompt")
    if not isinstance(prompt, str):
        return False
    # without a template of the server's; chats are sent like this too, so it is not enough
    if fields.get("raw") is True:
        return any(mark in prompt for mark in _FILL_IN)
    edges = (prompt[:_FILL_IN_EDGE], prompt[-_FILL_IN_EDGE:])
    return any(mark in edge for mark in _FILL_IN for edge in edges)


def _is_probe(said: _Said, fields: Mapping[str, object]) -> bool:
    """
    Whether somebody asks for a token to see whether there is an answer. A conversation that goes
    on, or a long prompt, is none: that is how a cache is kept warm.
    """
    options = fields.get("options")
    places = (fields, options if isinstance(options, Mapping) else {})
    limits = (place.get(name) for place in places for name in _LIMITS)
    if not any(type(limit) is int and 0 <= limit <= 1 for limit in limits):
        return False
    if said.answered or said.tools or len(said.users) > 1:
        return False
    return len(said.system) + sum(map(len, said.users)) <= _PROBE_TEXT


def _by_instructions(said: _Said) -> str:
    if said.tools:
        return ""
    system = _beginning(said.system)
    # models without a system role get it as the user's first words
    first = _beginning(said.users[0]) if said.users and not system else ""
    if any(phrase in system for phrase in _SUMMARIZERS):
        return COMPACTION
    if said.answered or len(said.users) > 2:
        return ""
    for reason, phrase in _INSTRUCTIONS:
        # in a system prompt lines of the client's own can come before it
        if phrase in system or first.startswith(phrase):
            return reason
    return ""


def _by_last_words(said: _Said) -> str:
    for reason, phrase in _LAST_WORDS:
        if said.last.startswith(phrase):
            return reason
    return next((reason for reason, phrase in _IN_LAST_WORDS if phrase in said.last), "")


def _by_open_webui(said: _Said) -> str:
    if len(said.users) != 1 or said.answered or said.system:
        return ""
    if said.last.startswith(_OPEN_WEBUI_MERGE):
        return "merged answers"  # which may stream
    if said.streaming:
        return ""
    if said.last.startswith(_OPEN_WEBUI_EMOJI):
        return "emoji"
    if not said.last.startswith(_OPEN_WEBUI_HEADING):
        return ""
    task = said.last.removeprefix(_OPEN_WEBUI_HEADING).lstrip()
    return next((reason for reason, phrase in _OPEN_WEBUI_TASKS if task.startswith(phrase)), "")


def _said(path: str, fields: Mapping[str, object]) -> _Said:
    system = [text_of(fields.get(name)) for name in ("system", "instructions")]
    users: list[str] = []
    answered = False
    where = next((name for name in ("messages", "input", "prompt") if name in fields), "")
    messages = fields.get(where)
    if isinstance(messages, str):
        users.append(messages)
    for message in messages if isinstance(messages, list) else ():
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in ("system", "developer"):
            system.append(text_of(message.get("content")))
        elif role == "user":
            users.append(text_of(message.get("content")))
        else:
            answered = True
    return _Said(
        system="\n".join(filter(None, system)),
        users=users,
        answered=answered,
        tools=bool(fields.get("tools")),
        # Ollama's default is the other way round
        streaming=bool(fields.get("stream", path.startswith("/api/"))),
    )


def _beginning(text: str) -> str:
    return text[:_BEGINNING].lstrip()


def _header(headers: Headers, name: str) -> str | None:
    values = headers.getRawHeaders(name.encode("ascii"), [])
    return values[0].strip().decode("utf-8", "replace") if values else None
