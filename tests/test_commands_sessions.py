"""``slotgate sessions``: against a gateway, and against what is none."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from gateway import CHAT, CLOCK, FakeGatewayCase, GatewayCase
from twisted.internet.protocol import Factory, Protocol
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from slotgate.commands.client import GatewayClient
from slotgate.commands.failed import CommandFailed
from slotgate.commands.sessions import Wanted, carried_out, main
from slotgate.commands.target import KEY_VARIABLE, Target

NOW = 1_800_000_000.0
#: Ids that a careless client would make another path or another query of.
IDS = ("a/b", "..", ".", "../..", "a?b#c", "100%", "%2F", "Grüße 世界", "a b", "current", "clear",
       "x/save", "save", "+&=", "//", "a/../b", "-x")  # fmt: skip


class Commands:
    """The command without its process."""

    base: str

    def client(self, key: str | None = None, timeout: float = 10) -> GatewayClient:
        return GatewayClient(Target(self.base, key), timeout, CLOCK)

    async def command(self, action: str, session: str = "", **more: Any) -> str:
        """What the command prints."""
        key, width = more.pop("key", None), more.pop("width", None)
        return await carried_out(self.client(key), Wanted(action, session, **more), NOW, width)

    async def data(self, action: str, session: str = "", **more: Any) -> Any:
        return json.loads(await self.command(action, session, as_json=True, **more))

    async def failure(self, action: str, session: str = "", **more: Any) -> str:
        """The one line that it fails with."""
        with pytest.raises(CommandFailed) as failed:
            await self.command(action, session, **more)
        said = str(failed.value)
        assert said.isprintable()
        return said


class SessionsTests(Commands, FakeGatewayCase):
    """Against a gateway in front of a fake llama-server."""

    async def ask(self, session: str, key: str = "") -> None:
        said = {"messages": [{"role": "user", "content": f"{session} " + "word " * 100}]}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = await self.post(CHAT, {**said, "max_tokens": 2, "chat_id": session}, headers)
        self.assertEqual(answer.status, 200)

    async def test_list_is_a_table(self) -> None:
        await self.ask("old")
        await self.ask("new")
        heading, first, second, _, total = (await self.command("list")).splitlines()
        self.assertEqual(
            heading.split(), ["SESSION", "ROUTE", "STATE", "TOKENS", "SIZE", "LAST", "USED"]
        )
        self.assertRegex(first, r"^new +\* +in a slot, not saved +\d+ +- ")
        self.assertRegex(second, r"^old +\* +on disk +\d+ +\d+\.\d KiB ")
        self.assertRegex(total, r"^2 sessions, \d+\.\d KiB on disk$")

    async def test_nothing_to_list(self) -> None:
        self.assertEqual(await self.command("list"), "no sessions\n")

    async def test_each_id_is_the_one_that_is_meant(self) -> None:
        for session in IDS:
            await self.ask(session)
        await self.ask("last")
        listed = {row["id"] for row in (await self.data("list"))["sessions"]}
        self.assertEqual(listed, {*IDS, "last"})
        for number, session in enumerate(IDS):
            shown = await self.data("show", session)
            self.assertEqual([row["session"]["id"] for row in shown["sessions"]], [session])
            self.assertIn("is not in a slot", await self.failure("save", session))
            deleted = await self.data("delete", session)
            self.assertEqual([row["id"] for row in deleted["deleted"]], [session])
            left = {row["id"] for row in (await self.data("list"))["sessions"]}
            self.assertEqual(left, {*IDS[number + 1 :], "last"})

    async def test_all_pages_are_followed(self) -> None:
        for number in range(7):
            await self.ask(f"s{number}")
        with patch("slotgate.commands.sessions._PAGE", 3):
            listed = await self.data("list")
        self.assertEqual(len(listed["sessions"]), 7)
        self.assertEqual(listed["total"], 7)

    async def test_save_clear_and_delete_say_what_they_did(self) -> None:
        await self.ask("s")
        self.assertEqual(await self.command("save", "s"), "saved s (route *)\n")
        self.assertRegex(
            await self.command("clear"),
            r"^cleared slot 0 of local: \d+ tokens of session s, saved\n$",
        )
        self.assertEqual(await self.command("delete", "s"), "deleted s (route *)\n")

    async def test_what_is_not_there(self) -> None:
        self.assertEqual(await self.failure("delete", "x\x1b"), "no session 'x\\x1b' (404)")
        self.assertEqual(await self.failure("show", "x\x1b"), "no session x\\x1b")
        self.assertIn("no session", await self.failure("delete", "x", route="other"))

    async def test_a_session_of_which_nothing_is_kept_is_explained(self) -> None:
        # too short to be saved, and out of the slot since
        said = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        await self.post(CHAT, {**said, "chat_id": "short"})
        await self.ask("other")
        listed = {row["id"] for row in (await self.data("list"))["sessions"]}
        self.assertEqual(listed, {"other"})
        printed = await self.command("show", "short")
        self.assertRegex(printed, r"(?m)^state +nothing of it is kept$")
        self.assertIn("the session's first prompt", printed)
        self.assertRegex(printed, r"(?m)^the cache: ")
        await self.command("show", "short", route="*")
        self.assertEqual(
            await self.failure("show", "short", route="x"), "no session short on route x"
        )

    async def test_a_route_limits_it(self) -> None:
        await self.ask("s")
        self.assertIn("(404)", await self.failure("save", "s", route="other"))
        self.assertEqual(await self.command("save", "s", route="*"), "saved s (route *)\n")


class KeysTests(Commands, FakeGatewayCase):
    """Where the gateway asks for keys."""

    config = FakeGatewayCase.config + (
        '[[clients]]\nname = "webui"\nkey = "webui-key"\n'
        '[[clients]]\nname = "me"\nkey = "my-key"\nadmin = true\n'
    )

    async def test_an_admin_sees_whose_they_are(self) -> None:
        said = {"messages": [{"role": "user", "content": "word " * 100}], "max_tokens": 2}
        headers = {"Authorization": "Bearer webui-key", "X-Session-ID": "s"}
        await self.post(CHAT, said, headers)
        heading, row, *_ = (await self.command("list", key="my-key")).splitlines()
        self.assertIn("CLIENT", heading)
        self.assertRegex(row, r"^s +webui +\*")
        self.assertEqual(
            await self.command("delete", "s", key="my-key"), "deleted s of webui (route *)\n"
        )

    async def test_without_a_key_it_says_how_to_give_one(self) -> None:
        said = await self.failure("list")
        for way in (KEY_VARIABLE, "--key-env", "--config"):
            self.assertIn(way, said)

    async def test_a_wrong_key_is_not_repeated(self) -> None:
        said = await self.failure("list", key="wrong-secret")
        self.assertIn("is nobody's there", said)
        self.assertNotIn("secret", said)


class Stub(Resource):
    """A server that answers what it is told to."""

    isLeaf = True

    def __init__(self, answer: Callable[[Request], Any], name: bytes = b"slotgate") -> None:
        super().__init__()
        self._answer, self._name = answer, name

    def render(self, request: Any) -> Any:
        request.setHeader(b"Server", self._name)
        result = self._answer(request)
        return result if isinstance(result, (int, bytes)) else json.dumps(result).encode()


class Silent(Protocol):
    """Says what is not HTTP, and closes."""

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.write(b"SSH-2.0-x\r\n\r\n")
        transport.loseConnection()


class StrangersTests(Commands, GatewayCase):
    """Against what is no gateway, or one that answers strangely."""

    def listen(self, factory: Any) -> None:
        port = CLOCK.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.base = f"http://127.0.0.1:{port.getHost().port}"

    def answering(self, answer: Callable[[Request], Any], name: bytes = b"slotgate") -> None:
        self.listen(Site(Stub(answer, name)))

    async def test_nobody_listens(self) -> None:
        port = CLOCK.listenTCP(0, Factory.forProtocol(Silent), interface="127.0.0.1")
        self.base = f"http://127.0.0.1:{port.getHost().port}"
        await port.stopListening()
        self.assertIn(f"nothing listens at {self.base}", await self.failure("list"))

    async def test_another_server(self) -> None:
        self.answering(lambda _: {"sessions": [], "total": 0}, b"llama.cpp")
        self.assertEqual(await self.failure("list"), f"{self.base} answers, but it is not slotgate")
        self.answering(lambda _: b"<html>")
        self.assertIn("it is not slotgate", await self.failure("list"))
        self.listen(Factory.forProtocol(Silent))
        self.assertIn("does not speak HTTP with us", await self.failure("list"))

    async def test_a_redirect_is_not_followed_with_the_key(self) -> None:
        asked: list[bytes] = []

        def redirect(request: Request) -> bytes:
            asked.append(request.uri)
            request.redirect(b"/elsewhere")
            return b""

        self.answering(redirect)
        self.assertIn("it is not slotgate", await self.failure("list", key="k"))
        self.assertEqual(asked, [b"/api/sessions?limit=1000&offset=0"])

    async def test_no_answer_in_time(self) -> None:
        self.answering(lambda _: NOT_DONE_YET)
        with pytest.raises(CommandFailed, match=r"does not answer within 0\.2 s"):
            await carried_out(self.client(timeout=0.2), Wanted("list"), NOW, None)

    async def test_what_it_says_is_one_printable_line(self) -> None:
        def conflict(request: Request) -> Any:
            request.setResponseCode(409)
            return {"error": {"message": "no\n\x1b[2J" + "x" * 5000}}

        self.answering(conflict)
        said = await self.failure("save", "s")
        self.assertTrue(said.startswith("no\\n\\x1b[2Jxxx"))
        self.assertTrue(said.endswith("… (409)"))
        self.assertLess(len(said), 400)

    async def test_no_id_writes_to_the_terminal(self) -> None:
        row = {"id": "a\x1b[2J\x07b\u202e\n", "route": "r\r", "client": "c\x9b", "model": "m\x7f"}
        rows = {name: [row] for name in ("sessions", "deleted", "saved")}
        cleared = [{"server": "s\n", "slot": 0, "tokens": 1, "session": row}]
        self.answering(lambda _: {**rows, "total": 1, "cleared": cleared, "prompts": [row]})
        for action in ("list", "show", "save", "delete", "clear"):
            printed = await self.command(action, "" if action in ("list", "clear") else row["id"])
            self.assertIn("a\\x1b[2J\\x07b\\u202e\\n", printed)
            self.assertTrue(all(line.isprintable() for line in printed.split("\n")), printed)

    async def test_show_compares_the_two_last_prompts(self) -> None:
        prompt = {
            "route": "big*",
            "sentence": "prompt differs at message 2",
            "change": "middle",
            "messages": [
                {"number": 1, "old_number": 1, "role": "system", "status": "same",
                 "read_again": False, "characters": 1200, "same_characters": 1200},
                {"number": 2, "old_number": None, "role": "us\x1ber", "status": "changed",
                 "read_again": True, "characters": 40},
            ],
            "verdict": "restored",
            "tokens": {"reused": 300, "at_most": 310, "unknown": None},
        }  # fmt: skip
        session = {"id": "s/1", "route": "big*", "resident": False, "tokens": 5}

        def answer(request: Request) -> Any:
            asked.append(request.uri)
            if request.path == b"/api/sessions":
                return {"sessions": [session, {"id": "other"}], "total": 2, "bytes": 0}
            return {"prompts": [prompt]}

        asked: list[bytes] = []
        self.answering(answer)
        lines = (await self.command("show", "s/1")).splitlines()
        self.assertEqual(asked[1], b"/api/sessions/s%2F1/prompt")
        self.assertEqual(lines[0].split(), ["session", "s/1"])
        self.assertIn("prompt differs at message 2", lines)
        self.assertIn("tokens: reused 300, at most 310", lines)
        self.assertIn("the cache: restored", lines)
        self.assertRegex(lines[-2], r"^ 1 +1 +system +same +1,200 +1,200$")
        self.assertRegex(lines[-1], r"^ 2 +- +us\\x1ber +changed, read again +40 +-$")
        shown = await self.data("show", "s/1")
        self.assertEqual(shown, {"sessions": [{"session": session, "prompt": prompt}]})

    async def test_show_tells_sessions_of_one_id_apart(self) -> None:
        whose = [("me", "a"), ("me", "b"), ("you", "a")]

        def answer(request: Request) -> Any:
            named = [{"id": "s", "client": client, "route": route} for client, route in whose]
            if request.path == b"/api/sessions":
                return {"sessions": [{**one, "saved": True} for one in named[:2]], "total": 2}
            # of the first only, and of one that is not kept
            return {"prompts": [{**one, "sentence": f"{one['client']} {one['route']}"}
                                for one in (named[2], named[0])]}  # fmt: skip

        self.answering(answer)
        shown = (await self.data("show", "s"))["sessions"]
        told = [(one["session"]["client"], one["session"]["route"], one["session"]["saved"],
                 one["prompt"] and one["prompt"]["sentence"]) for one in shown]  # fmt: skip
        self.assertEqual(told, [("me", "a", True, "me a"), ("me", "b", True, None),
                                ("you", "a", False, "you a")])  # fmt: skip

    async def test_show_without_remembered_prompts(self) -> None:
        def answer(request: Request) -> Any:
            if request.path == b"/api/sessions":
                return {"sessions": [{"id": "s", "route": "*"}], "total": 1}
            request.setResponseCode(404)
            return {"error": {"message": "none"}}

        self.answering(answer)
        last = (await self.command("show", "s")).splitlines()[-1]
        self.assertEqual(last, "no two prompts of it are remembered to compare")


class Terminal(io.StringIO):
    """What is typed at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["delete"], "delete needs a session's id"),
        (["show"], "show needs a session's id"),
        (["list", "x"], "list takes no id"),
        (["clear", "x"], "clear takes no id"),
        (["list", "--route", "x"], "list takes no --route"),
        (["remove", "x"], "invalid choice"),
        (["list", "--timeout", "0"], "invalid"),
        (["list", "--key", "k"], "--key"),
    ],
)
def test_usage(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would be run in a reactor."""
    calls: list[object] = []

    def run(work: object) -> int:
        calls.append(work)
        return 0

    monkeypatch.setattr("slotgate.commands.sessions.run", run)
    return calls


@pytest.mark.parametrize("argv", [["delete", "x"], ["clear"]])
def test_nothing_is_destroyed_without_being_asked(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = runs(monkeypatch)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(argv) == 1
    assert capsys.readouterr().err == f"slotgate: {argv[0]} is not done unasked: add --yes\n"
    for typed, done in (("n\n", False), ("", False), ("\n", False), ("y\n", True), ("YES\n", True)):
        calls.clear()
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        assert main(argv) == (0 if done else 1)
        assert bool(calls) == done
        captured = capsys.readouterr()
        assert captured.err.endswith("[y/N] ")
        assert not captured.out
    calls.clear()
    assert main([*argv, "--yes"]) == 0
    assert calls


def test_options_may_stand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = runs(monkeypatch)
    for argv in (
        ["--json"],
        ["show", "--json", "x"],
        ["--json", "show", "x"],
        ["show", "--", "-x"],
    ):
        assert main(argv) == 0
    assert len(calls) == 4
