"""The real ears in their workers, with speech of the packaged voice and, where it is installed, recorded speech."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import wave
from collections.abc import AsyncGenerator
from contextlib import aclosing
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from msgspec import Struct

from engine.api import EngineError, EngineNotReady, EngineSetupError, Transcript, Transcription, VoiceFrame
from engine.asr.whisper import Whisper
from engine.end_of_turn import SmartTurn
from engine.tts.piper import Piper
from engine.vad import SileroDetector
from engine.weights import PIPER_JOE, SILERO, SMART_TURN, WHISPER_BASE, fetch
from tests.e2e.local_engines import CACHE, PATIENCE_S, listen, until, weights

pytestmark = pytest.mark.asyncio(loop_scope="module")

HZ = 16_000
SECOND = HZ * 2
JOE = "piper/en_US-joe-medium"
LIBRIVOX = Path("/usr/share/pocketsphinx/test/data/librivox")  # Debian's pocketsphinx-testdata: sentences read aloud, BSD-2
SENTENCES = (
    "What is the weather like in Berlin tomorrow?",
    "I would like to book a table for two people.",
    "How long does it take to fly to Japan?",
)
STORY = (
    "The old house stood at the end of a narrow road, with tall trees on both sides.",
    "Nobody had lived there for many years, and the garden was full of wild flowers.",
    "One morning in spring a young woman came from the city with two heavy bags.",
    "She opened the green door with a rusty key, and looked around in the dark hall.",
    "There was dust on the stairs, and somewhere upstairs a window moved in the wind.",
    "She put down her bags, took off her coat, and began to sing while she cleaned the kitchen.",
    "In the evening she sat by the fire and wrote a long letter to her brother.",
)
RANDOM = np.random.default_rng(3)


class Ears(Struct):
    recognizer: Whisper
    detector: SileroDetector
    end_of_turn: SmartTurn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ears() -> AsyncGenerator[Ears, None]:
    made = Ears(Whisper(fetch(WHISPER_BASE, CACHE, print)), SileroDetector(weights(SILERO)), SmartTurn(weights(SMART_TURN)))
    await asyncio.gather(made.recognizer.start(), made.detector.start(), made.end_of_turn.start())
    yield made
    await asyncio.gather(made.recognizer.close(), made.detector.close(), made.end_of_turn.close())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spoken() -> dict[str, bytes]:
    """The sentences, each with 200 ms of silence before and 300 ms after."""
    voice = Piper([weights(PIPER_JOE)])
    await voice.start()
    try:
        made = {text: b"".join(await listen(voice, text, JOE, hz=HZ)) for text in (*SENTENCES, *STORY)}
    finally:
        await voice.close()
    return {text: bytes(SECOND // 5) + pcm + bytes(SECOND * 3 // 10) for text, pcm in made.items()}


def noise(length_s: float, loudness: float) -> bytes:
    return (RANDOM.standard_normal(round(length_s * HZ)) * loudness * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z ]", "", text.lower().replace("-", " ")).split()


UNDERSTOOD = 0.7  # one word of a short sentence may be misheard: Piper speaks a little differently each time


def likeness(text: str, told: str) -> float:
    """Share of the words that are the same, in order."""
    return SequenceMatcher(None, words(text), words(told), autojunk=False).ratio()


async def transcribe(
    ears: Ears, pcm: bytes, utterance: str, *, is_final: bool = True, session: str = "s", language: str | None = None
) -> Transcript:
    async with asyncio.timeout(PATIENCE_S):
        got = await ears.recognizer.transcribe(
            Transcription(utterance=utterance, session=session, pcm=pcm, is_final=is_final, language=language)
        )
    assert got is not None
    return got


async def score(ears: Ears, stream: str, pcm: bytes, piece: int = 0) -> list[VoiceFrame]:
    """The scores of all whole frames, in real time's order but as fast as they come."""
    frames: list[VoiceFrame] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(ears.detector.frames(stream)) as scores:
        for start in range(0, len(pcm), piece or SECOND):
            ears.detector.feed(stream, pcm[start : start + (piece or SECOND)])
            while len(frames) < min(len(pcm), start + (piece or SECOND)) // 1024:
                frames.append(await anext(scores))
    ears.detector.drop(stream)
    return frames


async def test_sentences_are_understood(ears: Ears, spoken: dict[str, bytes]) -> None:
    for text in SENTENCES:
        got = await transcribe(ears, spoken[text], f"plain {text}")
        assert likeness(got.text, text) > UNDERSTOOD
        assert got.language == "en"


@pytest.mark.skipif(not LIBRIVOX.is_dir(), reason="Debian's pocketsphinx-testdata is not installed")
async def test_recorded_speech_is_understood(ears: Ears) -> None:
    with wave.open(str(LIBRIVOX / "sense_and_sensibility_01_austen_64kb-0930.wav")) as file:
        pcm = file.readframes(file.getnframes())
    got = await transcribe(ears, pcm, "librivox")
    assert words(got.text) == words("he might even have been made amiable himself")
    offset = (np.frombuffer(pcm, "<i2").astype(np.int32) // 2 + 8000).clip(-32_768, 32_767).astype("<i2").tobytes()
    assert words((await transcribe(ears, offset, "with an offset")).text) == words(got.text)


@pytest.mark.parametrize(
    ("name", "pcm"),
    [
        ("nothing", b""),
        ("half a sample", b"\1"),
        ("50 ms", noise(0.05, 0.1)),
        ("silence", bytes(3 * SECOND)),
        ("an offset", np.full(2 * HZ, 9000, "<i2").tobytes()),
        ("soft noise", noise(3, 0.003)),
        ("loud noise", noise(3, 0.1)),
        ("clicks", (bytes(8000) + b"\xff\x7f" * 20) * 6),
        ("a tone", (np.sin(np.arange(2 * HZ) / 6) * 9000).astype("<i2").tobytes()),
    ],
)
async def test_nobody_is_heard_where_nobody_speaks(ears: Ears, name: str, pcm: bytes) -> None:
    assert (await transcribe(ears, pcm, name)).text == ""


async def test_partials_grow_into_the_final_text_and_odd_byte_counts_do_no_harm(ears: Ears, spoken: dict[str, bytes]) -> None:
    text, pcm = SENTENCES[0], spoken[SENTENCES[0]]
    partial = await transcribe(ears, pcm[: len(pcm) // 2 | 1], "grows", is_final=False)
    assert 0 < len(words(partial.text)) < len(words(text))
    assert words((await transcribe(ears, pcm + b"\0", "grows")).text) == words(text)


async def test_an_utterance_longer_than_a_window_is_understood_to_its_end(ears: Ears, spoken: dict[str, bytes]) -> None:
    long, told = b"".join(spoken[text] + bytes(SECOND // 2) for text in STORY), " ".join(STORY)
    assert len(long) > 31 * SECOND, "it is as short as a window"
    early = await transcribe(ears, long[: 31 * SECOND], "long", is_final=False)
    final = await transcribe(ears, long, "long")
    assert likeness(final.text, told) > 0.9
    assert likeness(early.text, told) > 0.7, "cut within a sentence, and Whisper may say that one twice"
    assert words(final.text)[-4:] == words(told)[-4:]


async def test_an_unknown_language_is_found_out_and_a_known_one_is_kept(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[1]]
    assert (await transcribe(ears, pcm, "tlh", language="tlh")).language == "en"
    assert (await transcribe(ears, pcm, "de", language="de")).language == "de"


async def test_a_final_overtakes_waiting_partials_and_sessions_take_turns(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[2]]
    ended: list[str] = []

    async def ask(utterance: str, *, is_final: bool) -> None:
        await transcribe(ears, pcm, utterance, is_final=is_final, session=utterance[0])
        ended.append(utterance)

    async with asyncio.TaskGroup() as group:
        for utterance in ("a1", "a2", "a3", "b1"):
            group.create_task(ask(utterance, is_final=False))
        await until(lambda: ears.recognizer.n_waiting == 3)
        group.create_task(ask("c1", is_final=True))
    assert ended.index("c1") <= 1
    assert ended.index("b1") < ended.index("a3")


async def test_a_needless_partial_ends_at_once(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[2]]
    calls = [
        asyncio.ensure_future(ears.recognizer.transcribe(Transcription(utterance="n", session="s", pcm=pcm, is_final=False)))
        for _ in range(2)
    ]
    await asyncio.sleep(0.01)
    ears.recognizer.cancel("n")
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*calls) == [None, None]
    assert likeness((await transcribe(ears, pcm, "n")).text, SENTENCES[2]) > UNDERSTOOD


async def test_a_killed_recognizer_says_so_and_understands_the_same_audio_later(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[0]]
    for _ in range(8):  # on a busy machine it may have understood by then
        call = asyncio.ensure_future(transcribe(ears, pcm, "killed"))
        await asyncio.sleep(0.05)
        if not call.done():
            break
        await call
    assert ears.recognizer.pid is not None
    os.kill(ears.recognizer.pid, signal.SIGKILL)
    with pytest.raises(EngineNotReady):
        await call
    with pytest.raises(EngineNotReady):
        await transcribe(ears, pcm, "killed")
    await until(lambda: ears.recognizer.health().ready)
    assert likeness((await transcribe(ears, pcm, "killed")).text, SENTENCES[0]) > UNDERSTOOD


async def test_voices_are_told_from_silence_and_noise_in_time(ears: Ears, spoken: dict[str, bytes]) -> None:
    silent = await score(ears, "silence", bytes(3 * SECOND))
    noisy = await score(ears, "noise", noise(3, 0.02))
    assert max(frame.probability for frame in silent + noisy) < 0.5
    pcm = bytes(SECOND) + spoken[SENTENCES[1]] + bytes(SECOND)
    frames = await score(ears, "speech", pcm)
    assert [frame.pts_ms for frame in frames] == [32 * n for n in range(len(frames))]
    voiced = [frame.pts_ms for frame in frames if frame.probability > 0.5]
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > 1000) * 1000 // HZ
    assert abs(voiced[0] - loud[0]) < 150
    assert abs(voiced[-1] - loud[-1]) < 250
    assert len(voiced) * 32 > 0.6 * (loud[-1] - loud[0])


async def test_scores_do_not_depend_on_how_audio_was_split_or_on_other_streams(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[1]][: 2 * SECOND]
    alone = await score(ears, "alone", pcm)
    together = await asyncio.gather(
        score(ears, "odd", pcm, piece=333), *(score(ears, f"other {n}", noise(1.5, 0.05), piece=1000 + n) for n in range(8))
    )
    assert [frame.probability for frame in together[0]] == pytest.approx([frame.probability for frame in alone], abs=1e-3)


async def test_a_reset_stream_forgets_and_has_the_clock_it_was_given(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[1]][:SECOND]
    fresh = await score(ears, "fresh", pcm)
    ears.detector.feed("used", spoken[SENTENCES[0]][:SECOND])
    await asyncio.sleep(0.1)
    ears.detector.reset("used", 7000)
    again = await score(ears, "used", pcm)
    assert again[0].pts_ms == 7000
    assert [frame.probability for frame in again] == pytest.approx([frame.probability for frame in fresh], abs=1e-3)


async def test_a_stream_faster_than_real_time_drops_its_oldest_audio_and_counts_it(ears: Ears) -> None:
    ears.detector.feed("flood", bytes(60 * SECOND))
    async with asyncio.timeout(PATIENCE_S), aclosing(ears.detector.frames("flood")) as frames:
        first = await anext(frames)
        async for frame in frames:
            if frame.pts_ms >= 60_000 - 64:
                break
    assert first.pts_ms == ears.detector.dropped_ms("flood") >= 57_000
    ears.detector.drop("flood")
    assert ears.detector.dropped_ms("flood") == 0


async def test_streams_survive_the_death_of_the_detector(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = spoken[SENTENCES[1]]
    before = await score(ears, "first", pcm)
    assert ears.detector.pid is not None
    os.kill(ears.detector.pid, signal.SIGKILL)
    await until(lambda: not ears.detector.health().ready)
    ears.detector.feed("held", pcm[:SECOND])
    assert await score(ears, "second", pcm) == pytest.approx(before)
    async with asyncio.timeout(PATIENCE_S), aclosing(ears.detector.frames("held")) as frames:
        assert (await anext(frames)).pts_ms == 0
    assert ears.detector.dropped_ms("held") == 0


async def test_a_finished_sentence_scores_higher_than_one_that_breaks_off(ears: Ears, spoken: dict[str, bytes]) -> None:
    pause = bytes(SECOND // 5)
    whole = [await ears.end_of_turn.score(pcm + pause) for pcm in map(spoken.__getitem__, SENTENCES)]
    broken = [await ears.end_of_turn.score(pcm[: len(pcm) // 4 * 2] + pause) for pcm in map(spoken.__getitem__, SENTENCES)]
    assert sum(whole) > sum(broken)
    assert all(0.0 <= value <= 1.0 for value in whole + broken)


async def test_only_the_last_eight_seconds_count_and_any_length_is_scored(ears: Ears, spoken: dict[str, bytes]) -> None:
    pcm = (spoken[SENTENCES[0]] * 6)[-8 * SECOND :]
    assert await ears.end_of_turn.score(noise(3, 0.1) + pcm) == pytest.approx(await ears.end_of_turn.score(pcm))
    for odd in (b"", b"\0", pcm[:333]):
        assert 0.0 <= await ears.end_of_turn.score(odd) <= 1.0


async def test_a_dead_judge_says_so_and_comes_back(ears: Ears, spoken: dict[str, bytes]) -> None:
    assert ears.end_of_turn.pid is not None
    os.kill(ears.end_of_turn.pid, signal.SIGKILL)
    await until(lambda: not ears.end_of_turn.health().ready)
    with pytest.raises(EngineNotReady):
        await ears.end_of_turn.score(spoken[SENTENCES[0]])
    await until(lambda: ears.end_of_turn.health().ready)
    assert await ears.end_of_turn.score(spoken[SENTENCES[0]]) >= 0.0


async def test_a_hundred_sessions_at_once_are_served_fairly_or_told_to_wait(ears: Ears, spoken: dict[str, bytes]) -> None:
    """Each keeps asking for partials, as while speaking; the finals of three speakers come through among them."""
    pcm = spoken[SENTENCES[1]]
    answered = dict.fromkeys(range(100), 0)
    stop_s = time.monotonic() + 6

    async def keep_asking(number: int) -> None:
        while time.monotonic() < stop_s or not any(answered.values()):
            try:
                if await ears.recognizer.transcribe(Transcription(utterance=f"c{number}", session=f"c{number}", pcm=pcm, is_final=False)):
                    answered[number] += 1
            except EngineError:
                await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keep_asking(number)) for number in range(100)]
        await asyncio.sleep(1)
        for number in range(3):
            got = await transcribe(ears, pcm, f"final {number}", session=f"f{number}")
            assert words(got.text) == words(SENTENCES[1])
        await asyncio.sleep(max(0, stop_s - time.monotonic()))
        await until(lambda: any(answered.values()))
        for number in range(100):
            ears.recognizer.cancel(f"c{number}")
        for task in tasks:
            task.cancel()
    assert sum(answered.values()) > 0
    assert max(answered.values()) - min(answered.values()) <= 1


async def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    for name in ("model.bin", "config.json", "vocabulary.txt"):
        (tmp_path / name).write_bytes(b"{}")
    recognizer = Whisper(tmp_path)
    with pytest.raises(EngineSetupError, match=str(tmp_path)):
        await recognizer.start()
    await recognizer.close()
    detector = SileroDetector(tmp_path / "model.bin")
    with pytest.raises(EngineSetupError, match=str(tmp_path)):
        await detector.start()
    await detector.close()
