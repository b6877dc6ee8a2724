"""
Which headers pass the gateway, each way.
"""

from __future__ import annotations

from twisted.web.http_headers import Headers

from slotgate.web.headers import request_headers, response_headers


def names(headers: Headers) -> set[bytes]:
    return {name.lower() for name, _ in headers.getAllRawHeaders()}


def test_what_speaks_about_one_connection_stays_on_it() -> None:
    hop_by_hop = Headers(
        {
            "Connection": ["keep-alive, X-Private", "x-also-private"],
            "Keep-Alive": ["timeout=5"],
            "Proxy-Authorization": ["Basic x"],
            "Proxy-Connection": ["close"],
            "TE": ["trailers"],
            "Trailer": ["X-Sum"],
            "Transfer-Encoding": ["chunked"],
            "Upgrade": ["h2c"],
            "X-Private": ["1"],
            "X-Also-Private": ["1"],
            "Accept": ["*/*"],
        }
    )
    assert names(request_headers(hop_by_hop, None)) == {b"accept"}
    assert names(response_headers(hop_by_hop)) == {b"accept"}


def test_what_is_set_anew_or_meant_for_the_gateway_does_not_go_to_the_server() -> None:
    client = Headers(
        {
            "Host": ["gateway:11434"],
            "Content-Length": ["2"],
            "Expect": ["100-continue"],
            "Authorization": ["Bearer client-key"],
            "X-Api-Key": ["client-key"],
            "X-Conversation-Id": ["c1"],
            "X-Slotgate-Session": ["s1"],
            "X-SLOTGATE-anything": ["s1"],
            "X-Session-Id": ["s1"],
        }
    )
    assert names(request_headers(client, None)) == {b"x-session-id"}


def test_the_server_gets_its_own_key() -> None:
    client = Headers({"Authorization": ["Bearer client-key"]})
    sent = request_headers(client, "server-key")
    assert sent.getRawHeaders("Authorization") == ["Bearer server-key"]


def test_everything_else_is_kept_as_sent_also_when_repeated() -> None:
    client = Headers({"Accept": ["a", "b"], "Content-Type": ["application/json"], "Cookie": ["c"]})
    assert request_headers(client, None) == client
    server = Headers({"Set-Cookie": ["a=1", "b=2"], "Content-Length": ["3"], "Server": ["llama"]})
    assert response_headers(server) == server


def test_a_server_cannot_speak_in_the_gateways_name() -> None:
    server = Headers({"X-Slotgate-Cache": ["resident"], "Content-Type": ["text/plain"]})
    assert names(response_headers(server)) == {b"content-type"}


def test_which_pages_may_read_an_answer_is_not_for_the_server_to_say() -> None:
    server = Headers(
        {
            "Access-Control-Allow-Origin": ["https://evil.example"],
            "access-control-allow-credentials": ["true"],
            "Access-Control-Expose-Headers": ["*"],
            "Access-Control-Something-New": ["*"],
            "Vary": ["Accept-Encoding"],
        }
    )
    assert names(response_headers(server)) == {b"vary"}


def test_the_server_learns_what_a_browser_says_of_the_page() -> None:
    client = Headers({"Origin": ["https://a"], "Access-Control-Request-Method": ["POST"]})
    assert request_headers(client, None) == client


def test_the_headers_given_are_left_alone() -> None:
    client = Headers({"Host": ["h"], "Accept": ["a"]})
    before = client.copy()
    request_headers(client, "key").addRawHeader("Accept", "other")
    assert client == before
