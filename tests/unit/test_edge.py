"""The edge voice against a local double of its service: every way in which it fails is noticed, in time, and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
from msgspec import structs

from engine.api import (
    EngineBusy,
    EngineError,
    EngineNotReady,
    SpeechChunk,
    SpeechCut,
    Style,
    Synthesis,
    Voice,
    VoiceUnavailable,
)
from engine.audio import peak
from engine.settings import EdgeSettings
from engine.tts.decoders import Decoders, SpeechDecoders
from engine.tts.edge import EdgeVoices
from engine.tts.edge.connections import EdgeRefused
from engine.tts.lead import LEAD_MS
from engine.tts.style import VoiceManner
from tests.doubles.decoders_here import DecodersHere
from tests.doubles.edge_service import Behavior, EdgeService, encode
from tests.doubles.spoken_tones import listen, speak, tone_of, words_of

VOICES = (
    Voice(id="edge/en-US-AriaNeural", languages=("en",), engine="edge"),
    Voice(id="edge/zh-CN-XiaoxiaoNeural", languages=("zh",), engine="edge"),
)
TEXT = "Every sentence arrives whole, word after word."
PATIENT = EdgeSettings(connect_s=60.0, first_audio_s=60.0, next_s=60.0, streams=2, waiting=1, open_ahead=False)
HASTY = structs.replace(PATIENT, first_audio_s=0.6, next_s=0.3)  # for silence; whoever else is late under it may be so on a busy machine
TRIES = 8  # under these limits; a voice that a failure left broken fails each time


@asynccontextmanager
async def edge(
    settings: EdgeSettings = PATIENT, *, decoders: Decoders | None = None, **network: float
) -> AsyncGenerator[tuple[EdgeVoices, EdgeService], None]:
    async with EdgeService(**network).running() as service:
        voices = EdgeVoices(
            settings,
            VOICES,
            {"edge/en-US-AriaNeural": VoiceManner(base_hz=200)},
            url=service.url,
            decoders=decoders or DecodersHere(),
        )
        await voices.start()
        try:
            yield voices, service
        finally:
            await voices.close()


def ask(text: str = TEXT, voice: str = "edge/en-US-AriaNeural", **more: object) -> Synthesis:
    return Synthesis(request_id="r", text=text, voice=voice, language="en", **more)  # type: ignore[arg-type]  # keywords of the test


async def collect(voices: EdgeVoices, synthesis: Synthesis, into: list[SpeechChunk] | None = None) -> list[SpeechChunk]:
    chunks: list[SpeechChunk] = [] if into is None else into
    async with aclosing(voices.synthesize(synthesis)) as stream:
        async for chunk in stream:
            chunks.append(chunk)
    return chunks


async def collect_in_time(voices: EdgeVoices) -> list[SpeechChunk]:
    for _ in range(TRIES - 1):
        with suppress(EngineError):
            return await collect(voices, ask())
    return await collect(voices, ask())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def heard(chunks: list[SpeechChunk]) -> list[int]:
    return listen(b"".join(chunk.pcm for chunk in chunks))


def tones(text: str) -> list[int]:
    return [tone_of(word) for word in words_of(text)]


async def test_every_word_is_heard_once_and_timed() -> None:
    async with edge() as (voices, service):
        chunks = await collect(voices, ask())
    assert heard(chunks) == tones(TEXT)
    words = [word for chunk in chunks for word in chunk.words]
    assert [TEXT[word.start : word.end] for word in words] == words_of(TEXT)
    assert abs(words[0].start_ms - LEAD_MS) <= 6  # the tone fades in
    assert words[0].end_ms - words[0].start_ms == 120
    assert len(chunks) > 5
    assert service.requests[0].text == TEXT


async def test_decoded_in_a_process_of_its_own_it_is_the_same() -> None:
    async with edge() as (voices, _), edge(decoders=SpeechDecoders("edge")) as (apart, _):
        here, there = await collect(voices, ask()), await collect(apart, ask())
    assert b"".join(chunk.pcm for chunk in here) == b"".join(chunk.pcm for chunk in there)
    assert [word for chunk in here for word in chunk.words] == [word for chunk in there for word in chunk.words]


async def test_first_audio_comes_before_the_service_has_finished() -> None:
    async with edge() as (voices, service):
        service.script.append(Behavior(stall_after_bytes=2880))
        async with asyncio.timeout(60), aclosing(voices.synthesize(ask())) as stream:
            assert (await anext(stream)).pcm


async def test_feeling_and_wishes_reach_the_service() -> None:
    async with edge() as (voices, service):
        soft = await collect(voices, ask(style=Style(emotion="happy", rate=1.32, pitch_st=1.0, volume=0.5)))
    assert "rate='+32%'" in service.requests[0].ssml
    assert "pitch='+12Hz'" in service.requests[0].ssml
    assert "volume='+0%'" in service.requests[0].ssml
    assert 0.1 < peak(b"".join(chunk.pcm for chunk in soft)) < 0.16


async def test_markup_in_the_text_is_spoken_not_obeyed() -> None:
    text = '<break time="9s"/> a & b </prosody>'
    async with edge() as (voices, service):
        await collect(voices, ask(text))
    assert service.requests[0].text == text


async def test_mp3_passes_through_whole() -> None:
    async with edge() as (voices, _):
        chunks = await collect(voices, ask(encoding="mp3"))
    assert b"".join(chunk.mp3 for chunk in chunks) == encode(speak(TEXT))
    assert heard(chunks) == tones(TEXT)
    assert sum(1 for chunk in chunks if chunk.mp3) > 3


async def test_another_rate_is_delivered() -> None:
    async with edge() as (voices, _):
        chunks = await collect(voices, ask(sample_rate_hz=16_000))
    assert listen(b"".join(chunk.pcm for chunk in chunks), 16_000) == tones(TEXT)


@pytest.mark.parametrize("text", ["", " ", "...?!", "😀", "\x00\x07"])
async def test_nothing_speakable_is_not_sent(text: str) -> None:
    async with edge() as (voices, service):
        assert await collect(voices, ask(text)) == []
    assert service.requests == []


async def test_an_unknown_voice_and_a_text_too_long_are_refused() -> None:
    async with edge() as (voices, service):
        with pytest.raises(VoiceUnavailable, match="nobody"):
            await collect(voices, ask(voice="nobody"))
        with pytest.raises(VoiceUnavailable, match="4096"):
            await collect(voices, ask("word " * 2000))
    assert service.requests == []


def test_a_voice_is_not_given_another_script() -> None:
    voices = EdgeVoices(PATIENT, VOICES, {})
    assert voices.can_speak("hello", "edge/en-US-AriaNeural")
    assert not voices.can_speak("你好，世界", "edge/en-US-AriaNeural")
    assert voices.can_speak("你好 hello", "edge/zh-CN-XiaoxiaoNeural")
    assert not voices.can_speak("hello", "nobody")


async def test_a_wrong_clock_is_corrected_once_and_remembered() -> None:
    async with edge(skew_s=7200.0) as (voices, service):
        assert heard(await collect(voices, ask())) == tones(TEXT)
        assert service.n_refused == 1
        await collect(voices, ask())
        assert service.n_refused == 1


async def test_a_wrong_date_spoils_one_call_only() -> None:
    async with edge() as (voices, service):
        service.date = "Thu, 01 Jan 2032 00:00:00 GMT"
        service.handshakes.append(Behavior(refuse_status=403))
        with pytest.raises(EdgeRefused):
            await collect(voices, ask())
        assert heard(await collect(voices, ask())) == tones(TEXT)


@pytest.mark.parametrize(
    ("behavior", "error", "retry_after_s"),
    [
        (Behavior(refuse_status=403), EdgeRefused, None),
        (Behavior(refuse_status=429, retry_after="7"), EngineBusy, 7.0),
        (Behavior(refuse_status=429, retry_after="soon"), EngineBusy, None),
        (Behavior(refuse_status=503), EngineNotReady, None),
        (Behavior(refuse_status=200), EngineNotReady, None),
    ],
)
async def test_a_refused_handshake_is_typed(behavior: Behavior, error: type[EngineError], retry_after_s: float | None) -> None:
    async with edge() as (voices, service):
        service.handshakes.append(behavior)
        with pytest.raises(error) as caught:
            await collect(voices, ask())
        assert caught.value.retry_after_s == retry_after_s


async def test_no_service_at_all_is_typed() -> None:
    voices = EdgeVoices(PATIENT, VOICES, {}, url="ws://127.0.0.1:9/e?x=y")
    await voices.start()
    with pytest.raises(EngineNotReady, match="cannot reach"):
        await collect(voices, ask())
    await voices.close()


@pytest.mark.parametrize(
    ("behavior", "kind"),
    [
        (Behavior(drop_at_request=True), "lost"),
        (Behavior(drop_after_bytes=0), "lost"),
        (Behavior(stall_after_bytes=0), "stalled"),
        (Behavior(end_after_bytes=0), "corrupt"),
        (Behavior(garbage="audio"), "corrupt"),
        (Behavior(garbage="text"), "protocol"),
        (Behavior(garbage="header"), "protocol"),
        (Behavior(garbage="metadata"), "protocol"),
        (Behavior(garbage="html"), "protocol"),
    ],
)
async def test_a_failure_before_audio_is_told_as_it_is(behavior: Behavior, kind: str) -> None:
    async with edge(HASTY if kind == "stalled" else PATIENT) as (voices, service):
        service.script.append(behavior)
        with pytest.raises(EngineError) as caught:
            await collect(voices, ask())
        assert caught.value.kind == kind
        assert not isinstance(caught.value, SpeechCut)
        assert heard(await collect_in_time(voices)) == tones(TEXT)


@pytest.mark.parametrize("late_words", [False, True])
@pytest.mark.parametrize("way", ["drop_after_bytes", "stall_after_bytes", "end_after_bytes"])
@pytest.mark.parametrize("n_bytes", [2160, 4320, 5760])
async def test_a_text_that_breaks_off_says_how_far_it_came(way: str, n_bytes: int, late_words: bool) -> None:
    chunks: list[SpeechChunk] = []
    settings = structs.replace(PATIENT, next_s=0.3) if way.startswith("stall") else PATIENT
    async with edge(settings) as (voices, service):
        service.script.append(Behavior(**{way: n_bytes}, late_words=late_words))  # type: ignore[arg-type]  # the way is the test's
        with pytest.raises(SpeechCut) as caught:
            await collect(voices, ask(), chunks)
        assert caught.value.spoken is not None
        if not late_words:  # told in time, whole words only
            assert heard(chunks) == tones(TEXT[: caught.value.spoken])
        rest = TEXT[caught.value.spoken :]
        assert words_of(TEXT[: caught.value.spoken]) + words_of(rest) == words_of(TEXT)


async def test_without_word_times_a_break_is_told_without_a_place() -> None:
    async with edge() as (voices, service):
        service.script.append(Behavior(drop_after_bytes=2880, no_words=True))
        with pytest.raises(SpeechCut) as caught:
            await collect(voices, ask())
        assert caught.value.spoken is None


async def test_an_endless_stream_is_ended() -> None:
    async with edge() as (voices, service):
        service.script.append(Behavior(endless=True, no_words=True))
        chunks: list[SpeechChunk] = []
        with pytest.raises(SpeechCut, match="at most"):
            await collect(voices, ask("Hi"), chunks)
        assert sum(len(chunk.pcm) for chunk in chunks) < 48 * 13_000


async def test_sound_after_the_last_word_is_ended() -> None:
    async with edge() as (voices, service):
        service.script.append(Behavior(endless=True))
        chunks = await collect(voices, ask("Hi"))
        assert sum(len(chunk.pcm) for chunk in chunks) < 48 * 3_000


async def test_the_next_connection_is_open_before_it_is_needed() -> None:
    async with edge(EdgeSettings(connect_s=60.0, first_audio_s=60.0, next_s=60.0, spare_s=600.0, streams=2)) as (voices, service):
        await collect(voices, ask())
        await until(lambda: service.n_upgrades == 2)
        await collect(voices, ask())
        await collect(voices, ask())
        assert len(service.requests) == 3
        await until(lambda: service.n_upgrades == 4)


async def test_an_expected_text_finds_a_connection() -> None:
    async with edge(structs.replace(PATIENT, open_ahead=True, spare_s=600.0)) as (voices, service):
        voices.expect("edge/en-US-AriaNeural")
        await until(lambda: service.n_upgrades == 1)
        assert heard(await collect(voices, ask())) == tones(TEXT)


async def test_a_spare_that_died_is_replaced_unnoticed() -> None:
    async with edge(structs.replace(PATIENT, open_ahead=True, spare_s=600.0)) as (voices, service):
        voices.expect("edge/en-US-AriaNeural")
        await until(lambda: service.n_upgrades == 1)
        await service.drop_idle()
        assert heard(await collect(voices, ask())) == tones(TEXT)


async def test_a_spare_that_cannot_be_opened_costs_nothing() -> None:
    async with edge(structs.replace(PATIENT, open_ahead=True, spare_s=600.0)) as (voices, service):
        service.handshakes.append(Behavior(refuse_status=503))
        voices.expect("edge/en-US-AriaNeural")
        assert heard(await collect(voices, ask())) == tones(TEXT)


async def test_an_old_spare_is_closed() -> None:
    async with edge(EdgeSettings(spare_s=0.05)) as (voices, service):
        voices.expect("edge/en-US-AriaNeural")
        await until(lambda: service.n_upgrades == 1 and not service.open_sockets)


async def test_a_cancel_frees_the_connection_at_once() -> None:
    async with edge() as (voices, service):
        service.script.append(Behavior(stall_after_bytes=2880))  # it would never end by itself
        stream = voices.synthesize(ask())
        await anext(stream)
        async with asyncio.timeout(60):
            await stream.aclose()
        await until(lambda: not service.open_sockets)


async def test_a_cancel_at_any_moment_leaves_nothing_behind() -> None:
    settings = structs.replace(PATIENT, streams=1, waiting=0, open_ahead=True, spare_s=1.0)
    async with edge(settings, one_way_s=0.005, think_s=0.02, speed=20.0) as (voices, service):
        for moment in range(25):
            speaking = asyncio.ensure_future(collect(voices, ask()))
            await asyncio.sleep(moment * 0.006)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
        assert heard(await collect(voices, ask())) == tones(TEXT)  # the one slot is free
        await until(lambda: len(service.open_sockets) <= 1)  # at most the one opened ahead


async def test_a_full_line_is_refused() -> None:
    async with edge() as (voices, service):
        streams = await spoken_on(voices, service)
        waiting = asyncio.ensure_future(collect(voices, ask()))
        await asyncio.sleep(0)
        with pytest.raises(EngineBusy, match="full"):
            await collect(voices, ask())
        await streams[0].aclose()
        assert heard(await waiting) == tones(TEXT)
        await streams[1].aclose()


async def test_nobody_waits_in_line_for_longer_than_for_a_first_sound() -> None:
    async with edge(structs.replace(PATIENT, first_audio_s=2.0)) as (voices, service):
        streams = await spoken_on(voices, service)
        with pytest.raises(EngineBusy, match="free within"):
            await collect(voices, ask())
        for stream in streams:
            await stream.aclose()


async def spoken_on(voices: EdgeVoices, service: EdgeService) -> list[AsyncGenerator[SpeechChunk, None]]:
    """As many as the settings allow, begun, and none of them ends."""
    service.script.extend([Behavior(stall_after_bytes=2880)] * 2)
    streams = [voices.synthesize(ask()) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    return streams
