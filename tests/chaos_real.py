"""
Chaos on a real llama-server with a tiny model behind a real twistd: what is killed is a process,
what is damaged is a file of the server's, and clients are sockets.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from attrs import define, field
from chaos import ANSWER, SESSIONS, Change, Conversation, Damage, as_text, digits, in_common
from chaos_fake import damage_file, shown
from test_contract_real import Shared

from slotgate.testing._slot_files import BadSlotFile
from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServerOptions

CHAT = "/v1/chat/completions"
CONFIG = """
[gateway]
listen = ["tcp:0:interface=127.0.0.1"]
state_dir = "{folder}/state"
drain_seconds = 5
[servers.local]
url = "{url}"
slot_save_path = "{folder}/slots"
poll_seconds = 0.05
min_free_gib = 0.0
[[routes]]
model = "*"
server = "local"
save_idle_seconds = 0.3
[identity]
# a name is a session here, whatever is said in it: this is about slots
history = false
"""
#: No request of these takes a second; in seconds.
PATIENCE = 30.0


@define(eq=False)
class Client:
    """A request on its way, in a thread of its own."""

    session: str
    messages: list[dict[str, str]]
    prompt: str
    connection: http.client.HTTPConnection
    left: bool = False
    status: int = 0
    cache: str = ""
    reused: int = 0
    error: str = ""
    thread: threading.Thread = field(init=False)

    def begin(self) -> None:
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        body = {"messages": self.messages, "max_tokens": ANSWER, "temperature": 0}
        headers = {"X-Session-ID": digits(self.session), "Content-Type": "application/json"}
        try:
            self.connection.request("POST", CHAT, json.dumps(body), headers)
            response = self.connection.getresponse()
            answer = json.loads(response.read())
            self.cache = response.headers.get("X-Slotgate-Cache", "")
            self.status = response.status
            if self.status == 200:
                self.reused = answer["timings"]["cache_n"]
                self.messages.append(answer["choices"][0]["message"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = repr(error)
        finally:
            self.connection.close()

    def leave(self) -> None:
        self.left = True
        if (sock := self.connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class Gateway:
    """One twistd, from its start to its end."""

    def __init__(self, folder: Path) -> None:
        twistd = Path(sys.executable).with_name("twistd")
        command: list[str | Path] = [twistd, "--nodaemon", "--pidfile="]
        command += ["slotgate", "--config", folder / "g.toml"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        self.log: list[str] = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"slotgate listens on http://\S+:(\d+)(?=\D)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError("".join(self.log))
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stdout,))
        self._reader.start()

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(PATIENCE)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class RealWorld:
    """A llama-server process and a twistd process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="slotgate-chaos-")
        self.folder = Path(self._folder.name)
        self.path = self.folder / "slots"
        self.path.mkdir()
        write_tiny_model(self.folder / "tiny.gguf")
        options = RealServerOptions(
            self.folder / "tiny.gguf", f"{self.path}/", context=4096, threads=1
        )
        self.llama = Shared(options)
        (self.folder / "g.toml").write_text(CONFIG.format(folder=self.folder, url=self.llama.url))
        self.gateway = Gateway(self.folder)
        self.talks = {name: Conversation(name) for name in SESSIONS}
        self.running: list[Client] = []
        #: Something has happened that a request may fail of.
        self.hurt = False
        self._touched: set[str] = set()
        self.bystander = self.path / "notes.bin"
        self.bystander.write_text("mine")
        self._unheard: list[str] = []
        self._seen: dict[str, tuple[int, str]] = {}

    def close(self) -> None:
        try:
            self.gateway.end(signal.SIGKILL)
        finally:
            self.llama.end()
            self._folder.cleanup()

    # clients

    def ask(self, session: str, change: Change, stream: bool) -> None:
        talk = self.talks[session]
        messages = talk.next(change)
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=PATIENCE)
        client = Client(session, messages, talk.sends(messages), connection)
        self.running.append(client)
        client.begin()

    def leave(self, number: int) -> None:
        if self.running:
            self.running[number % len(self.running)].leave()

    def settle(self) -> None:
        for client in self.running:
            client.thread.join(2 * PATIENCE)
            assert not client.thread.is_alive(), f"{client.session} has no answer"
            excused = client.left or self.hurt
            assert client.status == 200 or excused, (client, self.gateway.log[-20:])
            if client.status == 200:
                talk = self.talks[client.session]
                said = client.messages[-1]["content"]
                talk.sent.add(client.prompt + as_text([byte + 3 for byte in said.encode()]))
                talk.answered(client.messages[:-1], said)
            else:
                # it may have been answered, and nobody knows with what
                self._unheard.append(client.prompt)
        self.running.clear()
        self.hurt = False

    def come_back(self, session: str) -> None:
        self.settle()
        records = self.records()
        file, _, size = records.get(digits(session), ("", 0, 0))
        path = self.path / file
        whole = bool(file) and path.is_file() and path.stat().st_size == size
        text = self._text_of(file) if whole and file not in self._touched else None
        self.ask(session, "grow", stream=False)
        client = self.running[-1]
        self.settle()
        # three useless restores of swapped files, and no more are tried
        tried = not any("in a row did not help" in line for line in self.gateway.log)
        if text is not None and tried:
            shared = in_common(text, client.prompt)
            assert client.cache in ("restored", "resident"), (client, self.gateway.log[-20:])
            assert client.cache != "restored" or client.reused >= shared - 1, client

    # what happens

    def restart_server(self) -> None:
        self.hurt = bool(self.running)
        self.llama.end()
        self.llama.start()

    def stranger(self, tokens: int) -> None:
        self._direct("/completion", {"prompt": "Z" * (tokens - 1), "n_predict": 1})

    def erase(self) -> None:
        self._direct("/slots/0?action=erase", {})

    def _direct(self, path: str, body: dict[str, Any]) -> None:
        host = self.llama.url.removeprefix("http://")
        with closing(http.client.HTTPConnection(host, timeout=PATIENCE)) as connection:
            connection.request("POST", path, json.dumps(body))
            assert connection.getresponse().read()

    def damage(self, session: str, how: Damage) -> None:
        self.settle()
        records = self.records()
        file = records.get(digits(session), ("",))[0]
        if file and file not in self._touched and (self.path / file).is_file():
            self._touched.add(file)
            others = [other for other, _, _ in records.values() if other != file]
            damage_file(self.path, file, how, others)

    def restart_slotgate(self, clean: bool) -> None:
        self.hurt = bool(self.running)
        self.gateway.end(signal.SIGTERM if clean else signal.SIGKILL)
        self.gateway = Gateway(self.folder)

    # the rules

    def records(self) -> dict[str, tuple[str, int, int]]:
        with closing(sqlite3.connect(self.folder / "state" / "index.sqlite")) as index:
            rows = index.execute("SELECT session, file, tokens, size FROM snapshots").fetchall()
        return {session: (file, tokens, size) for session, file, tokens, size in rows}

    def check(self) -> None:
        assert self.llama.process.poll() is None, "the server has died"
        assert self.gateway.process.poll() is None, self.gateway.log
        assert self.bystander.read_text() == "mine"
        faults = [line for line in self.gateway.log if "Traceback" in line]
        assert not faults, "".join(self.gateway.log)
        if self.running:
            return
        for session, (file, tokens, size) in self.records().items():
            if file in self._touched:
                continue
            try:
                found = (self.path / file).stat().st_size
                text = self._text_of(file)
            except FileNotFoundError:
                # an idle save has made it the old one just now
                assert self.records().get(session, ("",))[0] != file, f"{file} is gone"
                continue
            assert found == size, f"{found} bytes instead of {size}"
            assert text is not None, f"{file} can not be read"
            assert len(text) == tokens
            talk = self.talks[session[0].upper()]
            ours = talk.holds(text) or self._is_unheard(talk.name, text)
            assert ours, f"{talk.name}'s {file} holds {shown(text)}"

    def _is_unheard(self, name: str, text: str) -> bool:
        return any(
            text.startswith(prompt) and len(text) <= len(prompt) + ANSWER and name in shown(prompt)
            for prompt in self._unheard
        )

    def _text_of(self, file: str) -> str | None:
        """The tokens in a file; their layout is the contract suite's business."""
        data = (self.path / file).read_bytes()
        if file in self._seen and self._seen[file][0] == len(data):
            return self._seen[file][1]
        try:
            text = tokens_in(data)
        except BadSlotFile:
            return None
        self._seen[file] = (len(data), text)
        return text


def tokens_in(data: bytes) -> str:
    """The tokens of a slot file of a dense model, whatever its cache is."""
    count = int.from_bytes(data[20:24], "little")
    if data[:4] != b"qsgg" or len(data) < 24 + 4 * count:
        raise BadSlotFile("not a slot file")
    return as_text(
        [int.from_bytes(data[i : i + 4], "little") for i in range(24, 24 + 4 * count, 4)]
    )
