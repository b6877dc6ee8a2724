"""
What browsers send for web pages whose name points to this machine is refused; and what the
configuration takes for hosts and origins.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from gateway import CHAT, Answer, Caller, FakeGatewayCase
from twisted.internet import reactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.endpoints import UNIXClientEndpoint, connectProtocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from slotgate._config.loading import parse_config
from slotgate.config import ConfigError, Gateway
from slotgate.reloading import Settings
from slotgate.web.hosts import has_address, host_of, is_loopback, is_this_machine
from slotgate.web.limits import limited_site
from slotgate.web.origins import Origins, is_private

PAGE = "https://chat.example.com"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def gateway(text: str) -> Gateway:
    return parse_config(f"[gateway]\n{text}", {}, Path("/")).gateway


# What a Host header says.


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("localhost", "localhost"),
        (" LocalHost.:11434 ", "localhost"),
        ("box.local:80", "box.local"),
        ("my_box", "my_box"),
        ("", ""),
        (":8080", ""),
        ("127.0.0.1:11434", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::1]:11434", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("::1", "::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ],
)
def test_a_host_is_read_without_its_port(value: str, host: str) -> None:
    assert host_of(value) == host


@pytest.mark.parametrize(
    "value",
    [
        "localhost..",
        ".localhost",
        "a..localhost",
        "localhost:port",
        "localhost:1:2",
        "localhost@evil.example",
        "evil.example/localhost",
        "evil.example, localhost",
        "evil.example\\.localhost",
        "[::1",
        "[::1]localhost",
        "[localhost]",
        "[127.0.0.1]x",
        "::1]",
        "[fe80::1%eth0]",
        "b\xfcro.local",
        "\x00.local",
        "local host",
    ],
)
def test_junk_is_no_host(value: str) -> None:
    assert host_of(value) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "app.localhost",
        "box.local",
        "host.docker.internal",
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "0.0.0.0",
        "::",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.1.20",
        "fd00::5",
        socket.gethostname().lower(),
    ],
)
def test_these_hosts_are_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evillocal",
        "evil-internal",
        "local",
        "internal",
        "127.0.0.1.evil.example",
        "2130706433",
        "0x7f.1",
        "172.32.0.1",
        "192.0.2.1",
        "2001:db8::1",
        "255.255.255.255",
        "224.0.0.1",
    ],
)
def test_these_hosts_are_not(host: str) -> None:
    assert not is_this_machine(host)


def test_an_address_of_this_machine_is_fine_whichever_it_is() -> None:
    own = ipaddress.ip_address("203.0.113.9")
    assert is_this_machine("203.0.113.9", has=lambda address: address == own)
    assert not is_this_machine("203.0.113.8", has=lambda address: address == own)


def test_the_addresses_of_this_machine_are_those_of_its_interfaces() -> None:
    assert has_address(ipaddress.ip_address("127.0.0.1"))
    for address in ("192.0.2.1", "224.0.0.1", "255.255.255.255", "2001:db8::1"):
        assert not has_address(ipaddress.ip_address(address))


def test_names_and_addresses_of_the_configuration_are_fine() -> None:
    further = gateway('hosts = ["Chat.Example.com.", "[2001:db8:0::1]", "203.0.113.9"]').hosts
    assert further == ("chat.example.com", "2001:db8::1", "203.0.113.9")
    for value in ("chat.example.com:443", "CHAT.example.com.", "[2001:db8::1]:80", "203.0.113.9"):
        assert is_this_machine(host_of(value) or "-", further)
    assert not is_this_machine("sub.chat.example.com", further)


def test_loopback_is_known_in_every_form_that_a_transport_gives() -> None:
    for host in ("127.0.0.1", "127.0.0.2"):
        assert is_loopback(IPv4Address("TCP", host, 1))
    for host in ("::1", "::ffff:127.0.0.1"):
        assert is_loopback(IPv6Address("TCP", host, 1))
    for near in (
        IPv4Address("TCP", "192.168.1.2", 1),
        IPv6Address("TCP", "fe80::1%eth0", 1),
        IPv6Address("TCP", "::ffff:192.168.1.2", 1),
        UNIXAddress("/run/x"),
        UNIXAddress(None),
    ):
        assert not is_loopback(near)


# What the configuration takes.


def test_by_default_no_further_host_and_no_page_is_allowed() -> None:
    assert gateway("").hosts == ()
    assert gateway("").cors_origins == ()


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("*", "*"),
        ("https://Chat.Example.com", "https://chat.example.com"),
        ("https://chat.example.com:443", "https://chat.example.com"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://localhost:80", "http://localhost"),
        ("https://localhost:80", "https://localhost:80"),
        ("http://[0::1]:08080", "http://[::1]:8080"),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
        ("tauri://localhost", "tauri://localhost"),
    ],
)
def test_origins_are_read_as_browsers_write_them(written: str, origin: str) -> None:
    assert gateway(f"cors_origins = [{json.dumps(written)}]").cors_origins == (origin,)


@pytest.mark.parametrize(
    "written",
    [
        "chat.example.com",
        "https://chat.example.com/",
        "https://chat.example.com/app",
        "https://*.example.com",
        "https://",
        "https://me@chat.example.com",
        "https://chat.example.com:0",
        "https://chat.example.com:65536",
        "https://chat.example.com:x",
        "https://[::1",
        "https://[12.5]",
        "https://b\u00fcro.example",
        "null",
        "file://",
    ],
)
def test_what_is_no_origin_is_one_line_with_its_place(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gateway(f"cors_origins = [{json.dumps(written, ensure_ascii=False)}]")
    (line,) = caught.value.lines
    assert "gateway.cors_origins[0]: " in line
    assert "is no origin like https://chat.example.com" in line


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('hosts = "a"', 'gateway.hosts: expected a list, got "a"'),
        ("hosts = [1]", "gateway.hosts[0]: expected text, got 1"),
        ('hosts = ["a", "A."]', 'gateway.hosts[1]: "A." is there twice'),
        ('hosts = ["a:80"]', 'gateway.hosts[0]: "a:80" is no host like chat.example.com'),
        ('hosts = ["*.a"]', 'gateway.hosts[0]: "*.a" is no host like chat.example.com'),
        ('hosts = ["fe80::1%eth0"]', 'gateway.hosts[0]: "fe80::1%eth0" is no host like'),
        ('hosts = ["http://a"]', 'gateway.hosts[0]: "http://a" is no host like'),
        ("cors_origins = true", "gateway.cors_origins: expected a list, got true"),
        ('cors_origins = [""]', "gateway.cors_origins[0]: must not be empty"),
        (
            'cors_origins = ["*", "http://a"]',
            'gateway.cors_origins: "*" stands for all origins, so nothing can stand beside it',
        ),
        (
            'cors_origins = ["http://a", "http://a:80"]',
            'gateway.cors_origins[1]: "http://a:80" is there twice',
        ),
    ],
)
def test_mistakes_are_one_line(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gateway(text)
    (line,) = caught.value.lines
    assert mistake in line


# Which paths no page of another origin reads.


@pytest.mark.parametrize(
    ("path", "private"),
    [
        ("/slotgate", True),
        ("/slotgate/", True),
        ("//slotgate/status", True),
        ("/SLOTGATE/metrics", True),
        ("/api/sessions", True),
        ("/api//sessions/A/prompt", True),
        ("/api/sessionsomething", True),
        ("/slotgates", False),
        ("/slotgate.html", False),
        ("/", False),
        ("/v1/slotgate/", False),
        ("/api/chat", False),
        ("/api/session", False),
        ("/v1/chat/completions", False),
        ("/v1/models/api/sessions", False),
    ],
)
def test_what_tells_of_conversations_is_private(path: str, private: bool) -> None:
    assert is_private(path) is private


# Foreign hosts.


class ForeignHosts(FakeGatewayCase):
    def assert_refused(self, answer: Answer) -> None:
        self.assertEqual(answer.status, 403)
        self.assertIn("add it to hosts in [gateway]", answer.body.decode())

    async def test_a_name_from_elsewhere_reaches_nothing(self) -> None:
        host = {"Host": "evil.example:11434"}
        for method, path in (
            ("GET", "/"),
            ("GET", "/health"),
            ("GET", "/v1/models"),
            ("GET", "/api/sessions"),
            ("DELETE", "/api/sessions"),
            ("POST", CHAT),
            ("POST", "/slots/0?action=erase"),
            ("OPTIONS", CHAT),
        ):
            self.assert_refused(await self.request(method, path, host, b"{}"))
        self.assertEqual(self.llama.calls, [])

    async def test_the_refusal_has_the_shape_of_the_surface(self) -> None:
        host = {"Host": "evil.example"}
        openai = (await self.post(CHAT, HELLO, host)).json["error"]
        self.assertEqual((openai["code"], openai["type"]), (403, "permission_error"))
        anthropic = (await self.post("/v1/messages", HELLO, host)).json
        self.assertEqual(anthropic["type"], "error")
        self.assertEqual(anthropic["error"]["type"], "permission_error")
        ollama = (await self.post("/api/chat", HELLO, host)).json
        self.assertIn("'evil.example'", ollama["error"])

    async def test_names_of_this_machine_are_served(self) -> None:
        for host in ("localhost:11434", "[::1]", "192.168.1.2:1", "box.local", "LOCALHOST."):
            self.assertEqual((await self.request("GET", "/health", {"Host": host})).status, 200)

    async def test_a_client_that_says_no_host_is_served(self) -> None:
        for head in (b"GET /health HTTP/1.0\r\n\r\n", b"GET /health HTTP/1.1\r\nHost:\r\n\r\n"):
            caller = await self.connect()
            caller.write(head)
            await caller.heard(b'{"status"')
            self.assertIn(b" 200 OK\r\n", caller.received)

    async def test_a_client_that_says_two_is_refused(self) -> None:
        caller = await self.connect()
        caller.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        await caller.heard(b"hosts in [gateway]")
        self.assertIn(b" 403 ", caller.received)


class ProxiedHosts(FakeGatewayCase):
    config = FakeGatewayCase.config.replace(
        "drain_seconds = 2", 'drain_seconds = 2\nhosts = ["chat.example.com"]'
    )

    async def test_the_names_of_a_proxy_on_this_machine_are_served(self) -> None:
        for host in ("chat.example.com", "Chat.Example.Com:443"):
            self.assertEqual((await self.request("GET", "/health", {"Host": host})).status, 200)
        other = await self.request("GET", "/health", {"Host": "www.example.com"})
        self.assertEqual(other.status, 403)


class OtherWaysIn(FakeGatewayCase):
    config = FakeGatewayCase.config.replace(
        'listen = ["tcp:0:interface=127.0.0.1"]',
        'listen = ["tcp:0:interface=127.0.0.1", "unix:{state}.sock"]',
    )

    async def test_nobody_is_asked_for_a_host_on_a_unix_socket(self) -> None:
        endpoint = UNIXClientEndpoint(reactor, f"{self.folder}/state.sock")
        caller: Caller = await connectProtocol(endpoint, Caller())
        self.addCleanup(caller.leave)
        caller.write(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        await caller.heard(b'{"status"')
        self.assertIn(b" 200 OK\r\n", caller.received)


class Varying(Resource):
    isLeaf = True

    def render_GET(self, request: Any) -> bytes:
        # as the relay puts a server's header into the answer
        request.responseHeaders.setRawHeaders(b"Vary", [b"Accept-Encoding"])
        return b"served"


class Beyond(SynchronousTestCase):
    def answer(self, near: IPv4Address | IPv6Address, config: str = "") -> bytes:
        """To a request with a foreign host that arrives at an address."""
        settings = Settings(parse_config(config, {}, Path("/")))
        site = limited_site(Varying(), MemoryReactorClock(), 1000, Origins(settings))
        transport: Any = StringTransport(hostAddress=near)
        protocol: Any = site.buildProtocol(None)
        protocol.makeConnection(transport)
        protocol.dataReceived(b"GET / HTTP/1.1\r\nHost: box.example\r\n\r\n")
        sent: bytes = transport.value()
        return sent

    def test_an_answer_that_varies_already_varies_by_origin_too(self) -> None:
        near = IPv4Address("TCP", "192.168.1.2", 80)
        answer = self.answer(near, f'[gateway]\ncors_origins = ["{PAGE}"]')
        self.assertIn(b"Vary: Accept-Encoding, Origin\r\n", answer)
        self.assertIn(b"Vary: Accept-Encoding\r\n", self.answer(near))

    def test_hosts_are_checked_at_loopback_addresses_only(self) -> None:
        self.assertIn(b"served", self.answer(IPv4Address("TCP", "192.168.1.2", 80)))
        for near in (
            IPv4Address("TCP", "127.0.0.1", 80),
            IPv6Address("TCP", "::1", 80),
            IPv6Address("TCP", "::ffff:127.0.0.1", 80),
        ):
            self.assertIn(b"HTTP/1.1 403 ", self.answer(near))


class PageTests(FakeGatewayCase):
    """Pages of other origins that only want something done."""

    async def post_from(self, origin: str) -> int:
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        answer = await self.request("POST", "/slots/0?action=erase", headers, b"{}")
        return answer.status

    async def test_a_page_from_anywhere_does_nothing(self) -> None:
        for origin in ("https://evil.example", "http://evil.example:11434", "null", "https://"):
            self.assertEqual(await self.post_from(origin), 403, origin)
        self.assertEqual(self.llama.control_calls, [])

    async def test_pages_of_this_machine_and_other_programs_do(self) -> None:
        for origin in (
            "http://localhost:8000",
            "http://127.0.0.1:3000",
            "http://webui.local",
            "vscode-webview://abc",
            "app://obsidian.md",
        ):
            self.assertEqual(await self.post_from(origin), 200, origin)
