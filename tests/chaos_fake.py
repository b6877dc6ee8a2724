"""
Chaos on the fake llama-server: no sockets, no real time, and every file can be looked into.
"""

from __future__ import annotations

import gc
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch
from urllib.parse import urlsplit

import treq
import xxhash
from attrs import define, frozen
from chaos import ANSWER, SESSIONS, Change, Conversation, Damage, as_text, digits, in_common
from chaos_wire import Mortal, Network, ServerSide, Watch, Wire, client
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from slotgate.config import Server
from slotgate.llama.calls import Calls
from slotgate.llama.client import LlamaClient
from slotgate.llama.wire import Usage
from slotgate.prompts.beginning import beginning
from slotgate.sessions import Policy, Session, SessionKey
from slotgate.slots.address import Address
from slotgate.slots.choice import End, Verdict, Want
from slotgate.slots.idle import IdleSaver
from slotgate.slots.lease import Lease, QueueFull, Stopping
from slotgate.slots.machine import Holding
from slotgate.slots.memory import Memory
from slotgate.slots.slot import Slot
from slotgate.slots.usefulness import Usefulness
from slotgate.slots.view import View
from slotgate.snapshots.database import prepare
from slotgate.snapshots.files import Folder
from slotgate.snapshots.index import Index
from slotgate.snapshots.names import OURS
from slotgate.snapshots.reconciling import reconcile
from slotgate.snapshots.records import Snapshot
from slotgate.snapshots.store import Snapshots
from slotgate.testing._slot_files import BadSlotFile, DeadlySlotFile
from slotgate.testing.fake import FakeLlamaServer, Speed
from slotgate.testing.faults import Answer, Close, Die, Fault, Hang, NotHttp, Refuse

CHAT = "/v1/chat/completions"
MIN_TOKENS = 64
#: Some requests wait for others of this many tokens; in seconds of the clock, nobody's real ones.
PATIENCE = 12_000.0

Moment = tuple[Literal["before", "after"], Literal["look", "save", "restore", "erase", "chat"]]
Event = Literal["restart", "die", "stranger", "wipe", "kill", "leave", "damage"]


@frozen
class Setup:
    """How a run is set up."""

    verify: Literal["size", "xxh3"] = "size"
    #: slotgate sees the folder.
    visible: bool = True
    #: The server shows its slots.
    slots: bool = True
    #: Clients have keys, and two of them share the sessions.
    isolated: bool = False
    #: The server notices when a client has gone.
    notices: bool = False
    max_files: int = 0
    idle_seconds: float = 0.0
    #: Tokens that the server reads and writes in a second.
    speed: float = inf

    @property
    def policy(self) -> Policy:
        """What the route says about keeping its sessions."""
        return Policy(MIN_TOKENS, self.idle_seconds, self.max_files)


@define(eq=False)
class Asking:
    """A request on its way."""

    session: str
    messages: list[dict[str, str]]
    prompt: str
    deaths: int
    done: Deferred[None] | None = None
    #: How it ended, empty while it runs.
    end: str = ""
    verdict: Verdict | None = None
    usage: Usage | None = None


class ToldFake(FakeLlamaServer):
    """A fake llama-server that tells of its death."""

    died_of: Callable[[], None]

    def die(self) -> None:
        super().die()
        self.died_of()


class Life:
    """One process of slotgate, from its start to its end or its sudden death."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self.wire = Wire(
            world.network, world.before, world.after, self._head, lambda: world.fake.died
        )
        #: The lease whose request is at the server.
        self.lease: Lease | None = None
        clock: Any = Watch(world.clock, self.wire)
        self.watch: Watch = clock
        database: Any = Mortal(self.wire, world.connection)
        self.index = Index(database)
        setup = world.setup
        folder = Folder(world.path) if setup.visible else None
        server = Server("local", slot_save_path=world.path if setup.visible else None)
        self.http = client(self.wire)
        control = LlamaClient(Calls(ServerSide(self.wire), clock, server))
        snapshots = Snapshots(
            "local", self.index, folder, database.blocking, b"secret", clock, setup.verify
        )
        self.usefulness = Usefulness("local", clock)
        self.slot = Slot(
            address=Address("local", "", 0),
            control=control,
            snapshots=snapshots,
            view=View("local slot 0", 0, control, clock, 1.0, 120.0),
            usefulness=self.usefulness,
            memory=Memory("local", self.index, lambda _: world.setup.policy),
            clock=clock,
            max_queue=64,
            sleep_seconds=lambda: None,
        )
        now(reconcile(self.index, [server]))
        self.saver = IdleSaver([self.slot], clock)
        if setup.idle_seconds:
            # else it has nothing to do, twice in each of very many seconds
            self.saver.startService()
        #: Nothing has happened to the server since slotgate last looked at it.
        self.sees = False

    def _head(self, uri: bytes) -> None:
        if kind_of(uri) == "chat" and self.lease is not None:
            self.lease.working()


def now(work: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    results: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


class FakeWorld:
    """A fake llama-server, and one slotgate after another."""

    def __init__(self, setup: Setup) -> None:
        # what there is now needs no look when this world is collected
        gc.freeze()
        self.setup = setup
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self._folder = tempfile.TemporaryDirectory(prefix="slotgate-chaos-")
        self.path = Path(self._folder.name, "slots")
        self.path.mkdir()
        self.fake = ToldFake(
            self.clock,
            self.path,
            slots_endpoint=setup.slots,
            notices_disconnect=setup.notices,
            batch=256,
        )
        self.speed(setup.speed, 0.0)
        self.fake.died_of = self._server_died
        self.network = Network(self.fake.resource())
        self.connection = sqlite3.connect(":memory:")
        prepare(self.connection)
        self.talks = {name: Conversation(name) for name in SESSIONS}
        self.running: list[Asking] = []
        self.broken: list[str] = []
        self.deaths = self._dead_for = 0
        self._random = random.Random(0)
        self._surprises: list[tuple[Moment, Event]] = []
        #: Files that chaos has changed since the server wrote them.
        self._touched: set[str] = set()
        self._seen: dict[tuple[str, int, int], str | None] = {}
        self._strangers = Wire(self.network, down=lambda: self.fake.died)
        self._bystanders = self._put_bystanders()
        #: What is dead stays whole: a coroutine that is collected runs its ``finally`` blocks.
        self._graveyard: list[tuple[Life, list[Asking]]] = []

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            if event["log_level"] is LogLevel.critical and event["log_namespace"].startswith(
                "slotgate.s"
            ):
                failure = event.get("log_failure")
                self.broken.append(
                    f"a fault: {formatEvent(event)} {failure.getTraceback() if failure else ''}"
                )

        self._observer = observe
        globalLogPublisher.addObserver(observe)
        self.life = Life(self)

    def _put_bystanders(self) -> dict[Path, bytes]:
        """Files of others, which look nearly like ours; none of them may ever change."""
        outside = self.path.with_name("outside.bin")
        ours = f"_-00000000_{'0' * 32}"
        self._link = self.path / f"{ours}.7.bin"
        self._link.symlink_to(outside)
        others = [self.path / "notes.bin", self.path / f"{ours}.x.bin", outside]
        for other in others:
            other.write_text("mine")
        return dict.fromkeys(others, b"mine")

    def close(self) -> None:
        globalLogPublisher.removeObserver(self._observer)
        self.life.wire.cut()
        self.fake.stop()
        self._graveyard.clear()
        self.running.clear()
        del self.life, self.fake, self.network, self.clock, self._strangers
        # now, and not during another test, whose faults it would look like: what is collected in
        # the midst of a lease ends it, in no order
        with patch.object(Slot, "_surprised", lambda slot, failure: None):
            gc.collect()
        gc.unfreeze()
        self.connection.close()
        self._folder.cleanup()

    # time

    def run(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(10_000):
            self.clock.advance(0)
            if not self.network.deliver() and not self._due():
                return
        raise AssertionError("it never comes to rest")

    def _due(self) -> bool:
        calls = self.clock.getDelayedCalls()
        return bool(calls) and min(call.getTime() for call in calls) <= self.clock.seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until = self.clock.seconds() + seconds
        self.run()
        while (left := until - self.clock.seconds()) > 1e-6:
            self.clock.advance(min(left, max(0.001, self._next())))
            self.run()

    def _next(self) -> float:
        calls = [call.getTime() for call in self.clock.getDelayedCalls()]
        return min(calls, default=self.clock.seconds() + 1.0) - self.clock.seconds()

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        self.run()
        end = self.clock.seconds() + PATIENCE
        while not done():
            if self.clock.seconds() > end:
                raise AssertionError(f"{what}, after {PATIENCE:g} s")
            self.clock.advance(max(0.001, self._next()))
            self.run()

    # clients

    def ask(self, session: str, change: Change, stream: bool) -> None:
        talk = self.talks[session]
        messages = talk.next(change)
        asking = Asking(session, messages, talk.sends(messages, self.fake.says), self.deaths)
        self.running.append(asking)
        asking.done = Deferred.fromCoroutine(self._asking(self.life, asking, stream))
        asking.done.addErrback(lambda failure: self.broken.append(failure.getTraceback()))
        self.run()

    def want(self, session: str, messages: list[dict[str, str]] | None = None) -> Want:
        owner = f"client{ord(session) % 2}" if self.setup.isolated else None
        begins = beginning({"messages": messages})
        key = SessionKey(owner, "*", digits(session))
        return Want(Session(key, "header", self.setup.policy, begins), owner, self.setup.isolated)

    async def _asking(self, life: Life, asking: Asking, stream: bool) -> None:
        """What the gateway does with a request: as :mod:`slotgate.web.generations`."""
        try:
            lease = await life.slot.lease(self.want(asking.session, asking.messages))
        except CancelledError:
            asking.end = "left"
            return
        except (QueueFull, Stopping):
            asking.end = "answered"
            return
        asking.verdict = lease.verdict
        self._judge(life, asking, lease.may_reuse)
        end = End.CUT
        life.lease = lease
        try:
            response = await life.http.post(
                f"http://127.0.0.1:8080{CHAT}",
                json={
                    "messages": asking.messages,
                    "max_tokens": ANSWER,
                    "stream": stream,
                    "id_slot": lease.slot_id,
                    "cache_prompt": lease.may_reuse,
                },
            )
            body = await treq.content(response)
            end = self._read(asking, response.code, body)
        except CancelledError:
            asking.end = "left"
        except Exception as error:
            asking.end = f"no answer: {error!r}"
        finally:
            lease.release(end, asking.usage if end is End.COMPLETE else None)
        alive = asking.deaths == self.deaths and not self.fake.died
        if asking.end.startswith("no answer") and alive:
            self.broken.append(f"{asking.session} got {asking.end}, and the server lives")

    def _read(self, asking: Asking, status: int, body: bytes) -> End:
        asking.end = "answered"
        if status != 200:
            fits = len(asking.prompt) < self.fake.context
            if fits and status != 503:
                asking.end = f"no answer: {status}"
            return End.REFUSED
        if body.startswith(b"data: "):
            body = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")][-1]
        timings = json.loads(body)["timings"]
        asking.usage = Usage(timings["cache_n"], timings["prompt_n"], timings["predicted_n"])
        self.talks[asking.session].answered(asking.messages, self.fake.says[:ANSWER])
        return End.COMPLETE

    def _judge(self, life: Life, asking: Asking, may_reuse: bool) -> None:
        """Whether the slot holds what the lease says, if nobody could have changed it since."""
        if not (life.sees and self.setup.slots) or self.fake.died:
            return
        text = as_text(self.fake.engine.slots[0].tokens)
        talk = self.talks[asking.session]
        said = f"{asking.session} is told {asking.verdict}, and the slot holds {shown(text)}"
        if asking.verdict in (Verdict.RESIDENT, Verdict.RESTORED):
            if len(text) < MIN_TOKENS and asking.verdict is Verdict.RESTORED:
                self.broken.append(said)
            if not talk.holds(text) and not self._touched:
                self.broken.append(said)
        if self.setup.isolated and may_reuse and text:
            owner = self.want(asking.session).client
            owners = [name for name in SESSIONS if self.want(name).client == owner]
            if not any(self.talks[name].holds(text) for name in owners) and not self._touched:
                self.broken.append(f"another client's: {said}")

    def leave(self, number: int) -> None:
        if self.running:
            asking = self.running[number % len(self.running)]
            if asking.done is not None and not asking.end:
                asking.done.cancel()
            self.run()

    def _alive(self) -> list[Asking]:
        return [asking for asking in self.running if not asking.end]

    def settle(self) -> None:
        self.until("a request has no answer", lambda: not self._alive())
        slot = self.life.slot
        self.until(
            f"the slot is still {slot.state}, and nobody uses it",
            # the lock's own word: a lease that is lost keeps it though the machine knows nothing
            lambda: slot.state not in ("leased", "draining") and not slot._lock.locked,
        )
        self.until("the server is still at work", lambda: not self.fake.engine.processing)
        self.running.clear()

    def come_back(self, session: str) -> None:
        self.settle()
        if not self._quiet():
            return
        text = self._snapshot_that_fits(session)
        self.ask(session, "grow", stream=False)
        asking = self.running[-1]
        self.settle()
        if text is None or asking.usage is None:
            return
        if asking.verdict not in (Verdict.RESTORED, Verdict.RESIDENT):
            self.broken.append(f"{session} has a snapshot that fits, and is {asking.verdict}")
        shared = in_common(text, asking.prompt)
        if asking.verdict is Verdict.RESTORED and asking.usage.reused < shared - 1:
            self.broken.append(f"{session} was restored and reused only {asking.usage}")

    def _quiet(self) -> bool:
        """Nothing is wrong with the server, and nothing is about to be."""
        self._surprises.clear()
        self.fake._door._planned.clear()
        self.fake.disk_full_after = None
        return not (self.fake.died or self.fake.loading)

    def _snapshot_that_fits(self, session: str) -> str | None:
        """The tokens of a session's snapshot, if the session must get it now."""
        record = next((r for r in self.records() if r.session == digits(session)), None)
        if record is None or record.file in self._touched or record.tokens > self.fake.context:
            return None
        # the fake's other models have another path and the same shape
        if not record.model.startswith(f"{self.fake.model_path} "):
            return None
        if not self.life.usefulness.allows(record.build):
            return None
        return self._text_of(record.file)

    # the server and its folder

    def restart_server(self, model: str = "", context: int = 0) -> None:
        self._die()
        self.fake.model_path = model or self.fake.model_path
        self.fake.context = context or self.fake.context
        self.fake.restart()
        self.run()

    def _die(self) -> None:
        if not self.fake.died:
            self.fake.die()

    def _server_died(self) -> None:
        self.deaths += 1
        self._dead_for = 0
        self.life.sees = False
        self.network.drop_all()

    def stranger(self, tokens: int) -> None:
        if self.setup.slots:
            self._stranger(tokens)
            self.run()

    def _stranger(self, tokens: int) -> None:
        """Without /slots nobody can see a stranger, so there is none."""
        self.life.sees = False
        prompt = "Z" * (tokens - 1)
        body = json.dumps({"prompt": prompt, "n_predict": 1}).encode()
        asking = client(self._strangers).post("http://127.0.0.1:8080/completion", data=body)
        asking.addErrback(lambda _: None)

    def twin(self) -> None:
        """A stranger leaves as many tokens as are in the slot now."""
        self.settle()
        if not self.fake.died:
            self.stranger(max(2, len(self.fake.engine.slots[0].tokens)))
            self.settle()

    def erase(self) -> None:
        self._erase()
        self.run()

    def _erase(self) -> None:
        self.life.sees = False
        asking = client(self._strangers).post("http://127.0.0.1:8080/slots/0?action=erase")
        asking.addErrback(lambda _: None)

    def damage(self, session: str, how: Damage) -> None:
        # what nobody can see nobody can be protected from, but for a file that is gone
        if self.setup.visible or how == "removed":
            records = self.records()
            others = [r.file for r in records if r.session != digits(session)]
            for record in records:
                if record.session == digits(session) and record.file not in self._touched:
                    self._touched.add(record.file)
                    damage_file(self.path, record.file, how, others)

    @property
    def planned(self) -> int:
        """How many surprises have not happened yet."""
        return len(self._surprises)

    def plan(self, moment: Moment, event: Event) -> None:
        """Something happens at a certain moment, once."""
        self._surprises.append((moment, event))

    def _happens(self, moment: Moment) -> None:
        for surprise in self._surprises:
            if surprise[0] == moment:
                self._surprises.remove(surprise)
                self._happen(surprise[1])
                return

    def _happen(self, event: Event) -> None:
        if event == "kill":
            self._kill()
        elif event == "stranger":
            if self.setup.slots:
                # a length that no session's request has: the counts are all there is to tell by
                self._stranger(self._random.randrange(20, 90))
        elif event == "wipe":
            self._erase()
        elif event == "leave":
            # not in the midst of what it waits for
            self.clock.callLater(0, self._first_leaves)
        elif event == "damage":
            for asking in self._alive():
                self.damage(asking.session, "half")
        else:
            self._die()
            if event == "restart":
                self.fake.restart()

    def _first_leaves(self) -> None:
        for asking in self._alive()[:1]:
            if asking.done is not None:
                asking.done.cancel()

    def disk_full(self, bytes_left: int | None) -> None:
        self.fake.disk_full_after = bytes_left

    def dies_while_saving(self) -> None:
        """The next save is killed half way."""
        self.fake.plan(Die(), action="save")
        self.fake.disk_full_after = 3000

    def misbehave(self, fault: str, action: str | None, times: int) -> None:
        """The server answers the next control calls badly, or not at all."""
        kinds: dict[str, Fault] = {
            "hang": Hang(),
            "close": Close(),
            "junk": Answer(),
            "noise": NotHttp(),
            "refuse": Refuse(),
            "key": Refuse(401),
            "missing": Refuse(501),
        }
        kind = kinds[fault]
        if action is None:
            self.fake.plan(kind, method="GET", times=times)
        elif fault != "missing" or action != "erase":
            self.fake.plan(kind, action=action, times=times)

    def loads_for(self, seconds: float) -> None:
        """The server starts anew and loads its model for a while."""
        self.restart_server()
        self.fake.loading = True
        self.clock.callLater(seconds, setattr, self.fake, "loading", False)

    def speed(self, prefill: float, files: float) -> None:
        self.fake.speed = Speed(prefill=prefill, generation=prefill, slot_file_seconds=files)

    def set_clock(self, seconds: float) -> None:
        """Somebody sets slotgate's clock."""
        self.life.watch.offset += seconds

    # slotgate

    def restart_slotgate(self, clean: bool) -> None:
        if clean:
            self._stop()
        before = self.life.slot.content
        restful = not self._alive() and not self.life.slot._lock.locked
        self._kill()
        self.run()
        if not (restful and isinstance(before, Holding) and before.mark and self._quiet()):
            return
        slot = self.fake.engine.slots[0]
        name = before.session.key.id[0].upper()
        if (slot.task, len(slot.tokens)) == (before.mark.task, before.mark.tokens):
            self.ask(name, "grow", stream=False)
            asking = self.running[-1]
            self.settle()
            if asking.verdict is not Verdict.RESIDENT:
                self.broken.append(f"{name} was left in the slot, and is {asking.verdict}")

    def _stop(self) -> None:
        """A stop that is given all the time it wants."""
        life = self.life
        if life.saver.running:
            life.saver.stopService()
        stopped: list[object] = []
        life.slot.stop().addBoth(stopped.append)
        healthy = self.fake.disk_full_after is None and not self.fake._door._planned
        healthy = healthy and not (self._surprises or self.fake.died or self.fake.loading)
        deaths = self.deaths
        self.until(
            "slotgate does not stop",
            lambda: not life.wire.alive or (bool(stopped) and not self._alive()),
        )
        if not life.wire.alive:
            # it was killed on its way
            return
        self.until("the slot is not free", lambda: not life.slot._lock.locked)
        held = life.slot.content
        if healthy and deaths == self.deaths and isinstance(held, Holding) and held.mark:
            slot = self.fake.engine.slots[0]
            same = (slot.task, len(slot.tokens)) == (held.mark.task, held.mark.tokens)
            if same and not held.saved and held.mark.tokens >= MIN_TOKENS:
                self.broken.append(f"stopped and did not save {held}")

    def _kill(self) -> None:
        """Whatever slotgate was about to do, it does not do it."""
        self.life.wire.cut()
        self._graveyard.append((self.life, self._alive()))
        for asking in self._alive():
            asking.end = "slotgate died"
        self.life = Life(self)
        if self.setup.visible:
            ours = set(Folder(self.path).ours())
            recorded = {record.file for record in self.records()}
            if ours != recorded:
                self.broken.append(f"after a start: {ours ^ recorded}")

    # the rules

    def before(self, uri: bytes, body: Any) -> None:
        """Something of slotgate is about to reach the server."""
        kind, life = kind_of(uri), self.life
        if kind != "other":
            self._happens(("before", kind))
        if not life.wire.alive or self.fake.died:
            return
        sees = life.sees and self.setup.slots
        if kind in ("save", "restore", "erase") and sees and self.fake.engine.processing:
            # with a request of ours or a stranger's: the server would park the call
            self.broken.append(f"{kind} while the slot is at work")
        if kind in ("save", "restore"):
            file = json.loads(body.data)["filename"]
            if kind == "save":
                self._touched.discard(file)
                if file in {record.file for record in self.records()}:
                    self.broken.append(f"{file} is written over while it is the good one")
            else:
                self._before_restore(file)

    def _before_restore(self, file: str) -> None:
        record = next((r for r in self.records() if r.file == file), None)
        if record is None:
            self.broken.append(f"{file} is restored and has no record")
            return
        if not record.model.startswith(f"{self.fake.model_path} ") and self.life.sees:
            self.broken.append(f"{file} is of {record.model}")
        if record.tokens > self.fake.context and self.life.sees and self.setup.slots:
            self.broken.append(f"{file} is longer than the context")
        if not self.setup.visible:
            return
        path = self.path / file
        if path.is_symlink() or not path.is_file() or path.stat().st_size != record.size:
            self.broken.append(f"{file} is restored, and is not what {record} says")
        elif self.setup.verify == "xxh3" and _xxh3(path) != record.checksum:
            self.broken.append(f"{file} is restored and damaged")

    def after(self, uri: bytes, status: int) -> None:
        """The server has answered, or not (0), and slotgate has not heard it yet."""
        kind = kind_of(uri)
        if status != 200:
            # what slotgate does not know it can not act upon
            self.life.sees = False
        elif kind == "look":
            self.life.sees = not self.fake.engine.deferred
        if kind == "restore" and self.fake.died:
            self.broken.append("the server died of a restore")
        if kind != "other":
            self._happens(("after", kind))

    def records(self) -> list[Snapshot]:
        records: list[Snapshot] = now(self.life.index.all())
        return records

    def check(self) -> None:
        if self.fake.died:
            # somebody looks after it
            self._dead_for += 1
            if self._dead_for > 2:
                self.restart_server()
        records = self.records()
        for record in records:
            self._check_record(record)
        limit = self.setup.max_files
        if limit and self.setup.visible and len(records) > max(limit, 2):
            self.broken.append(f"{len(records)} snapshots, and {limit} are allowed")
        for path, content in self._bystanders.items():
            if not path.is_file() or path.read_bytes() != content:
                self.broken.append(f"{path.name} was changed")
        if not self._link.is_symlink():
            self.broken.append("somebody else's link was changed")
        assert not self.broken, "\n".join(self.broken)

    def _check_record(self, record: Snapshot) -> None:
        if record.file in self._touched:
            return
        path = self.path / record.file
        talk = self.talks[record.session[0].upper()]
        if not OURS.match(record.file) or not path.is_file() or path.is_symlink():
            self.broken.append(f"{record.file} has a record and is no file")
        elif path.stat().st_size != record.size:
            self.broken.append(f"{path.stat().st_size} bytes are there of {record}")
        else:
            text = self._text_of(record.file)
            if text is None or len(text) != record.tokens or record.tokens < MIN_TOKENS:
                self.broken.append(f"{shown(text)} in {record}")
            elif not talk.holds(text):
                self.broken.append(f"{talk.name}'s {record.file} holds {shown(text)}")

    def _text_of(self, file: str) -> str | None:
        """The tokens in a file."""
        path = self.path / file
        try:
            status = path.stat()
            key = (file, status.st_mtime_ns, status.st_size)
            if key not in self._seen:
                data = path.read_bytes()
                self._seen[key] = None
                for model in (self.fake.model_path, *MODELS):
                    kept, self.fake.model_path = self.fake.model_path, model
                    try:
                        self._seen[key] = as_text(self.fake.file_format.decode(data))
                    except BadSlotFile:
                        continue
                    finally:
                        self.fake.model_path = kept
                    break
            return self._seen[key]
        except (OSError, DeadlySlotFile):
            return None


MODELS = ("/models/tiny.gguf", "/models/other.gguf")


def shown(text: str | None) -> str:
    """Token texts for people."""
    if text is None:
        return "nothing that can be read"
    plain = "".join(" " if ord(c) == 259 else chr(max(32, ord(c) - 3)) for c in text)
    return f"{len(text)} tokens {plain[:30]!r}…{plain[-30:]!r}"


def _xxh3(path: Path) -> str:
    return xxhash.xxh3_128_hexdigest(path.read_bytes())


def kind_of(uri: bytes) -> Any:
    """What a request is for."""
    parts = urlsplit(uri.decode())
    if parts.path == "/slots":
        return "look"
    if parts.path == CHAT:
        return "chat"
    return parts.query.removeprefix("action=") or "other"


def damage_file(folder: Path, file: str, how: Damage, others: list[str]) -> None:
    """What can happen to a file."""
    path = folder / file
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[:-1])
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "removed":
        path.unlink()
    elif how == "flipped":
        path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    elif how == "junk":
        path.write_bytes(b"junk" * (len(data) // 4) + b"j" * (len(data) % 4))
    elif how == "long":
        path.write_bytes(data + b"\0")
    elif how == "link":
        target = folder.with_name(f"outside-{file}")
        path.rename(target)
        path.symlink_to(target)
    elif others:
        other = folder / others[0]
        if other.is_file():
            path.write_bytes(other.read_bytes())
