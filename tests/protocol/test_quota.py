"""A key's limits over the wire, on both doors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import ClientConnection

from tests.protocol.peer import connect, peer
from tests.protocol.test_tickets import ask
from tests.running import Running, gateway


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    keys = {"STRETTO_KEYS": "alpha", "STRETTO_KEYS__KIOSK__KEY": "kiosk-key", "STRETTO_KEYS__KIOSK__TURNS_PER_MIN": "2"}
    with gateway(keys | {"STRETTO_KEYS__SMALL__KEY": "small-key", "STRETTO_KEYS__SMALL__SESSIONS": "1"}) as started:
        yield started


def realtime(running: Running, key: str) -> contextlib.AbstractAsyncContextManager[ClientConnection]:
    return connect(f"ws://127.0.0.1:{running.port}/v1/realtime", additional_headers={"Authorization": f"Bearer {key}"})


async def test_all_connections_of_a_key_share_its_turns_and_another_key_does_not_notice(running: Running) -> None:
    _, made = await asyncio.to_thread(ask, running, key="kiosk-key")
    text = {"output": "text"}
    async with (
        peer(running.voice_url, key="kiosk-key", start=text) as one,
        peer(running.voice_url, key=made["ticket"], start=text) as two,
    ):
        for client in (one, two):
            await client.send(type="text", text="Hello?")
            await client.until("turn.done")
        await one.send(type="text", text="Hello?", id="x")
        error = await one.until("error")
        assert (error["code"], error["ref"], error["retryable"]) == ("quota_exceeded", "x", True)
        assert 0 < error["retry_after_ms"] <= 61_000
    async with realtime(running, "kiosk-key") as socket:
        await socket.send(json.dumps({"type": "response.create", "event_id": "mine"}))
        event = json.loads(await socket.recv())
        while event["type"] != "error":
            event = json.loads(await socket.recv())
        assert {name: event["error"][name] for name in ("type", "code", "event_id")} == {
            "type": "rate_limit_error",
            "code": "rate_limit_exceeded",
            "event_id": "mine",
        }
    async with peer(running.voice_url, key="alpha", start=text) as other:
        await other.send(type="text", text="Hello?")
        await other.until("turn.done", status="completed")


async def test_a_key_opens_as_many_conversations_as_it_may(running: Running) -> None:
    async with peer(running.voice_url, key="small-key", start={}) as first:
        async with peer(running.voice_url, key="small-key") as second:
            await second.send(type="session.start")
            code, frames = await second.closed()
            assert (code, frames[-1]["code"]) == (1013, "quota_exceeded")
        async with realtime(running, "small-key") as socket:
            event = json.loads(await socket.recv())
            assert event["error"]["code"] == "rate_limit_exceeded"
        await first.socket.close(1000)
    for _ in range(1200):
        await asyncio.sleep(0.05)
        async with peer(running.voice_url, key="small-key") as third:
            await third.send(type="session.start")
            if (await third.receive())["type"] == "session.ready":
                break
    else:
        pytest.fail("the place was never free again")


def test_refusals_are_counted_under_the_keys_name_alone(running: Running) -> None:
    request = urllib.request.Request(f"{running.http_url}/metrics", headers={"Authorization": "Bearer alpha"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    assert 'stretto_quota_refused_total{key="kiosk",limit="turns"} 2.0' in page
    assert 'stretto_quota_refused_total{key="small",limit="tokens_day"} 0.0' in page
    assert "kiosk-key" not in page
