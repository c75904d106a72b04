"""Audio as no client should send it: nothing breaks, nobody else notices, and what is right again is heard. See also `test_listener`."""

from __future__ import annotations

import asyncio

import pytest

from engine.audio_codecs.opus import OpusEncoder
from engine.fake import hum
from gateway.errors import UnsupportedCodec
from gateway.events import AppendAudio, AudioIn, Endpointing, ErrorRaised, SpeechEnded, SpeechStarted, StartSession, TurnDone, UpdateSession
from tests.session.microphone import SOUND, talking
from tests.session.stage import Stage

PLAIN = {"speculation": {"enabled": False}}
BY_TIMER = UpdateSession(endpointing=Endpointing(silence_ms=400))


def loud(rate_hz: int, ms: int) -> bytes:
    return hum("fake-en", rate_hz, 0, ms)


async def send(scene: Stage, frames: list[bytes], *, from_ms: float, step_ms: float = 20.0) -> float:
    """Frames in real time; where the client's clock stands then."""
    for data in frames:
        scene.send(AppendAudio(data=data, pts_ms=from_ms))
        from_ms += step_ms
        await asyncio.sleep(step_ms / 1000)
    return from_ms


@pytest.mark.parametrize(("said_hz", "is_hz"), [(48_000, 8_000), (8_000, 48_000)])
async def test_audio_under_a_wrong_label_harms_nobody_and_the_right_label_is_heard(said_hz: int, is_hz: int) -> None:
    start = StartSession(audio_in=AudioIn(rate_hz=said_hz))
    async with talking(["Hello there."] * 20, ["Yes."] * 20, settings=PLAIN, start=start, streams=False) as (scene, _):
        scene.send(BY_TIMER)
        at_ms = await send(scene, [loud(is_hz, 20)] * 100, from_ms=0)
        at_ms = await send(scene, [bytes(2 * is_hz // 50)] * 200, from_ms=at_ms)
        assert not scene.of(ErrorRaised)
        assert not scene.attachment.ended.done()
        scene.send(UpdateSession(audio_in=AudioIn(rate_hz=is_hz)))
        n_before = len(scene.of(SpeechStarted))
        at_ms = await send(scene, [loud(is_hz, 20)] * 50, from_ms=at_ms)
        at_ms = await send(scene, [bytes(2 * is_hz // 50)] * 100, from_ms=at_ms)
        assert len(scene.of(SpeechStarted)) == n_before + 1
        started, ended = scene.of(SpeechStarted)[-1], scene.of(SpeechEnded)[-1]
        assert ended.at_ms - started.at_ms == pytest.approx(1000, abs=250)
        await scene.until(TurnDone)


async def test_corrupt_opus_is_counted_and_what_is_whole_is_heard() -> None:
    encoder = OpusEncoder(16_000)
    packets = encoder.feed(loud(16_000, 2000))
    quiet = encoder.feed(bytes(32_000))
    corrupt = [b"\xff" * 30, b"\x00" * 2000, packets[0][:1], b"\xfb" + bytes(range(40)), b"\x03"]
    async with talking(["Hello there."], settings=PLAIN, start=StartSession(audio_in=AudioIn(codec="opus")), streams=False) as (scene, _):
        mixed = [corrupt[n // 10 % len(corrupt)] if n % 10 == 5 else packet for n, packet in enumerate(packets[:100])]
        at_ms = await send(scene, mixed, from_ms=0)
        await send(scene, quiet, from_ms=at_ms)
        await scene.until(TurnDone)
        assert scene.parts.metrics.listening.ear_errors.labels("codec", "corrupt")._value.get() >= 3
        assert len(scene.of(SpeechStarted)) == 1, "a packet that is lost is no pause"
        assert scene.of(SpeechEnded)[0].at_ms == pytest.approx(2000, abs=150)
        assert not scene.of(ErrorRaised)


async def test_nothing_but_corrupt_opus_is_silence() -> None:
    async with talking(["Nobody."], settings=PLAIN, start=StartSession(audio_in=AudioIn(codec="opus")), streams=False) as (scene, _):
        await send(scene, [b"\x00" * 2000, b"\xff" * 1400, b""] * 100, from_ms=0)
        assert not scene.of(SpeechStarted)
        assert not scene.of(ErrorRaised)


async def test_odd_byte_counts_are_heard_in_a_stream_and_in_frames() -> None:
    async with talking(["Hello there."] * 2, ["Yes.", "No."], settings=PLAIN, streams=False) as (scene, _):
        scene.send(BY_TIMER)
        stream = SOUND * 50 + bytes(640 * 50)
        for at in range(0, len(stream), 999):
            scene.send(AppendAudio(data=stream[at : at + 999]))
            await asyncio.sleep(0.03)
        await scene.until(TurnDone)
        assert scene.of(SpeechEnded)[0].at_ms == pytest.approx(1000, abs=64), "halves of a sample find each other"
        at_ms = await send(scene, [SOUND + b"\x10"] * 50, from_ms=60_000)
        await send(scene, [bytes(641)] * 50, from_ms=at_ms)
        await scene.until(TurnDone, 2)
        assert scene.of(SpeechEnded)[1].at_ms - scene.of(SpeechStarted)[1].at_ms == pytest.approx(1000, abs=64)


async def test_a_stream_ten_times_faster_than_real_time_is_understood_and_bounded() -> None:
    async with talking(["One.", "Two.", "Three."], ["Yes."] * 3, settings=PLAIN, streams=False) as (scene, _):
        scene.send(BY_TIMER)
        for n in range(3):
            for data in [SOUND] * 50 + [bytes(640)] * 50:
                scene.send(AppendAudio(data=data))
                await asyncio.sleep(0.002)
            await scene.until(SpeechEnded, n=n + 1)
        assert [ended.at_ms for ended in scene.of(SpeechEnded)] == pytest.approx([1000, 3000, 5000], abs=64)


async def test_a_clock_that_jumps_back_and_far_ahead_is_taken_as_going_on() -> None:
    async with talking(["One.", "Two."], ["Yes."] * 2, settings=PLAIN, streams=False) as (scene, _):
        scene.send(BY_TIMER)
        await send(scene, [SOUND] * 25, from_ms=3_600_000)
        await send(scene, [SOUND] * 25, from_ms=-5)
        await send(scene, [bytes(640)] * 30, from_ms=1e300)
        await scene.until(SpeechEnded)
        assert len(scene.of(SpeechStarted)) == 1
        await send(scene, [SOUND] * 50, from_ms=0)
        await send(scene, [bytes(640)] * 30, from_ms=0)
        await scene.until(SpeechEnded, n=2)
        assert not scene.of(ErrorRaised)


async def test_ten_minutes_of_silence_cost_no_reading_and_the_first_word_after_them_is_heard() -> None:
    async with talking(["Hello."], settings=PLAIN) as (scene, microphone):
        await asyncio.sleep(600)
        assert not scene.frames
        await microphone.say(1000)
        await scene.until(TurnDone)
        assert scene.of(SpeechStarted)[0].at_ms == pytest.approx(600_000, abs=64)


async def test_a_rate_that_no_microphone_has_is_refused_and_the_old_one_goes_on() -> None:
    async with talking(["Hello."], settings=PLAIN) as (scene, microphone):
        for rate_hz in (0, -1, 4_000, 96_000, 10**12):
            scene.send(
                UpdateSession(id=f"r{rate_hz}", audio_in=AudioIn(rate_hz=rate_hz), instructions="Else.", turn_detection="push_to_talk")
            )
            error = await scene.until(ErrorRaised, n=len(scene.of(ErrorRaised)) + 1)
            assert (error.ref, error.code) == (f"r{rate_hz}", UnsupportedCodec.code)
        assert scene.session.profile.instructions != "Else.", "all of an update holds, or nothing"
        await microphone.say(1000)
        await scene.until(TurnDone)
