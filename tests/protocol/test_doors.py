"""Who gets in, and how the server goes: keys, origins, hosts, subprotocols, places, drain."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.codecs.native import SUBPROTOCOL, decode_server
from gateway.events import ErrorRaised
from tests.protocol.peer import connect, let_in, peer
from tests.running import Running, gateway

pytestmark = pytest.mark.may_block  # most start a gateway, and a busy machine takes seconds for that
SLOW = {"STRETTO_FAKE__ITL_MS": "30", "STRETTO_FAKE__TTS_RTF": "0.1", "STRETTO_SERVER__DRAIN_S": "300"}
N_KNOCKS = 30  # at once: a busy machine may let some of them in, in its own time
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with gateway({"STRETTO_KEYS": "alpha,beta", "STRETTO_SERVER__ORIGINS": '["https://app.example"]'}) as started:
        yield started


async def refused(running: Running, status: int, **options: Any) -> dict[str, Any]:  # Any: websockets' options, and JSON
    """Connect and be refused; the JSON error."""
    options.setdefault("subprotocols", [SUBPROTOCOL])
    with pytest.raises(InvalidStatus) as caught:
        async with connect(running.voice_url, **options):
            pass
    assert caught.value.response.status_code == status
    error = json.loads(caught.value.response.body or b"{}")["error"]
    assert isinstance(error, dict)
    return error


async def test_without_a_key_nobody_gets_in(keyed: Running) -> None:
    assert (await refused(keyed, 401))["code"] == "unauthorized"
    error = await refused(keyed, 401, additional_headers={"Authorization": "Bearer gamma"})
    assert "gamma" not in json.dumps(error)


async def test_a_key_opens_by_header_and_by_subprotocol_and_is_never_echoed(keyed: Running) -> None:
    async with peer(keyed.voice_url, key="alpha", start={}) as client:
        assert client.socket.subprotocol == SUBPROTOCOL
    async with connect(keyed.voice_url, subprotocols=[SUBPROTOCOL, "stretto-key.beta"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == SUBPROTOCOL
        assert socket.response is not None
        assert "beta" not in str(socket.response.headers)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_a_foreign_page_is_refused_even_with_a_key(keyed: Running, origin: str) -> None:
    error = await refused(keyed, 403, origin=origin, additional_headers={"Authorization": "Bearer alpha"})
    assert error["code"] == "forbidden_origin"


async def test_the_own_and_a_listed_page_get_in(keyed: Running) -> None:
    for origin in (keyed.http_url, "https://app.example"):
        async with peer(keyed.voice_url, key="alpha", start={}, origin=origin):
            pass


def test_a_foreign_host_is_rebinding(keyed: Running) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{keyed.http_url}/", headers={"Host": "evil.example"}), timeout=60)
    assert caught.value.code == 403
    caught.value.close()


@pytest.mark.parametrize("offers", [None, ["chat"], ["stretto-key.alpha"]])
async def test_no_or_only_unknown_subprotocols_are_a_bad_request(keyed: Running, offers: list[str] | None) -> None:
    error = await refused(keyed, 400, subprotocols=offers, additional_headers={"Authorization": "Bearer alpha"})
    assert error["code"] == "unsupported_subprotocol"


def test_metrics_need_the_key_where_there_is_one(keyed: Running) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{keyed.http_url}/metrics", timeout=60)
    assert caught.value.code == 401
    caught.value.close()
    request = urllib.request.Request(f"{keyed.http_url}/metrics", headers={"Authorization": "Bearer alpha"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"stretto_sessions" in answer.read()


def test_no_key_shows_in_the_log(keyed: Running) -> None:
    assert not any("alpha" in line or "beta" in line for line in keyed.lines)


@pytest.mark.parametrize("path", ["voice", "realtime"])
async def test_an_address_that_knocks_too_often_is_told_to_wait(path: str) -> None:
    with gateway({"STRETTO_SERVER__HANDSHAKES_PER_S": "3"}) as running:
        offers = [SUBPROTOCOL] if path == "voice" else ["realtime"]
        waits = set()

        async def knock() -> int:
            try:
                async with connect(f"ws://127.0.0.1:{running.port}/v1/{path}", subprotocols=offers):  # type: ignore[arg-type]
                    return 101
            except InvalidStatus as error:
                waits.add(error.response.headers["Retry-After"])
                return error.response.status_code

        assert [await knock() for _ in range(3)] == [101, 101, 101]
        async with asyncio.timeout(PATIENCE_S):
            while 429 not in await asyncio.gather(*(knock() for _ in range(N_KNOCKS))):
                pass
        assert waits == {"1"}


async def test_the_client_too_many_is_refused_at_once_and_told_when_to_come_back() -> None:
    with gateway({"STRETTO_SESSION__MAX_SESSIONS": "2"}) as running:
        async with peer(running.voice_url, start={}) as one, peer(running.voice_url, start={}):
            with pytest.raises(InvalidStatus) as caught:
                async with connect(running.voice_url, subprotocols=[SUBPROTOCOL]):  # type: ignore[list-item]
                    pass
            assert caught.value.response.status_code == 503
            assert int(caught.value.response.headers["Retry-After"]) > 0
            async with connect(running.voice_url, subprotocols=[SUBPROTOCOL], origin=running.http_url) as browser:  # type: ignore[list-item, arg-type]
                frame = await browser.recv()
                assert isinstance(frame, bytes)
                error, _ = decode_server(frame)
                assert isinstance(error, ErrorRaised)
                assert (error.code, error.retryable) == ("overloaded", True)
                with pytest.raises(ConnectionClosed) as closed:
                    await browser.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1013
            await one.socket.close(1000)
            await let_in(running.voice_url)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_a_drain_lets_the_turn_finish_and_closes_with_4004(loop: str) -> None:
    held = {"STRETTO_FAKE__REPLY": "One moment, please. Here it is.", "STRETTO_SESSION__LEAD_MS": "10000"}  # sent ahead as a whole
    with gateway(SLOW | held, "--loop", loop) as running:
        async with peer(running.voice_url, start={}) as talker, peer(running.voice_url, start={}) as idler:
            await talker.send(type="text", text="Hello?")
            await talker.until("audio")
            await talker.send(type="playout", turn=1, played_ms=0)  # its turn lasts until it says that it has heard all
            running.process.send_signal(signal.SIGTERM)
            assert (await talker.until("going_away"))["deadline_ms"] > 0
            assert (await idler.closed())[0] == 4004
            with pytest.raises((InvalidStatus, OSError)):
                async with connect(running.voice_url, subprotocols=[SUBPROTOCOL]):  # type: ignore[list-item]
                    pass
            await talker.send(type="text", text="One more?", id="late")
            assert (await talker.until("error"))["code"] == "draining"
            await talker.until("reply.done")
            await talker.send(type="playout", turn=1, played_ms=60_000, final=True)
            code, frames = await talker.closed()
            assert code == 4004
            assert next(frame for frame in frames if frame["type"] == "turn.done")["status"] == "completed"
        assert await asyncio.to_thread(running.process.wait, PATIENCE_S) == 0


async def test_a_second_signal_does_not_wait() -> None:
    with gateway(SLOW | {"STRETTO_FAKE__ITL_MS": "2000"}) as running:
        async with peer(running.voice_url, start={}) as talker:
            await talker.send(type="text", text="Hello?")
            await talker.until("turn.started")
            running.process.send_signal(signal.SIGTERM)
            await talker.until("going_away")
            running.process.send_signal(signal.SIGTERM)
            await talker.closed()
        assert await asyncio.to_thread(running.process.wait, PATIENCE_S) == 0
        assert any(line.startswith("stopping: ") and "second Ctrl-C" in line for line in running.lines)


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`stretto serve` that cannot start."""
    command = [sys.executable, "-m", "gateway", "serve", "--engines", "fake", *arguments]
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=60, check=False)


def test_a_taken_port_is_told() -> None:
    with gateway() as running:
        done = start("--port", str(running.port))
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1:{running.port}: Address already in use" in done.stderr
        assert "--port" in done.stderr


def test_an_address_of_another_machine_is_told() -> None:
    done = start("--host", "192.0.2.1", "--port", "0", STRETTO_KEYS="0123456789abcdef-secret")
    assert done.returncode == 1
    assert "--host (server.host) takes an address of this machine" in done.stderr


def test_an_unknown_key_in_the_settings_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[server]\nprot = 1\n", "utf-8")
    done = start("--config", str(tmp_path / "s.toml"))
    assert done.returncode == 2
    assert "unknown key server.prot" in done.stderr


def test_an_open_address_without_keys_does_not_start() -> None:
    done = start("--host", "0.0.0.0")
    assert done.returncode == 2
    assert "STRETTO_KEYS" in done.stderr


def test_details_of_engines_are_for_those_who_have_a_key(keyed: Running) -> None:
    with urllib.request.urlopen(f"{keyed.http_url}/readyz", timeout=60) as answer:
        assert json.load(answer)["engines"] == {"llm": "ready", "tts": "ready"}
    request = urllib.request.Request(f"{keyed.http_url}/readyz", headers={"Authorization": "Bearer alpha"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["engines"] == {"llm": "fake", "tts": "fake: fake"}


@pytest.mark.parametrize("path", ["/v1/voice", "/v1/realtime", "/metrics"])
def test_keys_cannot_be_guessed_over_http_any_faster(path: str) -> None:
    with gateway({"STRETTO_SERVER__HANDSHAKES_PER_S": "3", "STRETTO_KEYS": "alpha"}) as running:

        def guess(number: int) -> int:
            request = urllib.request.Request(running.http_url + path, headers={"Authorization": f"Bearer guess{number}"})
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            with caught.value as refusal:
                return refusal.code

        assert [guess(number) for number in range(3)] == [401, 401, 401]
        with ThreadPoolExecutor(N_KNOCKS) as guessers:
            assert any(429 in guessers.map(guess, range(N_KNOCKS)) for _ in range(20))


async def test_who_is_turned_away_is_counted(keyed: Running) -> None:
    await refused(keyed, 401)
    assert b'stretto_errors_total{code="unauthorized"}' in await asyncio.to_thread(scraped, keyed)


def scraped(running: Running) -> bytes:
    request = urllib.request.Request(f"{running.http_url}/metrics", headers={"Authorization": "Bearer alpha"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


async def test_a_client_that_asks_only_when_the_server_drains_is_sent_away() -> None:
    with gateway(SLOW) as running:
        async with peer(running.voice_url) as late, peer(running.voice_url, start={}) as busy:
            await busy.send(type="text", text="Talk.")
            await busy.until("audio")
            running.process.send_signal(signal.SIGTERM)
            await busy.until("going_away")
            await late.send(type="session.start")
            code, frames = await late.closed()
            assert (code, [frame["code"] for frame in frames]) == (4004, ["going_away"])
