"""The session API: what is resident, what is saved, and to save, delete or clear it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from attrs import evolve
from doubles import ScriptedLlama, memory_database, slot, snapshots
from gateway import CHAT, Answer, Caller, FakeGatewayCase, GatewayCase, RealGatewayCase
from slot_case import want
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from twisted.web.test.requesthelper import DummyRequest

from slotgate._config.loading import parse_config
from slotgate.reloading import Settings
from slotgate.slots.lease import Lease
from slotgate.slots.pool import SlotPool
from slotgate.snapshots.index import Index
from slotgate.snapshots.records import Snapshot
from slotgate.testing.fake import Speed
from slotgate.testing.faults import Hang
from slotgate.web._session_calls import from_elsewhere
from slotgate.web._session_finding import Finding
from slotgate.web.clients import Clients
from slotgate.web.sessions import Sessions

API = "/api/sessions"
LONG = "word " * 100

#: Half a second for a token: no stream ends by itself while a test looks at it.
SLOW = Speed(generation=2)


class ApiCalls(GatewayCase):
    """Calls of the API, and conversations to call it about."""

    #: A key that sees everything.
    admin = ""

    async def ask(self, session: str, model: str = "", key: str = "", **fields: Any) -> Answer:
        """One request of a session, named in the body: a header could not hold every id."""
        said = {"messages": [{"role": "system", "content": f"{session} {LONG}"}], "max_tokens": 4}
        named = {"model": model} if model else {}
        body = {**said, **named, "chat_id": session, **fields}
        answer = await self.post(CHAT, body, self.key(key))
        self.assertEqual(answer.status, 200, answer.body)
        return answer

    async def call(
        self,
        method: str,
        path: str = "",
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call of the API."""
        return await self.request(method, API + path, {**self.key(key), **(headers or {})})

    async def ids(self, key: str = "") -> list[str]:
        """The ids in the list."""
        return [one["id"] for one in (await self.call("GET", key=key)).json["sessions"]]

    async def slot_now(self, key: str = "") -> dict[str, Any]:
        """The only slot."""
        (slot,) = (await self.call("GET", "/current", key=key)).json["slots"]
        found: dict[str, Any] = slot
        return found

    def key(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}


class FakeCase(ApiCalls, FakeGatewayCase):
    """In front of the fake, whose streams last as long as a test wants."""

    async def stream(self, session: str) -> Caller:
        """A stream that runs until :meth:`end`."""
        self.llama.speed = SLOW
        caller = await self.connect()
        body = {"messages": [{"role": "system", "content": LONG}], "stream": True}
        caller.post(CHAT, {**body, "chat_id": session})
        await caller.heard(b"data: ")
        return caller

    async def end(self, stream: Caller) -> None:
        """Let a stream come to its end."""
        self.llama.speed = Speed()
        await stream.heard(b"[DONE]")

    async def slot_is(self, **expected: object) -> None:
        """Look until an admin sees the slot like this."""
        while not expected.items() <= (await self.slot_now(self.admin)).items():
            pass


class ReadingTests(FakeCase):
    """What the API shows."""

    async def test_a_slot_of_which_nothing_is_known_yet(self) -> None:
        self.assertEqual(
            await self.slot_now(),
            {
                "server": "local",
                "slot": 0,
                "routes": ["*"],
                "state": "unknown",
                "waiting": 0,
                "session": None,
            },
        )

    async def test_the_resident_session_unsaved_and_saved(self) -> None:
        await self.ask("A")
        slot = await self.slot_now()
        session = slot["session"]
        self.assertEqual(slot["state"], "dirty")
        self.assertGreater(session.pop("tokens"), 100)
        self.assertEqual(
            session,
            {"id": "A", "source": "body:chat_id", "route": "*", "saved": False, "snapshot": None},
        )
        await self.ask("B")
        await self.ask("A")
        session = (await self.slot_now())["session"]
        snapshot = session["snapshot"]
        self.assertEqual(session["saved"], False)
        self.assertGreater(session["tokens"], 100)
        self.assertEqual(snapshot["generation"], 1)
        self.assertIn(snapshot["bytes"], {file.stat().st_size for file in self.slots.iterdir()})
        self.assertIn("/models/tiny.gguf", snapshot["model"])
        self.assertRegex(snapshot["created"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    async def test_a_running_lease_shows_its_session(self) -> None:
        caller = await self.stream("A")
        slot = await self.slot_now()
        self.assertEqual((slot["state"], slot["session"]["id"]), ("leased", "A"))
        self.assertEqual((slot["session"]["saved"], slot["session"]["tokens"]), (False, None))
        (listed,) = (await self.call("GET")).json["sessions"]
        self.assertEqual((listed["id"], listed["resident"], listed["saved"]), ("A", True, False))
        await self.end(caller)

    async def test_a_resident_that_is_being_saved_for_the_first_time_is_listed(self) -> None:
        await self.ask("A")
        held = Hang()
        self.llama.plan(held, action="save")
        saving = Deferred.fromCoroutine(self.call("POST", "/A/save"))
        await self.llama.seen(action="save")
        self.assertEqual(await self.ids(), ["A"])
        held.release()
        self.assertEqual((await saving).status, 200)

    async def test_the_list_has_residents_first_and_the_rest_by_last_use(self) -> None:
        for session in ("A", "B", "C", "D"):
            await self.ask(session)
        answer = await self.call("GET")
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        listed = answer.json
        self.assertEqual([one["id"] for one in listed["sessions"]], ["D", "C", "B", "A"])
        self.assertEqual((listed["total"], listed["limit"], listed["offset"]), (4, 100, 0))
        self.assertEqual(listed["bytes"], sum(file.stat().st_size for file in self.slots.iterdir()))
        d, *_, a = listed["sessions"]
        self.assertEqual((d["resident"], d["saved"], d["bytes"]), (True, False, 0))
        self.assertEqual((d["generation"], d["created"], d["model"]), (None, None, None))
        self.assertEqual((a["resident"], a["saved"], a["generation"]), (False, True, 1))
        self.assertNotIn("client", a)
        self.assertEqual((a["source"], a["route"]), ("body:chat_id", "*"))

    async def test_pages_join_without_gap_or_overlap(self) -> None:
        for session in ("A", "B", "C", "D", "B"):
            await self.ask(session)
        paged = []
        for offset in range(6):
            page = (await self.call("GET", f"?limit=1&offset={offset}")).json
            self.assertEqual(page["total"], 4)
            paged += [one["id"] for one in page["sessions"]]
        self.assertEqual(paged, await self.ids())
        self.assertEqual(sorted(paged), ["A", "B", "C", "D"])
        self.assertEqual(paged[0], "B")

    async def test_bad_pages(self) -> None:
        for query in ("limit=0", "limit=1001", "limit=x", "limit=", "limit=1&limit=2", "offset=-1"):
            answer = await self.call("GET", f"?{query}")
            self.assertEqual(answer.status, 400, query)
            self.assertEqual(answer.json["error"]["type"], "invalid_request_error")

    async def test_other_methods(self) -> None:
        for method, path, allowed in (
            ("PUT", "", "GET, HEAD"),
            ("DELETE", "", "GET, HEAD"),
            ("OPTIONS", "", "GET, HEAD"),
            ("POST", "/current", "GET, HEAD, DELETE"),
            ("GET", "/clear", "POST, DELETE"),
            ("GET", "/A/save", "POST, DELETE"),
            ("POST", "/A/prompt", "GET, HEAD, DELETE"),
            ("GET", "/A%2Fprompt", "DELETE"),
            ("GET", "/A", "DELETE"),
            ("POST", "/A%2Fsave", "DELETE"),
        ):
            answer = await self.call(method, path)
            self.assertEqual(answer.status, 405, (method, path))
            self.assertEqual(answer.headers["allow"], allowed)
            self.assertEqual(answer.json["error"]["code"], 405)
        self.assertEqual(await self.seen_by_the_server(), [])

    async def test_other_paths_are_the_servers(self) -> None:
        for path in ("/api/tools", "/api/sessionsx", "/api/session", "/api", "/v1/api/sessions"):
            here, there = await self.get(path), await self.get(path, base=self.llama.url)
            self.assertEqual((here.status, here.body), (there.status, there.body))
        self.assertEqual(len(await self.seen_by_the_server()), 10)

    async def seen_by_the_server(self) -> list[str]:
        return [call.path for call in self.llama.calls if "/api" in call.path]


class ChangingTests(FakeCase):
    """What the API changes."""

    async def test_a_deleted_session_is_gone_from_disk_list_and_slot(self) -> None:
        for session in ("A", "B", "A"):
            await self.ask(session)
        answer = await self.call("DELETE", "/A")
        (deleted,) = answer.json["deleted"]
        self.assertEqual((deleted["id"], deleted["route"]), ("A", "*"))
        self.assertEqual((deleted["resident"], deleted["generation"]), (True, 1))
        self.assertGreater(deleted["bytes"], 0)
        self.assertEqual(await self.ids(), ["B"])
        self.assertEqual(len(list(self.slots.iterdir())), 1)
        self.assertEqual((await self.ask("A")).cache, "cold")

    async def test_what_is_not_there_can_not_be_deleted_or_saved(self) -> None:
        await self.ask("A")
        for method, path in (
            ("DELETE", "/B"),
            ("DELETE", "/A?route=other"),
            ("DELETE", "/"),
            ("POST", "/B/save"),
            ("POST", "//save"),
        ):
            answer = await self.call(method, path)
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(answer.json["error"]["type"], "not_found_error")
        self.assertEqual(await self.ids(), ["A"])

    async def test_ids_that_a_path_can_not_hold_as_they_are(self) -> None:
        for session in (
            "a/b",
            "/",
            "//a",
            "c d",
            "50%",
            "%2F",
            "é☃",
            "..",
            "../../v1/models",
            "x/save",
            "save",
            "current",
            "clear",
            "a?b#c",
            "a+b&c=d",
        ):
            shown = (await self.ask(session)).headers["x-slotgate-session"]
            saved = await self.call("POST", f"/{quote(session, safe='')}/save")
            self.assertEqual(saved.status, 200, (session, saved.body))
            self.assertEqual(await self.ids(), [session])
            deleted = await self.raw("DELETE", quote(session, safe=""))
            self.assertIn(b"HTTP/1.1 200", deleted, session)
            self.assertEqual(await self.ids(), [])
            # as X-Slotgate-Session shows it, it is good too
            await self.ask(session)
            self.assertIn(b"HTTP/1.1 200", await self.raw("DELETE", shown), session)
            self.assertEqual(await self.ids(), [])

    async def raw(self, method: str, rest: str) -> bytes:
        """A call whose path no library tidies up."""
        caller = await self.connect()
        head = f"{method} {API}/{rest} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        caller.write(head.encode("ascii"))
        await caller.gone
        return caller.received

    async def test_an_id_on_several_routes(self) -> None:
        for model in ("m1", "m2", "m3"):
            await self.ask("A", model)
        answer = await self.call("DELETE", "/A?route=m2")
        self.assertEqual([one["route"] for one in answer.json["deleted"]], ["m2"])
        answer = await self.call("DELETE", "/A")
        self.assertEqual({one["route"] for one in answer.json["deleted"]}, {"m1", "m3"})
        self.assertEqual(await self.ids(), [])

    async def test_a_slip_in_a_parameter_changes_nothing(self) -> None:
        await self.ask("A")
        for method, path in (("DELETE", "/A?rout=x"), ("POST", "/clear?model=x")):
            self.assertEqual((await self.call(method, path)).status, 400)
        self.assertEqual((await self.slot_now())["session"]["id"], "A")

    async def test_a_deletion_waits_for_the_lease_of_the_session(self) -> None:
        caller = await self.stream("A")
        deleting = Deferred.fromCoroutine(self.call("DELETE", "/A"))
        await self.slot_is(waiting=1)
        self.assertFalse(deleting.called)
        await self.end(caller)
        self.assertEqual((await deleting).status, 200)
        self.assertEqual(await self.ids(), [])
        await self.ask("B")
        self.assertNotIn("save", self.actions())

    async def test_a_deletion_whose_client_leaves_is_carried_out(self) -> None:
        for session in ("A", "B", "A"):
            await self.ask(session)
        stream = await self.stream("A")
        caller = await self.connect()
        caller.write(b"DELETE /api/sessions/A HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await self.slot_is(waiting=1)
        await caller.leave()
        await self.end(stream)
        while await self.ids() != ["B"]:
            pass
        self.assertEqual((await self.ask("A")).cache, "cold")

    async def test_clear_erases_the_slot_and_leaves_the_snapshot(self) -> None:
        for session in ("A", "B", "A"):
            await self.ask(session)
        answer = await self.call("POST", "/clear")
        (cleared,) = answer.json["cleared"]
        self.assertGreater(cleared.pop("tokens"), 100)
        who = {"id": "A", "source": "body:chat_id", "route": "*", "saved": False}
        self.assertEqual(cleared, {"server": "local", "slot": 0, "session": who})
        slot = await self.slot_now()
        self.assertEqual((slot["state"], slot["session"]), ("empty", None))
        self.assertEqual((await self.ask("A")).cache, "restored")

    async def test_clear_during_a_stream_waits_for_its_end(self) -> None:
        caller = await self.stream("A")
        clearing = Deferred.fromCoroutine(self.call("POST", "/clear?route=*"))
        await self.slot_is(waiting=1)
        self.assertNotIn("erase", self.actions())
        await self.end(caller)
        (cleared,) = (await clearing).json["cleared"]
        self.assertEqual(cleared["session"]["id"], "A")
        self.assertEqual(self.actions(), ["erase"])

    async def test_clear_tells_when_it_can_not(self) -> None:
        await self.ask("A")
        self.llama.die()
        answer = await self.call("POST", "/clear")
        self.assertEqual(answer.status, 502)
        self.assertIn("local slot 0", answer.json["error"]["message"])

    async def test_clear_does_not_wake_a_server_that_sleeps(self) -> None:
        await self.ask("A")
        await self.slot_is(state="dirty")
        self.llama.fall_asleep()
        (cleared,) = (await self.call("POST", "/clear")).json["cleared"]
        self.assertEqual(cleared["tokens"], 0)
        self.assertTrue(self.llama.sleeping)

    async def test_save_writes_the_resident_session_once(self) -> None:
        await self.ask("A")
        for _ in range(2):
            (saved,) = (await self.call("POST", "/A/save")).json["saved"]
            self.assertEqual((saved["saved"], saved["generation"]), (True, 1))
        self.assertEqual(self.actions(), ["save"])
        await self.ask("B")
        self.assertEqual(self.actions(), ["save"])

    async def test_save_of_a_session_that_is_not_in_a_slot(self) -> None:
        for session in ("A", "B"):
            await self.ask(session)
        answer = await self.call("POST", "/A/save")
        self.assertEqual(answer.status, 409)
        self.assertIn("not in a slot", answer.json["error"]["message"])

    async def test_save_of_a_session_that_left_its_slot_while_the_call_waited(self) -> None:
        caller = await self.stream("A")
        asking = Deferred.fromCoroutine(self.ask("B"))
        await self.slot_is(waiting=1)
        saving = Deferred.fromCoroutine(self.call("POST", "/A/save"))
        await self.slot_is(waiting=2)
        await self.end(caller)
        self.assertEqual((await asking).cache, "cold")
        (saved,) = (await saving).json["saved"]
        self.assertEqual((saved["id"], saved["resident"], saved["saved"]), ("A", False, True))

    async def test_save_tells_why_it_did_not(self) -> None:
        short: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        await self.ask("A", **short)
        answer = await self.call("POST", "/A/save")
        self.assertEqual(answer.status, 409)
        self.assertIn("min_tokens (64)", answer.json["error"]["message"])
        await self.ask("B")
        self.llama.disk_full_after = 10
        self.assertEqual((await self.call("POST", "/B/save")).status, 502)
        self.llama.die()
        self.assertEqual((await self.call("POST", "/B/save")).status, 502)

    async def test_a_page_of_another_origin_changes_nothing(self) -> None:
        await self.ask("A")
        here = self.base.partition("://")[2]
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://x.{here}"):
            for method, path in (("POST", "/clear"), ("DELETE", "/A"), ("POST", "/A/save")):
                answer = await self.call(method, path, headers={"Origin": origin})
                self.assertEqual(answer.status, 403, origin)
                self.assertEqual(answer.json["error"]["type"], "permission_error")
        self.assertEqual(self.actions(), [])
        own = await self.call("DELETE", "/A", headers={"Origin": self.base})
        self.assertEqual(own.status, 200)


class OwnerTests(FakeCase):
    """Clients with keys see and touch their own sessions, an admin everybody's."""

    config = FakeGatewayCase.config + "".join(
        f'\n[[clients]]\nname = "{name}"\nkey = "{name}-key"\nadmin = {admin}\n'
        for name, admin in (("alice", "false"), ("bob", "false"), ("root", "true"))
    )
    ALICE, BOB, ROOT = "alice-key", "bob-key", "root-key"
    admin = ROOT

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        await self.ask("same", key=self.ALICE)
        await self.ask("same", key=self.BOB)
        await self.ask("bobs", key=self.BOB)

    async def test_without_a_key_or_with_a_wrong_one(self) -> None:
        for key in ("", "wrong"):
            for method, path in (("GET", ""), ("GET", "/current"), ("POST", "/clear")):
                answer = await self.call(method, path, key)
                self.assertEqual(answer.status, 401)
                self.assertEqual(answer.json["error"]["type"], "authentication_error")
            self.assertEqual((await self.call("DELETE", "/same", key)).status, 401)
        self.assertEqual(len(await self.ids(self.ROOT)), 3)

    async def test_the_list_and_its_totals(self) -> None:
        self.assertEqual(await self.ids(self.ALICE), ["same"])
        self.assertEqual(await self.ids(self.BOB), ["bobs", "same"])
        everything = (await self.call("GET", key=self.ROOT)).json
        self.assertEqual(
            [(one["client"], one["id"]) for one in everything["sessions"]],
            [("bob", "bobs"), ("bob", "same"), ("alice", "same")],
        )
        alices = (await self.call("GET", key=self.ALICE)).json
        self.assertEqual(alices["total"], 1)
        self.assertEqual(alices["bytes"], alices["sessions"][0]["bytes"])
        self.assertNotIn("client", alices["sessions"][0])

    async def test_who_is_in_the_slot(self) -> None:
        self.assertIsNone((await self.slot_now(self.ALICE))["session"])
        self.assertEqual((await self.slot_now(self.BOB))["session"]["id"], "bobs")
        self.assertEqual((await self.slot_now(self.ROOT))["session"]["client"], "bob")

    async def test_nobody_deletes_or_saves_what_is_anothers(self) -> None:
        for method, path in (("DELETE", "/bobs"), ("POST", "/bobs/save")):
            self.assertEqual((await self.call(method, path, self.ALICE)).status, 404)
        self.assertEqual((await self.call("DELETE", "/same", self.ALICE)).status, 200)
        self.assertEqual(await self.ids(self.ALICE), [])
        self.assertEqual(await self.ids(self.BOB), ["bobs", "same"])

    async def test_nobody_clears_a_slot_that_another_uses(self) -> None:
        for path in ("/clear", "/clear?route=*"):
            answer = await self.call("POST", path, self.ALICE)
            self.assertEqual((answer.status, answer.json), (200, {"cleared": []}))
        self.assertEqual((await self.slot_now(self.BOB))["session"]["id"], "bobs")
        (cleared,) = (await self.call("POST", "/clear", self.BOB)).json["cleared"]
        self.assertEqual(cleared["session"]["id"], "bobs")

    async def test_nor_one_that_another_takes_while_the_call_waits(self) -> None:
        self.llama.speed = SLOW
        bobs = Deferred.fromCoroutine(self.ask("bobs", key=self.BOB, max_tokens=20))
        await self.slot_is(state="leased")
        alices = Deferred.fromCoroutine(self.ask("same", key=self.ALICE))
        await self.slot_is(waiting=1)
        clearing = Deferred.fromCoroutine(self.call("POST", "/clear", self.BOB))
        await self.slot_is(waiting=2)
        self.llama.speed = Speed()
        await bobs
        await alices
        self.assertEqual((await clearing).json, {"cleared": []})
        self.assertEqual((await self.slot_now(self.ALICE))["session"]["id"], "same")

    async def test_an_admin_deletes_everybodys(self) -> None:
        answer = await self.call("DELETE", "/same", self.ROOT)
        self.assertEqual({one["client"] for one in answer.json["deleted"]}, {"alice", "bob"})
        self.assertEqual(await self.ids(self.ROOT), ["bobs"])


class ManySessionsTests(SynchronousTestCase):
    """A page of the list costs the same number of statements at any size, each on an index."""

    ROWS = 10_000
    MODEL = "/models/a.gguf (n_vocab 32000, n_ctx_train 4096, n_embd 4096, n_params 7000000000)"

    def setUp(self) -> None:
        self.database = memory_database()
        self.leases: list[Lease] = []
        row = Snapshot(
            "", "*", "", "local", 0, "", 1, 500, 1_000_000, "", self.MODEL, "", "b1", "", "", 1, 1
        )
        rows = [
            evolve(
                row,
                session=f"s{n}",
                file=f"f{n}",
                client="ab"[n % 2],
                created=n + 1.0,
                used=n + 1.0,
            )
            for n in range(self.ROWS)
        ]
        index = Index(self.database)
        for one in rows:
            self.successResultOf(Deferred.fromCoroutine(index.commit(one)))

    def api(self, config: str) -> Sessions:
        settings = Settings(parse_config(config, {}, Path()))
        clock = Clock()
        resident = slot(ScriptedLlama(), clock, snapshots(clock, database=self.database))
        # whoever drops a lease ends it
        self.leases.append(self.successResultOf(resident.lease(want("s5000", "a"))))
        index, pool = Index(self.database), SlotPool(lambda _: resident)
        pool.at(resident.address)
        return Sessions(Clients(settings), pool, {}, index, Finding(settings, pool, {}, index))

    def page(self, api: Sessions, query: str, key: str = "") -> bytes:
        request: Any = DummyRequest([])
        request.uri = f"{API}{query}".encode()
        if key:
            request.requestHeaders = Headers({"X-Api-Key": [key]})
        body: bytes = self.successResultOf(Deferred.fromCoroutine(api.answer(request, API)))
        return body

    def plans(self, statement: str) -> list[str]:
        rows = self.database.connection.execute(f"EXPLAIN QUERY PLAN {statement}")
        return [row[3] for row in rows]

    def traced(self, call: Any) -> list[str]:
        statements: list[str] = []
        connection: sqlite3.Connection = self.database.connection
        connection.set_trace_callback(statements.append)
        call()
        connection.set_trace_callback(None)
        return [one for one in statements if one.startswith("SELECT")]

    def test_three_statements_on_indexes(self) -> None:
        keys = "".join(
            f'[[clients]]\nname = "{name}"\nkey = "{name}"\nadmin = {admin}\n'
            for name, admin in (("a", "false"), ("root", "true"))
        )
        for config, key in (("", ""), (keys, "a"), (keys, "root")):
            api = self.api(config)
            for query in ("?limit=1", "?limit=1000", "?limit=100&offset=4900"):
                with self.subTest(key=key, query=query):
                    selects = self.traced(lambda: self.page(api, query, key))  # noqa: B023
                    self.assertEqual(len(selects), 3, selects)
                    for statement in selects:
                        for step in self.plans(statement):
                            self.assertNotIn("TEMP B-TREE", step, statement)
                            if step.startswith(("SCAN snapshots", "SEARCH snapshots")):
                                self.assertIn("INDEX", step, statement)


class OriginTests(SynchronousTestCase):
    """Which pages may change something."""

    def judge(self, origin: str, *hosts: str) -> bool:
        return from_elsewhere(Headers({"Origin": [origin], "Host": list(hosts)}))

    def test_own_pages(self) -> None:
        self.assertFalse(from_elsewhere(Headers({"Host": ["a:1"]})))
        self.assertFalse(self.judge("http://a:11434", "a:11434"))
        self.assertFalse(self.judge("http://A", "a:80"))
        self.assertFalse(self.judge("https://a", "a"))
        self.assertFalse(self.judge("https://a:443", "a"))
        self.assertFalse(self.judge("http://[::1]:11434", "[::1]:11434"))

    def test_others(self) -> None:
        for origin in ("http://b:1", "http://a", "https://a:2", "null", "", "http://a:x", "a:1"):
            self.assertTrue(self.judge(origin, "a:1"), origin)
        self.assertTrue(self.judge("http://a:1"))
        self.assertTrue(self.judge("http://a:1", "a:1", "b:1"))
        self.assertTrue(self.judge("http://a:x", "a:x"))


class RealTests(ApiCalls, RealGatewayCase):
    """The same with the real llama-server."""

    options: ClassVar[dict[str, Any]] = {}

    async def test_delete(self) -> None:
        a, b = self.chat("A"), self.chat("B")
        for chat in (a, b, a):
            await chat.turn()
        deleted = (await self.call("DELETE", "/A")).json["deleted"]
        self.assertEqual([one["resident"] for one in deleted], [True])
        self.assertEqual([one["id"] for one in (await self.call("GET")).json["sessions"]], ["B"])
        await b.turn()
        answer = await a.turn()
        self.assertEqual(answer.cache, "cold")
        self.assertGreater(answer.share_read, 0.9)

    async def test_clear(self) -> None:
        a = self.chat("A")
        await a.turn()
        tokens = (await self.slot())["n_prompt_tokens"]
        self.assertEqual((await self.slot_now())["session"]["tokens"], tokens)
        (cleared,) = (await self.call("POST", "/clear")).json["cleared"]
        self.assertEqual(cleared["tokens"], tokens)
        self.assertEqual((await self.slot())["n_prompt_tokens"], 0)
        answer = await a.turn()
        self.assertEqual(answer.cache, "cold")
        self.assertGreater(answer.share_read, 0.9)

    async def test_save_before_a_crash(self) -> None:
        a = self.chat("A")
        await a.turn()
        (saved,) = (await self.call("POST", "/A/save")).json["saved"]
        (file,) = self.slots.iterdir()
        self.assertEqual(saved["bytes"], file.stat().st_size)
        await self.llama.restart()
        answer = await a.turn()
        self.assertEqual(answer.cache, "restored")
        self.assertLess(answer.share_read, 0.1)
