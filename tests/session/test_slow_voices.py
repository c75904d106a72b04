"""A voice slower than real time: what it makes ahead, and that nobody is told anything false meanwhile."""

from __future__ import annotations

import pytest

from gateway.events import AudioFrame, AudioOut, SegmentDone, SendText, StartSession, TurnDone
from gateway.speaker import VoicePace
from tests.doubles.scripted_encoding import ScriptedEncoding
from tests.doubles.slow_voice import SlowVoice
from tests.session.stage import Stage, stage

REPLY = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four"))


async def replies(scene: Stage, n: int) -> None:
    for turn in range(1, n + 1):
        scene.send(SendText(text="Go on."))
        await scene.until(TurnDone, turn)


def gaps_ms(scene: Stage, turn: int, frame_ms: float | None = None) -> list[float]:
    """How long a player that started with the first frame ran dry, each time. `frame_ms`: of each frame; None for PCM."""
    frames = [(at, event) for at, _, event in scene.frames if isinstance(event, AudioFrame) and event.turn == turn]
    empty_at, gaps = frames[0][0], []
    for at, frame in frames:
        if at > empty_at + 0.001:
            gaps.append((at - empty_at) * 1000)
        empty_at = max(at, empty_at) + (len(frame.data) / 48 if frame_ms is None else frame_ms) / 1000
    return gaps


async def test_a_service_slower_than_real_time_is_heard_without_a_gap_once_it_is_known() -> None:
    voice, pace = SlowVoice(1.2), VoicePace()
    async with stage([REPLY], voices=voice, pace=pace) as scene:
        await replies(scene, 3)
        assert pace.rtf("slow/0") == pytest.approx(1.2, abs=0.05)
        assert len(gaps_ms(scene, 1)) > 20
        assert gaps_ms(scene, 3) == []
        assert voice.most_open == 2


async def test_a_model_that_makes_one_text_at_a_time_gets_one_and_pauses_between_segments() -> None:
    voice, pace = SlowVoice(1.2, most=1), VoicePace()
    async with stage([REPLY], voices=voice, pace=pace) as scene:
        await replies(scene, 5)
        assert pace.at_once("slow/0") == 1
        assert len(gaps_ms(scene, 5)) <= len(scene.of(SegmentDone, 5)) - 1


@pytest.mark.parametrize("start", [StartSession(), StartSession(audio_out=AudioOut(codec="opus"))])
@pytest.mark.parametrize("rtf", [0.5, 0.9])
async def test_a_frame_is_not_waited_for_while_the_listener_runs_dry(rtf: float, start: StartSession) -> None:
    async with stage([REPLY], voices=SlowVoice(rtf), start=start, encoding=ScriptedEncoding()) as scene:
        await replies(scene, 1)
        frame_ms = 20 if start.audio_out.codec == "opus" else None
        assert gaps_ms(scene, 1, frame_ms) == []


async def test_a_fast_voice_is_one_segment_ahead_and_no_more() -> None:
    voice = SlowVoice(0.3)
    async with stage([REPLY], voices=voice) as scene:
        await replies(scene, 2)
        assert voice.most_open == 1


@pytest.mark.parametrize("most", [1, None])
async def test_order_and_times_stay_true_whatever_is_made_at_once(most: int | None) -> None:
    async with stage([REPLY], voices=SlowVoice(1.2, jitter_ms=300, most=most)) as scene:
        await replies(scene, 3)
        for turn in (1, 2, 3):
            frames, at_ms = scene.of(AudioFrame, turn), 0.0
            for frame in frames:
                assert frame.pts_ms == pytest.approx(at_ms, abs=0.01)
                at_ms += len(frame.data) / 48
            assert [frame.index for frame in frames] == sorted(frame.index for frame in frames)
            assert [done.index for done in scene.of(SegmentDone, turn)] == list(range(len(scene.of(SegmentDone, turn))))
            assert sum(done.audio_ms for done in scene.of(SegmentDone, turn)) == pytest.approx(at_ms, abs=2)
