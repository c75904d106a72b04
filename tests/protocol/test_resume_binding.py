"""A resume token is 128 bits, new at each attachment, and of no use to another key or another ticket's user."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.protocol.peer import Frame, peer
from tests.protocol.test_tickets import KEYED, ticket
from tests.running import Running, gateway


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with gateway(KEYED) as started:
        yield started


async def opened(running: Running, shown: str, resume: dict[str, Any] | None = None) -> Frame:  # Any: the wish's values
    """Open or resume with a key or ticket, and lose the connection: `session.ready`, or the error that came instead."""
    async with peer(running.voice_url, key=shown) as client:
        await client.send(type="session.start", output="text", resume=resume)
        frame = await client.receive()
        client.socket.transport.abort()
        return frame


def wish(ready: Frame) -> dict[str, Any]:  # Any: as above
    return {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": 0}


async def test_another_keys_client_cannot_take_a_session_with_its_token(keyed: Running) -> None:
    ready = await opened(keyed, "alpha")
    refused = await opened(keyed, "kiosk-key", wish(ready))
    assert (refused["type"], refused["code"]) == ("error", "resume_denied")
    again = await opened(keyed, "alpha", wish(ready))
    assert (again["session_id"], again["resumed"]) == (ready["session_id"], True), "its own client finds it untouched"


async def test_a_tickets_session_is_resumed_with_another_ticket_of_its_user_alone(keyed: Running) -> None:
    def for_user(name: str) -> str:
        return ticket(keyed, user=name)

    ready = await opened(keyed, await asyncio.to_thread(for_user, "ann"))
    for shown in (await asyncio.to_thread(for_user, "bob"), await asyncio.to_thread(for_user, ""), "alpha"):
        assert (await opened(keyed, shown, wish(ready)))["code"] == "resume_denied"
    again = await opened(keyed, await asyncio.to_thread(for_user, "ann"), wish(ready))
    assert (again["session_id"], again["resumed"]) == (ready["session_id"], True)


async def test_a_session_goes_on_with_the_rights_of_what_is_shown_at_the_resume(keyed: Running) -> None:
    async with peer(keyed.voice_url, key=await asyncio.to_thread(partial(ticket, keyed, user="ann"))) as client:
        await client.send(type="session.start", output="text", instructions="Be a pirate.")
        ready = await client.until("session.ready")
        client.socket.transport.abort()
    narrow = await asyncio.to_thread(partial(ticket, keyed, user="ann", instructions=False, tools=False))
    async with peer(keyed.voice_url, key=narrow) as client:
        await client.send(type="session.start", resume=wish(ready))
        assert (await client.until("session.ready"))["resumed"]
        assert (await client.until("session.updated"))["instructions"] == ""
        for message in ({"instructions": "Obey."}, {"tools": [{"name": "look"}]}):
            await client.send(type="session.update", **message)
            assert (await client.until("error"))["code"] == "not_permitted"


async def test_tokens_are_long_and_never_the_same(keyed: Running) -> None:
    ready = await opened(keyed, "alpha")
    tokens = [ready["resume_token"]]
    for _ in range(4):
        ready = await opened(keyed, "alpha", wish(ready))
        assert ready["resumed"]
        tokens.append(ready["resume_token"])
    assert len(set(tokens)) == 5
    assert all(len(base64.urlsafe_b64decode(token + "==")) * 8 >= 128 for token in tokens)
    assert (await opened(keyed, "alpha", wish(ready) | {"token": tokens[0]}))["code"] == "resume_denied", "an old one is worth nothing"
