"""Bounds for each address: what the socket says counts, and a forged header does not."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway.codecs.native import SUBPROTOCOL
from tests.protocol.peer import connect, peer
from tests.running import Running, gateway

BOUNDS = {"STRETTO_KEYS": "alpha", "STRETTO_SERVER__FAILED_KEYS_PER_MIN": "3"}


def asked(running: Running, key: str, *, forwarded: str | None = None) -> tuple[int, int]:
    """GET /v1/voice with a key: the status (426: it is right), and Retry-After."""
    headers = {"Authorization": f"Bearer {key}"} | ({} if forwarded is None else {"X-Forwarded-For": forwarded})
    request = urllib.request.Request(f"{running.http_url}/v1/voice", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value as refusal:
        return refusal.code, int(refusal.headers.get("Retry-After", "0"))


@pytest.fixture
def alone() -> Iterator[Running]:
    with gateway(BOUNDS) as started:
        yield started


@pytest.fixture(scope="module")
def proxied() -> Iterator[Running]:
    with gateway(BOUNDS | {"STRETTO_SERVER__TRUSTED_PROXIES": '["127.0.0.0/8"]', "STRETTO_SERVER__SOCKETS_PER_ADDRESS": "2"}) as started:
        yield started


def test_forged_forwarded_headers_do_not_hide_who_guesses(alone: Running) -> None:
    for number in range(3):
        assert asked(alone, f"guess{number}", forwarded=f"203.0.113.{number}")[0] == 401
    status, after_s = asked(alone, "guess3", forwarded="203.0.113.99")
    assert status == 429
    assert 1 <= after_s <= 20
    assert asked(alone, "alpha")[0] == 429, "a right key is not told from a wrong one meanwhile"
    warnings = [line for line in alone.lines if "server.trusted_proxies" in line]
    assert len(warnings) == 1, "whoever forgot the setting learns it, once"
    assert "203.0.113" not in warnings[0]


def test_behind_a_trusted_proxy_each_client_is_counted_for_itself(proxied: Running) -> None:
    for number in range(4):
        status, _ = asked(proxied, f"guess{number}", forwarded=f"198.51.100.{number}, 203.0.113.9")
        assert status == (401 if number < 3 else 429), "what the client wrote itself changes nothing"
    assert asked(proxied, "alpha", forwarded="203.0.113.10")[0] == 426


def test_asking_without_a_key_is_no_guess(proxied: Running) -> None:
    for _ in range(10):
        request = urllib.request.Request(f"{proxied.http_url}/readyz", headers={"X-Forwarded-For": "203.0.113.30"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["ready"]
    assert asked(proxied, "alpha", forwarded="203.0.113.30")[0] == 426


def test_tickets_are_guessed_no_faster_than_keys(proxied: Running) -> None:
    statuses = [asked(proxied, f"tkt_guess{number}", forwarded="203.0.113.40")[0] for number in range(4)]
    assert statuses == [401, 401, 401, 429]


async def test_a_client_behind_a_proxy_holds_so_many_sockets(proxied: Running) -> None:
    async def come(client: str) -> ClientConnection:
        headers = {"Authorization": "Bearer alpha", "X-Forwarded-For": client}
        return await connect(proxied.voice_url, subprotocols=[SUBPROTOCOL], additional_headers=headers)  # type: ignore[list-item]

    held = [await come("203.0.113.20") for _ in range(2)]
    with pytest.raises(InvalidStatus) as caught:
        await come("203.0.113.20")
    assert caught.value.response.status_code == 429
    held.append(await come("203.0.113.21"))
    await held[0].close(1000)
    for _ in range(1200):
        try:
            held.append(await come("203.0.113.20"))
            break
        except InvalidStatus:
            await asyncio.sleep(0.05)
    else:
        pytest.fail("the place was never free again")
    for socket in held:
        await socket.close(1000)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("proxies", ["[]", '["127.0.0.0/8"]'])
@pytest.mark.may_block  # starts a gateway
async def test_an_address_that_holds_all_its_sockets_is_let_in_when_it_comes_back_for_a_session(loop: str, proxies: str) -> None:
    bounds = {"STRETTO_SERVER__SOCKETS_PER_ADDRESS": "2", "STRETTO_SERVER__TRUSTED_PROXIES": proxies}
    with gateway(bounds, "--loop", loop) as running:
        async with peer(running.voice_url) as old, peer(running.voice_url, start={"output": "text"}):
            await old.send(type="session.start", output="text")
            ready = await old.until("session.ready")
            wish = {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": 0}
            with pytest.raises((InvalidHandshake, ConnectionClosed, OSError)):
                async with peer(running.voice_url):
                    pass
            if proxies == "[]":  # who asks for anything else is cut off, too
                with pytest.raises((OSError, http.client.HTTPException)):
                    await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(f"{running.http_url}/v1/tickets", b"{}"))
            async with peer(f"{running.voice_url}?resume={ready['session_id']}") as new:
                await new.send(type="session.start", resume=wish)
                assert (await new.until("session.ready"))["resumed"]
                assert (await old.closed())[0] == 4001
        assert [line for line in running.lines if "Exception" in line or "Invalid HTTP" in line] == []


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.may_block  # starts a gateway
async def test_sockets_beyond_the_bound_are_closed_unread_and_places_come_back(loop: str) -> None:
    with gateway({"STRETTO_SERVER__SOCKETS_PER_ADDRESS": "5"}, "--loop", loop) as running:
        async with peer(running.voice_url, start={"output": "text"}) as client:
            idle = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(4)]
            with pytest.raises((InvalidHandshake, ConnectionClosed, OSError)):
                async with peer(running.voice_url):
                    pass
            await client.send(type="ping", t=1.0)
            await client.until("pong")
            for _, writer in idle:
                writer.close()
            for _ in range(1200):
                try:
                    async with peer(running.voice_url, start={"output": "text"}):
                        break
                except (InvalidHandshake, ConnectionClosed, OSError):
                    await asyncio.sleep(0.05)
            else:
                pytest.fail("the places were never free again")
