"""
What the metrics say of forty requests is what the clients and the server saw of them.
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any, ClassVar

from gateway import CHAT, FakeGatewayCase, long_text
from scraping import Page
from twisted.web.client import ResponseFailed

from slotgate.testing.faults import Close, Refuse

MESSAGES = "/v1/messages"
OLLAMA = "/api/chat"
COMPLETION = "/completion"
SURFACES = {CHAT: "openai", MESSAGES: "anthropic", OLLAMA: "ollama", COMPLETION: "llama"}

CONFIG = """
    [gateway]
    listen = ["tcp:0:interface=127.0.0.1"]
    state_dir = "{state}"
    drain_seconds = 2
    [servers.local]
    url = "{url}"
    slot_save_path = "{slots}"
    [servers.away]
    url = "http://127.0.0.1:{nobody}"
    [[routes]]
    model = "tiny"
    server = "local"
    max_files = 2
    [[routes]]
    model = "bare"
    server = "local"
    cache = false
    [[routes]]
    model = "lost"
    server = "away"
    [[routes]]
    model = "*"
    server = "local"
"""


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def told(path: str, answer: dict[str, Any]) -> tuple[int, int]:
    """The tokens of a whole prompt and of its answer, as a client reads them."""
    if path == OLLAMA:
        return answer["prompt_eval_count"], answer["eval_count"]
    if path == COMPLETION:
        timings = answer["timings"]
        return timings["prompt_n"] + timings["cache_n"], timings["predicted_n"]
    usage = answer["usage"]
    if path == MESSAGES:
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        return prompt, usage["output_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


class TraceTests(FakeGatewayCase):
    """Forty requests, one after the other."""

    config = CONFIG
    options: ClassVar[dict[str, Any]] = {"context": 65536}

    def start_gateway(self, url: str, **values: object) -> Any:
        self.requests: Counter[tuple[str, str, str, str]] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.sent = 0
        self.talks: dict[tuple[str, str], str] = {}
        self.sizes: dict[str, int] = {}
        self.stored: set[tuple[str, int]] = set()
        self.sessions: set[str] = set()
        self.calls = self.written = self.restored = self.evicted = 0
        return super().start_gateway(url, nobody=free_port(), **values)

    def body(self, path: str, model: str, session: str) -> dict[str, Any]:
        """The next turn of a conversation."""
        text = self.talks.get((path, session)) or long_text(f"{session}x", 60)
        self.talks[path, session] = text = f"{text} and then some more"
        if path == COMPLETION:
            return {"model": model, "prompt": text, "n_predict": 8}
        messages = [{"role": "user", "content": text}]
        return {"model": model, "messages": messages, "max_tokens": 8, "stream": False}

    async def ask(
        self,
        path: str,
        model: str,
        session: str,
        *,
        headers: dict[str, str] | None = None,
        verdict: str = "",
        end: str = "complete",
        stream: bool = False,
    ) -> None:
        """
        Send one request, and count what comes of it.

        :param verdict: what it must be, where the answer does not say.
        """
        self.sent += 1
        body = {**self.body(path, model, session), "stream": stream}
        before = self.llama.tokens_read
        said = {"X-Session-ID": session, **(headers or {})}
        try:
            answer = await self.post(path, body, said)
        except ResponseFailed:
            self.assertEqual(end, "cut")
        else:
            verdict = answer.headers.get("x-slotgate-cache", verdict)
            self.assertEqual(answer.status == 200, end == "complete", answer.body)
            if end == "complete":
                self.count(model, path, answer.json, before)
        route = model if model in ("tiny", "bare", "lost") else "*"
        self.requests[route, SURFACES[path], verdict, end] += 1
        self.look_at_the_disk()

    def look_at_the_disk(self) -> None:
        """What the last request has restored, written, and pushed out."""
        calls = self.llama.control_calls
        for call in calls[self.calls :]:
            if call.action == "restore":
                self.restored += self.sizes[call.json()["filename"]]
        self.calls = len(calls)
        for file in self.slots.iterdir():
            status = file.stat()
            self.sizes[file.name] = status.st_size
            # a session that was evicted begins with the same name again
            if (file.name, status.st_mtime_ns) not in self.stored:
                self.stored.add((file.name, status.st_mtime_ns))
                self.written += status.st_size
        sessions = {file.name.rsplit(".", 2)[0] for file in self.slots.iterdir()}
        self.evicted += len(self.sessions - sessions)
        self.sessions = sessions

    def count(self, model: str, path: str, answer: dict[str, Any], before: int) -> None:
        """Count the tokens of an answer."""
        route = model if model in ("tiny", "bare") else "*"
        read = self.llama.tokens_read - before
        prompt, generated = told(path, answer)
        self.tokens[route, "read"] += read
        self.tokens[route, "reused"] += prompt - read
        self.tokens[route, "generated"] += generated

    async def trace(self) -> None:
        """The requests."""
        for _ in range(4):
            for session in ("ann", "bob", "cid"):
                await self.ask(CHAT, "tiny", session)
        for session in ("dan", "dan", "eve", "dan"):
            await self.ask(MESSAGES, "tiny", session)
        for session in ("fay", "fay", "gil", "fay"):
            await self.ask(OLLAMA, "tiny", session)
        for session in ("hal", "hal", "ida"):
            await self.ask(COMPLETION, "another", session)
        for _ in range(4):
            await self.ask(CHAT, "bare", "jon")
        for _ in range(3):
            await self.ask(CHAT, "tiny", "ann", headers={"X-OpenWebUI-Task": "title_generation"})
        self.llama.plan(Refuse(500), path=CHAT, times=3)
        for session in ("ann", "kim", "lee"):
            await self.ask(CHAT, "tiny", session, end="refused")
        self.llama.plan(Refuse(500), action="save")
        await self.ask(CHAT, "tiny", "moe")
        await self.ask(CHAT, "tiny", "ned")
        for session in ("pat", "quo"):
            self.llama.plan(Close(after=30), path=CHAT)
            await self.ask(CHAT, "tiny", session, verdict="cold", end="cut", stream=True)
        for _ in range(3):
            await self.ask(CHAT, "lost", "oto", verdict="cold", end="cut")

    async def page(self) -> Page:
        """The metrics, once all is counted: that is after the answer."""
        while True:
            page = Page.of((await self.get("/slotgate/metrics")).body.decode())
            if page.value("slotgate_request_duration_seconds_count") >= self.sent:
                return page
            await self.pause(0.01)

    async def test_forty_requests(self) -> None:
        await self.trace()
        self.assertEqual(self.sent, 40)
        page = await self.page()

        labels = ("route", "surface", "verdict", "end")
        self.assertEqual(page.values("slotgate_requests_total", labels), dict(self.requests))
        self.assert_verdicts_are_mixed()
        for kind, name in (
            ("read", "slotgate_prompt_tokens_read_total"),
            ("reused", "slotgate_prompt_tokens_reused_total"),
            ("generated", "slotgate_generated_tokens_total"),
        ):
            expected = {
                (route,): count
                for (route, counted), count in self.tokens.items()
                if counted == kind and count
            }
            self.assertEqual(page.values(name, ("route",)), expected, kind)
        self.assert_actions(page)
        self.assert_times(page)
        errors = page.values("slotgate_upstream_errors_total", ("server", "kind"))
        self.assertEqual(errors, {("away", "unreachable"): 3})
        reasons = page.values("slotgate_cache_misses_total", ("route", "reason"))
        self.assertEqual(reasons["bare", "route without cache"], 4)
        self.assertEqual(reasons["tiny", "side request"], 3)
        self.assertEqual(reasons["lost", "server away"], 3)

    def assert_verdicts_are_mixed(self) -> None:
        """The trace is worth something."""
        verdicts = {verdict for _, _, verdict, _ in self.requests}
        self.assertEqual(verdicts, {"resident", "restored", "cold", "bypass"})

    def assert_actions(self, page: Page) -> None:
        """Saves and restores as the server was asked for them, and bytes as they lie on disk."""
        calls = Counter(call.action for call in self.llama.control_calls)
        counted = page.values("slotgate_slot_actions_total", ("action",))
        self.assertEqual(counted, {(action,): number for action, number in calls.items()})
        self.assertEqual(
            page.values("slotgate_slot_actions_total", ("action", "result")).get(
                ("save", "refused")
            ),
            1,
        )
        timed = page.values("slotgate_slot_action_seconds_count", ("action",))
        self.assertEqual(timed, counted)
        self.assertEqual(
            page.value("slotgate_slot_action_bytes_total", action="save", server="local"),
            self.written,
        )
        self.assertEqual(
            page.value("slotgate_slot_action_bytes_total", action="restore", server="local"),
            self.restored,
        )
        kept = len(list(self.slots.iterdir()))
        self.assertEqual(page.value("slotgate_snapshots", server="local"), kept)
        sizes = sum(file.stat().st_size for file in self.slots.iterdir())
        self.assertEqual(page.value("slotgate_snapshots_bytes", server="local"), sizes)
        self.assertEqual(
            page.value("slotgate_snapshots_dropped_total", reason="evicted"), self.evicted
        )
        self.assertTrue(self.evicted and self.restored)

    def assert_times(self, page: Page) -> None:
        """Every request has its times; those answered a first byte."""
        for name in ("wait", "switch", "duration"):
            self.assertEqual(page.value(f"slotgate_request_{name}_seconds_count"), 40)
        self.assertEqual(page.value("slotgate_request_first_byte_seconds_count"), 37)
