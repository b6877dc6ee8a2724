"""
Which web pages can read answers: those of the configuration, whatever the server says.
"""

from __future__ import annotations

import pytest
from gateway import CHAT, Answer, FakeGatewayCase, RealGatewayCase
from twisted.web.http_headers import Headers

from slotgate.web.origins import add_headers

PAGE = "https://chat.example.com"
ELSEWHERE = "https://evil.example"
CORS = "access-control-"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


#: Written in every way that some part of us, or a server, takes for the same path.
PRIVATE = (
    "/slotgate",
    "/slotgate/",
    "/slotgate/status",
    "/slotgate/metrics?x=1",
    "/slotgate/health",
    "/slotgate%2Fstatus",
    "/%73lotgate/status",
    "/SlotGate/status",
    "/slotgate//status",
    "/api/sessions",
    "/api/sessions/",
    "/api/sessions/A/prompt",
    "/api/sessions?all=1",
    "/api%2fsessions/A/prompt",
    "/api/sessions%2FA%2Fprompt",
    "/api/Sessions/A",
    "/%61pi/sessions/current",
)

READABLE = {
    "allow-origin": PAGE,
    "allow-credentials": "true",
    "expose-headers": "Retry-After, X-Slotgate-Session, X-Slotgate-Source, X-Slotgate-Cache",
    "vary": "Origin",
}


def cors_of(answer: Answer) -> dict[str, str]:
    """The CORS headers of an answer, and its Vary."""
    return {
        name.removeprefix(CORS): value
        for name, value in answer.headers.items()
        if name.startswith(CORS) or name == "vary"
    }


class NoPages(FakeGatewayCase):
    async def test_no_answer_can_be_read_by_a_page(self) -> None:
        for path in (CHAT, "/v1/messages", "/no/such/path"):
            self.assertEqual(cors_of(await self.post(path, HELLO, {"Origin": PAGE})), {})
        self.assertEqual(cors_of(await self.request("GET", "/api/sessions", {"Origin": PAGE})), {})

    async def test_a_preflight_is_refused_and_not_relayed(self) -> None:
        answer = await self.request("OPTIONS", CHAT, PREFLIGHT)
        self.assertEqual((answer.status, cors_of(answer)), (403, {}))
        self.assertEqual(
            answer.json["error"]["message"],
            f"the origin '{PAGE}' is not in cors_origins of [gateway]",
        )
        self.assertEqual(self.llama.calls, [])

    async def test_other_options_are_the_servers_business(self) -> None:
        await self.request("OPTIONS", CHAT, {"Origin": PAGE})
        self.assertEqual([call.method for call in self.llama.calls], ["OPTIONS"])


class NoPagesByTheServer(RealGatewayCase):
    async def test_what_llama_server_allows_does_not_reach_the_page(self) -> None:
        page = {"Origin": PAGE}
        direct = await self.request("GET", "/v1/models", page, base=self.llama.url)
        self.assertEqual(cors_of(direct).get("allow-origin"), PAGE)
        through = await self.request("GET", "/v1/models", page)
        self.assertEqual((through.status, cors_of(through)), (200, {}))
        asked = await self.request("OPTIONS", CHAT, PREFLIGHT, base=self.llama.url)
        self.assertEqual(asked.status, 200)
        self.assertEqual((await self.request("OPTIONS", CHAT, PREFLIGHT)).status, 403)


class SomePages(FakeGatewayCase):
    config = (
        FakeGatewayCase.config.replace(
            "drain_seconds = 2",
            f'drain_seconds = 2\nmax_body_mib = 0.01\ncors_origins = ["{PAGE}", "http://localhost"]',
        )
        + '\n[[clients]]\nname = "page"\nkey = "secret"\n'
    )

    def page(self, origin: str = PAGE) -> dict[str, str]:
        return {"Origin": origin, "Authorization": "Bearer secret"}

    async def test_a_listed_page_can_read_answers_and_streams(self) -> None:
        for body in (HELLO, {**HELLO, "stream": True}):
            answer = await self.post(CHAT, body, self.page())
            self.assertEqual((answer.status, cors_of(answer)), (200, READABLE))
        answer = await self.request("GET", "/v1/models", self.page())
        self.assertEqual((answer.status, cors_of(answer)), (200, READABLE))

    async def test_a_listed_page_can_read_errors(self) -> None:
        answer = await self.post(CHAT, HELLO, {"Origin": PAGE})
        self.assertEqual((answer.status, cors_of(answer)), (401, READABLE))
        answer = await self.post(CHAT, {"x": "x" * 20_000}, self.page())
        self.assertEqual((answer.status, cors_of(answer)), (413, READABLE))
        answer = await self.post("/no/such/path", HELLO, self.page())
        self.assertEqual((answer.status, cors_of(answer)), (404, READABLE))

    async def test_every_other_page_can_read_nothing(self) -> None:
        for origin in (ELSEWHERE, f"{PAGE}:444", PAGE.upper(), f"{PAGE}.evil.example", "null"):
            answer = await self.request("GET", "/health", self.page(origin))
            self.assertEqual((answer.status, cors_of(answer)), (200, {"vary": "Origin"}))

    async def test_caches_learn_that_answers_differ_also_where_no_page_asks(self) -> None:
        answer = await self.request("GET", "/health")
        self.assertEqual(cors_of(answer), {"vary": "Origin"})

    async def test_a_request_of_two_origins_is_no_pages(self) -> None:
        caller = await self.connect()
        caller.write(
            f"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: {PAGE}\r\n"
            f"Origin: {ELSEWHERE}\r\n\r\n".encode()
        )
        await caller.heard(b'{"status"')
        self.assertNotIn(b"access-control-", caller.received.lower())

    async def test_a_preflight_is_answered_here_and_without_a_key(self) -> None:
        answer = await self.request("OPTIONS", CHAT, PREFLIGHT)
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(
            cors_of(answer),
            {
                **READABLE,
                "allow-methods": "GET, HEAD, POST, DELETE",
                "allow-headers": "authorization,content-type",
                "max-age": "3600",
            },
        )
        self.assertEqual(self.llama.calls, [])

    async def test_a_preflight_for_no_headers_or_for_junk_names_none(self) -> None:
        for asked in ("", "x-a: y", "x-\xe9", '"x"'):
            sent = {**PREFLIGHT, "Access-Control-Request-Headers": asked}
            answer = await self.request("OPTIONS", CHAT, sent)
            self.assertEqual(answer.status, 204)
            self.assertNotIn("allow-headers", cors_of(answer))

    async def test_the_preflight_of_another_page_is_refused(self) -> None:
        answer = await self.request("OPTIONS", CHAT, {**PREFLIGHT, "Origin": ELSEWHERE})
        self.assertEqual((answer.status, cors_of(answer)), (403, {"vary": "Origin"}))

    async def test_conversations_and_keys_are_none_of_its_business(self) -> None:
        for path in PRIVATE:
            answer = await self.request("GET", path, self.page())
            self.assertEqual(cors_of(answer), {}, path)
            asked = await self.request("OPTIONS", path, PREFLIGHT)
            self.assertEqual((asked.status, cors_of(asked)), (403, {}), path)
            sent = await self.request("POST", path, self.page(), b"{}")
            self.assertEqual((sent.status, cors_of(sent)), (403, {}), path)
            self.assertIn("/api/sessions are for no other page", sent.body.decode())
        large = await self.post("/api/sessions/clear", {"x": "x" * 20_000}, self.page())
        self.assertEqual((large.status, cors_of(large)), (413, {}))

    async def test_no_page_of_another_origin_changes_sessions(self) -> None:
        for origin in (PAGE, ELSEWHERE):
            answer = await self.post("/api/sessions/clear", {}, self.page(origin))
            self.assertEqual(answer.status, 403)

    async def test_our_own_page_may(self) -> None:
        own = self.page(self.base)
        answer = await self.request("POST", "/api/sessions/clear", own, b"{}")
        self.assertEqual((answer.status, cors_of(answer)), (200, {}))


class AllPages(FakeGatewayCase):
    config = FakeGatewayCase.config.replace(
        "drain_seconds = 2", 'drain_seconds = 2\ncors_origins = ["*"]'
    )

    async def test_any_page_can_read_but_not_with_credentials(self) -> None:
        for origin in (PAGE, ELSEWHERE, "null"):
            cors = cors_of(await self.post(CHAT, HELLO, {"Origin": origin}))
            self.assertEqual(cors.pop("allow-origin"), "*")
            self.assertEqual(list(cors), ["expose-headers"])
        cors = cors_of(await self.request("OPTIONS", CHAT, PREFLIGHT))
        self.assertEqual(cors["allow-origin"], "*")
        self.assertEqual(cors["allow-headers"], "authorization,content-type")
        self.assertNotIn("allow-credentials", cors)

    async def test_no_page_reads_what_others_said(self) -> None:
        await self.chat("A", 30).turn()
        self.llama.calls.clear()
        for path in PRIVATE:
            answer = await self.request("GET", path, {"Origin": ELSEWHERE})
            self.assertEqual(cors_of(answer), {}, path)
            asked = await self.request("OPTIONS", path, PREFLIGHT)
            self.assertEqual((asked.status, cors_of(asked)), (403, {}), path)
            sent = await self.request("POST", path, {"Origin": ELSEWHERE}, b"{}")
            self.assertEqual(sent.status, 403, path)

    async def test_a_foreign_host_is_refused_all_the_same(self) -> None:
        answer = await self.request("GET", "/health", {"Host": "evil.example", "Origin": ELSEWHERE})
        self.assertEqual(answer.status, 403)


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ([], "Origin"),
        ([""], "Origin"),
        (["Accept-Encoding"], "Accept-Encoding, Origin"),
        (["Accept", "Accept-Encoding"], "Accept, Accept-Encoding, Origin"),
        (["Accept, origin"], "Accept, origin"),
        (["*"], "*"),
    ],
)
def test_vary_keeps_what_the_server_said(there: list[str], then: str) -> None:
    response = Headers({"Vary": there} if there else {})
    add_headers(response, {"Vary": "Origin"})
    assert response.getRawHeaders("Vary") == [then]
