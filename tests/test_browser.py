"""
The dashboard in Chromium, with a gateway and a real llama-server in processes of their own.

Run by ``make test-browser``. Screenshots are written to ``test-artifacts/``.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, ClassVar, TypeVar

import pytest
from dashboard_samples import disk, listing, request, server, session, slot, span, status
from gateway import Chat, now
from processes import BIN, ProcessCase, Program
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from twisted.internet.threads import deferToThread

from slotgate.dashboard.markup import to_html
from slotgate.dashboard.sections import sections
from slotgate.dashboard.view import View

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).resolve().parent.parent / "test-artifacts"

#: So long may the page take to show what has happened, in seconds.
SHOWN_SECONDS = 2.0
#: So long may a page take to load.
LOAD_SECONDS = 10.0

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

#: How well each text that can be seen stands out from what is behind it: those under 4.5.
_CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => {
  v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
}).reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(one).backgroundColor);
    if (a > 0.99) return [r, g, b];
  }
  return [255, 255, 255];
};
const found = [];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || one.closest("svg, .silent, .skip, thead") || !one.checkVisibility()) continue;
  const [a, b] = [light(parse(getComputedStyle(one).color)), light(behind(one))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${one.className} ${one.textContent.trim()}`);
}
return found;
"""

_T = TypeVar("_T")


class BrowserCase(ProcessCase):
    """A browser, a gateway, and a server with a tiny model."""

    timeout = 90
    #: More of the configuration.
    more: ClassVar[str] = "[prompt_history]\nkeep_prompts = true"
    #: What the browser's console may say.
    expected_errors: ClassVar[tuple[str, ...]] = ()

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.llama = await self.start_llama()
        self.write_config(self.llama.url, more=self.more)
        self.program = await self.start()
        self.driver = await self.in_thread(self._open)
        self.addCleanup(self._close)

    async def start(self) -> Program:
        """The gateway, as an operator starts it."""
        return await self.serving(BIN / "slotgate", "run", "--config", "slotgate.toml")

    async def in_thread(self, work: Callable[..., _T], *args: Any) -> _T:
        """Drive the browser while the reactor runs."""
        return await deferToThread(work, *args)

    def _open(self) -> Chrome:
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for option in _OPTIONS:
            options.add_argument(option)
        options.add_argument(f"--user-data-dir={self.folder / 'browser'}")
        options.add_argument("--window-size=1280,900")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(shutil.which("chromedriver") or "chromedriver")
        driver = Chrome(options=options, service=service)
        # what the new tab that it starts with loads is nobody's business
        driver.get("about:blank")
        driver.get_log("performance")
        return driver

    async def _close(self) -> None:
        try:
            await self.in_thread(self._check)
        finally:
            await self.in_thread(self.driver.quit)

    def _check(self) -> None:
        """The console is quiet, and nobody else was asked for anything."""
        said = [
            one["message"]
            for one in self.driver.get_log("browser")
            if not any(part in one["message"] for part in self.expected_errors)
        ]
        self.assertEqual(said, [])
        sent = [json.loads(one["message"])["message"] for one in self.driver.get_log("performance")]
        urls = [
            one["params"]["request"]["url"]
            for one in sent
            if one["method"] == "Network.requestWillBeSent"
        ]
        self.assertTrue(urls)
        self.assertEqual([url for url in urls if not url.startswith(f"{self.base}/slotgate")], [])

    # what a person does

    def visit(self, path: str = "") -> None:
        """Open a page."""
        self.driver.get(f"{self.base}/slotgate/{path}")

    def find(self, selector: str) -> WebElement:
        """The first element of a kind."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a kind."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text that can be seen of the first element of a kind."""
        return self.find(selector).text

    def script(self, text: str, *values: Any) -> Any:
        """Run JavaScript in the page."""
        return self.driver.execute_script(text, *values)

    def until(self, true: Callable[[], object], seconds: float = SHOWN_SECONDS) -> None:
        """Wait until something is so, at most for a while."""
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: true())

    def live(self) -> None:
        """Wait until the stream is there."""
        self.until(lambda: self.text("#live") == "live", LOAD_SECONDS)

    def look(self, width: int, height: int, *, dark: bool) -> None:
        """Another screen."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def shoot(self, name: str) -> None:
        """A picture of the whole page."""
        ARTIFACTS.mkdir(exist_ok=True)
        picture = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True}
        )
        (ARTIFACTS / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))

    async def listed(self) -> list[str]:
        """What the session API lists."""
        return [one["id"] for one in (await self.get("/api/sessions")).json["sessions"]]


class DashboardTests(BrowserCase):
    """The page where no keys are asked for."""

    async def three(self) -> list[Chat]:
        """Three conversations that have begun."""
        chats = [self.chat(name, words) for name, words in (("A", 100), ("B", 150), ("C", 60))]
        for chat in chats:
            await chat.turn()
        return chats

    async def test_it_shows_each_switch_of_three_sessions_by_itself(self) -> None:
        chats = await self.three()
        await self.in_thread(self.visit)
        await self.in_thread(self.live)
        await self.in_thread(self.script, "window.kept = true;")

        def shown(name: str, count: int) -> Callable[[], bool]:
            def look() -> bool:
                latest = self.text("#requests tbody tr:first-child td:nth-child(2) a")
                titles = [
                    one.get_attribute("textContent") or ""
                    for one in self.all("#switches .mark.restore title")
                ]
                # those that are near each other are one mark
                drawn = sum(int(title.split()[0]) if " times " in title else 1 for title in titles)
                here = self.text("#slots a.session")
                return (here, latest, drawn) == (name, name, count) and f", {name}," in titles[-1]

            return look

        for count, chat in enumerate([*chats, *chats], start=1):
            answer = await chat.turn()
            self.assertEqual(answer.cache, "restored")
            await self.in_thread(self.until, shown(chat.session, count))
            restores = await self.in_thread(self.text, "#totals .tile:nth-child(4) .value")
            self.assertEqual(restores.split()[0], str(count))
        rows = await self.in_thread(self.all, "#requests table:first-of-type tbody tr")
        self.assertEqual(len(rows), 9)
        self.assertTrue(await self.in_thread(self.script, "return window.kept;"))

    async def test_what_a_person_does_meanwhile_stays(self) -> None:
        chats = await self.three()
        await chats[0].turn()
        await self.in_thread(self.visit)
        await self.in_thread(self.live)

        def unfold() -> None:
            self.look(390, 844, dark=False)
            self.find("#requests details summary").click()
            self.script(
                "document.querySelector('#sessions a.session').focus();"
                "window.focused = document.activeElement; window.scrollTo(0, 700);"
            )

        await self.in_thread(unfold)
        before = await self.in_thread(self.script, "return scrollY;")
        await chats[1].turn()
        await self.in_thread(
            self.until, lambda: self.text("#requests tbody tr:first-child a.session") == "B"
        )
        now = await self.in_thread(
            self.script,
            "return [scrollY > 0, document.activeElement === window.focused,"
            " document.querySelectorAll('#requests details[open]').length,"
            " document.querySelector('#requests details[open]').closest('tr')"
            ".querySelector('a.session').textContent];",
        )
        self.assertGreater(before, 0)
        # the row that was unfolded is still the one of A, though B has come before it
        self.assertEqual(now, [True, True, 1, "A"])

    async def test_a_row_that_moves_keeps_the_focus(self) -> None:
        chats = await self.three()
        await self.in_thread(self.visit)
        await self.in_thread(self.live)
        names = "return [...document.querySelectorAll('#sessions a.session')].map((a) => a.text);"
        self.assertEqual(await self.in_thread(self.script, names), ["C", "B", "A"])
        await self.in_thread(
            self.script, "document.querySelector('#sessions tr:last-child a.session').focus();"
        )
        for chat, order in ((chats[0], ["A", "C", "B"]), (chats[1], ["B", "A", "C"])):
            await chat.turn()
            await self.in_thread(self.until, lambda: self.script(names) == order)  # noqa: B023
            focused = await self.in_thread(self.script, "return document.activeElement.text;")
            self.assertEqual(focused, "A")

    async def test_the_comparison_opens_on_the_message_that_changed(self) -> None:
        chat = self.chat("A", 60)
        for _ in range(6):
            await chat.turn()
        chat.messages[7] = {"role": "user", "content": "And then <b>something else</b>?"}
        await chat.turn()

        def compare() -> None:
            self.visit()
            self.find("#requests tbody tr:first-child a.session").click()
            self.until(lambda: self.all("#difference"), LOAD_SECONDS)

        await self.in_thread(compare)
        visible: list[str] = await self.in_thread(
            self.script,
            "return [...document.querySelectorAll('.message .which')]"
            ".filter((one) => one.checkVisibility()).map((one) => one.textContent);",
        )
        self.assertEqual(visible[:3], ["7 assistant", "8 user", "9 assistant"])

        def followed(width: int, height: int, part: str) -> float:
            self.look(width, height, dark=False)
            self.visit()
            self.find(f"#{part} tbody tr:first-child a.session").click()
            self.until(lambda: self.all("#difference"), LOAD_SECONDS)
            top: float = self.script(
                "return document.getElementById('difference').getBoundingClientRect().top;"
            )
            return top

        for width, height in ((390, 844), (320, 700), (640, 450), (1280, 900)):
            for part in ("requests", "sessions"):
                top = await self.in_thread(followed, width, height, part)
                self.assertGreaterEqual(top, 0, (width, height, part))
                self.assertLess(top, height - 40, (width, height, part))
        self.assertIn("8 user", await self.in_thread(self.text, "#difference"))
        marks = [one.text for one in await self.in_thread(self.all, "#difference mark")]
        self.assertEqual(marks, ["?", " <b>something else</b>?"])
        following = await self.in_thread(self.text, "#difference + .message")
        self.assertIn("read again", following)
        self.assertIn("message 8 (user)", await self.in_thread(self.text, "#prompts .lead"))

    async def test_delete_asks_and_deletes(self) -> None:
        await self.three()

        def ask() -> None:
            self.visit()
            self.find("#sessions a[aria-label='Delete A…']").click()
            self.until(lambda: self.text("h1") == "Delete this session?", LOAD_SECONDS)

        await self.in_thread(ask)
        self.assertEqual(await self.listed(), ["C", "B", "A"])
        await self.in_thread(lambda: self.find("main a.button").click())
        self.assertEqual(await self.listed(), ["C", "B", "A"])
        await self.in_thread(ask)
        await self.in_thread(lambda: self.find("main form button").click())
        await self.in_thread(self.until, lambda: self.all(".notice"), LOAD_SECONDS)
        self.assertEqual(await self.in_thread(self.text, ".notice"), "Deleted A.")
        self.assertEqual(await self.listed(), ["C", "B"])
        names = [one.text for one in await self.in_thread(self.all, "#sessions a.session")]
        self.assertEqual(names, ["C", "B"])

    async def test_it_works_without_scripts(self) -> None:
        await self.three()

        def use() -> str:
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
            self.visit()
            self.find("#sessions button").click()
            return self.text(".notice")

        self.assertEqual(await self.in_thread(use), "Saved C.")
        self.assertEqual(await self.in_thread(self.text, "#live"), "as it was when it was loaded")
        page = await self.in_thread(self.text, "#requests")
        self.assertIn("new session", page)

    async def test_pictures_on_a_desk_and_on_a_phone(self) -> None:
        chats = await self.three()
        for _ in range(3):
            for chat in chats:
                await chat.turn()
        for chat in chats[:2]:
            chat.messages[3] = {"role": "user", "content": "What is the time now?"}
            await chat.turn()
        pages = {
            "dashboard": "?minutes=2",
            "session": "session?id=B&route=*",
            "delete": "confirm?do=delete&id=B&route=*",
        }

        def shoot(name: str, path: str, width: int, height: int, dark: bool) -> None:
            self.look(width, height, dark=dark)
            self.visit(path)
            if name == "dashboard":
                self.live()
            kind = f"{name}-{width}-{'dark' if dark else 'light'}"
            wide = self.script("return document.documentElement.scrollWidth;")
            self.assertLessEqual(wide, width, kind)
            self.assertEqual(self.script(_CONTRAST), [], kind)
            if width != 360:
                self.shoot(kind)

        for name, path in pages.items():
            for width, height in ((1280, 900), (390, 844), (360, 740)):
                for dark in (False, True):
                    await self.in_thread(shoot, name, path, width, height, dark)

    async def test_names_of_any_length_make_nothing_wide_or_high(self) -> None:
        long = ("abcdefghij" * 26)[:256]
        told = sections(_named(long), listing(session(id=long, route=long, client=long)), View())
        parts = {one.name: to_html(one.draw()) for one in told}

        def put() -> None:
            self.visit()
            self.live()
            self.script(
                "dispatchEvent(new Event('pagehide'));"
                "for (const [name, html] of Object.entries(arguments[0]))"
                " document.getElementById(name).outerHTML = html;",
                parts,
            )

        def measure(width: int) -> tuple[int, int]:
            self.look(width, 900, dark=False)
            self.shoot(f"names-{width}")
            wide, high = self.script(
                "return [document.documentElement.scrollWidth, Math.max(...[...document"
                ".querySelectorAll('tbody tr')].map((row) => row.getBoundingClientRect().height))];"
            )
            return wide, high

        await self.in_thread(put)
        for width, most in ((1280, 150), (768, 200), (390, 360), (320, 400)):
            wide, high = await self.in_thread(measure, width)
            self.assertLessEqual(wide, width)
            self.assertLess(high, most, width)

    async def test_the_times_below_the_time_line_can_be_told_apart(self) -> None:
        await self.three()

        def gaps(width: int, minutes: int) -> list[float]:
            self.look(width, 800, dark=False)
            self.visit(f"?minutes={minutes}")
            found: list[float] = self.script(
                "const boxes = [...document.querySelectorAll('.axis text')]"
                ".filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect());"
                "return boxes.slice(1).map((box, at) => box.left - boxes[at].right);"
            )
            return found

        for width in (320, 390, 768, 1280):
            for minutes in (2, 5, 10):
                found = await self.in_thread(gaps, width, minutes)
                self.assertGreaterEqual(len(found), 2)
                self.assertGreater(min(found), 6, (width, minutes))


def _named(long: str) -> dict[str, Any]:
    """What goes on, with a name everywhere that a client or an operator chose."""
    now = time()
    route = disk()["routes"][0] | {"route": long, "server": long}
    model = {"id": long, "status": "loaded", "failed": False, "tokens_per_second": 99.0}
    return status(
        time=now,
        slots=[slot(server=long, model=long, session=long, route=long)],
        requests=[
            request(time=now - at, session=long, model=long, route=long, sentence=long, prompt=long)
            for at in range(3)
        ],
        spans=[span("read", 9, 4, long, model=long) | {"began": now - 9, "ended": now - 4}],
        servers=[server(name=long, url=f"http://{long}", mode="router", models=[model])],
        disk=disk(routes=[route], servers=[disk()["servers"][0] | {"folder": f"/{long}"}]),
    )


class RestartTests(BrowserCase):
    """A page that is open while the gateway goes and comes back."""

    #: What the browser says of a server that is not there, or is about to go.
    expected_errors = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "events?")

    async def test_it_says_so_and_goes_on_by_itself(self) -> None:
        port = self.base.rpartition(":")[2]
        await self.chat("before", 50).turn()
        await self.in_thread(self.visit)
        await self.in_thread(self.live)
        await self.in_thread(self.script, "window.kept = true;")
        began = now()
        self.program.send("TERM")
        await self.program.gone
        # though somebody looks; drain_seconds is 5
        self.assertLess(now() - began, 2)
        await self.in_thread(self.until, lambda: self.text("#live") == "not connected", 5)
        self.write_config(self.llama.url, port=port, more=self.more)
        await self.start()
        # the page is loaded again: the forms of the one before are of no use
        await self.in_thread(self.until, lambda: not self.script("return window.kept;"), 10)
        await self.in_thread(self.live)
        await self.chat("after", 50).turn()
        await self.in_thread(self.until, lambda: "after" in self.text("#sessions"))
        await self.in_thread(lambda: self.find("#sessions button").click())
        await self.in_thread(self.until, lambda: self.all(".notice"), LOAD_SECONDS)
        self.assertEqual(await self.in_thread(self.text, ".notice"), "Saved after.")


class KeyTests(BrowserCase):
    """The page where keys are asked for."""

    more = """
        [[clients]]
        name = "boss"
        key = "boss-key"
        admin = true
        [[clients]]
        name = "webui"
        key = "webui-key"
    """
    #: What the browser says of the answer to a wrong key.
    expected_errors = (
        "/slotgate/login - Failed to load resource",
        # and of a gateway that goes away and comes back
        "/slotgate/events?",
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
    )

    async def test_after_a_restart_an_open_page_asks_for_the_key_again(self) -> None:
        def enter() -> None:
            self.visit()
            self.find("#key").send_keys("boss-key")
            self.find("main form button").click()
            self.live()

        await self.in_thread(enter)
        self.program.send("TERM")
        await self.program.gone
        self.write_config(self.llama.url, port=self.base.rpartition(":")[2], more=self.more)
        await self.start()
        await self.in_thread(self.until, lambda: self.all("#key"), 15)
        self.assertEqual(await self.in_thread(self.text, "h1"), "Log in")

    async def test_only_an_admins_key_opens_it(self) -> None:
        def enter(key: str) -> None:
            self.find("#key").send_keys(key)
            self.find("main form button").click()

        def look() -> list[str]:
            said = []
            self.visit()
            said.append(self.text("h1"))
            for key in ("nobodys-key", "webui-key"):
                enter(key)
                self.until(lambda: self.all("#mistake"), LOAD_SECONDS)
                said.append(self.text("#mistake"))
                self.visit()
            enter("boss-key")
            self.live()
            said.append(self.text("#servers h2"))
            self.find(".top form button").click()
            self.until(lambda: self.all("#key"), LOAD_SECONDS)
            self.visit("session?id=a&route=*")
            said.append(self.text("h1"))
            return said

        said = await self.in_thread(look)
        self.assertEqual(said[0], "Log in")
        self.assertEqual(said[1], "No client of this gateway has that key.")
        self.assertIn("only clients with admin = true", said[2])
        self.assertEqual(said[3:], ["Servers", "Log in"])
