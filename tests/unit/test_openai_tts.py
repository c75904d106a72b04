"""HTTP voices against a local double: every format is heard, every failure typed and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from engine.api import EngineBusy, EngineError, EngineNotReady, SpeechChunk, SpeechCut, Style, Synthesis, VoiceUnavailable
from engine.audio_codecs import CorruptAudio
from engine.settings import HttpVoice, SpeechServer
from engine.tts.decoders import Decoders, SpeechDecoders
from engine.tts.decoding import UnexpectedAnswer
from engine.tts.openai import HttpVoices
from engine.tts.style import EmotionChange, VoiceManner
from tests.doubles.decoders_here import DecodersHere
from tests.doubles.openai_speech import Answer, FakeSpeechServer
from tests.doubles.spoken_tones import listen, speak, tone_of, words_of
from tests.unit import decoding_stages

TEXT = "Every sentence arrives whole, word after word."
HASTY: dict[str, Any] = {"first_audio_s": 0.6, "next_s": 0.3}  # Any: keywords. For silence; a busy machine breaks them, too
TRIES = 8  # under these limits; a voice that a failure left broken fails each time
TONES = [tone_of(word) for word in words_of(TEXT)]


@asynccontextmanager
async def http(
    api_key: str = "", *, decoders: Decoders | None = None, **settings: object
) -> AsyncGenerator[tuple[HttpVoices, FakeSpeechServer], None]:
    async with FakeSpeechServer().running() as server:
        options: dict[str, object] = {"connect_s": 60.0, "first_audio_s": 60.0, "next_s": 60.0, "model": "tts", **settings}
        voices = HttpVoices(
            "studio",
            SpeechServer(
                url=server.base_url,
                voices=(HttpVoice(name="amy"), HttpVoice(name="mei", languages=("zh",))),
                **options,  # type: ignore[arg-type]  # keywords of the test
            ),
            {"studio/amy": VoiceManner(styles={"happy": "cheerful"})},
            {"sad": EmotionChange(rate=0.9, instructions="Speak sadly."), "happy": EmotionChange(rate=1.1, instructions="Speak happily.")},
            api_key=api_key,
            decoders=decoders or DecodersHere(),
        )
        await voices.start()
        try:
            yield voices, server
        finally:
            await voices.close()


def ask(text: str = TEXT, voice: str = "studio/amy", **more: object) -> Synthesis:
    return Synthesis(request_id="r", text=text, voice=voice, language="en", **more)  # type: ignore[arg-type]  # keywords of the test


async def collect(voices: HttpVoices, synthesis: Synthesis, into: list[SpeechChunk] | None = None) -> list[SpeechChunk]:
    chunks: list[SpeechChunk] = [] if into is None else into
    async with aclosing(voices.synthesize(synthesis)) as stream:
        async for chunk in stream:
            chunks.append(chunk)
    return chunks


async def collect_in_time(voices: HttpVoices) -> list[SpeechChunk]:
    for _ in range(TRIES - 1):
        with suppress(EngineError):
            return await collect(voices, ask())
    return await collect(voices, ask())


def heard(chunks: list[SpeechChunk], rate_hz: int = 24_000) -> list[int]:
    assert all(len(chunk.pcm) % 2 == 0 for chunk in chunks)
    return listen(b"".join(chunk.pcm for chunk in chunks), rate_hz)


@pytest.mark.parametrize("kind", ["pcm", "wav", "mp3", "opus"])
@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
async def test_every_format_is_heard_at_the_rate_asked_for(kind: str, rate_hz: int) -> None:
    async with http(format=kind, decoders=SpeechDecoders("studio")) as (voices, server):
        assert heard(await collect(voices, ask(sample_rate_hz=rate_hz)), rate_hz) == TONES
        assert server.requests[0]["response_format"] == kind


async def test_the_request_says_what_the_server_understands() -> None:
    async with http(instructions=True, style_field="style", api_key="k", extra={"stream": True}) as (voices, server):
        await collect(voices, ask(style=Style(emotion="sad", rate=1.8)))
        await collect(voices, ask(style=Style(emotion="happy")))
    sad, happy = server.requests
    assert (sad["voice"], sad["model"], sad["stream"], sad["_key"]) == ("amy", "tts", True, "Bearer k")
    assert (sad["speed"], sad["instructions"], "style" in sad) == (1.8, "Speak sadly.", False)
    assert (happy["speed"], happy["style"]) == (1.0, "cheerful")


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
async def test_audio_is_known_by_its_bytes(kind: str) -> None:
    async with http() as (voices, server):
        server.script.append(Answer(format=kind, content_type="application/octet-stream"))
        chunks = await collect(voices, ask())
        if kind != "mp3":  # raw frames of MP3 have no magic: there the type must be right
            assert heard(chunks) == TONES


@pytest.mark.parametrize("content_type", ["audio/pcm;rate=16000", "audio/L16; rate=16000; channels=1"])
async def test_a_rate_in_the_content_type_is_believed(content_type: str) -> None:
    async with http() as (voices, server):
        server.script.append(Answer(content_type=content_type, rate_hz=16_000))
        assert heard(await collect(voices, ask())) == TONES


async def test_odd_bytes_are_joined() -> None:
    async with http() as (voices, server):
        server.script.append(Answer(piece_bytes=333))
        assert heard(await collect(voices, ask())) == TONES


async def test_connections_are_reused() -> None:
    async with http() as (voices, server):
        for _ in range(4):
            await collect(voices, ask())
        assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        (Answer(status=429, retry_after="3"), EngineBusy, "busy"),
        (Answer(status=503, retry_after="3"), EngineNotReady, "not_ready"),
        (Answer(status=404, retry_after="3"), EngineError, "refused"),
        (Answer(body=b"<html>no</html>", content_type="text/html; charset=utf-8"), EngineError, "protocol"),
        (Answer(body=b'{"error":"x"}', content_type="application/json"), EngineError, "protocol"),
        (Answer(body=b"", content_type="audio/pcm"), EngineError, "protocol"),
        (Answer(body=b"<html>" * 2000, content_type="audio/mpeg"), EngineError, "corrupt"),
        (Answer(body=b"<html>" * 2000, content_type="audio/ogg"), EngineError, "corrupt"),
        (Answer(body=b"<html>" * 2000, content_type="audio/wav"), EngineError, "corrupt"),
        (Answer(first_s=5.0), EngineError, "stalled"),
        (Answer(stall_after=0), EngineError, "stalled"),
        (Answer(cut_after=0), EngineError, "failed"),
    ],
)
async def test_a_failure_before_audio_is_typed(answer: Answer, error: type[EngineError], kind: str) -> None:
    async with http(**(HASTY if kind == "stalled" else {})) as (voices, server):
        server.script.append(answer)
        with pytest.raises(error) as caught:
            await collect(voices, ask())
        assert (caught.value.kind, isinstance(caught.value, SpeechCut)) == (kind, False)
        if answer.retry_after:
            assert caught.value.retry_after_s == 3.0
        assert heard(await collect_in_time(voices)) == TONES


@pytest.mark.parametrize("answer", [Answer(stall_after=9602), Answer(cut_after=9602), Answer(endless=True, piece_bytes=96_000)])
async def test_a_failure_after_audio_is_a_cut(answer: Answer) -> None:
    async with http(next_s=0.6 if answer.stall_after else 60.0) as (voices, server):
        server.script.append(answer)
        chunks: list[SpeechChunk] = []
        with pytest.raises(SpeechCut) as caught:
            await collect(voices, ask(), chunks)
        assert caught.value.spoken is None
        assert chunks


async def test_no_server_at_all_is_typed() -> None:
    voices = HttpVoices("studio", SpeechServer(url="http://127.0.0.1:9/v1", voices=(HttpVoice(name="a"),)), {}, {})
    await voices.start()
    with pytest.raises(EngineNotReady):
        await collect(voices, ask(voice="studio/a"))
    await voices.close()


async def test_a_cancel_reaches_the_server() -> None:
    async with http() as (voices, server):
        server.script.append(Answer(piece_s=0.05))
        stream = voices.synthesize(ask())
        await anext(stream)
        await stream.aclose()
        async with asyncio.timeout(60):
            while server.n_running:
                await asyncio.sleep(0.005)


async def test_unknown_voices_and_silence_are_not_sent() -> None:
    async with http() as (voices, server):
        with pytest.raises(VoiceUnavailable):
            await collect(voices, ask(voice="nobody"))
        assert await collect(voices, ask("…")) == []
        assert server.requests == []
        assert not voices.can_speak("你好", "studio/amy")
        assert voices.can_speak("你好", "studio/mei")


async def test_a_decoder_that_dies_breaks_off_the_answers_under_it_and_no_later_one() -> None:
    sound, setup = speak(TEXT, 24_000), ("audio/pcm; rate=24000", 24_000, 24_000)
    decoders = SpeechDecoders("studio", f"{decoding_stages.__name__}:FragileSpeechStage")
    await decoders.start()
    try:
        one, two = decoders.open(setup[0], "pcm", *setup[1:]), decoders.open(setup[0], "pcm", *setup[1:])
        assert await one.feed(sound[:4800])
        assert await two.feed(sound[:4800])
        for broken in (one.feed(decoding_stages.DIES), two.feed(sound[4800:])):
            with pytest.raises(EngineError, match="ended under this answer"):
                await broken
        async with asyncio.timeout(60):
            while not decoders.worker.health().ready:
                await asyncio.sleep(0.02)
        later = decoders.open(setup[0], "pcm", *setup[1:])
        assert await later.feed(sound) + await later.feed(None) == sound
    finally:
        await decoders.close()


async def test_faults_of_audio_are_told_as_what_they_are() -> None:
    decoders = SpeechDecoders("studio")
    await decoders.start()
    try:
        with pytest.raises(UnexpectedAnswer, match="text/html"):
            await decoders.open("text/html", "mp3", 24_000, 24_000).feed(b"<html>")
        with pytest.raises(CorruptAudio, match="expected WAV"):
            await decoders.open("audio/wav", "wav", 24_000, 24_000).feed(b"RIFF0000MOVIEmovie")
    finally:
        await decoders.close()
