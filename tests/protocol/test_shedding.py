"""What newcomers meet while load is shed: a refusal with its reason and when to come back, at the door and on `/readyz`."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus

from tests.protocol.peer import peer
from tests.running import Running, gateway

SETTINGS = {
    "STRETTO_FAKE__REPLY": "Yes.",
    "STRETTO_FAKE__TTFT_MS": "30",
    "STRETTO_FAKE__TTS_RTF": "0.01",
    "STRETTO_SHEDDING__TTFT_MS": "10",  # each turn is over it
    "STRETTO_SHEDDING__WINDOW_S": "60",
    "STRETTO_SHEDDING__CALM_S": "7",
}


@pytest.fixture(scope="module")
def house() -> Iterator[Running]:
    with gateway(SETTINGS) as running:
        yield running


def readiness(running: Running) -> tuple[int, dict[str, object], str | None]:
    try:
        with urllib.request.urlopen(f"{running.http_url}/readyz", timeout=60) as answer:
            return answer.status, json.load(answer), answer.headers["Retry-After"]
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused), refused.headers["Retry-After"]


async def test_newcomers_and_probes_are_told_why_while_who_is_in_talks_on(house: Running) -> None:
    assert await asyncio.to_thread(readiness, house) == (200, {"ready": True, "draining": False, "engines": ANY_ENGINES}, None)
    async with peer(house.voice_url, start={"output": "text"}) as guest:
        for _ in range(5):
            await guest.send(type="text", text="Is it?")
            await guest.until("turn.done")
        async with asyncio.timeout(60):
            while (told := await asyncio.to_thread(readiness, house))[0] == 200:
                await asyncio.sleep(0.05)
        status, body, after = told
        assert (status, body["ready"], after) == (503, False, "7")
        assert body["shedding"] == "The model answers late: no new conversations until it has caught up."
        with pytest.raises(InvalidStatus) as refused:
            async with peer(house.voice_url):
                pass
        answer = refused.value.response
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
        assert json.loads(answer.body or b"")["error"]["code"] == "overloaded"
        await guest.send(type="text", text="And is it still?")
        assert (await guest.until("turn.done"))["status"] == "completed"


class _Any:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict)

    __hash__ = None  # type: ignore[assignment]  # equal to many


ANY_ENGINES = _Any()
