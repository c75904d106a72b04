"""What a client may ask of the sound: G.711, opus and MP3, the voice's speed; lengths, pace, joins, and what was heard."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from engine.api import EngineNotReady
from engine.audio import Resampler
from engine.audio_codecs import g711
from engine.audio_codecs.encoders import EncodingRoom
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.audio_codecs.mp3_frames import ENCODER_DELAY_SAMPLES
from engine.fake import ScriptedVoice, hum, speech_ms
from engine.settings import EdgeSettings
from engine.tts.chain import VoiceChain
from engine.tts.edge import EdgeVoices
from engine.tts.voice_table import TableVoice, VoiceTable
from gateway.errors import BadMessage, UnsupportedCodec
from gateway.events import (
    AudioFrame,
    AudioOut,
    Cancel,
    ErrorRaised,
    Heard,
    RequestReply,
    Say,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    SendText,
    SessionUpdated,
    StartSession,
    TurnDone,
    TurnStarted,
    UpdateSession,
)
from tests.doubles.edge_service import EdgeService
from tests.doubles.scripted_encoding import FRAME_BYTES, FRAME_MS, Mp3ToneVoice, ScriptedEncoder, ScriptedEncoding
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import Mishap, ToneVoice
from tests.session.stage import Stage, stage

REPLY = "One two three four five. Six seven eight nine ten."
LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))
OPUS, MP3, MU, A = (StartSession(audio_out=AudioOut(codec=codec)) for codec in ("opus", "mp3", "g711u", "g711a"))


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


@pytest.mark.parametrize(("start", "law"), [(MU, "g711u"), (A, "g711a")])
async def test_g711_is_the_voice_at_8_khz_in_frames_of_20_and_100_ms(start: StartSession, law: g711.Law) -> None:
    async with stage([REPLY], start=start) as scene:
        assert scene.ready.audio_out == AudioOut(codec=law, rate_hz=8000)
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        for segment in scene.of(SegmentDecided):
            length_ms = speech_ms(segment.text.strip())
            made = b"".join(hum("fake-en", 8000, at, min(100, length_ms - at)) for at in range(0, length_ms, 100))
            assert sound(scene, segment.index) == g711.encode(made, law)
            sizes = [len(frame.data) for frame in scene.of(AudioFrame) if frame.index == segment.index]
            assert sizes[0] == 160
            assert max(sizes) == 800
        sent = [0.0, *itertools.accumulate(len(frame.data) / 8 for frame in scene.of(AudioFrame))]
        assert [frame.pts_ms for frame in scene.of(AudioFrame)] == sent[:-1]
        assert sum(done.audio_ms for done in scene.of(SegmentDone)) == pytest.approx(sent[-1], abs=1)


async def test_g711_is_heard_as_the_same_words() -> None:
    """Each word of the voice is a tone of its own: through the telephone and back they are all there, in order."""
    voice = ToneVoice("tone")
    async with stage(start=MU, voices=VoiceChain([voice])) as scene:
        await voice.start()
        scene.send(Say(text="Every word arrives."))
        await scene.until(TurnDone)
        telephone = b"".join(frame.data for frame in scene.of(AudioFrame))
        up = Resampler(8000, 24_000)
        assert listen(up.feed(g711.decode(telephone, "g711u")) + up.flush()) == [tone_of(word) for word in words_of("Every word arrives.")]


async def test_another_format_holds_from_the_next_turn_on() -> None:
    async with stage([REPLY, REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame)
        scene.send(UpdateSession(audio_out=AudioOut(codec="g711a")))
        assert (await scene.until(SessionUpdated)).audio_out == AudioOut(codec="g711a", rate_hz=8000)
        await scene.until(TurnDone)
        scene.send(SendText(text="Again."))
        await scene.until(TurnDone, 2)
        first, second = (sum(len(frame.data) for frame in scene.of(AudioFrame, turn)) for turn in (1, 2))
        assert first == pytest.approx(6 * second, rel=0.01)
        assert [started.audio_out for started in scene.of(TurnStarted)] == [AudioOut(), AudioOut(codec="g711a", rate_hz=8000)]


async def test_a_format_for_one_reply_alone() -> None:
    async with stage([REPLY, REPLY]) as scene:
        scene.send(RequestReply(audio_out=AudioOut(codec="g711u")))
        await scene.until(TurnDone)
        scene.send(RequestReply())
        await scene.until(TurnDone, 2)
        assert [started.audio_out for started in scene.of(TurnStarted)] == [AudioOut(codec="g711u", rate_hz=8000), AudioOut()]


@pytest.mark.parametrize("speed", [0.5, 1.5])
async def test_a_speed_makes_the_voice_slower_or_faster_from_the_next_turn_on_and_what_was_heard_stays_true(speed: float) -> None:
    async with stage([LONG, LONG, LONG]) as scene:
        for turn in (1, 2):
            scene.send(SendText(text="Tell me a lot."))
            await asyncio.sleep(1)
            if turn == 1:
                scene.send(UpdateSession(speed=speed))
            await scene.until(TurnDone, turn)
        assert (await scene.until(SessionUpdated)).speed == speed
        assert scene.audio_ms(2) == pytest.approx(scene.audio_ms(1) / speed, rel=0.01)
        assert {synthesis.style.rate for synthesis in scene.voice.requests} == {1.0, speed}
        scene.send(SendText(text="And again."))
        await asyncio.sleep(2)
        scene.send(Cancel())
        scene.report(3, 1150 / speed, final=True)
        heard = await scene.until(Heard)
        assert heard.heard_text == "This is sentence", "as much as of the voice's own speed in 1150 ms"


async def test_a_speed_is_the_sessions_or_one_replys() -> None:
    async with stage([REPLY, REPLY], start=StartSession(speed=1.25)) as scene:
        for speed in (None, 0.8):
            scene.send(RequestReply(speed=speed))
            await scene.until(TurnDone, scene.session.n_turns)
        assert [synthesis.style.rate for synthesis in scene.voice.requests] == [1.25, 1.25, 0.8, 0.8]


@pytest.mark.parametrize("speed", [0.49, 2.01, -1.0, float("nan"), float("inf")])
async def test_a_speed_that_no_voice_has_is_refused(speed: float) -> None:
    async with stage() as scene:
        scene.send(UpdateSession(speed=speed))
        error = await scene.until(ErrorRaised)
        assert (error.code, "expected 0.5 to 2" in error.message) == ("bad_message", True)
        with pytest.raises(BadMessage):
            await scene.sessions.open(StartSession(speed=speed))


async def test_a_temperature_is_the_models_from_the_next_reply_on() -> None:
    async with stage([REPLY, REPLY, REPLY]) as scene:
        scene.send(RequestReply())
        await scene.until(TurnDone)
        scene.send(UpdateSession(temperature=0.2))
        assert (await scene.until(SessionUpdated)).temperature == 0.2
        for temperature in (None, 1.1):
            scene.send(RequestReply(temperature=temperature))
            await scene.until(TurnDone, scene.session.n_turns)
        assert [request.sampling.temperature for request in scene.model.requests] == [0.7, 0.2, 1.1]
        scene.send(UpdateSession(temperature=2.5))
        assert (await scene.until(ErrorRaised)).message == "temperature is 2.5; expected 0 to 2."


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


@pytest.mark.parametrize("start", [StartSession(), OPUS, MP3, MU, A])
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
        (None, AudioOut(codec="opus"), "'opus' is not available here, its library is missing; expected `pcm16`, `g711u`, `g711a`."),
        (None, AudioOut(codec="g711u", rate_hz=16_000), "rate_hz is 16000; g711u has 8000 alone."),
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
