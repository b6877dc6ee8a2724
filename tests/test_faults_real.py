"""Single faults of a real llama-server, its files, its disk and its other clients."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from gateway import CHAT, CLOCK, Answer, Chat, RealGatewayCase, now
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from zope.interface import implementer

from slotgate.testing.models import write_tiny_model
from slotgate.testing.real import RealServer, RealServerOptions


class FaultCase(RealGatewayCase):
    """A gateway, a real server, and what the gateway logs."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.logged: list[str] = []

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            if event["log_namespace"].startswith("slotgate"):
                self.logged.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        await super().setUp()

    def records(self) -> dict[str, tuple[str, int, int]]:
        """The file, the tokens and the bytes of each session's snapshot."""
        with closing(sqlite3.connect(self.folder / "state" / "index.sqlite")) as index:
            rows = index.execute("SELECT session, file, tokens, size FROM snapshots").fetchall()
        return {session: (file, tokens, size) for session, file, tokens, size in rows}

    def file_of(self, session: str) -> Path:
        """The file of a session's snapshot."""
        return self.slots / self.records()[session][0]

    async def turns(self, *chats: Chat) -> list[Answer]:
        """One turn of each conversation, one after another."""
        answers = []
        for chat in chats:
            answer = await chat.turn()
            self.assertEqual(answer.status, 200, answer.body)
            answers.append(answer)
        return answers

    async def restored(self, chat: Chat) -> Answer:
        """The next turn of a conversation, which finds its snapshot."""
        (answer,) = await self.turns(chat)
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)
        return answer

    async def tokens_in_common(self, file: Path, text: str) -> tuple[int, int]:
        """
        What is in a slot file, by restoring it and asking.

        :returns: how many tokens were restored, and how many of them a prompt begins with.
        """
        answer = await self.post(
            "/slots/0?action=restore", {"filename": file.name}, base=self.llama.url
        )
        self.assertEqual(answer.status, 200, answer.body)
        probe = await self.post(
            "/completion", {"prompt": text, "n_predict": 0}, base=self.llama.url
        )
        return answer.json["n_restored"], probe.timings["cache_n"]


def prompt_of(chat: Chat) -> str:
    """A conversation as the tiny models' template writes it."""
    return "".join(f"{m['role']}: {m['content']}\n" for m in chat.messages) + "assistant: "


def fitted(data: bytes) -> Callable[[Path], object]:
    """Puts other bytes in a file's place, cut or filled up to its size."""

    def replace(file: Path) -> None:
        size = file.stat().st_size
        file.write_bytes((data + bytes(size))[:size])

    return replace


class DamagedFileTests(FaultCase):
    """A snapshot that is not what was saved costs a cold start, and nothing else."""

    async def damaged(self, damage: Callable[[Path], object], reason: str) -> None:
        """The file of a session's snapshot is damaged, and the session asks again."""
        a, b = self.chat("A"), self.chat("B")
        await self.turns(a, b)
        pid, file = self.llama.pid, self.file_of("A")
        damage(file)
        (answer,) = await self.turns(a)
        self.assertEqual(answer.cache, "cold")
        self.assertEqual(self.llama.pid, pid, "the server lives")
        self.assertNotIn("A", self.records())
        self.assertFalse(os.path.lexists(file))
        dropped = [line for line in self.logged if f"{file.name} of session A is dropped" in line]
        self.assertEqual(len(dropped), 1, self.logged)
        self.assertIn(reason, dropped[0])
        # and all is well again
        await self.restored(b)
        await self.restored(a)

    async def test_cut_by_one_byte(self) -> None:
        await self.damaged(lambda file: os.truncate(file, file.stat().st_size - 1), "bytes instead")

    async def test_cut_in_half(self) -> None:
        await self.damaged(
            lambda file: os.truncate(file, file.stat().st_size // 2), "bytes instead"
        )

    async def test_empty(self) -> None:
        await self.damaged(lambda file: os.truncate(file, 0), "0 bytes instead")

    async def test_deleted(self) -> None:
        await self.damaged(lambda file: file.unlink(), "No such file")

    async def test_junk_of_another_size(self) -> None:
        await self.damaged(lambda file: file.write_bytes(b"junk" * 100), "400 bytes instead")

    async def test_junk_of_the_same_size(self) -> None:
        # only the server can tell, and it says so: 400
        await self.damaged(
            lambda file: file.write_bytes(os.urandom(file.stat().st_size)), "restore: 400"
        )

    async def test_of_a_model_of_another_shape(self) -> None:
        data = await self.saved_by_another_model(1000, sliding_window=64)
        await self.damaged(lambda file: file.write_bytes(data), "bytes instead")

    async def test_of_a_model_of_another_shape_made_to_fit(self) -> None:
        data = await self.saved_by_another_model(1000, sliding_window=64)
        await self.damaged(fitted(data), "restore: 400")

    async def saved_by_another_model(self, tokens: int, **model: int) -> bytes:
        """A slot file of another model, written by a server of its own."""
        path, slots = self.folder / "other.gguf", self.folder / "other-slots"
        slots.mkdir()
        write_tiny_model(path, **model)
        options = RealServerOptions(path, f"{slots}/", context=8192, threads=1)
        other = RealServer(CLOCK, options)
        self.addCleanup(other.stop)
        await other.start()
        prompt = {"prompt": "o" * (tokens - 1), "n_predict": 1}
        await self.post("/completion", prompt, base=other.url)
        await self.post("/slots/0?action=save", {"filename": "other"}, base=other.url)
        return (slots / "other").read_bytes()


class SameShapeTests(DamagedFileTests):
    """
    A file of a model of the same shape, with as many tokens, is a good file to llama-server: it
    has the same size and is restored without an error. Only its bytes tell, so only
    ``verify = "xxh3"`` keeps it out; with ``verify = "size"`` it is restored, and as its tokens are
    not the session's, nothing of it is used.
    """

    config = FaultCase.config.replace('url = "{url}"', 'url = "{url}"\n        verify = "{verify}"')
    verify: ClassVar[str] = "xxh3"

    def start_gateway(self, url: str, **values: object) -> Any:
        return super().start_gateway(url, verify=self.verify, **values)

    async def test_junk_of_the_same_size(self) -> None:
        await self.damaged(
            lambda file: file.write_bytes(os.urandom(file.stat().st_size)), "its xxh3 is"
        )

    async def test_of_a_model_of_another_shape_made_to_fit(self) -> None:
        data = await self.saved_by_another_model(1000, sliding_window=64)
        await self.damaged(fitted(data), "its xxh3 is")

    async def test_a_flipped_byte(self) -> None:
        def flip(file: Path) -> None:
            data = bytearray(file.read_bytes())
            data[-1000] ^= 1
            file.write_bytes(data)

        await self.damaged(flip, "its xxh3 is")

    async def test_of_another_model_of_the_same_shape(self) -> None:
        await self.damaged(await self.twin(), "its xxh3 is")

    async def twin(self) -> Callable[[Path], None]:
        """Puts another model's file, of the same size, in a file's place."""
        # a turn of A: what twin files of the same size are made from
        probe = self.chat("A")
        await self.turns(probe, self.chat("B"))
        tokens, size = self.records()["A"][1:]
        data = await self.saved_by_another_model(tokens, seed=1)
        self.assertEqual(len(data), size)
        await self.post("/slots/0?action=erase", {})

        def replace(file: Path) -> None:
            self.assertEqual(file.stat().st_size, len(data))
            file.write_bytes(data)

        return replace


class SameShapeBySizeTests(FaultCase):
    """The same with ``verify = "size"``: harmless, for the prompt is compared with the tokens."""

    async def test_of_another_model_of_the_same_shape(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        await self.turns(a, b)
        pid, file = self.llama.pid, self.file_of("A")
        tokens, size = self.records()["A"][1:]
        other = DamagedFileTests.saved_by_another_model
        data = await other(self, tokens, seed=1)  # type: ignore[arg-type]
        self.assertEqual(len(data), size)
        file.write_bytes(data)
        (answer,) = await self.turns(a)
        self.assertEqual((answer.cache, self.llama.pid), ("restored", pid))
        self.assertGreater(answer.share_read, 0.9)
        await self.restored(b)
        await self.restored(a)


class FullDiskTests(FaultCase):
    """
    A real disk, too small for a save.

    The tiny model writes 528 bytes per token where a real one writes 23,000, so the disk is
    smaller too: 1,500 kB for slots of up to 4 MB.
    """

    config = FaultCase.config.replace('url = "{url}"', 'url = "{url}"\n        min_free_gib = 0.0')

    async def setUp(self) -> None:  # type: ignore[override]
        self.mounted = self.new_folder()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1500k,mode=700", "slotgate-test", self.mounted],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            self.fail(f"this test mounts a tmpfs, which takes root: {done.stderr}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(self.mounted)], check=True)
        type(self).options = {"slot_save_path": f"{self.mounted}/"}
        await super().setUp()

    def start_gateway(self, url: str, **values: object) -> Any:
        self.slots = self.mounted
        return super().start_gateway(url, **values)

    async def test_the_save_fails_and_all_the_rest_is_as_before(self) -> None:
        a, b = self.chat("A", words=180), self.chat("B", words=60)
        await self.turns(a, b)
        pid, good = self.llama.pid, self.file_of("A")
        before = good.read_bytes()
        self.assertGreater(len(before), 600_000)
        # A has much more to say now: with what is there it does not fit, which can be foreseen
        said = " ".join(f"more{number:05d}" for number in range(400))
        self.assertEqual((await a.turn(said)).cache, "restored")
        await self.restored(b)
        self.assertTrue(any("is not saved: the disk has" in line for line in self.logged))
        # nothing is known of a new session's size: the save is tried, and fails half way
        await self.turns(self.chat("C", words=500))
        await self.restored(b)
        self.assertTrue(any("Unable to save slot" in line for line in self.logged), self.logged)
        self.assertEqual(good.read_bytes(), before)
        self.assertEqual(set(self.slots.iterdir()), {good, self.file_of("B")}, "no partial file")
        self.assertEqual(self.llama.pid, pid)
        (answer,) = await self.turns(a)
        self.assertEqual((answer.cache, self.llama.pid), ("restored", pid))
        # the old snapshot is all there was
        self.assertGreater(answer.timings["cache_n"], 1200)
        await self.restored(b)


class BehindOurBackTests(FaultCase):
    """What happens to the server is noticed."""

    async def test_a_restart_between_two_turns_of_the_resident_session(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        await self.turns(a, b, a)
        good = {path: path.read_bytes() for path in self.slots.iterdir()}
        self.assertEqual(len(good), 2)
        await self.llama.restart()
        await self.restored(a)
        self.assertEqual({path: path.read_bytes() for path in self.slots.iterdir()}, good)

    async def test_no_snapshot_holds_a_strangers_tokens(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        stranger = "stranger " * 200
        await self.turns(a, b, a, b)
        for chat in (a, b, a, b, b, a):
            await self.turns(chat)
            await self.post(
                "/completion", {"prompt": stranger, "n_predict": 2}, base=self.llama.url
            )
        await self.turns(b, a)
        self.assertEqual(self.records().keys(), {"A", "B"})
        for chat in (a, b):
            file, tokens, _ = self.records()[chat.session]
            restored, shared = await self.tokens_in_common(self.slots / file, prompt_of(chat))
            self.assertEqual(restored, tokens)
            # all of them are the session's, but for the answer's: those a template may write anew
            self.assertGreater(shared, restored - 12)
            restored, shared = await self.tokens_in_common(self.slots / file, stranger)
            self.assertLess(shared, 3)


class SleepTests(FaultCase):
    """A server that goes to sleep while nobody asks is saved before, and not woken."""

    timeout = 40
    options: ClassVar = {"sleep_idle_seconds": 4}
    config = FaultCase.config.replace('model = "*"', 'model = "*"\n        save_idle_seconds = 1')

    async def test_it_sleeps_on_and_the_next_turn_is_restored(self) -> None:
        a = self.chat("A")
        await self.turns(a)
        began, slept = now(), []
        while now() - began < 12:
            props = await self.get("/props", self.llama.url)
            slept.append((now() - began, props.json["is_sleeping"]))
            await self.pause(0.25)
        first = next(at for at, sleeping in slept if sleeping)
        self.assertLess(first, 9)
        self.assertEqual({sleeping for at, sleeping in slept if at > first}, {True})
        self.assertEqual(self.records().keys(), {"A"})
        await self.restored(a)


class KilledWhileSavingTests(FaultCase):
    """The server is killed in the middle of a save."""

    config = FaultCase.config.replace(
        'url = "{url}"', 'url = "{url}"\n        control_timeout_seconds = 5'
    )

    def stop_server(self) -> int:
        """The server does nothing until it is killed or continued."""
        pid = self.llama.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return pid

    async def test_the_old_snapshot_is_the_good_one(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        await self.turns(a, b, a)
        good, before = self.file_of("A"), self.file_of("A").read_bytes()
        # a save is on its way to a server that stands still, and half of it is written
        await self.turns(a)
        planned = good.with_name(good.name.replace(".1.bin", ".2.bin"))
        asking = self.ask_while_stopped(b)
        answer = await asking
        self.assertNotEqual(answer.status, 200)
        planned.write_bytes(before[: len(before) // 2])
        await self.llama.start()
        self.assertEqual(good.read_bytes(), before)
        self.assertEqual(self.records()["A"][0], good.name)
        await self.restored(b)
        await self.restored(a)
        pid = self.llama.pid
        for chat in (b, a, b, a):
            await self.restored(chat)
        self.assertEqual(self.llama.pid, pid)

    def ask_while_stopped(self, chat: Chat) -> Deferred[Answer]:
        """
        Ask, let the server stand still when it is told to save, and kill it there.

        The look before the save has to be answered, so it is stopped once the gateway says that
        it looks no more: when its connection for the save is open.
        """

        async def ask() -> Answer:
            body = {"messages": [*chat.messages, {"role": "user", "content": "?"}]}
            asking = Deferred.fromCoroutine(
                self.post(CHAT, {**body, "max_tokens": 8}, {"X-Session-ID": chat.session})
            )
            self.stop_server()
            await self.pause(0.5)
            await self.llama.kill()
            return await asking

        return Deferred.fromCoroutine(ask())


#: Kills a process as soon as a file has some bytes; must be quicker than a save of megabytes.
KILLER = """
import os, signal, sys
print("ready", flush=True)
while True:
    try:
        if os.stat(sys.argv[2]).st_size:
            break
    except FileNotFoundError:
        pass
os.kill(int(sys.argv[1]), signal.SIGKILL)
"""


class KilledInMidSaveTests(FaultCase):
    """The same without a stage: whoever comes first, the rest of the file or the kill."""

    async def test_whatever_is_left_is_not_restored(self) -> None:
        a, b = self.chat("A", words=1000), self.chat("B")
        await self.turns(a, b, a, a)
        good = self.file_of("A")
        planned = good.with_name(good.name.replace(".1.bin", ".2.bin"))
        killer = subprocess.Popen(
            [sys.executable, "-c", KILLER, str(self.llama.pid), planned], stdout=subprocess.PIPE
        )
        assert killer.stdout is not None
        with killer, killer.stdout:
            killer.stdout.readline()
            answer = await b.turn()
            await self.llama.ended()
        self.assertIn(answer.status, (200, 502))
        await self.llama.start()
        pid = self.llama.pid
        await self.turns(b)
        await self.restored(a)
        await self.restored(b)
        self.assertEqual(self.llama.pid, pid)
        await self.stop_gateway()
        self.start_gateway(self.llama.url)
        names = {file for file, _, _ in self.records().values()}
        self.assertEqual({path.name for path in self.slots.iterdir()}, names)
