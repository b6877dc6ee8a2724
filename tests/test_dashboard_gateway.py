"""The dashboard of a running gateway: who may see it, what its forms do, and how it stops."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from attrs import evolve
from dashboard_samples import NASTY, Element, read_html
from gateway import CHAT, Answer, Caller, FakeGatewayCase, now
from twisted.internet.defer import fail
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from slotgate._config.loading import parse_config
from slotgate.dashboard.answers import POLICY
from slotgate.dashboard.view import PAGE
from slotgate.reloading import Settings
from slotgate.snapshots.database import IndexAway
from slotgate.snapshots.index import Index
from slotgate.web.logins import LOGIN_SECONDS, MOST_LOGINS, Logins
from slotgate.web.rejected import Rejected

HTML = {"Accept": "text/html,application/xhtml+xml"}
LONG = "word " * 100
KEYS = """
        [[clients]]
        name = "boss"
        key = "boss-key"
        admin = true
        [[clients]]
        name = "webui"
        key = "webui-key"
"""


class Case(FakeGatewayCase):
    """A gateway, and a browser that keeps a cookie."""

    cookie = ""

    async def ask(self, session: str, key: str = "", **fields: Any) -> Answer:
        """One request of a session."""
        said = {"messages": [{"role": "system", "content": f"{session} {LONG}"}], "max_tokens": 4}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = await self.post(CHAT, {**said, "chat_id": session, **fields}, headers)
        self.assertEqual(answer.status, 200, answer.body)
        return answer

    async def page(self, path: str = "", **headers: str) -> Answer:
        """A page, as a browser gets it."""
        sent = {**self.sent(), **headers}
        return await self.request("GET", f"/slotgate/{path.removeprefix('./')}", sent)

    def sent(self) -> dict[str, str]:
        return {**HTML, **({"Cookie": self.cookie} if self.cookie else {})}

    async def read(self, path: str = "") -> Element:
        """A page that is there."""
        answer = await self.page(path)
        self.assertEqual(answer.status, 200, answer.body)
        return read_html(answer.body.decode().partition("\n")[2])

    async def send(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        sent = {**self.sent(), **kind, **(headers or {})}
        return await self.request("POST", f"/slotgate/{path}", sent, urlencode(fields).encode())

    async def token(self, path: str = "") -> str:
        """What the forms of a page carry."""
        return fields_in(await self.read(path))["token"]

    async def log_in(self, key: str = "boss-key") -> Answer:
        """Log in, and keep the cookie."""
        answer = await self.send("login", {"token": await self.token("login"), "key": key})
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def sessions(self) -> list[str]:
        """What the API lists."""
        answer = await self.request("GET", "/api/sessions", {"Authorization": "Bearer boss-key"})
        return [one["id"] for one in answer.json["sessions"]]


def fields_in(page: Element) -> dict[str, str]:
    """The hidden fields of a page."""
    hidden = [one.attributes for one in page.all("input") if one.attributes["type"] == "hidden"]
    return {one["name"] or "": one["value"] or "" for one in hidden}


def notice(page: Element) -> str:
    """What is said at the top."""
    (found,) = page.all("p", "notice")
    return found.text


class PageTests(Case):
    """The page where no keys are asked for."""

    async def test_its_address_leads_to_the_page(self) -> None:
        answer = await self.request("GET", "/slotgate")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "slotgate/"))

    async def test_a_browser_may_do_nothing_on_it_but_what_it_needs(self) -> None:
        for path in ("", "login", "style.css", "live.js", "icon.svg", "session", "confirm"):
            answer = await self.page(path)
            self.assertEqual(answer.headers["content-security-policy"], POLICY, path)
            self.assertEqual(answer.headers["cache-control"], "no-store")
            self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
            self.assertEqual(answer.headers["referrer-policy"], "same-origin")
        self.assertNotIn("unsafe", POLICY)

    async def test_everything_it_loads_is_there(self) -> None:
        html = (await self.page()).body.decode()
        found = re.findall(r'(?:src|href)="([^"?]*\.(?:css|js|svg))"', html)
        self.assertEqual(sorted(found), ["icon.svg", "live.js", "style.css"])
        for name in found:
            answer = await self.page(name)
            self.assertEqual(answer.status, 200)
        self.assertNotIn("//", re.sub(r"http://127.0.0.1:\d+", "", html).replace("<!--", ""))

    async def test_it_has_no_script_or_style_of_its_own(self) -> None:
        await self.ask("a")
        page = await self.read()
        self.assertEqual([one.text for one in page.all("script")], [""])
        self.assertEqual(list(page.all("style")), [])

    async def test_a_session_that_is_called_like_markup(self) -> None:
        # a request whose id has control characters is of no session
        name = "".join(one for one in NASTY if one.isprintable() or one == "\u202e")
        await self.ask(name)
        page = await self.read()
        self.assertEqual(len(list(page.all("script"))), 1)
        (link,) = {one.attributes["href"] for one in page.all("a", "session")}
        self.assertTrue((link or "").isascii())
        shown = await self.read(link or "")
        self.assertEqual(list(shown.all("script")), [])
        self.assertIn("<script>alert(1)</script>", next(shown.all("h1")).text)

    async def test_what_it_shows_works_without_scripts(self) -> None:
        await self.ask("chat-1")
        await self.ask("chat-2")
        text = (await self.read()).text
        for words in ("chat-1", "chat-2", "cold (new session)", "in a slot, never saved"):
            self.assertIn(words, text)

    async def test_other_methods_are_refused(self) -> None:
        for method, path in (("POST", ""), ("POST", "events"), ("GET", "delete"), ("PUT", "login")):
            answer = await self.request(method, f"/slotgate/{path}")
            self.assertEqual(answer.status, 405, (method, path))

    async def test_a_head_has_no_body(self) -> None:
        answer = await self.request("HEAD", "/slotgate/")
        self.assertEqual((answer.status, answer.body), (200, b""))

    async def test_a_session_that_no_index_can_know(self) -> None:
        for path in ("session?id=%ED%A0%80&route=*", "session?id=a&route=%ED%A0%80"):
            for more in ("", "&client=%ED%BF%BF"):
                self.assertIn("not kept", (await self.read(path + more)).text)
        for path in ("confirm?id=%ED%A0%80&route=*", "session?id=a&route=*&client=%ED%A0%80"):
            self.assertEqual((await self.page(path)).status, 200, path)
        slot = await self.page("confirm?do=clear&server=%ED%A0%80&model=&slot=0")
        self.assertEqual(slot.status, 404)
        for form in ("delete", "save"):
            for key in (
                "id=%ED%A0%80&route=*",
                "id=a&route=%ED%A0%80",
                "id=a&route=*&client=%ED%A0%80",
            ):
                answer = await self.send(form, {"token": await self.token(), "key": key})
                self.assertEqual(answer.status, 303, key)
                self.assertIn("no session", notice(await self.read(answer.headers["location"])))

    async def test_a_page_of_sessions_that_is_not_there_is_the_last_one(self) -> None:
        for at in range(PAGE + 1):
            await self.ask(f"chat-{at}")
        page = await self.read("?offset=5000")
        self.assertIn("26 to 26 of 26 sessions", page.text)
        (table,) = (one for one in page.all("section") if one.attributes.get("id") == "sessions")
        self.assertEqual([one.text for one in table.all("a", "session")], ["chat-0"])

    async def test_there_is_nothing_to_log_in_to(self) -> None:
        answer = await self.page("login")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "./"))

    async def test_what_is_not_there_is_told_to_people(self) -> None:
        answer = await self.page("confirm?do=clear&server=local&model=&slot=7")
        self.assertEqual(answer.status, 404)
        self.assertIn("there is no local slot 7", answer.body.decode())
        program = await self.request("GET", "/slotgate/session")
        self.assertEqual(program.status, 400)
        self.assertEqual(program.json["error"]["code"], 400)


class FormTests(Case):
    """What the forms do, and whose they are."""

    async def test_delete_asks_and_deletes(self) -> None:
        await self.ask("a")
        await self.ask("b")
        (link,) = {
            one.attributes["href"] or ""
            for one in (await self.read()).all("a", "button")
            if "id=a" in (one.attributes["href"] or "")
        }
        asked = await self.read(link)
        self.assertIn("Delete this session?", asked.text)
        self.assertEqual(await self.sessions(), ["b", "a"])
        answer = await self.send("delete", fields_in(asked))
        self.assertEqual(answer.status, 303)
        self.assertEqual(await self.sessions(), ["b"])
        self.assertEqual(notice(await self.read(answer.headers["location"])), "Deleted a.")

    async def test_clear_asks_and_clears(self) -> None:
        await self.ask("a")
        asked = await self.read("confirm?do=clear&server=local&model=&slot=0")
        self.assertEqual(self.actions(), [])
        answer = await self.send("clear", fields_in(asked))
        self.assertEqual(self.actions(), ["erase"])
        told = notice(await self.read(answer.headers["location"]))
        self.assertRegex(told, r"^Cleared local slot 0: \d+ tokens dropped\.$")

    async def test_save_saves(self) -> None:
        await self.ask("a")
        page = await self.read()
        (button,) = page.all("button")
        (form,) = (one for one in page.all("form") if one.attributes.get("id") == "save")
        self.assertEqual(button.attributes["form"], "save")
        self.assertEqual((form.attributes["method"], form.attributes["action"]), ("post", "save"))
        fields = {**fields_in(page), "key": button.attributes["value"] or ""}
        answer = await self.send("save", fields)
        self.assertEqual(self.actions(), ["save"])
        self.assertEqual(notice(await self.read(answer.headers["location"])), "Saved a.")

    async def test_what_can_not_be_done_is_said(self) -> None:
        fields = {"token": await self.token(), "key": "id=nobody&route=*"}
        answer = await self.send("delete", fields)
        page = await self.read(answer.headers["location"])
        self.assertIn("failed", next(page.all("p", "notice")).classes)
        self.assertIn("no session 'nobody'", notice(page))

    async def test_while_the_index_is_away_nothing_is_done_and_that_is_said(self) -> None:
        await self.ask("a")
        token = await self.token()
        for name in ("named", "of"):
            self.patch(Index, name, lambda *_: fail(IndexAway("database is locked")))
        for form in ("delete", "save"):
            answer = await self.send(form, {"token": token, "key": "id=a&route=*"})
            self.assertEqual(answer.status, 503, answer.body)
            self.assertIn("retry-after", answer.headers)
            said = read_html(answer.body.decode().partition("\n")[2]).text
            self.assertIn("the index does not answer: database is locked; try again", said)

    async def test_a_message_can_not_be_made_up(self) -> None:
        page = await self.read("?told=You+have+won")
        self.assertEqual(list(page.all("p", "notice")), [])

    async def test_forms_of_others_do_nothing(self) -> None:
        await self.ask("a")
        token, key = await self.token(), "id=a&route=*"
        right = {"token": token, "key": key}
        cases: list[tuple[dict[str, str], dict[str, str]]] = [
            ({"key": key}, {}),
            ({"key": key, "token": ""}, {}),
            ({"key": key, "token": token[:-1] + ("0" if token[-1] != "0" else "1")}, {}),
            (right, {"Origin": "http://evil.example"}),
            (right, {"Origin": "null"}),
            (right, {"Origin": "http://localhost:1"}),
            (right, {"Sec-Fetch-Site": "cross-site"}),
            (right, {"Sec-Fetch-Site": "same-site"}),
        ]
        for fields, headers in cases:
            for form in ("delete", "save", "clear"):
                answer = await self.send(form, fields, headers)
                self.assertEqual(answer.status, 403, (form, fields, headers))
        for kind in ("text/plain", "multipart/form-data", "application/json", ""):
            answer = await self.send("delete", right, {"Content-Type": kind})
            self.assertEqual(answer.status, 400, kind)
        self.assertEqual(await self.sessions(), ["a"])
        self.assertEqual(self.actions(), [])
        answer = await self.send("delete", right, {"Sec-Fetch-Site": "same-origin"})
        self.assertEqual(answer.status, 303)
        self.assertEqual(await self.sessions(), [])


class LoginTests(Case):
    """Where keys are asked for."""

    config = FakeGatewayCase.config + KEYS

    async def test_a_browser_is_sent_to_the_form_and_a_program_is_refused(self) -> None:
        for path in ("", "session?id=a&route=*", "confirm?id=a&route=*"):
            answer = await self.page(path)
            self.assertEqual((answer.status, answer.headers["location"]), (303, "login"), path)
        for path in ("", "status", "events", "metrics"):
            answer = await self.request("GET", f"/slotgate/{path}")
            self.assertEqual(answer.status, 401, path)
            self.assertNotIn(b"tokens", answer.body)

    async def test_a_script_learns_that_it_has_to_log_in_again(self) -> None:
        self.assertEqual((await self.request("HEAD", "/slotgate/events")).status, 401)
        await self.log_in()
        answer = await self.request("HEAD", "/slotgate/events", {"Cookie": self.cookie})
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(len(self.gateway._parts.watching), 0)

    async def test_an_admin_logs_in_and_out(self) -> None:
        answer = await self.log_in()
        self.assertEqual((answer.status, answer.headers["location"]), (303, "./"))
        told = answer.headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=strict", "Max-Age=43200"):
            self.assertIn(part.lower(), told.lower())
        # a browser takes the folder of the page, which a proxy may call otherwise
        self.assertNotIn("path=", told.lower())
        self.assertNotIn("secure", told.lower())
        self.assertNotIn("boss-key", told)
        page = await self.read()
        self.assertIn("Log out", page.text)
        for path in ("status", "metrics"):
            answer = await self.request("GET", f"/slotgate/{path}", {"Cookie": self.cookie})
            self.assertEqual(answer.status, 200, path)
        answer = await self.send("logout", {"token": fields_in(page)["token"]})
        self.assertIn("max-age=0", answer.headers["set-cookie"].lower())
        self.assertEqual((await self.page()).status, 303)

    async def test_the_cookie_is_for_https_only_where_there_is_https(self) -> None:
        fields = {"token": await self.token("login"), "key": "boss-key"}
        answer = await self.send("login", fields, {"X-Forwarded-Proto": "https"})
        self.assertIn("secure", answer.headers["set-cookie"].lower())

    async def test_the_api_never_takes_the_cookie(self) -> None:
        await self.log_in()
        for method, path in (
            ("GET", "/api/sessions"),
            ("GET", "/api/sessions/current"),
            ("POST", "/api/sessions/clear"),
            ("GET", "/v1/models"),
            ("GET", "/api/tags"),
        ):
            answer = await self.request(method, path, {"Cookie": self.cookie})
            self.assertEqual(answer.status, 401, path)

    async def test_an_admins_key_in_a_header_is_enough(self) -> None:
        for headers in ({"Authorization": "Bearer boss-key"}, {"X-Api-Key": "boss-key"}):
            for path in ("", "status", "session?id=a&route=*"):
                answer = await self.request("GET", f"/slotgate/{path}", headers)
                self.assertEqual(answer.status, 200, path)

    async def test_a_proxys_own_password_is_no_key(self) -> None:
        await self.log_in()
        headers = {"Cookie": self.cookie, "Authorization": "Basic dXNlcjpwYXNz"}
        answer = await self.request("GET", "/slotgate/status", headers)
        self.assertEqual(answer.status, 200)

    async def test_whoever_hangs_up_does_not_guess_faster(self) -> None:
        token = await self.token("login")
        for _ in range(4):
            caller = await self.connect()
            write_form(caller, "login", {"token": token, "key": "wrong"})
            await self.pause(0.05)
            caller.leave()
        await self.pause(0.05)
        answer = await self.log_in("x")
        self.assertEqual(answer.status, 429)

    async def test_a_wrong_key_and_one_that_is_no_admins(self) -> None:
        for key, words in (("webui-key", "only clients with admin = true"), ("x", "No client")):
            began = now()
            answer = await self.log_in(key)
            self.assertEqual(answer.status, 403)
            self.assertGreater(now() - began, 0.9)
            self.assertIn(words, answer.body.decode())
            self.assertNotIn("set-cookie", answer.headers)
        answer = await self.request(
            "GET", "/slotgate/status", {"Authorization": "Bearer webui-key"}
        )
        self.assertEqual(answer.status, 403)

    async def test_guesses_are_few_and_hold_up_nobody_who_is_in(self) -> None:
        token = await self.token("login")
        await self.log_in()
        callers = [await self.connect() for _ in range(6)]
        for caller in callers:
            write_form(caller, "login", {"token": token, "key": "wrong"})
        refused = 0
        for caller in callers[4:]:
            await caller.heard(b"\r\n\r\n")
            refused += b" 429 " in caller.received.partition(b"\r\n")[0]
        self.assertEqual(refused, 2)
        self.assertEqual((await self.page()).status, 200)
        for caller in callers[:4]:
            await caller.heard(b" 403 ")

    async def test_the_login_ends_when_its_key_goes(self) -> None:
        await self.log_in()
        stream = await self.watch()
        settings = self.gateway._settings
        clients = settings.config.clients
        settings.config = evolve(
            settings.config, clients=(evolve(clients[0], key="another-key"), clients[1])
        )
        self.assertEqual((await self.page()).status, 303)
        # the stream ends too, in order
        await stream.heard(b"\r\n0\r\n\r\n")

    async def test_what_is_nobodys_is_deleted_alone(self) -> None:
        for key in ("webui-key", "boss-key"):
            await self.ask("main", key=key)
            headers = {"Authorization": f"Bearer {key}"}
            await self.request("POST", "/api/sessions/main/save", headers, b"{}")
        index = sqlite3.connect(self.folder / "state" / "index.sqlite")
        self.addCleanup(index.close)
        # as if one were from before there were clients
        with index:
            changed = index.execute("UPDATE snapshots SET client = '' WHERE client = 'boss'")
        self.assertEqual(changed.rowcount, 1)
        await self.log_in()
        fields = {"token": await self.token(), "key": "id=main&route=*"}
        self.assertEqual((await self.send("delete", fields)).status, 303)
        left = index.execute("SELECT client FROM snapshots").fetchall()
        self.assertEqual(left, [("webui",)])

    async def test_a_form_is_good_for_the_login_that_it_was_made_for(self) -> None:
        await self.ask("a", key="webui-key")
        await self.log_in()
        first = await self.token()
        fields = {"token": first, "key": "id=a&route=*&client=webui"}
        await self.log_in()
        self.assertEqual((await self.send("delete", fields)).status, 403)
        self.assertEqual(await self.sessions(), ["a"])
        fields["token"] = await self.token()
        self.assertEqual((await self.send("delete", fields)).status, 303)
        self.assertEqual(await self.sessions(), [])

    async def test_only_that_clients_session_goes(self) -> None:
        await self.ask("a", key="webui-key")
        await self.ask("a", key="boss-key")
        await self.log_in()
        fields = {"token": await self.token(), "key": "id=a&route=*&client=webui"}
        await self.send("delete", fields)
        page = await self.read()
        (section,) = (one for one in page.all("section") if one.attributes.get("id") == "sessions")
        clients = [
            one.text for one in section.all("td") if one.attributes.get("data-label") == "Client"
        ]
        self.assertEqual(clients, ["boss"])

    async def test_other_pages_can_not_use_the_login(self) -> None:
        await self.log_in()
        for headers in (
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
            {"Origin": "http://localhost:3000"},
        ):
            answer = await self.request(
                "GET", "/slotgate/status", {"Cookie": self.cookie, **headers}
            )
            self.assertEqual(answer.status, 401, headers)
        # a person who follows a link
        answer = await self.page(**{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"})
        self.assertEqual(answer.status, 200)

    async def watch(self) -> Caller:
        return await watch(self, {"Cookie": self.cookie})


class StreamTests(Case):
    """The stream, through sockets."""

    async def test_the_page_and_the_stream_are_of_the_same_process(self) -> None:
        (live,) = (
            one for one in (await self.read()).all("span") if one.attributes.get("id") == "live"
        )
        stream = await watch(self)
        instance = (live.attributes["data-instance"] or "").encode()
        self.assertTrue(instance)
        self.assertIn(b"event: instance\ndata: %s\n\n" % instance, stream.received)

    async def test_it_tells_of_a_request_and_ends_with_its_browser(self) -> None:
        stream = await watch(self)
        self.assertIn(b"Content-Type: text/event-stream\r\n", stream.received)
        self.assertIn(b"Cache-Control: no-store\r\n", stream.received)
        for name in (b"totals", b"switches", b"slots", b"servers", b"requests", b"sessions"):
            await stream.heard(b'{"name": "%s"' % name)
        await self.ask("chat-1")
        await stream.heard(b"chat-1")
        watching = self.gateway._parts.watching
        self.assertEqual(len(watching), 1)
        await stream.leave()
        while len(watching):
            await self.pause(0.01)
        self.assertIsNone(watching._looking)

    async def test_a_stop_does_not_wait_for_those_who_look(self) -> None:
        streams = [await watch(self) for _ in range(3)]
        # one of them has sent its next request already
        streams[0].write(b"GET /slotgate/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
        began = now()
        await self.stop_gateway()
        self.assertLess(now() - began, 0.5)
        for stream in streams:
            self.assertIn(b"\r\n0\r\n\r\n", stream.received)

    async def test_a_stop_does_not_wait_for_one_that_does_not_read(self) -> None:
        stream = await watch(self)
        cast(IPushProducer, stream.transport).pauseProducing()
        (watcher,) = self.gateway._parts.watching._watchers
        # more than the system takes for it
        watcher._write(b":" * 2**24 + b"\n\n")
        self.assertIsNotNone(watcher._stalled)
        began = now()
        await self.stop_gateway()
        self.assertLess(now() - began, 0.5)
        cast(IPushProducer, stream.transport).resumeProducing()
        await stream.gone

    async def test_more_than_there_is_room_for(self) -> None:
        look = b"GET /slotgate/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        callers = [await self.connect() for _ in range(33)]
        for caller in callers[:32]:
            caller.write(look)
        for caller in callers[:32]:
            await caller.heard(b"retry: ")
        caller = callers[-1]
        caller.write(look)
        await caller.heard(b" 503 ")
        await caller.heard(b"Retry-After: ")


async def watch(case: Case, headers: Mapping[str, str] | None = None) -> Caller:
    """A browser that looks, and has got something to see."""
    caller = await case.connect()
    lines = ["GET /slotgate/events HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    caller.write("\r\n".join([*lines, "", ""]).encode())
    await caller.heard(b"event: section")
    return caller


def write_form(caller: Caller, path: str, fields: Mapping[str, str]) -> None:
    """Write a form, and wait for nothing."""
    body = urlencode(fields).encode()
    head = (
        f"POST /slotgate/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    caller.write(head.encode() + body)


class FakeRequest:
    """A request with a cookie."""

    method = b"GET"

    def __init__(self, value: str) -> None:
        from twisted.web.http_headers import Headers

        self.requestHeaders = Headers()
        self._value = value

    def getCookie(self, name: bytes) -> bytes | None:
        return self._value.encode() or None


class LoginsTests(SynchronousTestCase):
    """How long a login lasts."""

    def setUp(self) -> None:
        text = '[gateway]\nlisten = ["tcp:0:interface=127.0.0.1"]\n' + KEYS
        self.settings = Settings(parse_config(text, {}, Path("/nowhere")))
        self.clock = Clock()
        self.logins = Logins.of(self.settings, self.clock, b"secret")

    def who(self, token: str) -> str | None:
        request: Any = FakeRequest(token)
        client = self.logins.client(request)
        return None if client is None else client.name

    def test_twelve_hours(self) -> None:
        token = self.logins.begin("boss-key")
        self.clock.advance(LOGIN_SECONDS - 1)
        self.assertEqual(self.who(token), "boss")
        self.clock.advance(1)
        self.assertEqual(self.who(token), None)
        self.assertEqual(len(self.logins._known), 0)

    def test_as_long_as_its_client_is_an_admin_with_that_key(self) -> None:
        boss, webui = self.settings.config.clients
        for clients in (
            (webui,),
            (evolve(boss, admin=False), webui),
            (evolve(boss, key="new"), webui),
            (evolve(boss, name="another"), webui),
        ):
            self.settings.config = evolve(self.settings.config, clients=(boss, webui))
            token = self.logins.begin("boss-key")
            self.assertEqual(self.who(token), "boss")
            self.settings.config = evolve(self.settings.config, clients=clients)
            self.assertEqual(self.who(token), None, clients)

    def test_the_oldest_goes_when_there_are_many(self) -> None:
        tokens = [self.logins.begin("boss-key") for _ in range(MOST_LOGINS + 1)]
        self.assertEqual(len(set(tokens)), MOST_LOGINS + 1)
        self.assertEqual([self.who(token) for token in tokens[:2]], [None, "boss"])

    def test_nobody_else_gets_one(self) -> None:
        for key in ("webui-key", "", "boss-ke", "boss-keyy", "\ud800"):
            self.assertRaises(Rejected, self.logins.begin, key)
        self.assertEqual(self.who(""), None)
        self.assertEqual(self.who("guess"), None)

    def test_each_installation_has_a_cookie_of_its_own(self) -> None:
        other = Logins.of(self.settings, self.clock, b"another secret")
        self.assertNotEqual(self.logins.cookie, other.cookie)
        self.assertEqual(quote(self.logins.cookie), self.logins.cookie)
