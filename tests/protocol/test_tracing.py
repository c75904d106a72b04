"""Traces of a real gateway: what a client's handshake names is gone on with, no word leaves, and a collector that hangs holds up nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.doubles.collector import Collector, attributes, collector
from tests.protocol.peer import connect, peer
from tests.running import Running, gateway

pytestmark = pytest.mark.may_block  # waits for the collector, starts and stops gateways
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
REPLY = "Zanzibar is warm. It is an island."


@pytest.fixture(scope="module")
def traced() -> Iterator[tuple[Running, Collector]]:
    with collector() as double:
        settings = {"STRETTO_TRACING__ENDPOINT": double.url, "STRETTO_FAKE__REPLY": REPLY, "STRETTO_FAKE__TTS_RTF": "0.01"}
        settings["STRETTO_SESSION__LEAD_MS"] = "10000"  # all of a reply
        with gateway(settings) as running:
            yield running, double


async def test_a_turn_is_traced_under_its_clients_span_and_no_word_of_it_leaves(traced: tuple[Running, Collector]) -> None:
    running, double = traced
    async with peer(running.voice_url, start={"user": "ann"}, headers=HEADERS) as client:
        await client.send(type="text", text="Tell me of Timbuktu.")
        await client.until("audio")
        await client.send(type="playout", turn=1, played_ms=0)  # it is not over until more of it was heard
        await client.until("reply.done")
        await client.send(type="text", text="And now?")
        await client.until("interrupted", turn=1)
        await client.send(type="playout", turn=1, played_ms=100, final=True)
        await client.until("turn.done", turn=1)
        await client.until("reply.done", turn=2)
        await client.send(type="cancel", turn=2)
    tops = {attributes(span)["stretto.turn"]: span for span in double.named("stretto.turn", 2)}
    assert {span.trace_id.hex() for span in double.spans} == {TRACE}
    assert tops[1].parent_span_id.hex() == SPAN
    assert [link.span_id for link in tops[2].links] == [tops[1].span_id]
    assert attributes(tops[1])["stretto.status"] == "interrupted"
    assert len(double.named("llm.generation", 2)) == 2
    assert len(double.named("tts.segment", 4)) >= 4
    everything = " ".join(str(span) for span in double.spans)
    for word in ("Zanzibar", "Timbuktu", "ann"):
        assert word not in everything


async def test_the_other_door_is_traced_alike(traced: tuple[Running, Collector]) -> None:
    running, double = traced
    n_before = len(double.named("stretto.turn", 0))
    url = running.voice_url.replace("/v1/voice", "/v1/realtime")
    async with connect(url, additional_headers={"traceparent": f"00-{'12' * 16}-{SPAN}-01"}) as socket:
        await socket.send('{"type": "response.create"}')
        while "response.done" not in str(await socket.recv()):
            pass
    newest = double.named("stretto.turn", n_before + 1)[-1]
    assert newest.trace_id.hex() == "12" * 16


async def test_a_hanging_collector_holds_up_neither_a_turn_nor_the_shutdown() -> None:
    with collector() as double:
        double.hang.set()
        with gateway(
            {"STRETTO_TRACING__ENDPOINT": double.url, "STRETTO_FAKE__TTS_RTF": "0.01", "STRETTO_SERVER__DRAIN_S": "0.5"}
        ) as running:
            async with peer(running.voice_url, start={"output": "text"}) as client:
                for n in (1, 2, 3):
                    await client.send(type="text", text="Hello.")
                    await client.until("turn.done", turn=n)
            assert running.stop() == 0


def test_an_endpoint_without_its_package_ends_the_start_with_what_to_do() -> None:
    hidden = "import sys; sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None"
    code = f"{hidden}; from gateway.__main__ import main; sys.exit(main(['serve', '--port', '0', '--engines', 'fake']))"
    environment = os.environ | {"STRETTO_TRACING__ENDPOINT": "http://127.0.0.1:1/v1/traces"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"OpenTelemetry is missing: {sys.executable} -m pip install 'stretto[otel]'" in done.stderr
