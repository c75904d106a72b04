"""A browser that shows a foreign page, or a foreign name that was made to point here: nothing is given out, by any door."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.exceptions import InvalidStatus

from engine.build import build
from gateway import config
from gateway.codecs.native import SUBPROTOCOL
from gateway.metrics import Metrics
from gateway.server import Gateway
from gateway.server.guard import HEADERS, policy
from tests.protocol.peer import connect
from tests.running import Running, gateway

WEB = Path(__file__).parents[2] / "web"
FILES = sorted(f"/web/{path.relative_to(WEB)}" for path in WEB.rglob("*") if path.is_file())


def doors() -> list[tuple[str, str]]:
    """(method, path) of every address that a gateway has, as its own table says."""
    settings = config.load(None, {}, {"llm.engine": "fake", "tts.engines": ["fake"]})
    made = Gateway(settings, build(settings.engine_settings()), Metrics(CollectorRegistry()))
    found = []
    for route in made.app.routes:
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/app.js"))
        elif isinstance(route, WebSocketRoute):
            found.append(("SOCKET", route.path))
        elif isinstance(route, Route):
            found += [(method, route.path) for method in sorted(route.methods or {"GET"}) if method != "HEAD"]
    return found


DOORS = doors()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway() as started:  # open to all on loopback, as on a laptop: what a foreign page could reach
        yield started


def asked(running: Running, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    try:
        connection.request(method, path, b"" if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_table_of_doors_is_whole() -> None:
    assert {("GET", "/"), ("GET", "/web/app.js"), ("GET", "/metrics"), ("POST", "/v1/tickets"), ("SOCKET", "/v1/voice")} <= set(DOORS)
    assert len(DOORS) >= 10


FOREIGN = {
    "another site's page": {"Origin": "https://evil.example"},
    "a page without a site": {"Origin": "null"},
    "another program's page on this machine": {"Origin": "http://127.0.0.1:1"},
    "a name that points here": {"Host": "evil.example"},
    "a name that begins like ours": {"Host": "localhost.evil.example"},
    "a page of such a name": {"Host": "evil.example", "Origin": "http://evil.example"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize(("method", "path"), [door for door in DOORS if door[0] != "SOCKET"], ids=" ".join)
def test_a_foreign_page_gets_nothing_over_http(running: Running, method: str, path: str, headers: dict[str, str]) -> None:
    status, sent, body = asked(running, method, path, **headers)
    assert status == 403
    assert b"forbidden_origin" in body
    assert len(body) < 300, "the refusal, and nothing of what was asked for"
    assert "access-control-allow-origin" not in sent


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("path", [path for method, path in DOORS if method == "SOCKET"])
async def test_a_foreign_page_opens_no_socket(running: Running, path: str, headers: dict[str, str]) -> None:
    # a Host of ours would stand beside the library's own, so the socket goes through a name that is not resolved
    with pytest.raises(InvalidStatus) as caught:
        async with connect(
            f"ws://{headers.get('Host', f'127.0.0.1:{running.port}')}{path}",
            host="127.0.0.1",
            port=running.port,
            origin=headers.get("Origin"),  # type: ignore[arg-type]
            subprotocols=[SUBPROTOCOL, "realtime"],  # type: ignore[list-item]
            proxy=None,
        ):
            pass
    assert caught.value.response.status_code == 403
    assert b"forbidden_origin" in (caught.value.response.body or b"")


@pytest.mark.parametrize("path", ["/", *FILES])
def test_every_file_of_the_page_is_sent_with_all_headers(running: Running, path: str) -> None:
    status, sent, body = asked(running, "GET", path)
    assert status == 200
    assert body
    assert {name: sent.get(name) for name in HEADERS} == HEADERS
    assert sent["content-security-policy"] == policy(f"127.0.0.1:{running.port}")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nowhere"), ("GET", "/web/nowhere.js"), ("POST", "/v1/tickets"), ("GET", "/v1/voice")]
)
def test_other_answers_have_the_headers_too(running: Running, method: str, path: str) -> None:
    _, sent, _ = asked(running, method, path)
    assert {*HEADERS, "content-security-policy"} <= set(sent)
    assert "server" not in sent


def test_the_policy_lets_in_no_inline_code_and_nothing_foreign() -> None:
    text = policy("localhost:8080")
    assert "unsafe" not in text
    assert "*" not in text
    assert "connect-src 'self' ws://localhost:8080 wss://localhost:8080;" in text
    assert policy("x;script-src *@localhost") == policy(None), "a Host is no way to write the policy"
    assert "ws://[::1]:8080" in policy("[::1]:8080")


class Inline(HTMLParser):
    """Whatever a page would need `unsafe-inline` or another site for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        if tag in ("style", "iframe", "object", "embed", "base") or (tag == "script" and "src" not in given):
            self.found.append(tag)
        links = [value for name, value in given.items() if name in ("src", "href") and value is not None]
        self.found += [link for link in links if re.match(r"[a-z]+:|//", link)]


@pytest.mark.parametrize("page", [path for path in FILES if path.endswith(".html")])
def test_the_pages_keep_to_the_policy(page: str) -> None:
    reader = Inline()
    reader.feed((WEB.parent / page.removeprefix("/")).read_text("utf-8"))
    assert reader.found == []


@pytest.mark.parametrize(
    "path", ["/web/../pyproject.toml", "/web/%2e%2e/pyproject.toml", "/web/..%2fpyproject.toml", "/web//etc/passwd", "/web/%00"]
)
def test_no_path_leads_out_of_the_page(running: Running, path: str) -> None:
    status, _, body = asked(running, "GET", path)
    assert status in (400, 404)
    assert b"[project]" not in body


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_a_request_with_two_hosts_is_none(running: Running, method: str, path: str) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    try:
        connection.putrequest("GET" if method == "SOCKET" else method, path, skip_host=True)
        for name, value in (("Host", "localhost"), ("Host", "evil.test"), *(upgrade.items() if method == "SOCKET" else ())):
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 400
    finally:
        connection.close()
