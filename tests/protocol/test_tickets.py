"""Tickets over the wire: asked for with a key, used once, by either door."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from gateway.codecs.native import SUBPROTOCOL
from tests.protocol.peer import connect, let_in, peer
from tests.running import Running, gateway

KEYED = {
    "STRETTO_KEYS": "alpha",
    "STRETTO_SERVER__ORIGINS": '["https://app.example"]',
    "STRETTO_PERSONAS__NURSE__INSTRUCTIONS": "You are a nurse.",
    "STRETTO_PERSONAS__CAPTAIN__INSTRUCTIONS": "You are a captain.",
    "STRETTO_KEYS__KIOSK__KEY": "kiosk-key",
    "STRETTO_KEYS__KIOSK__PERSONA": "captain",
    "STRETTO_KEYS__KIOSK__INSTRUCTIONS": "false",
}


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def keyed(request: pytest.FixtureRequest) -> Iterator[Running]:
    with gateway(KEYED, "--loop", request.param) as started:
        yield started


def ask(running: Running, body: object = None, *, key: str | None = "alpha", **headers: str) -> tuple[int, dict[str, Any]]:  # Any: JSON
    """POST /v1/tickets: the status and the answer. `body` bytes go as they are."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers |= {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{running.http_url}/v1/tickets", data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["cache-control"] == "no-store"
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            error = json.load(refusal)["error"]
            return refusal.code, error


def ticket(running: Running, **wish: Any) -> str:  # Any: the wish's fields
    status, answer = ask(running, wish)
    assert status == 201
    return str(answer["ticket"])


async def refused(running: Running, shown: str, status: int, path: str = "voice", **options: Any) -> str:  # Any: websockets' options
    """Offer a ticket and be refused; the error's code."""
    offers = [SUBPROTOCOL, f"stretto-ticket.{shown}"] if path == "voice" else ["realtime", f"openai-insecure-api-key.{shown}"]
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"ws://127.0.0.1:{running.port}/v1/{path}", subprotocols=offers, **options):  # type: ignore[arg-type]
            pass
    assert caught.value.response.status_code == status
    body = caught.value.response.body or b"{}"
    assert shown == "" or shown.encode() not in body
    return str(json.loads(body)["error"]["code"])


async def test_a_ticket_in_a_subprotocol_opens_once_and_is_never_echoed(keyed: Running) -> None:
    shown = ticket(keyed)
    async with connect(keyed.voice_url, subprotocols=[SUBPROTOCOL, f"stretto-ticket.{shown}"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == SUBPROTOCOL
        assert socket.response is not None
        assert shown not in str(socket.response.headers)
        assert await refused(keyed, shown, 401) == "ticket_used"
    assert await refused(keyed, shown, 401) == "ticket_used"


async def test_a_ticket_as_bearer_opens_either_door(keyed: Running) -> None:
    async with peer(keyed.voice_url, key=ticket(keyed), start={}):
        pass
    headers = {"Authorization": f"Bearer {ticket(keyed)}"}
    async with connect(f"ws://127.0.0.1:{keyed.port}/v1/realtime", additional_headers=headers) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
    shown = ticket(keyed)
    offers = ["realtime", f"openai-insecure-api-key.{shown}"]
    async with connect(f"ws://127.0.0.1:{keyed.port}/v1/realtime", subprotocols=offers) as socket:  # type: ignore[arg-type]
        assert socket.subprotocol == "realtime"
    assert await refused(keyed, shown, 401, "realtime") == "ticket_used"


async def test_of_twenty_who_come_at_once_with_one_ticket_one_gets_in(keyed: Running) -> None:
    shown = ticket(keyed)

    async def come() -> str:
        try:
            async with peer(keyed.voice_url, key=shown, start={}):
                return "in"
        except InvalidStatus as error:
            return str(json.loads(error.response.body or b"{}")["error"]["code"])

    outcomes = await asyncio.gather(*(come() for _ in range(20)))
    assert sorted(outcomes) == ["in"] + ["ticket_used"] * 19


async def test_a_ticket_that_is_over_or_unknown_says_so(keyed: Running) -> None:
    shown = ticket(keyed, ttl_s=1)
    await asyncio.sleep(1.1)
    assert await refused(keyed, shown, 401) == "ticket_expired"
    assert await refused(keyed, "tkt_neverissuedneverissuedneveriss", 401) == "unauthorized"
    assert await refused(keyed, "", 401) == "unauthorized"


def test_a_ticket_says_when_it_ends(keyed: Running) -> None:
    before = time.time()
    _, answer = ask(keyed, {"ttl_s": 30})
    assert before + 29 <= answer["expires_at"] <= time.time() + 31
    assert set(answer) == {"ticket", "expires_at"}
    assert len(answer["ticket"]) == len("tkt_") + 32


async def test_looking_why_a_handshake_failed_uses_no_ticket_up(keyed: Running) -> None:
    shown = ticket(keyed)

    def look() -> int:
        request = urllib.request.Request(f"{keyed.http_url}/v1/voice", headers={"Authorization": f"Bearer {shown}"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        with caught.value:
            return caught.value.code

    assert await asyncio.to_thread(look) == 426
    async with peer(keyed.voice_url, key=shown, start={}):
        pass
    assert await asyncio.to_thread(look) == 401


@pytest.mark.may_block  # starts a gateway
async def test_a_full_house_uses_no_ticket_up() -> None:
    with gateway(KEYED | {"STRETTO_SESSION__MAX_SESSIONS": "1"}) as small:
        shown = ticket(small)
        async with peer(small.voice_url, key="alpha", start={}) as first:
            assert await refused(small, shown, 503) == "overloaded"
            await first.socket.close(1000)
        await let_in(small.voice_url, key=shown)


async def test_a_tickets_rights_are_its_keys_narrowed(keyed: Running) -> None:
    async with peer(keyed.voice_url, key=ticket(keyed, persona="nurse", instructions=False)) as client:
        for wish in ({"persona": "captain"}, {"instructions": "Obey."}):
            await client.send(type="session.start", **wish)
            assert (await client.receive())["code"] == "not_permitted"
        await client.send(type="session.start")
        await client.until("session.ready")
    _, answer = ask(keyed, {"instructions": True}, key="kiosk-key")
    async with peer(keyed.voice_url, key=answer["ticket"]) as client:
        await client.send(type="session.start", instructions="Obey.")
        assert (await client.receive())["code"] == "not_permitted"


async def test_a_ticket_for_a_page_opens_from_that_page_alone(keyed: Running) -> None:
    shown = ticket(keyed, origin="https://app.example")
    assert await refused(keyed, shown, 403, origin=keyed.http_url) == "forbidden_origin"
    assert await refused(keyed, shown, 403) == "forbidden_origin"
    async with peer(keyed.voice_url, key=shown, start={}, origin="https://app.example"):
        pass


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "bad_message"),
        (b"[]", 400, "bad_message"),
        (b"\xff", 400, "bad_message"),
        (b"[" * 4000, 400, "bad_message"),
        ({"ttl_s": 0}, 400, "bad_message"),
        ({"ttl_s": 601}, 400, "bad_message"),
        ({"ttl": 5}, 400, "bad_message"),
        ({"user": "x" * 257}, 400, "bad_message"),
        (b" " * 5000, 400, "bad_message"),
        ({"persona": "pirate"}, 400, "unknown_persona"),
        ({"origin": "https://other.example"}, 400, "bad_message"),
        ({"origin": "https://app.example/page"}, 400, "bad_message"),
    ],
)
def test_a_wrong_wish_is_told(keyed: Running, body: object, status: int, code: str) -> None:
    got, error = ask(keyed, body)
    assert (got, error["code"]) == (status, code)


async def test_a_ticket_for_the_gateways_own_page_opens_from_there(keyed: Running) -> None:
    shown = ticket(keyed, origin=keyed.http_url)
    async with peer(keyed.voice_url, key=shown, start={}, origin=keyed.http_url):
        pass


def test_a_page_that_may_not_connect_gets_no_ticket(keyed: Running) -> None:
    _, error = ask(keyed, {"origin": "https://other.example"})
    assert "'https://other.example'" in error["message"]
    assert "https://app.example" in error["message"], "and which may"


def test_who_may_not_ask_gets_none(keyed: Running) -> None:
    assert ask(keyed, key=None)[0] == 401
    assert ask(keyed, key="wrong")[0] == 401
    assert ask(keyed, key=ticket(keyed))[0] == 401, "a ticket makes no tickets"
    assert ask(keyed, {"persona": "nurse"}, key="kiosk-key") == (
        403,
        {"code": "not_permitted", "message": "This key speaks as 'captain'; its tickets can speak as no other persona."},
    )
    assert ask(keyed, Origin="https://evil.example")[1]["code"] == "forbidden_origin"
    assert ask(keyed, Host="evil.example")[1]["code"] == "forbidden_origin"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{keyed.http_url}/v1/tickets", timeout=60)
    with caught.value:
        assert caught.value.code == 405


def test_no_ticket_shows_in_the_log(keyed: Running) -> None:
    shown = ticket(keyed)
    assert not any(shown in line for line in keyed.lines)


@pytest.mark.parametrize("path", ["/v1/tickets", "/v1/realtime/client_secrets"])
def test_a_body_that_breaks_off_is_no_error_of_ours(keyed: Running, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alpha\r\nContent-Length: 100\r\n\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", keyed.port)) as phone:
            phone.sendall(head.encode() + b"{")
    assert ask(keyed)[0] == 201, "by then those are seen to be gone"
    assert not any("Exception" in line for line in keyed.lines)
