"""
Nothing secret is in the log: no key, no header but the session's id, no query, no prompt, no
answer, whatever goes wrong, at level debug and in both formats.

Everything secret here has ``SECRET`` in it; what may be logged has not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gateway import CHAT, CLOCK, Answer
from processes import BIN, ProcessCase

from slotgate.testing import faults
from slotgate.testing.fake import FakeLlamaServer, Speed

SECRET = "zqcanary"
SESSION = "the-session-of-this-test"
KEY, ADMIN, SERVER_KEY = (f"{SECRET}-{name}-key" for name in ("client", "admin", "server"))
LONG = f"{SECRET}-prompt " * 60
BASE64 = f"data:image/png;base64,{SECRET}"
MORE = f"""
    [[clients]]
    name = "webui"
    key = "{KEY}"
    [[clients]]
    name = "admin"
    key = "{ADMIN}"
    admin = true
    [logging]
    level = "debug"
"""


def parts(text: str) -> Iterator[Any]:
    """A text in the shapes that a message's content has."""
    yield text
    yield [{"type": "text", "text": text}]
    yield [{"type": "image_url", "image_url": {"url": BASE64}}, {"type": "text", "text": text}]
    yield {"unheard": text}
    yield [text, 7, None]


class LogSecretsTests(ProcessCase):
    """A gateway that meets everything, and what it logged of it."""

    timeout = 90

    async def start(self, log_format: str) -> None:
        # the fake stumbles over some of what it is sent
        self.addCleanup(self.flushLoggedErrors)
        self.llama = FakeLlamaServer(
            *(CLOCK, self.slots),
            api_key=SERVER_KEY,
            says=f"{SECRET}-answer and some more",
            context=16384,
        )
        self.addCleanup(self.llama.stop)
        await self.llama.listen(CLOCK)
        file = self.write_config(self.llama.url, server=f'api_key = "{SERVER_KEY}"', more=MORE)
        limits = "drain_seconds = 1\nmax_body_mib = 0.125"
        file.write_text(file.read_text().replace("drain_seconds = 5", limits))
        self.program = await self.serving(
            *(BIN / "twistd", "-n", "slotgate", "--config", file, "--log-format", log_format)
        )

    async def test_text(self) -> None:
        await self.start("text")
        await self.everything()

    async def test_json(self) -> None:
        await self.start("json")
        await self.everything()
        for line in self.program.output.splitlines():
            json.loads(line)

    async def everything(self) -> None:
        for scene in (
            self.prompts_and_answers_on_every_surface,
            self.switches_saves_and_deletes,
            self.keys_headers_and_queries_that_are_refused,
            self.bodies_that_are_not_what_they_should_be,
            self.requests_that_are_no_http_or_too_large,
            self.a_server_that_fails_and_repeats_what_it_was_sent,
            self.control_calls_that_are_answered_with_junk,
            self.a_client_that_leaves_and_a_server_that_dies,
        ):
            before = len(self.program.output)
            words = await scene()
            self.assertRegex(self.program.output[before:], words, "it would show nothing")
            leaks = [line for line in self.program.printed.splitlines() if SECRET in line.lower()]
            self.assertFalse(leaks, f"{scene.__name__}: " + "\n".join(leaks))
        self.program.send("TERM")
        await self.program.gone
        self.assertNotIn(SECRET, self.program.printed.lower())
        self.assertNotIn("Traceback", self.program.printed)

    def headers(self, session: str = SESSION, key: str = KEY) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {key}",
            "X-Session-ID": session,
            "Cookie": f"token={SECRET}-cookie",
            "User-Agent": f"{SECRET}-agent",
            "Referer": f"http://localhost/{SECRET}-referer",
            "X-Forwarded-For": f"{SECRET}-forwarded",
            "X-Custom": f"{SECRET}-custom",
            "Content-Type": "application/json",
        }

    async def send(self, path: str, body: object, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, {**self.headers(), **headers}, data)

    async def raw(self, data: bytes) -> None:
        """Bytes on a connection of their own, which the gateway closes."""
        caller = await self.connect()
        caller.write(data)
        await caller.gone

    async def prompts_and_answers_on_every_surface(self) -> str:
        for content in parts(LONG):
            messages = [
                {"role": "system", "content": f"{SECRET}-system {LONG}"},
                {"role": "user", "content": content},
            ]
            tools = [{"type": "function", "function": {"name": f"{SECRET}-tool"}}]
            for path, body in (
                (CHAT, {"messages": messages, "tools": tools, "max_tokens": 2}),
                (CHAT, {"messages": messages, "max_tokens": 2, "stream": True}),
                ("/v1/completions", {"prompt": content, "max_tokens": 2}),
                ("/v1/responses", {"input": messages, "max_output_tokens": 2}),
                ("/v1/messages", {"messages": messages[1:], "system": LONG, "max_tokens": 2}),
                ("/api/chat", {"model": "tiny", "messages": messages, "tools": tools}),
                ("/api/generate", {"model": "tiny", "prompt": content, "system": LONG}),
                ("/v1/embeddings", {"input": content}),
                ("/tokenize", {"content": content}),
                ("/apply-template", {"messages": messages}),
            ):
                await self.send(path, body)
        return SESSION

    async def switches_saves_and_deletes(self) -> str:
        for session in (SESSION, "another", SESSION, "a-third", "another"):
            said = [{"role": "user", "content": f"{LONG} {session}"}]
            answer = await self.send(
                CHAT, {"messages": said, "max_tokens": 2}, **{"X-Session-ID": session}
            )
            self.assertEqual(answer.status, 200)
        for method, path in (
            ("GET", f"/api/sessions?key={SECRET}-query"),
            ("POST", f"/api/sessions/another/save?route=*&x={SECRET}-query"),
            ("POST", "/api/sessions/another/save"),
            ("DELETE", f"/api/sessions/another?token={SECRET}-query"),
            ("DELETE", "/api/sessions/another"),
            ("POST", "/api/sessions/clear"),
            ("POST", f"/slots/0?action=erase&key={SECRET}-query"),
            ("POST", f"/slots/0?action={SECRET}-query"),
        ):
            await self.request(method, path, self.headers(key=ADMIN), b"{}")
        return "restore"

    async def keys_headers_and_queries_that_are_refused(self) -> str:
        for key in (f"{SECRET}-nobodys", ADMIN + "x", ""):
            for path in (CHAT, "/v1/messages", "/api/chat", "/api/sessions", "/v1/models"):
                await self.request("POST", path, self.headers(key=key), b"{}")
        for name, value in (
            ("X-Api-Key", f"{SECRET}-nobodys"),
            # these two are named in the log: an operator must know what to allow
            ("Origin", "http://page.example"),
            ("Host", "host.example"),
            ("X-Session-ID", f"{SECRET}-" + "x" * 5000),
            ("Content-Encoding", SECRET),
            ("Content-Type", f"{SECRET}/x"),
            ("Accept", f"{SECRET}/x"),
            ("Expect", SECRET),
        ):
            said = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2}
            await self.request(
                "POST", CHAT, {**self.headers(), name: value}, json.dumps(said).encode()
            )
        for path in ("/v1/models", "/props", "/nothing", "/", "/slots", "/metrics"):
            await self.request("GET", f"{path}?api_key={SECRET}-query", self.headers())
        await self.request("OPTIONS", f"{CHAT}?{SECRET}", {**self.headers(), "Origin": "null"})
        return "refused"

    async def bodies_that_are_not_what_they_should_be(self) -> str:
        deep = b'{"a":' * 5000 + f'"{SECRET}"'.encode() + b"}" * 5000
        for body in (
            f'{{"messages": [{{"content": "{SECRET}'.encode(),
            f'"{SECRET}"'.encode(),
            f'["{SECRET}"]'.encode(),
            b'{"' + SECRET.encode() + b'\xff\xfe": 1}',
            b'\xff\xfe{"' + SECRET.encode(),
            json.dumps(
                {"messages": SECRET, "prompt": {"x": SECRET}, "max_tokens": SECRET}
            ).encode(),
            json.dumps({"messages": [SECRET, {"role": SECRET, "content": 5}]}).encode(),
            json.dumps({"messages": [{"role": "user", "content": "\ud800" + SECRET}]}).encode(),
            json.dumps({"stream": SECRET, "tools": SECRET, "system": [SECRET]}).encode(),
            f'{{"n": {"9" * 5000}, "prompt": "{SECRET}"}}'.encode(),
            f'{{"model": {{"{SECRET}": 1}}, "messages": [], "format": "{SECRET}"}}'.encode(),
            deep,
        ):
            for path in (
                *(CHAT, "/v1/completions", "/v1/messages", "/v1/responses"),
                *("/api/chat", "/api/generate", "/api/show", "/api/embed", "/tokenize"),
            ):
                await self.send(path, body)
        return "refused"

    async def requests_that_are_no_http_or_too_large(self) -> str:
        head = (
            f"POST {CHAT}?k={SECRET} HTTP/1.1\r\nHost: localhost\r\nCookie: {SECRET}\r\n".encode()
        )
        key = f"Authorization: Bearer {KEY}\r\n".encode()
        large = (SECRET.encode() + b" ") * 20_000
        for data in (
            SECRET.encode() + b"\r\n\r\n",
            f"GET /{SECRET}?{SECRET} HTTP/9.9 {SECRET}\r\n\r\n".encode(),
            head + SECRET.encode() + b"\r\n\r\n",
            head + f"X-{SECRET}: a\0b\r\n\r\n".encode(),
            head + f"Content-Length: {SECRET}\r\n\r\n".encode(),
            head + f"Transfer-Encoding: {SECRET}\r\n\r\n".encode(),
            head + b"Transfer-Encoding: chunked\r\n\r\n" + SECRET.encode() + b"\r\n",
            head + b"X-Long: " + large + b"\r\n\r\n",
            head + key + b"Content-Length: %d\r\n\r\n" % len(large) + large,
            head + key + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(large) + large,
        ):
            await self.raw(data)
        return "refused a request body"

    async def a_server_that_fails_and_repeats_what_it_was_sent(self) -> str:
        echo = f"failed on: {SECRET} {LONG}"
        event = f'data: {{"error": {{"message": "{SECRET}", "code": 500}}}}\n\n'.encode()
        said = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2}
        for path, asked in ((CHAT, CHAT), ("/v1/messages", "/v1/messages"), ("/api/chat", CHAT)):
            for fault in (
                faults.Refuse(400, echo),
                faults.Refuse(500, echo),
                faults.Answer(500, f"<html>{SECRET}".encode(), "text/html"),
                faults.Answer(200, f"{{{SECRET}".encode()),
                faults.Answer(200, event, "text/event-stream"),
                faults.NotHttp(f"{SECRET} is not HTTP\r\n\r\n".encode()),
                faults.Close(after=20),
                faults.Abort(),
                faults.Abort(after=20),
            ):
                self.llama.plan(fault, path=asked, times=2)
                await self.fails(path, {**said, "model": "tiny"})
                await self.fails(path, {**said, "model": "tiny", "stream": True})
        return "ended|cut|50[02]"

    async def fails(self, path: str, body: object) -> None:
        """A request that may also lose its connection."""
        caller = await self.connect()
        caller.post(path, body, {**self.headers(), "Connection": "close"})
        await caller.gone

    async def control_calls_that_are_answered_with_junk(self) -> str:
        # older builds tell the prompt here, after the numbers
        slot = '[{"id": 0, "id_task": 5, "n_ctx": 16384, "is_processing": false, "prompt": '
        said = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2}
        for rest in (f'"{LONG}', f'"{LONG}"}}]', f'["{SECRET}"], "n_past": "x"}}]'):
            body = (slot + rest).encode()
            for path in ("/slots", "/props", "/v1/models", "/slots/0"):
                self.llama.plan(faults.Answer(200, body), path=path, times=2)
                for session in (SESSION, "another"):
                    await self.send(CHAT, said, **{"X-Session-ID": session})
        return "slot 0.*\n"

    async def a_client_that_leaves_and_a_server_that_dies(self) -> str:
        self.llama.speed = Speed(generation=20)
        caller = await self.connect()
        said = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 50, "stream": True}
        caller.post(CHAT, said, self.headers())
        await caller.heard(b"data: ")
        await caller.leave()
        again = await self.connect()
        again.post(CHAT, said, self.headers("another"))
        await again.heard(b"data: ")
        self.llama.die()
        await again.gone
        await self.send(CHAT, said)
        await self.request("GET", f"/props?{SECRET}", self.headers())
        return "50[0-9]"
