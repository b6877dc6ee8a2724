"""Real processes: what an operator starts, signals and kills."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from typing import Any, cast

from gateway import CHAT, CLOCK, Answer, Caller, long_text, now
from processes import BIN, LISTENS, ProcessCase, Program, end_daemon, resident_bytes
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IPullProducer, ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from zope.interface import implementer

from slotgate.config import load_config
from slotgate.service import make_service

TWISTD, SLOTGATE, PYTHON = BIN / "twistd", BIN / "slotgate", sys.executable
FILE = ("--config", "slotgate.toml")
MIB = 2**20


class Upstream(Protocol):
    """A server that says what it is told to, byte by byte, and then closes."""

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

    def dataReceived(self, data: bytes) -> None:
        if data.endswith((b"\r\n\r\n", b"}")):
            transport = cast(ITCPTransport, self.transport)
            transport.write(self.answer)
            transport.loseConnection()


class CommandTests(ProcessCase):
    """The ways to start a gateway, and to be told why it does not start."""

    def listen(self, protocol: type[Protocol] = Upstream) -> int:
        """Listen in this process; the port."""
        port = CLOCK.listenTCP(0, Factory.forProtocol(protocol), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    async def serves(self, *command: object) -> Program:
        """The command serves in the foreground, and ends with SIGTERM."""
        self.write_config(f"http://127.0.0.1:{self.listen()}")
        program = await self.serving(*command)
        answer = await self.get("/v1/models")
        self.assertEqual((answer.status, answer.body), (200, b"ok"))
        return program

    async def test_twistd(self) -> None:
        program = await self.serves(TWISTD, "-n", "slotgate", *FILE)
        self.assertEqual((self.folder / "twistd.pid").read_text(), str(program.pid))
        program.send("TERM")
        self.assertEqual(await program.exited, -15)
        self.assertFalse((self.folder / "twistd.pid").exists())

    async def test_slotgate_run_leaves_no_pid_file(self) -> None:
        program = await self.serves(SLOTGATE, "run", *FILE)
        there = {path.name for path in self.folder.iterdir()}
        self.assertEqual(there, {"slotgate.toml", "state", "slots"})
        program.send("INT")
        await program.exited

    async def test_python_m(self) -> None:
        await self.serves(PYTHON, "-m", "slotgate.cli", "run", *FILE)

    async def test_with_another_reactor(self) -> None:
        program = await self.serves(TWISTD, "-n", "--reactor=asyncio", "slotgate", *FILE)
        self.assertIn("reactor class: twisted.internet.asyncioreactor.", program.output)

    async def test_check_says_what_it_understood(self) -> None:
        self.write_config("http://127.0.0.1:9", more='[[clients]]\nname = "webui"\nkey = "hidden1"')
        status, program = await self.ended(SLOTGATE, "check", *FILE)
        self.assertEqual((status, program.errors), (0, ""))
        self.assertRegex(program.output, r'(?m)^route 0: "\*" to server local; slot 0')
        self.assertRegex(program.output, "(?m)^client webui$")
        self.assertNotIn("hidden1", program.output)
        self.assertFalse((self.folder / "state").exists(), "a check starts nothing")

    async def test_check_without_a_file_says_the_defaults(self) -> None:
        status, program = await self.ended(SLOTGATE, "check")
        self.assertEqual(status, 0)
        self.assertIn("listen: tcp:11434:interface=127.0.0.1\n", program.output)
        self.assertIn(f"state: {self.folder / 'xdg' / 'slotgate'}\n", program.output)
        self.assertIn("server local: http://127.0.0.1:8080;", program.output)

    async def test_each_mistake_is_one_line_and_nothing_is_started(self) -> None:
        self.write_config(more='[gatway]\n[identity]\nsystem_prompt = "yes"')
        for command in (
            (SLOTGATE, "check"),
            (SLOTGATE, "run"),
            (TWISTD, "-n", "slotgate"),
            (TWISTD, "slotgate"),
        ):
            status, program = await self.ended(*command, *FILE)
            self.assertEqual(status, 1, command)
            self.assertEqual(program.output, "")
            first, second = sorted(program.errors.splitlines())
            self.assertIn("gatway", first + second)
            self.assertIn("identity.system_prompt", first + second)
        there = {path.name for path in self.folder.iterdir()}
        self.assertEqual(there, {"slotgate.toml", "slots"})

    async def test_an_address_in_use_ends_the_process_and_is_named(self) -> None:
        port = self.listen()
        self.write_config(port=port)
        status, program = await self.ended(TWISTD, "-n", "slotgate", *FILE)
        self.assertEqual(status, 1)
        self.assertRegex(program.printed.splitlines()[-1], rf"127\.0\.0\.1:{port}: .*in use")
        self.assertFalse((self.folder / "twistd.pid").exists())

    async def test_an_address_in_use_also_ends_a_daemon(self) -> None:
        port = self.listen()
        self.write_config(port=port)
        status, program = await self.ended(TWISTD, "slotgate", *FILE)
        self.assertEqual(status, 1)
        self.assertRegex(program.errors.splitlines()[0], rf"127\.0\.0\.1:{port}: ")
        log = (self.folder / "twistd.log").read_text()
        self.assertRegex(log.splitlines()[-1], rf"127\.0\.0\.1:{port}: .*in use")
        self.assertFalse((self.folder / "twistd.pid").exists())

    async def test_an_address_that_can_not_be_had_is_named(self) -> None:
        file = self.write_config()
        text = file.read_text().replace('"]', '", "unix:nowhere/socket"]', 1)
        file.write_text(text)
        status, program = await self.ended(TWISTD, "-n", "slotgate", *FILE)
        self.assertEqual(status, 1)
        self.assertIn("unix:nowhere/socket: ", program.printed.splitlines()[-1])

    async def test_one_state_folder_serves_one_gateway(self) -> None:
        self.write_config()
        await self.start_twistd()
        for options in (["-n"], []):
            status, second = await self.ended(TWISTD, *options, "--pidfile=", "slotgate", *FILE)
            self.assertEqual((status, second.output), (1, ""))
            line = f"state_dir {self.folder / 'state'}: another slotgate uses it\n"
            self.assertEqual(second.errors, line)

    async def test_a_state_folder_that_can_not_be_used_is_one_line(self) -> None:
        self.write_config()
        (self.folder / "state").mkdir()
        (self.folder / "state" / "index.sqlite").write_bytes(b"no database, but long enough" * 99)
        status, program = await self.ended(TWISTD, "-n", "slotgate", *FILE)
        self.assertEqual((status, program.output), (1, ""))
        line = f"{self.folder / 'state' / 'index.sqlite'}: file is not a database\n"
        self.assertEqual(program.errors, line)


class StopTests(ProcessCase):
    """Nothing is lost when a gateway ends, with the real llama-server."""

    timeout = 60  # up to six starts of a process

    async def two_turns(self) -> None:
        """A is saved, B is in the slot and on no disk."""
        self.a, self.b = self.chat("A"), self.chat("B")
        self.assertEqual([(await chat.turn()).cache for chat in (self.a, self.b)], ["cold"] * 2)

    async def stream(self) -> Caller:
        """B's next turn, in mid-stream."""
        caller = await self.connect()
        messages = [*self.b.messages, {"role": "user", "content": "Go on"}]
        body = {"messages": messages, "max_tokens": 400, "ignore_eos": True, "stream": True}
        caller.post(CHAT, body, {"X-Session-ID": "B"})
        await caller.heard(b"delta")
        return caller

    async def comes_back(self, *sessions: str) -> None:
        """These sessions have their caches, whatever ended since."""
        for name in sessions:
            answer = await (self.a if name == "A" else self.b).turn()
            self.assertEqual(answer.cache, "restored", name)
            self.assertLess(answer.share_read, 0.1, name)

    async def stop_in_mid_stream(self, signal: str, status: int) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        stream = await self.stream()
        began = now()
        gateway.send(signal)  # type: ignore[arg-type]
        await stream.gone
        self.assertEqual(await gateway.exited, status)
        self.assertLess(now() - began, 10)
        self.assertIn(b"data: [DONE]", stream.received[-40:])
        _, _, afterwards = gateway.output.partition("Received SIG")
        self.assertIn("B (header:x-session-id) on *: resident, complete", afterwards)
        self.assertEqual(len(list(self.slots.iterdir())), 2)
        await llama.restart()
        await self.start_twistd()
        await self.comes_back("B", "A")

    async def test_sigterm_lets_a_stream_end_and_saves_the_slot(self) -> None:
        await self.stop_in_mid_stream("TERM", -15)

    async def test_sigint_too(self) -> None:
        await self.stop_in_mid_stream("INT", -2)

    async def test_who_waits_for_the_slot_is_told_that_the_gateway_stops(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        stream = await self.stream()
        waiting = await self.connect()
        waiting.post(CHAT, {"messages": self.a.messages, "max_tokens": 4000, "ignore_eos": True})
        await self.get("/health")  # the gateway has read the request before
        gateway.send("TERM")
        await waiting.heard(b"slotgate is stopping")
        await gateway.exited
        self.assertIn(b"data: [DONE]", stream.received[-40:])
        self.assertTrue(waiting.received.startswith(b"HTTP/1.1 503"))

    async def test_the_second_signal_ends_it_at_once(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        caller = await self.connect()
        body = {"messages": self.b.messages, "max_tokens": 6000, "ignore_eos": True}
        caller.post(CHAT, {**body, "stream": True}, {"X-Session-ID": "B"})
        await caller.heard(b"delta")
        gateway.send("TERM")
        await gateway.says("Received SIGTERM")
        await gateway.says("Port")
        gateway.send("TERM")
        self.assertEqual(await gateway.exited, -15)
        self.assertNotIn(b"data: [DONE]", caller.received)

    async def test_sigterm_after_a_restart_finds_what_it_left(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        gateway.send("TERM")
        await gateway.exited
        again = await self.start_twistd()
        answer = await self.b.turn()
        self.assertEqual(answer.cache, "resident")
        self.assertNotIn("restore", again.output)

    async def test_a_kill_with_nothing_running_loses_nothing_that_the_slot_holds(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        await self.remembers("B")
        gateway.send("KILL")
        await gateway.exited
        await self.start_twistd()
        self.assertEqual((await self.b.turn()).cache, "resident")

    async def remembers(self, session: str) -> None:
        """Wait until the index says that the slot holds a session."""
        index = sqlite3.connect(self.folder / "state" / "index.sqlite")
        self.addCleanup(index.close)
        while index.execute("SELECT session FROM left_in_slots").fetchall() != [(session,)]:
            await self.pause(0.02)

    async def test_a_kill_at_any_moment_loses_no_snapshot(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        gateway = await self.start_twistd()
        await self.two_turns()
        await self.a.turn()
        for moment in ("stream", "save", "restore", "request"):
            if moment == "stream":
                await self.stream()
            else:
                caller = await self.connect()
                said = len(gateway.output)
                # A is in the slot and has said more than is saved of it
                caller.post(
                    CHAT, {"messages": self.b.messages, "max_tokens": 8}, {"X-Session-ID": "B"}
                )
                if moment != "request":
                    await gateway.says(f"local {moment} ", after=said)
            gateway.send("KILL")
            self.assertEqual(await gateway.exited, -9)
            gateway = await self.start_twistd()
            await self.comes_back("B", "A")

    async def test_a_daemon(self) -> None:
        llama = await self.start_llama()
        self.write_config(llama.url)
        status, pid = await self.start_daemon()
        self.assertEqual(status, 0)
        await self.two_turns()
        os.kill(pid, 15)
        await self.daemon.gone
        self.assertFalse((self.folder / "twistd.pid").exists())
        self.assertEqual(len(list(self.slots.iterdir())), 2)
        await llama.restart()
        await self.start_daemon()
        await self.comes_back("B", "A")

    async def start_daemon(self) -> tuple[int, int]:
        """``twistd`` in the background: the exit status of its starter, and its pid."""
        (self.folder / "twistd.log").unlink(missing_ok=True)
        self.daemon = self.run_program(TWISTD, "slotgate", *FILE)
        status = await self.daemon.exited
        pid = int((self.folder / "twistd.pid").read_text())
        self.addCleanup(end_daemon, pid)
        # the starter waits until the daemon has started
        found = re.search(LISTENS, (self.folder / "twistd.log").read_text())
        assert found is not None
        self.reach(found[1])
        return status, pid


class ReloadTests(ProcessCase):
    """SIGHUP reads the configuration again."""

    async def test_what_can_change_changes_and_what_can_not_is_named(self) -> None:
        self.write_config()
        gateway = await self.start_twistd()
        self.write_config("http://127.0.0.1:8", more="[identity]\nsystem_prompt = false")
        gateway.send("HUP")
        await gateway.says("read again; changed: identity")
        await gateway.says("changed only by a restart: servers")
        self.assertEqual((await self.get("/health")).status, 502)

    async def test_a_mistake_changes_nothing(self) -> None:
        file = self.write_config()
        gateway = await self.start_twistd()
        file.write_text("[gateway]\nlisten = 5")
        gateway.send("HUP")
        await gateway.says(r"slotgate.toml: gateway.listen: expected a list, got 5")
        await gateway.says("the configuration stays as it was")
        self.assertEqual((await self.get("/health")).status, 502)


@implementer(IPullProducer)
class Burst(Protocol):
    """
    A server that answers with 300 MB as fast as they are taken.

    ``stuck`` fires when nothing was taken for half a second, or when there is nothing left;
    ``moving`` when something was taken again.
    """

    total = 300 * 10**6
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    def __init__(self) -> None:
        self.taken = 0
        self.stuck: Deferred[str] = Deferred()
        self.moving: Deferred[None] = Deferred()
        self._timer: Any = None

    def dataReceived(self, data: bytes) -> None:
        transport = cast(Any, self.transport)
        if data.startswith(b"GET /small"):
            transport.write(Upstream.answer)
            transport.loseConnection()
            return
        transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self._timer = CLOCK.callLater(0.5, self.stuck.callback, "stuck")
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        self.taken += len(self.piece)
        cast(ITCPTransport, self.transport).write(self.piece)
        if self._timer.active():
            self._timer.reset(0.5)
        elif not self.moving.called:
            self.moving.callback(None)
        if self.taken >= self.total:
            self.stopProducing()

    def stopProducing(self) -> None:
        cast(Any, self.transport).unregisterProducer()
        if self._timer.active():
            self._timer.cancel()
            self.stuck.callback("all taken")


class BackPressureTests(ProcessCase):
    """A client that does not read costs no memory."""

    async def test_a_burst_waits_at_the_server(self) -> None:
        bursts: list[Burst] = []

        class Bursts(Factory):
            noisy = False

            def buildProtocol(self, address: IAddress | None) -> Burst:
                bursts.append(Burst())
                return bursts[-1]

        port = CLOCK.listenTCP(0, Bursts(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.write_config(f"http://127.0.0.1:{port.getHost().port}")
        gateway = await self.start_twistd()
        self.assertEqual((await self.get("/small")).status, 200)
        before = resident_bytes(gateway.pid)
        client = await self.connect()
        client.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.heard(b"200 OK")
        cast(Any, client.transport).pauseProducing()
        self.assertEqual(await bursts[-1].stuck, "stuck")
        grown = resident_bytes(gateway.pid) - before
        self.assertLess(grown, 20 * MIB)
        # and it was no dead end: what the client reads makes room
        cast(Any, client.transport).resumeProducing()
        await bursts[-1].moving


EMBEDDED = """
import sys
from pathlib import Path
import slotgate
if sys.argv[1] == "asyncio":
    from twisted.internet import asyncioreactor
    asyncioreactor.install()
from twisted.internet import reactor
from twisted.logger import globalLogBeginner, textFileLogObserver
from slotgate.service import make_service
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
gateway = make_service(slotgate.load_config(Path("slotgate.toml")), reactor)
gateway.startService()
reactor.addSystemEventTrigger("before", "shutdown", gateway.stopService)
print(type(reactor).__name__, flush=True)
reactor.run()
"""

TAC = """
from pathlib import Path
from twisted.application.service import Application
from twisted.internet import reactor
from slotgate import load_config
from slotgate.service import make_service
application = Application("a house with a gateway in it")
make_service(load_config(Path("slotgate.toml")), reactor).setServiceParent(application)
"""


class EmbeddedTests(ProcessCase):
    """A gateway inside another Twisted process."""

    async def serves(self, *command: object) -> Program:
        port = CLOCK.listenTCP(0, Factory.forProtocol(Upstream), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.write_config(f"http://127.0.0.1:{port.getHost().port}")
        program = await self.serving(*command)
        self.assertEqual((await self.get("/props")).body, b"ok")
        program.send("TERM")
        await program.exited
        self.assertNotIn("Traceback", program.printed)
        return program

    async def test_with_the_default_reactor(self) -> None:
        await self.serves(PYTHON, "-c", EMBEDDED, "default")

    async def test_with_a_reactor_installed_after_slotgate_was_imported(self) -> None:
        program = await self.serves(PYTHON, "-c", EMBEDDED, "asyncio")
        self.assertIn("AsyncioSelectorReactor", program.output)

    async def test_a_start_that_failed_leaves_no_port_open_and_can_be_tried_again(self) -> None:
        taken = CLOCK.listenTCP(0, Factory.forProtocol(Upstream), interface="127.0.0.1")
        file = self.write_config()
        second = f'", "tcp:{taken.getHost().port}:interface=127.0.0.1"]'
        file.write_text(file.read_text().replace('"]', second, 1))
        gateway = make_service(load_config(file, {}), CLOCK)
        self.addCleanup(gateway.stopService)
        for start in (gateway.privilegedStartService, gateway.startService):
            with self.assertRaises(CannotListenError):
                start()
            self.assertEqual(gateway.addresses, [])
        await taken.stopListening()
        gateway.startService()
        self.assertEqual(len(gateway.addresses), 2)

    async def test_in_a_tac_file(self) -> None:
        (self.folder / "house.tac").write_text(TAC)
        await self.serves(TWISTD, "-n", "-o", "-y", "house.tac")


class SecretTests(ProcessCase):
    """The log holds no key, whatever happens."""

    async def ask(self, key: str, path: str = CHAT, body: bytes | None = None) -> Answer:
        said = {"messages": [{"role": "user", "content": long_text(key, 20)}], "max_tokens": 2}
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        data = json.dumps(said).encode() if body is None else body
        return await self.request("POST", path, headers, data)

    async def test_no_key_is_logged(self) -> None:
        llama = await self.start_llama(api_key="server-secret")
        clients = '[[clients]]\nname = "webui"\nkey = "client-secret"'
        printed = ""
        for server_key, chat_status in (("server-secret", 200), ("wrong-secret", 401)):
            self.write_config(llama.url, server=f'api_key = "{server_key}"', more=clients)
            gateway = await self.start_twistd()
            statuses = [
                (await self.ask("client-secret")).status,
                (await self.ask("nobodys-secret")).status,
                (await self.ask("client-secret", body=b"{")).status,
                (await self.ask("client-secret", "/nothing?api_key=query-secret")).status,
            ]
            self.assertEqual(statuses[:3], [chat_status, 401, 400])
            if server_key == "wrong-secret":
                await llama.kill()
                self.assertEqual(
                    (await self.ask("client-secret", "/x?key=query-secret")).status, 502
                )
                self.assertEqual((await self.ask("client-secret")).status, 502)
            gateway.send("TERM")
            await gateway.exited
            printed += gateway.printed
        self.assertIn("502", printed)
        self.assertEqual(re.findall(r"\S*-secret", printed), [])
