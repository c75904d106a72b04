"""Audio on its way through a voice detector: cut, clocked, bounded, scored again after a death; and the scripted detector."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import VoiceFrame
from engine.fake_listening import ScriptedDetector, by_spans
from engine.voice_stream import FRAME_BYTES, FRAME_MS, MAX_WAITING_BYTES, VoiceStream
from tests.unit.ears import LOUD, QUIET


def take_all(stream: VoiceStream) -> list[tuple[int, bytes]]:
    taken = []
    while stream.has_frames:
        taken.append(stream.take(1))
    return taken


@given(st.lists(st.integers(0, 2000), max_size=20))
def test_frames_and_times_do_not_depend_on_how_audio_was_split(sizes: list[int]) -> None:
    audio = bytes(n % 251 for n in range(sum(sizes)))
    split, whole = VoiceStream(1), VoiceStream(1)
    position = 0
    for size in sizes:
        split.feed(audio[position : position + size])
        position += size
    whole.feed(audio)
    taken = take_all(split)
    assert taken == take_all(whole)
    assert b"".join(pcm for _, pcm in taken) == audio[: len(audio) // FRAME_BYTES * FRAME_BYTES]
    assert [pts_ms for pts_ms, _ in taken] == [FRAME_MS * n for n in range(len(taken))]


def test_audio_that_nobody_scores_is_dropped_from_its_oldest_end_and_counted() -> None:
    stream = VoiceStream(1)
    stream.take(1)
    stream.is_fresh = False
    for value in range(100):
        stream.feed(bytes([value]) * FRAME_BYTES)
    n_kept = MAX_WAITING_BYTES // FRAME_BYTES
    assert stream.dropped_ms == (100 - n_kept) * FRAME_MS
    assert stream.is_fresh, "the model would join two sounds that do not follow each other"
    taken = take_all(stream)
    assert taken[0] == ((100 - n_kept) * FRAME_MS, bytes([100 - n_kept]) * FRAME_BYTES)
    assert len(taken) == n_kept


def test_frames_whose_engine_died_are_taken_again_at_their_time() -> None:
    stream = VoiceStream(1)
    stream.feed(b"\1" * FRAME_BYTES + b"\2" * FRAME_BYTES + b"\3" * 10)
    pts_ms, pcm = stream.take(16)
    stream.is_fresh = False
    stream.give_back(pcm)
    assert (pts_ms, stream.is_fresh) == (0, True)
    assert stream.take(16) == (0, b"\1" * FRAME_BYTES + b"\2" * FRAME_BYTES)
    assert not stream.has_frames


async def test_a_reader_gets_scores_as_they_come_and_ends_with_the_stream() -> None:
    stream = VoiceStream(1)
    got: list[VoiceFrame] = []

    async def read() -> None:
        async with aclosing(stream.read()) as frames:
            async for frame in frames:
                got.append(frame)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await asyncio.sleep(0)
        stream.deliver(64, [0.5, 0.75])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert got == [VoiceFrame(pts_ms=64, probability=0.5), VoiceFrame(pts_ms=96, probability=0.75)]
        stream.end()


async def test_the_scripted_detector_hears_loud_audio_on_its_own_clock() -> None:
    detector = ScriptedDetector()
    await detector.start()
    detector.feed("a", QUIET[:FRAME_BYTES] + LOUD[: 2 * FRAME_BYTES] + QUIET[:FRAME_BYTES])
    detector.feed("b", LOUD[:FRAME_BYTES])
    async with aclosing(detector.frames("a")) as frames:
        got = [await anext(frames) for _ in range(4)]
    assert [(frame.pts_ms, frame.probability) for frame in got] == [(0, 0.0), (32, 1.0), (64, 1.0), (96, 0.0)]
    detector.reset("b", 5000)
    detector.feed("b", LOUD[:FRAME_BYTES])
    async with aclosing(detector.frames("b")) as frames:
        assert (await anext(frames)).pts_ms == 5000
    detector.drop("a")
    assert detector.n_open == 1
    await detector.close()


async def test_the_scripted_detector_follows_a_script_and_scores_after_its_delay() -> None:
    detector = ScriptedDetector(delay_ms=5, scripts={"a": by_spans((32, 64))})
    await detector.start()
    began_s = asyncio.get_running_loop().time()
    detector.feed("a", QUIET[: 3 * FRAME_BYTES])
    async with aclosing(detector.frames("a")) as frames:
        got = [(await anext(frames)).probability for _ in range(3)]
    assert got == [0.0, 1.0, 0.0]
    assert asyncio.get_running_loop().time() - began_s >= 0.004
    await detector.close()


async def test_a_dead_scripted_detector_is_silent_and_scores_what_it_holds_when_it_is_back() -> None:
    detector = ScriptedDetector()
    await detector.start()
    detector.die()
    detector.feed("a", LOUD[:FRAME_BYTES])
    async with aclosing(detector.frames("a")) as frames:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(frames)
    await detector.start()
    async with aclosing(detector.frames("a")) as frames:
        assert (await anext(frames)).probability == 1.0
