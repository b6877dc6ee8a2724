"""
Requests, good and bad ones, to everything that llama-server answers and to what it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from gzip import compress
from typing import Any

from differential import MODEL, Case
from test_ollama_real import INTO_A_CALL, TOOL

HELLO = [{"role": "user", "content": "hello"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Wie heißt du? 你好 🙂"},
    {"role": "assistant", "content": "Tiny."},
    {"role": "user", "content": "And?"},
]
#: The first letters written are the four bytes of one emoji, each of them a token.
EMOJI = {
    "logit_bias": [[3 + byte, 5000 - 100 * at] for at, byte in enumerate("😀".encode())],
    "presence_penalty": 10000,
    "repeat_last_n": 10,
}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
GRAMMAR = 'root ::= "yes" | "no"'
FUNCTION: Any = TOOL["function"]
CALLS: dict[str, Any] = {**INTO_A_CALL}
TOOLS = {**CALLS, "tools": [TOOL], "max_tokens": 60}
MAX = {"max_tokens": 6}
#: Tokens, which are bytes: more than the server's context.
TOO_LONG = "x" * 5000
#: What all endpoints refuse as JSON.
NO_JSON = {
    "no body": None,
    "half an object": b"{",
    "a word": b"hello",
    "01": b'{"messages": [01]}',
    "no UTF-8": b'{"prompt": "\xff"}',
    "white space": b"  \n",
}
#: JSON, but no object.
NO_OBJECT = {"an array": b"[]", "a string": b'"hello"', "null": b"null"}
GREEDY = {"temperature": 0, "seed": 1}
JSON = {"Content-Type": "application/json"}


def post(name: str, path: str, body: object) -> Case:
    """A request with a body of JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(name, "POST", path, data, JSON)


def _each(named: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return named.items()


def chats() -> Iterator[Case]:
    """Chat completions that are answered."""
    for name, fields in _each(
        {
            "plain": MAX,
            "stream": {**MAX, "stream": True},
            "stream with usage": {
                **MAX,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            "stream without usage": {
                **MAX,
                "stream": True,
                "stream_options": {"include_usage": False},
            },
            "stream with progress": {**MAX, "stream": True, "return_progress": True},
            "timings per token": {**MAX, "stream": True, "timings_per_token": True},
            "log probabilities": {**MAX, "logprobs": True, "top_logprobs": 3},
            "log probabilities, stream": {
                **MAX,
                "logprobs": True,
                "top_logprobs": 2,
                "stream": True,
            },
            "n_probs": {**MAX, "n_probs": 3},
            "JSON": {"max_tokens": 40, "response_format": {"type": "json_object"}},
            "JSON schema": {
                "max_tokens": 40,
                "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
            },
            "JSON schema of llama.cpp": {"max_tokens": 40, "json_schema": SCHEMA},
            "grammar": {**MAX, "grammar": GRAMMAR},
            "grammar, stream": {**MAX, "grammar": GRAMMAR, "stream": True},
            "tools": TOOLS,
            "tools, stream": {**TOOLS, "stream": True},
            "tools, none wanted": {**MAX, "tools": [TOOL], "tool_choice": "none"},
            "stop": {"max_tokens": 30, "stop": ["a", "e", "i", "o", "u"]},
            "stop, one word": {"max_tokens": 30, "stop": "a"},
            "max_tokens 1": {"max_tokens": 1},
            "max_tokens 0": {"max_tokens": 0},
            "max_completion_tokens": {"max_completion_tokens": 3},
            "n": {**MAX, "n": 2},
            "a seed and heat": {**MAX, "temperature": 1.5, "seed": 7, "top_p": 0.9, "top_k": 20},
            "an emoji": {"max_tokens": 5, **EMOJI},
            "an emoji, stream": {"max_tokens": 5, "stream": True, **EMOJI},
            "half an emoji": {"max_tokens": 2, **EMOJI},
            "half an emoji, stream": {"max_tokens": 2, "stream": True, **EMOJI},
            "a slot of the client's": {**MAX, "id_slot": 0},
            "a slot of the client's that is none": {**MAX, "id_slot": "one"},
            "unknown fields": {**MAX, "foo": {"bar": [1, 2.5e300, None]}, "x" * 300: True},
            "null fields": {**MAX, "stop": None, "stream": None, "tools": None, "seed": None},
            "verbose": {**MAX, "verbose": True},
            "model": {**MAX, "model": MODEL},
            "another model": {**MAX, "model": "gpt-4o"},
            "a model that is a number": {**MAX, "model": 4},
            "user": {**MAX, "user": "ann", "metadata": {"a": "b"}, "store": False},
        }
    ):
        body = {"messages": TALK, **GREEDY, **fields}
        yield post(f"chat: {name}", "/v1/chat/completions", body)
    yield post("chat: without /v1", "/chat/completions", {"messages": HELLO, **MAX, **GREEDY})
    text = b'\n { "messages" : [ {"role":"user","content":"\\u00fc \\ud83d\\ude00"} ], '
    text += b'"max_tokens": 3.0, "temperature": 0e1, "max_tokens": 4 } \n'
    yield post("chat: white space, escapes, a field twice", "/v1/chat/completions", text)
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    messages = [{"role": "user", "content": parts}]
    yield post("chat: parts", "/v1/chat/completions", {"messages": messages, **MAX, **GREEDY})
    long = [{"role": "user", "content": "word " * 300}]
    yield post("chat: long", "/v1/chat/completions", {"messages": long, **MAX, **GREEDY})


def bad_chats() -> Iterator[Case]:
    """Chat completions that are refused."""
    for name, fields in _each(
        {
            "no messages": {},
            "messages that are none": {"messages": "hello"},
            "empty messages": {"messages": []},
            "a message that is none": {"messages": ["hello"]},
            "no role": {"messages": [{"content": "hello"}]},
            "no content": {"messages": [{"role": "user"}]},
            "an unknown role": {"messages": [{"role": "king", "content": "hello"}], **MAX},
            "a role that is a number": {"messages": [{"role": 5, "content": "hello"}]},
            "content that is a number": {"messages": [{"role": "user", "content": 5}]},
            "an unknown part": {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
            "an image": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image_url",
                                "image_url": {"url": "data:image/png;base64,AAAA"},
                            }
                        ],
                    }
                ]
            },
            "max_tokens that is a word": {"messages": HELLO, "max_tokens": "many"},
            "max_tokens below zero": {"messages": HELLO, "max_tokens": -5},
            "a huge temperature": {"messages": HELLO, **MAX, "temperature": 1e300},
            "a temperature that is a word": {"messages": HELLO, "temperature": "hot"},
            "a temperature below zero": {"messages": HELLO, **MAX, "temperature": -1},
            "stream that is a word": {"messages": HELLO, "stream": "yes"},
            "stop that is a number": {"messages": HELLO, **MAX, "stop": 4},
            "a grammar that is none": {"messages": HELLO, "grammar": "root ::= ("},
            "a schema that is none": {"messages": HELLO, "json_schema": {"type": "what"}},
            "an unknown format": {"messages": HELLO, "response_format": {"type": "xml"}},
            "tools that are none": {"messages": HELLO, "tools": "hammer"},
            "a tool without a function": {"messages": HELLO, "tools": [{"type": "function"}]},
            "a grammar and tools": {"messages": HELLO, "tools": [TOOL], "grammar": GRAMMAR},
            "an unknown tool_choice": {"messages": HELLO, "tools": [TOOL], "tool_choice": "maybe"},
            "logprobs without it": {"messages": HELLO, "top_logprobs": 3},
            "too long": {"messages": [{"role": "user", "content": TOO_LONG}]},
            "too long, stream": {
                "messages": [{"role": "user", "content": TOO_LONG}],
                "stream": True,
            },
        }
    ):
        yield post(f"bad chat: {name}", "/v1/chat/completions", {**GREEDY, **MAX, **fields})


def completions() -> Iterator[Case]:
    """Plain completions, and text with a gap."""
    for name, fields in _each(
        {
            "plain": {"prompt": "Once", "max_tokens": 6},
            "stream": {"prompt": "Once", "max_tokens": 6, "stream": True},
            "stream with usage": {
                "prompt": "Once",
                "max_tokens": 6,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            "log probabilities": {"prompt": "Once", "max_tokens": 4, "logprobs": 2},
            "echo": {"prompt": "Once", "max_tokens": 4, "echo": True},
            "a suffix": {"prompt": "Once", "max_tokens": 4, "suffix": "end"},
            "several prompts": {"prompt": ["a", "b"], "max_tokens": 4},
            "best_of": {"prompt": "Once", "max_tokens": 4, "best_of": 2},
            "no prompt": {"max_tokens": 4},
            "a prompt that is an object": {"prompt": {"a": 1}},
            "too long": {"prompt": TOO_LONG},
        }
    ):
        yield post(f"completions: {name}", "/v1/completions", {**GREEDY, **fields})
    for name, fields in _each(
        {
            "plain": {"prompt": "Once", "n_predict": 6},
            "stream": {"prompt": "Once", "n_predict": 6, "stream": True},
            "stream, an emoji": {"prompt": "Once", "n_predict": 5, "stream": True, **EMOJI},
            "tokens": {"prompt": [1, 50, 60], "n_predict": 6, "return_tokens": True},
            "text and tokens": {"prompt": [1, "Once", 60], "n_predict": 4},
            "several prompts": {"prompt": ["a", "b"], "n_predict": 4},
            "probabilities": {"prompt": "Once", "n_predict": 4, "n_probs": 2},
            "probabilities, stream": {
                "prompt": "Once",
                "n_predict": 4,
                "n_probs": 2,
                "stream": True,
            },
            "nothing to write": {"prompt": "Once upon a time", "n_predict": 0},
            "chosen fields": {"prompt": "Once", "n_predict": 4, "response_fields": ["content"]},
            "tokens that are none": {"prompt": [-7, 1e9], "n_predict": 4},
            "samplers": {"prompt": "Once", "n_predict": 4, "samplers": ["top_k", "temperature"]},
            "an unknown LoRA": {"prompt": "Once", "n_predict": 4, "lora": [{"id": 9, "scale": 1}]},
            "a limit that is a word": {"prompt": "Once", "n_predict": "many"},
            "an empty prompt": {"prompt": "", "n_predict": 4},
            "too long": {"prompt": TOO_LONG},
        }
    ):
        yield post(f"completion: {name}", "/completion", {**GREEDY, **fields})
    yield post("completion: /completions", "/completions", {**GREEDY, "prompt": "a", **MAX})
    for name, fields in _each(
        {
            "plain": {"input_prefix": "def a(", "input_suffix": "return", "n_predict": 6},
            "stream": {"input_prefix": "a", "input_suffix": "b", "n_predict": 6, "stream": True},
            "more files": {
                "input_prefix": "a",
                "input_suffix": "b",
                "input_extra": [{"filename": "c.py", "text": "c = 1"}],
                "prompt": "d",
                "n_predict": 4,
            },
            "no suffix": {"input_prefix": "a"},
            "files that are none": {"input_prefix": "a", "input_suffix": "b", "input_extra": "c"},
        }
    ):
        yield post(f"infill: {name}", "/infill", {**GREEDY, **fields})


def responses() -> Iterator[Case]:
    """OpenAI's Responses."""
    many = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    for name, fields in _each(
        {
            "plain": {"input": "hello"},
            "stream": {"input": "hello", "stream": True},
            "instructions": {"input": many, "instructions": "Be brief."},
            "tools": {
                "input": "hello",
                "tools": [{"type": "function", **FUNCTION}],
                **CALLS,
                "max_output_tokens": 60,
            },
            "a state": {"input": "hello", "previous_response_id": "resp_1"},
            "no input": {},
            "an input that is a number": {"input": 5},
            "stream, too long": {"input": TOO_LONG, "stream": True},
        }
    ):
        body = {"max_output_tokens": 6, **GREEDY, **fields}
        yield post(f"responses: {name}", "/v1/responses", body)
    yield post("responses: count", "/v1/responses/input_tokens", {"input": "hello"})
    yield post("chat: count", "/v1/chat/completions/input_tokens", {"messages": TALK})


def messages() -> Iterator[Case]:
    """Anthropic's Messages that are answered."""
    for name, fields in _each(
        {
            "plain": {},
            "stream": {"stream": True},
            "system": {"system": "Be brief."},
            "system blocks": {"system": [{"type": "text", "text": "Be brief."}]},
            "blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
            "stop": {"max_tokens": 30, "stop_sequences": ["a", "e", "i", "o", "u"]},
            "tools": {
                "tools": [
                    {
                        "name": "get",
                        "description": "Gets it.",
                        "input_schema": FUNCTION["parameters"],
                    }
                ]
            },
            "metadata": {"metadata": {"user_id": "ann"}},
            "messages that are none": {"messages": "hello"},
            "an unknown block": {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
        }
    ):
        body = {"model": MODEL, "max_tokens": 6, "messages": HELLO, "temperature": 0, **fields}
        yield post(f"messages: {name}", "/v1/messages", body)
        if "stream" in fields:
            continue
        count = {key: value for key, value in body.items() if key != "max_tokens"}
        yield post(f"count_tokens: {name}", "/v1/messages/count_tokens", count)
    beta = post("messages: beta", "/v1/messages?beta=true", body)
    yield beta.with_headers({"anthropic-version": "2023-06-01", "anthropic-beta": "a,b"})


def bad_messages() -> Iterator[Case]:
    """Anthropic's Messages that are refused."""
    too_long = {"messages": [{"role": "user", "content": TOO_LONG}], "max_tokens": 6}
    for name, fields in _each(
        {
            "no messages": {"max_tokens": 6},
            "too long": too_long,
            "stream, too long": {**too_long, "stream": True},
            "a limit that is a word": {"messages": HELLO, "max_tokens": "many"},
        }
    ):
        yield post(f"messages: {name}", "/v1/messages", {"model": MODEL, **fields})
    path = "/v1/messages/count_tokens"
    yield post("count_tokens: no messages", path, {"model": MODEL})
    for name, body in {**NO_JSON, **NO_OBJECT}.items():
        yield Case(f"count_tokens: {name}", "POST", path, body, JSON)
    for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"):
        yield Case(f"GET {path}", "GET", path)


def others() -> Iterator[Case]:
    """What uses no slot."""
    for path in (
        *("/health", "/v1/health", "/props", "/v1/models", "/models", "/slots"),
        *("/lora-adapters", "/slots?fail_on_no_slot=1", "/props?a=b&c=%20d&c=", "/health?"),
        *("/v1/models/tiny", "/v1/stream", "/tools", "/cors-proxy"),
    ):
        yield Case(f"GET {path}", "GET", path)
    text = "Grüße, 🙂 <s>"
    for path, bodies in _each(
        {
            "/tokenize": [
                {"content": text},
                {"content": text, "add_special": True, "parse_special": False},
                {"content": text, "with_pieces": True},
                {"content": ["a", 5, "b"]},
                {"content": {"a": 1}},
                {},
            ],
            "/detokenize": [{"tokens": [1, 75, 243]}, {"tokens": []}, {"tokens": "abc"}, {}],
            "/apply-template": [{"messages": TALK}, {"messages": HELLO, "tools": [TOOL]}, {}],
            "/v1/embeddings": [{"input": "hello"}, {"input": 5}, {}],
            "/embedding": [{"content": "hello"}],
            "/embeddings": [{"input": "hello"}],
            "/v1/rerank": [{"query": "a", "documents": ["b"]}],
            "/rerank": [{}],
            "/reranking": [{"query": "a", "documents": ["b"]}],
            "/lora-adapters": [[], [{"id": 0, "scale": 1}], {"a": 1}],
            "/props": [{}, {"a": 1}],
            "/v1/audio/transcriptions": [{}],
            "/v1/streams/lookup": [{"conversation_ids": ["a"]}],
            "/models/load": [{"model": MODEL}, {}],
            "/models/unload": [{"model": MODEL}],
        }
    ):
        for number, body in enumerate(bodies):
            yield post(f"{path} {number}", path, body)
    large = {"content": "large " * 50_000}
    yield post("tokenize: 300 kB", "/tokenize", large)
    yield post("a body to what takes none", "/health", {"a": 1})


def paths() -> Iterator[Case]:
    """Methods and paths that nothing answers, and other spellings of those that do."""
    chat = {"messages": HELLO, **MAX, **GREEDY}
    for path in (
        "/nothing",
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/models/",
        "/v1//models",
        "/index.html",
    ):
        yield Case(f"GET {path}", "GET", path)
    for path in ("/nothing", "/v1/chat/completions/", "/V1/chat/completions", "/health"):
        yield post(f"POST {path}", path, chat)
    for path in ("/v1/chat/completions", "/completion", "/tokenize", "/v1/responses"):
        yield Case(f"GET {path}", "GET", path)
    for path in ("/v1/chat/completions?a=b&c", "/v1%2Fchat/completions", "/v1/chat%2Fcompletions"):
        yield post(f"POST {path}", path, chat)
    yield post("POST /v1/ch%61t/completions", "/v1/ch%61t/completions", chat)
    yield post("POST /tokeni%7Ae", "/tokeni%7Ae", {"content": "a"})
    for sent in ({}, {"Accept-Encoding": "gzip"}):
        browser = {"Accept": "text/html,*/*", **sent}
        yield Case(f"GET / for a browser {len(sent)}", "GET", "/", None, browser)
    yield Case("GET /heal%74h", "GET", "/heal%74h")
    yield Case("GET /v1/models%00", "GET", "/v1/models%00")
    yield Case("GET /v1/models%zz", "GET", "/v1/models%zz")
    for path in ("/health", "/v1/models", "/props", "/nothing", "/v1/chat/completions"):
        yield Case(f"HEAD {path}", "HEAD", path)
    for path in ("/v1/chat/completions", "/v1/models", "/nothing"):
        yield Case(f"OPTIONS {path}", "OPTIONS", path)
        yield Case(f"DELETE {path}", "DELETE", path)
        yield _json_of("PUT", path, chat)
        yield _json_of("PATCH", path, chat)
    yield Case("OPTIONS with an origin", "OPTIONS", "/v1/models", None, {"Origin": "http://a.b"})
    yield Case("GET with an origin", "GET", "/v1/models", None, {"Origin": "http://a.b"})
    yield post("slot: an unknown action", "/slots/0?action=paint", {})
    yield post("slot: no action", "/slots/0", {})
    yield post("slot: no such slot", "/slots/7?action=erase", {})
    yield post("slot: no slot", "/slots/first?action=erase", {})
    yield post("slot: no file name", "/slots/0?action=save", {})
    yield post("slot: a file that is not there", "/slots/0?action=restore", {"filename": "no.bin"})
    yield post("slot: a path", "/slots/0?action=save", {"filename": "../a"})


def headers() -> Iterator[Case]:
    """What is said about a body, and around it."""
    chat = {"messages": HELLO, **MAX, **GREEDY}
    data = json.dumps(chat).encode()
    path = "/v1/chat/completions"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "junk"):
        yield Case(f"a type: {kind}", "POST", path, data, {"Content-Type": kind})
    yield Case("no type", "POST", path, data)
    for said, body in {"gzip": compress(data, mtime=0), "identity": data, "what": data}.items():
        sent = {**JSON, "Content-Encoding": said}
        if said != "gzip":
            yield Case(f"an encoding: {said}", "POST", path, body, sent)
        yield Case(f"tokenize: an encoding: {said}", "POST", "/tokenize", body, sent)
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
    yield Case("chunks", "POST", path, chunked, {**JSON, "Transfer-Encoding": "chunked"})
    for accepted in ("gzip", "gzip, deflate, br, zstd", "identity"):
        sent = {"Accept-Encoding": accepted}
        yield Case(f"accepts {accepted}", "GET", "/props", None, sent)
        yield post(f"chat: accepts {accepted}", path, chat).with_headers(sent)
        stream = {**chat, "stream": True}
        yield post(f"stream: accepts {accepted}", path, stream).with_headers(sent)
    for accept in ("text/event-stream", "text/html", "image/png"):
        yield Case(f"accepts {accept}", "GET", "/v1/models", None, {"Accept": accept})
    yield Case("a range", "GET", "/v1/models", None, {"Range": "bytes=0-9"})
    yield Case("an etag", "GET", "/v1/models", None, {"If-None-Match": '"a"'})
    yield Case("a key", "GET", "/props", None, {"Authorization": "Bearer any"})
    yield Case("HTTP/1.1 close", "GET", "/props", None, {"Connection": "close"})
    yield post("expects 100", path, chat).with_headers({"Expect": "100-continue"})
    yield Case("an upgrade", "GET", "/props", None, {"Connection": "Upgrade", "Upgrade": "h2c"})


def _json_of(method: str, path: str, body: object) -> Case:
    return Case(f"{method} {path}", method, path, json.dumps(body).encode(), JSON)


def bodies() -> Iterator[Case]:
    """What may be no JSON, to endpoints that slotgate does not read it for."""
    for path in ("/tokenize", "/apply-template", "/v1/embeddings"):
        for name, body in {**NO_JSON, **NO_OBJECT, "an empty object": b"{}"}.items():
            yield Case(f"{path}: {name}", "POST", path, body, JSON)
    talk = json.dumps({"messages": HELLO, **MAX, **GREEDY}).encode()
    path = "/v1/chat/completions"
    for name, body in {
        "a byte order mark": b"\xef\xbb\xbf" + talk,
        "NaN": talk.replace(b'"temperature": 0', b'"temperature": NaN'),
        "half a surrogate pair": talk.replace(b"hello", b"\\ud83d"),
        "an escaped NUL": talk.replace(b"hello", b"he\\u0000llo"),
        "a large number": talk.replace(b'"seed": 1', b'"seed": 123456789012345678901234567890'),
        "a name with a NUL": talk.replace(b'"seed"', b'"se\\u0000ed"'),
    }.items():
        yield Case(f"chat: {name}", "POST", path, body, JSON)
