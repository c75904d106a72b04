"""Remote recognizers against local doubles: what is sent, what is understood, every failure typed and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from engine.api import EngineBusy, EngineError, EngineNotReady, EngineStalled, HeardWord, Transcript, Transcription
from engine.asr.errors import TranscriptionRefused, UnexpectedAnswer
from engine.asr.openai import HttpRecognizer
from engine.asr.vllm_realtime import VllmRecognizer
from engine.settings import AsrSettings
from tests.doubles.transcription_servers import RealtimeServer, Reply, TranscriptionServer
from tests.unit.ears import LOUD, wanted

PATIENCE_S = 60.0
TRIES = 8  # under limits that a busy machine breaks by itself now and then; what a failure left broken fails each time


@asynccontextmanager
async def http(**settings: object) -> AsyncGenerator[tuple[HttpRecognizer, TranscriptionServer], None]:
    async with TranscriptionServer().running() as server:
        options: dict[str, object] = {"model": "whisper-1", "connect_s": PATIENCE_S, "answer_s": PATIENCE_S, "parallel": 2, **settings}
        recognizer = HttpRecognizer(AsrSettings(engine="openai", url=server.url, **options))  # type: ignore[arg-type]  # keywords of the test
        await recognizer.start()
        try:
            yield recognizer, server
        finally:
            await recognizer.close()


@asynccontextmanager
async def vllm(**settings: object) -> AsyncGenerator[tuple[VllmRecognizer, RealtimeServer], None]:
    async with RealtimeServer().running() as server:
        options: dict[str, object] = {"model": "voxtral", "connect_s": PATIENCE_S, "answer_s": PATIENCE_S, **settings}
        recognizer = VllmRecognizer(AsrSettings(engine="vllm", url=server.url, **options))  # type: ignore[arg-type]  # keywords of the test
        await recognizer.start()
        try:
            yield recognizer, server
        finally:
            await recognizer.close()


async def in_time(recognizer: HttpRecognizer | VllmRecognizer, transcription: Transcription) -> Transcript | None:
    for _ in range(TRIES - 1):
        with suppress(EngineStalled):
            return await recognizer.transcribe(transcription)
    return await recognizer.transcribe(transcription)


async def so_far(recognizer: VllmRecognizer, text: str, pcm: bytes) -> None:
    """Ask until the partial says so: one that a busy machine keeps from settling has less."""
    async with asyncio.timeout(PATIENCE_S):
        while await recognizer.transcribe(wanted("u", is_final=False, pcm=pcm)) != Transcript(text=text):
            pass


async def until(fact: object) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fact():  # type: ignore[operator]  # a callable of the test
            await asyncio.sleep(0.005)


async def test_http_sends_a_wav_and_the_model_and_reads_the_text() -> None:
    async with http(api_key="k") as (recognizer, server):
        assert await recognizer.transcribe(wanted("u", language="de", pcm=LOUD + b"\0")) == Transcript(text="1000 ms", language="de")
        asked = server.requests[0]
    assert (asked["model"], asked["language"], asked["response_format"], asked["_key"]) == ("whisper-1", "de", "json", "Bearer k")
    assert (asked["_audio"], asked["_ms"]) == ((1, 2, 16_000), 1000)


async def test_http_gives_word_times_where_they_are_asked_for() -> None:
    async with http() as (recognizer, server):
        got = await recognizer.transcribe(Transcription(utterance="u", session="s", pcm=LOUD, words=True))
    assert got == Transcript(text="1000 ms", words=(HeardWord(text="ms", start_ms=250, end_ms=500),))
    assert server.requests[0]["timestamp_granularities[]"] == "word"
    assert "language" not in server.requests[0]


async def test_http_keeps_its_connection_and_asks_no_server_about_nothing() -> None:
    async with http() as (recognizer, server):
        for number in range(3):
            await recognizer.transcribe(wanted(f"u{number}"))
        assert await recognizer.transcribe(wanted("u", pcm=LOUD[:100])) == Transcript(text="")
    assert (len(server.peers), len(server.requests)) == (1, 3)


@pytest.mark.parametrize(
    ("reply", "error", "retry_after_s"),
    [
        (Reply(status=401), TranscriptionRefused, None),
        (Reply(status=429, retry_after="7"), EngineBusy, 7.0),
        (Reply(status=503, retry_after="2"), EngineNotReady, 2.0),
        (Reply(status=302), TranscriptionRefused, None),
        (Reply(body=b"<html>"), UnexpectedAnswer, None),
        (Reply(body=b'{"transcript": "x"}'), UnexpectedAnswer, None),
        (Reply(body=b'{"text": "\xff"}'), UnexpectedAnswer, None),
        (Reply(wait_s=30), EngineStalled, None),
    ],
)
async def test_http_failures_are_typed(reply: Reply, error: type[EngineError], retry_after_s: float | None) -> None:
    async with http(answer_s=0.3 if reply.wait_s else PATIENCE_S) as (recognizer, server):
        server.script.append(reply)
        with pytest.raises(error) as failure:
            await recognizer.transcribe(wanted("u"))
        assert failure.value.retry_after_s == retry_after_s
        assert await in_time(recognizer, wanted("u")) == Transcript(text="1000 ms")


async def test_http_without_a_server_is_not_ready() -> None:
    lonely = HttpRecognizer(AsrSettings(engine="openai", url="http://127.0.0.1:9/v1"))
    with pytest.raises(EngineNotReady, match="not started"):
        await lonely.transcribe(wanted("u"))
    await lonely.start()
    with pytest.raises(EngineNotReady, match="cannot reach"):
        await lonely.transcribe(wanted("u"))
    await lonely.close()


async def test_http_closing_ends_what_runs_and_what_waits() -> None:
    async with http(parallel=1, answer_s=PATIENCE_S) as (recognizer, server):
        server.script.append(Reply(wait_s=30))
        calls = [asyncio.ensure_future(recognizer.transcribe(wanted(utterance))) for utterance in ("u", "v")]
        await until(lambda: server.n_running == 1)
        await recognizer.close()
        ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)
    assert [type(end) for end in ends] == [EngineNotReady, EngineNotReady]


async def test_http_cancel_and_a_final_end_requests_at_the_server() -> None:
    async with http(parallel=2) as (recognizer, server):
        server.script.extend([Reply(wait_s=30), Reply()])
        partial = asyncio.ensure_future(recognizer.transcribe(wanted("u", is_final=False)))
        await until(lambda: server.n_running == 1)
        assert await recognizer.transcribe(wanted("u")) == Transcript(text="1000 ms")
        assert await partial is None
        server.script.append(Reply(wait_s=30))
        final = asyncio.ensure_future(recognizer.transcribe(wanted("v")))
        await until(lambda: server.n_running == 1)
        recognizer.cancel("v")
        assert await asyncio.wait_for(final, PATIENCE_S) is None
        await until(lambda: server.n_running == 0)


async def test_vllm_sends_only_what_is_new_and_returns_what_was_said_so_far() -> None:
    async with vllm(api_key="k") as (recognizer, server):
        await so_far(recognizer, "word0", LOUD)
        await so_far(recognizer, "word0 word1", LOUD * 2 + b"\0")
        final = await recognizer.transcribe(wanted("u", pcm=LOUD * 3))
        await until(lambda: server.n_open == 0)
    assert final == Transcript(text="3000 ms")
    assert server.connections == [{"path": "/v1/realtime", "key": "Bearer k", "bytes": 3 * len(LOUD), "model": "voxtral", "ended": True}]


async def test_vllm_opens_a_socket_for_each_utterance_and_none_for_nothing() -> None:
    async with vllm() as (recognizer, server):
        got = await asyncio.gather(*(recognizer.transcribe(wanted(f"u{n}", pcm=LOUD * (n + 1))) for n in range(3)))
        assert [transcript.text for transcript in got if transcript] == ["1000 ms", "2000 ms", "3000 ms"]
        assert await recognizer.transcribe(wanted("u", pcm=b"")) == Transcript(text="")
        assert len(server.connections) == 3


@pytest.mark.parametrize(
    ("fault", "error"), [("error", TranscriptionRefused), ("drop", EngineNotReady), ("deaf", EngineStalled), ("garbage", UnexpectedAnswer)]
)
async def test_vllm_failures_are_typed_and_the_whole_audio_is_sent_again(fault: str, error: type[EngineError]) -> None:
    async with vllm(answer_s=0.4 if fault == "deaf" else PATIENCE_S) as (recognizer, server):
        server.fail.append(fault)
        with pytest.raises(error):
            await recognizer.transcribe(wanted("u"))
        await until(lambda: server.n_open == 0)
        assert await in_time(recognizer, wanted("u", pcm=LOUD * 2)) == Transcript(text="2000 ms")


async def test_vllm_cancel_ends_the_request_and_its_socket() -> None:
    async with vllm(answer_s=PATIENCE_S) as (recognizer, server):
        server.fail.append("deaf")
        final = asyncio.ensure_future(recognizer.transcribe(wanted("u")))
        await until(lambda: server.connections and server.connections[0]["bytes"] == len(LOUD))
        recognizer.cancel("u")
        recognizer.cancel("u")
        assert await asyncio.wait_for(final, PATIENCE_S) is None
        await until(lambda: server.n_open == 0)


async def test_vllm_final_takes_the_socket_over_from_the_running_partial() -> None:
    async with vllm(answer_s=PATIENCE_S) as (recognizer, server):
        partial = asyncio.ensure_future(recognizer.transcribe(wanted("u", is_final=False)))
        await until(lambda: server.connections)
        assert await recognizer.transcribe(wanted("u", pcm=LOUD * 2)) == Transcript(text="2000 ms")
        assert await partial is None


async def test_vllm_a_later_final_sends_everything_on_a_socket_of_its_own() -> None:
    async with vllm(answer_s=PATIENCE_S) as (recognizer, server):
        server.fail.append("deaf")
        early = asyncio.ensure_future(recognizer.transcribe(wanted("u")))
        await until(lambda: server.connections and server.connections[0]["bytes"] == len(LOUD))
        assert await recognizer.transcribe(wanted("u", pcm=LOUD * 2)) == Transcript(text="2000 ms")
        assert await early is None
        await until(lambda: server.n_open == 0)


async def test_vllm_closing_ends_open_requests() -> None:
    async with vllm(answer_s=PATIENCE_S) as (recognizer, server):
        server.fail.append("deaf")
        final = asyncio.ensure_future(recognizer.transcribe(wanted("u")))
        await until(lambda: server.connections)
        await recognizer.close()
        with pytest.raises(EngineNotReady, match="closed"):
            await asyncio.wait_for(final, PATIENCE_S)
        with pytest.raises(EngineNotReady):
            await recognizer.transcribe(wanted("v"))
