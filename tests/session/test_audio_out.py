"""Opus and MP3 for clients: lengths, pace, joins, the voice's own MP3, and what was heard."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import EngineNotReady
from engine.audio_codecs.encoders import EncodingRoom
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.audio_codecs.mp3_frames import ENCODER_DELAY_SAMPLES
from engine.fake import ScriptedVoice, hum, speech_ms
from engine.settings import EdgeSettings
from engine.tts.chain import VoiceChain
from engine.tts.edge import EdgeVoices
from engine.tts.voice_table import TableVoice, VoiceTable
from gateway.errors import UnsupportedCodec
from gateway.events import (
    AudioFrame,
    AudioOut,
    Cancel,
    Heard,
    Say,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    SendText,
    StartSession,
    TurnDone,
)
from tests.doubles.edge_service import EdgeService
from tests.doubles.scripted_encoding import FRAME_BYTES, FRAME_MS, Mp3ToneVoice, ScriptedEncoder, ScriptedEncoding
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import Mishap, ToneVoice
from tests.session.stage import Stage, stage

REPLY = "One two three four five. Six seven eight nine ten."
LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))
OPUS, MP3 = (StartSession(audio_out=AudioOut(codec=codec)) for codec in ("opus", "mp3"))


def sound(scene: Stage, index: int) -> bytes:
    return b"".join(frame.data for frame in scene.of(AudioFrame) if frame.index == index)


def n_mp3_frames(frame: AudioFrame) -> int:
    assert len(frame.data) % FRAME_BYTES == 0, "whole MP3 frames only"
    return len(frame.data) // FRAME_BYTES


@pytest.mark.parametrize("rate_hz", [24_000, 16_000, 22_050])
async def test_pcm_joins_sample_by_sample(rate_hz: int) -> None:
    async with stage([REPLY], start=StartSession(audio_out=AudioOut(rate_hz=rate_hz))) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        for segment in scene.of(SegmentDecided):
            length_ms = speech_ms(segment.text.strip())
            made = b"".join(hum("fake-en", rate_hz, at, min(100, length_ms - at)) for at in range(0, length_ms, 100))
            assert sound(scene, segment.index) == made


async def test_opus_leaves_in_packets_of_20_ms_and_holds_all_sound_in_order() -> None:
    encoding = ScriptedEncoding()
    async with stage([REPLY], start=OPUS, encoding=encoding) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        frames = scene.of(AudioFrame)
        assert scene.ready.audio_out.codec == "opus"
        assert [frame.data for frame in frames] == [b"packet %d" % n for n in range(len(frames))]
        assert [frame.pts_ms for frame in frames] == [20.0 * n for n in range(len(frames))]
        assert [done.audio_ms for done in scene.of(SegmentDone)] == [20 * sum(f.index == i for f in frames) for i in (0, 1)]
        (encoder,) = encoding.given
        assert encoder.n_finished == 2, "one encoder for the turn; each segment's last packet is filled up"
        length_ms = speech_ms(REPLY[:24])
        assert encoder.pcm.startswith(hum("fake-en", 24_000, 0, length_ms))


@pytest.mark.parametrize("start", [OPUS, MP3])
async def test_no_more_is_sent_ahead_than_the_lead_in_any_codec(start: StartSession) -> None:
    settings = {"session": {"lead_ms": 500}}
    async with stage([LONG], start=start, encoding=ScriptedEncoding(), settings=settings) as scene:
        scene.send(SendText(text="Go on."))
        await scene.until(TurnDone)
        began, sent_ms = scene.when(AudioFrame), 0.0
        for at, _, event in scene.frames:
            if isinstance(event, AudioFrame):
                assert event.pts_ms == pytest.approx(sent_ms)
                sent_ms += 20 if start is OPUS else n_mp3_frames(event) * FRAME_MS
                assert sent_ms - (at - began) * 1000 <= 500 + 100 + 1
        assert sent_ms > 10_000
        assert scene.when(TurnDone) == pytest.approx(began + sent_ms / 1000, abs=0.05)


@pytest.mark.parametrize("start", [StartSession(), OPUS, MP3])
async def test_what_was_heard_does_not_depend_on_the_codec(start: StartSession) -> None:
    async with stage([LONG], start=start, encoding=ScriptedEncoding()) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await asyncio.sleep(2)
        scene.send(Cancel())
        scene.report(1, 1150, final=True)
        heard = await scene.until(Heard)
        assert heard.heard_ms == 1150
        assert heard.heard_text == "This is sentence"


async def test_the_voices_own_mp3_passes_untouched() -> None:
    encoding, voice = ScriptedEncoding(), Mp3ToneVoice("own")
    async with stage([REPLY], start=MP3, encoding=encoding, voices=VoiceChain([voice])) as scene:
        await voice.start()
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        assert not encoding.given, "nothing is encoded again"
        frames = scene.of(AudioFrame)
        assert {frame.data[-1:] for frame in frames} == {b"o"}
        assert n_mp3_frames(frames[0]) == 1, "the first frame goes alone: sound starts as soon as there is any"
        assert [done.audio_ms for done in scene.of(SegmentDone)] == [
            FRAME_MS * sum(n_mp3_frames(f) for f in frames if f.index == i) for i in (0, 1)
        ]
        assert {synthesis.encoding for synthesis in voice.requests} == {"mp3"}


async def test_a_voice_without_mp3_that_steps_in_is_encoded_behind_the_others_frames() -> None:
    encoding, first, second = ScriptedEncoding(), Mp3ToneVoice("own"), ToneVoice("plain")
    first.mishaps.append(Mishap(error=EngineNotReady("gone"), words=2))
    async with stage([REPLY], start=MP3, encoding=encoding, voices=VoiceChain([first, second])) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        marks = [frame.data[-1:] for frame in scene.of(AudioFrame) if frame.index == 0]
        assert marks == sorted(marks, reverse=True), "its own frames first, then ours"
        assert set(marks) == {b"o", b"e"}
        assert [event.voice for event in scene.of(SegmentAudio)] == ["own/0", "plain/0", "plain/0"]
        assert [encoder.n_finished for encoder in encoding.given] == [1, 1], "a clip for each segment"


async def test_mp3_at_another_rate_is_encoded_here() -> None:
    class Faster(ScriptedEncoding):
        def rates(self) -> dict[str, tuple[int, ...]]:
            return {"mp3": (48_000,)}

        def encoder(self, codec: str, sample_rate_hz: int) -> ScriptedEncoder:
            assert sample_rate_hz == 48_000
            return super().encoder(codec, 24_000)

    encoding, voice = Faster(), Mp3ToneVoice("own")
    start = StartSession(audio_out=AudioOut(codec="mp3", rate_hz=48_000))
    async with stage([REPLY], start=start, encoding=encoding, voices=VoiceChain([voice])) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        assert len(encoding.given) == 2
        assert {synthesis.encoding for synthesis in voice.requests} == {"pcm16"}


@pytest.mark.parametrize(
    ("encoding", "wish", "told"),
    [
        (None, AudioOut(codec="opus"), "'opus' is not available here, its library is missing; expected `pcm16`."),
        (ScriptedEncoding(), AudioOut(codec="opus", rate_hz=44_100), "rate_hz is 44100; opus takes 24000"),
        (ScriptedEncoding(), AudioOut(rate_hz=4_000), "rate_hz is 4000; expected 8000 to 48000"),
    ],
)
async def test_a_codec_that_is_not_here_is_refused(encoding: ScriptedEncoding | None, wish: AudioOut, told: str) -> None:
    async with stage(encoding=encoding) as scene:
        with pytest.raises(UnsupportedCodec, match=told):
            await scene.sessions.open(StartSession(audio_out=wish))


@pytest.mark.parametrize("start", [OPUS, MP3])
async def test_no_encoded_audio_leaves_after_a_cancel(start: StartSession) -> None:
    async with stage([LONG], start=start, encoding=ScriptedEncoding(), voice=ScriptedVoice(rtf=0.01)) as scene:
        scene.send(SendText(text="Go on."))
        await scene.until(AudioFrame, n=9)
        canceled_at = scene.time()
        scene.send(Cancel())
        await scene.until(TurnDone)
        assert max(at for at, _, event in scene.frames if isinstance(event, AudioFrame)) <= canceled_at + 0.02


@pytest.mark.real_time
async def test_the_edge_services_mp3_arrives_as_it_was_sent_and_says_every_word() -> None:
    text, table = "Every word arrives.", VoiceTable(voices={"edge/en-US-AriaNeural": TableVoice(languages=("en",))})
    async with EdgeService(speed=8.0).running() as service:
        edge = EdgeVoices(EdgeSettings(), table.listed("edge"), table.manners, url=service.url)
        chain, room = VoiceChain([edge], table), EncodingRoom()
        await chain.start()
        async with stage(start=MP3, encoding=room, voices=chain) as scene:
            scene.send(Say(text=text))
            await scene.until(TurnDone)
            data = b"".join(frame.data for frame in scene.of(AudioFrame))
            pcm = Mp3Decoder().feed(data)
            assert listen(pcm) == [tone_of(word) for word in words_of(text)]
            assert scene.of(SegmentDone)[0].audio_ms == pytest.approx((len(pcm) / 2 + ENCODER_DELAY_SAMPLES) / 24, abs=1)
        await chain.close()
        room.close()
