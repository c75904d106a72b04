"""Client secrets over the wire: asked for with a key, bound to a session's settings, shown by a browser or as a bearer key."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from gateway.codecs.native import SUBPROTOCOL
from tests.protocol.peer import connect
from tests.running import Running, gateway

SETTINGS = {
    "STRETTO_KEYS": "alpha",
    "STRETTO_PERSONAS__CAPTAIN__INSTRUCTIONS": "You are a captain.",
    "STRETTO_KEYS__KIOSK__KEY": "kiosk-key",
    "STRETTO_KEYS__KIOSK__PERSONA": "captain",
    "STRETTO_KEYS__KIOSK__INSTRUCTIONS": "false",
    "STRETTO_REALTIME__CLIENT_SECRET_S": "45",
    "STRETTO_ASR__ENGINE": "fake",
    "STRETTO_LISTEN__VAD": "fake",
    "STRETTO_LISTEN__END_OF_TURN": "off",
}
TOOL = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {}}}
SESSION = {
    "type": "realtime",
    "model": "gpt-realtime",
    "instructions": "Be a pirate.",
    "tools": [TOOL],
    "max_output_tokens": 77,
    "audio": {
        "input": {
            "format": {"type": "audio/pcmu"},
            "transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 700, "idle_timeout_ms": 6000},
        },
        "output": {"voice": "fake-low", "speed": 1.25, "format": {"type": "audio/pcmu"}},
    },
}
Json = dict[str, Any]  # Any: of the API


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway(SETTINGS) as started:
        yield started


def ask(running: Running, body: object = None, *, key: str | None = "alpha", **headers: str) -> tuple[int, Json]:
    """The status, and the answer or its error. `body` bytes go as they are."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers |= {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{running.http_url}/v1/realtime/client_secrets", data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["cache-control"].startswith("no-store")
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            error = json.load(refusal)["error"]
            assert set(error) == {"message", "type", "param", "code"}
            return refusal.code, error


def secret(running: Running, key: str = "alpha", **body: Any) -> Json:  # Any: of the API
    status, answer = ask(running, body, key=key)
    assert status == 200, answer
    return answer


async def created(running: Running, value: str, query: str = "") -> Json:
    """The session that a browser gets with it."""
    offers = ["realtime", f"openai-insecure-api-key.{value}"]
    async with connect(f"ws://127.0.0.1:{running.port}/v1/realtime{query}", subprotocols=offers) as socket:  # type: ignore[arg-type]
        assert socket.subprotocol == "realtime"
        assert socket.response is not None
        assert value not in str(socket.response.headers)
        event = json.loads(await socket.recv())
    assert event["type"] == "session.created"
    return dict(event["session"])


async def refused(running: Running, value: str, path: str = "realtime") -> tuple[int, str]:
    offers = ["realtime", f"openai-insecure-api-key.{value}"] if path == "realtime" else [SUBPROTOCOL, f"stretto-ticket.{value}"]
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"ws://127.0.0.1:{running.port}/v1/{path}", subprotocols=offers):  # type: ignore[arg-type]
            pass
    return caught.value.response.status_code, json.loads(caught.value.response.body or b"{}")["error"]["code"]


async def test_a_session_is_bound_to_its_secret_and_shown_before_and_after(running: Running) -> None:
    answer = secret(running, session=SESSION)
    assert set(answer) == {"value", "expires_at", "session"}
    assert answer["value"].startswith("ek_")
    session = await created(running, answer["value"])
    assert {**session, "id": ""} == {**answer["session"], "id": ""}
    assert (session["model"], session["instructions"], session["max_output_tokens"]) == ("gpt-realtime", "Be a pirate.", 77)
    assert session["tools"] == [TOOL]
    heard, spoken = session["audio"]["input"], session["audio"]["output"]
    assert (heard["format"], heard["transcription"]) == ({"type": "audio/pcmu"}, {"model": "whisper-1"})
    assert (heard["turn_detection"]["silence_duration_ms"], heard["turn_detection"]["idle_timeout_ms"]) == (700, 6000)
    assert spoken == {"format": {"type": "audio/pcmu"}, "voice": "fake-low", "speed": 1.25}


async def test_a_secret_opens_as_often_as_its_time_allows_and_as_a_bearer_key_too(running: Running) -> None:
    value = secret(running, session=SESSION)["value"]
    for _ in range(3):
        assert (await created(running, value))["instructions"] == "Be a pirate."
    async with connect(f"ws://127.0.0.1:{running.port}/v1/realtime", additional_headers={"Authorization": f"Bearer {value}"}) as socket:
        assert json.loads(await socket.recv())["session"]["instructions"] == "Be a pirate."
        await socket.send(json.dumps({"type": "session.update", "session": {"instructions": "Be a parrot."}}))
        updated = json.loads(await socket.recv())
        assert (updated["type"], updated["session"]["instructions"]) == ("session.updated", "Be a parrot.")
        assert updated["session"]["audio"]["input"]["format"] == {"type": "audio/pcmu"}, "the rest stays as it was bound"


async def test_a_secret_for_a_page_opens_from_that_page_alone(running: Running) -> None:
    value = secret(running, origin=f"{running.http_url}/")["value"]
    assert await refused(running, value) == (403, "forbidden_origin"), "no page at all"
    headers = {"Authorization": f"Bearer {value}"}
    async with connect(f"ws://127.0.0.1:{running.port}/v1/realtime", additional_headers=headers, origin=running.http_url) as socket:  # type: ignore[arg-type]
        assert json.loads(await socket.recv())["type"] == "session.created"


async def test_its_time_is_the_servers_or_the_askers(running: Running) -> None:
    before = time.time()
    assert before + 44 <= secret(running)["expires_at"] <= time.time() + 46
    answer = secret(running, expires_after={"anchor": "created_at", "seconds": 600})
    assert isinstance(answer["expires_at"], int)
    assert before + 599 <= answer["expires_at"] <= time.time() + 601


async def test_without_a_session_it_is_a_key_for_a_while_and_the_address_names_the_model(running: Running) -> None:
    answer = secret(running)
    assert (await created(running, answer["value"]))["model"] == "stretto"
    assert (await created(running, answer["value"], "?model=gpt-realtime-mini"))["model"] == "gpt-realtime-mini"


async def test_a_secret_gives_no_more_than_its_key(running: Running) -> None:
    status, error = ask(running, {"session": {"instructions": "Be somebody else."}}, key="kiosk-key")
    assert (status, error["code"]) == (403, "not_permitted")
    answer = secret(running, "kiosk-key", session={"audio": {"output": {"voice": "fake-low"}}})
    offers = ["realtime", f"openai-insecure-api-key.{answer['value']}"]
    async with connect(f"ws://127.0.0.1:{running.port}/v1/realtime", subprotocols=offers) as socket:  # type: ignore[arg-type]
        session = json.loads(await socket.recv())["session"]
        assert (session["instructions"], session["audio"]["output"]["voice"]) == ("", "fake-low")
        await socket.send(json.dumps({"type": "session.update", "session": {"instructions": "Be somebody else."}}))
        assert json.loads(await socket.recv())["error"]["code"] == "not_permitted"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_value", None),
        (b'{"session": 1}', 400, "invalid_value", None),
        (b'{"expires_after": {"seconds": 5}}', 400, "invalid_value", None),
        (b'{"expires_after": {"seconds": 7201}}', 400, "invalid_value", None),
        (b'{"expires_after": {"anchor": "midnight"}}', 400, "invalid_value", None),
        (b'{"origin": 7}', 400, "invalid_value", None),
        (b'{"origin": "https://other.example"}', 400, "invalid_value", "origin"),
        (b'{"session": {"model": "gpt-9"}}', 404, "model_not_found", None),
        (b'{"session": {"model": 9}}', 400, "invalid_type", "session.model"),
        (b'{"session": {"type": "transcription"}}', 400, "invalid_value", "session.type"),
        (b'{"session": {"audio": {"output": {"voice": "ghost"}}}}', 400, "invalid_value", "audio.output.voice"),
        (b'{"session": {"audio": {"output": {"speed": 9}}}}', 400, "invalid_value", "session.audio.output.speed"),
        (b'{"session": {"instructions": "' + b"x" * 40_000 + b'"}}', 400, "string_above_max_length", None),
        (b'{"session": {"instructions": "' + b"x" * 70_000 + b'"}}', 400, "invalid_value", None),
    ],
)
async def test_what_cannot_be_is_refused_to_who_asks(running: Running, body: bytes, status: int, code: str, param: str | None) -> None:
    found, error = ask(running, body)
    assert (found, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize("size", [20_000, 200_000])
async def test_a_body_that_comes_in_one_piece_with_its_headers_is_read_as_one(running: Running, size: int) -> None:
    body = b'{"session": {"instructions": "' + b"x" * size + b'"}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    lines = ("POST /v1/realtime/client_secrets HTTP/1.1", "Host: localhost", "Authorization: Bearer alpha", f"Content-Length: {len(body)}")
    writer.write("\r\n".join((*lines, "", "")).encode() + body)
    status = await reader.readline()
    assert status.split()[1] == (b"200" if size < 65_536 else b"400")
    writer.close()


async def test_nobody_gets_one_without_a_key_or_with_a_secret(running: Running) -> None:
    value = secret(running)["value"]
    for key in (None, "wrong", value):
        status, error = ask(running, key=key)
        assert (status, error["code"]) == (401, "invalid_api_key")
    status, error = ask(running, Origin="https://evil.example")
    assert (status, error["code"]) == (403, "forbidden_origin")


async def test_an_unknown_secret_and_the_other_door_are_refused(running: Running) -> None:
    assert await refused(running, "ek_neverissuedneverissuedneverissu") == (401, "invalid_api_key")
    value = secret(running, session=SESSION)["value"]
    assert (await refused(running, value, "voice"))[0] == 401, "its settings are not to be got round"
    assert value not in "".join(running.lines)
