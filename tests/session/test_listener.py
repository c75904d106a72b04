"""The listener alone: scripted ears on a virtual clock, and an owner that notes what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from msgspec import Struct
from prometheus_client import CollectorRegistry

from engine.api import EndOfTurn, EngineBusy, EngineNotReady, Recognizer, VoiceDetector
from engine.fake_listening import Heard, ScriptedDetector, ScriptedEndOfTurn, ScriptedRecognizer, by_spans
from gateway import config
from gateway.errors import InputEmpty, StrettoError
from gateway.events import AppendAudio, AudioIn
from gateway.listener import Listener, Utterance
from gateway.metrics import ListeningMetrics

SOUND = b"\x00\x10" * 320  # 20 ms at 16 kHz
SILENCE = bytes(640)


class Ears(Struct, frozen=True):
    recognizer: Recognizer
    detector: VoiceDetector
    end_of_turn: EndOfTurn | None


class Notes:
    """An owner that writes down (seconds, what)."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._start_s = loop.time()
        self._now = loop.time
        self.is_deaf = self.awaits_words = False
        self.told: list[tuple[float, str, object]] = []
        self.utterances: list[Utterance] = []

    def on_speech_started(self, number: int, at_ms: int, started_s: float) -> None:
        self._note("started", at_ms)

    def on_text(self, number: int, text: str) -> None:
        self._note("text", text)

    def on_likely_end(self, number: int, text: str, *, ended_s: float) -> None:
        self._note("likely", text)

    def on_speech_resumed(self, number: int) -> None:
        self._note("resumed", number)

    def on_speech_ended(self, number: int, at_ms: int) -> None:
        self._note("ended", at_ms)

    def on_utterance(self, utterance: Utterance) -> None:
        self.utterances.append(utterance)
        self._note("utterance", utterance.text)

    def on_nothing(self, number: int, why: Literal["noise", "cleared", "failed", "crowded"], error: StrettoError | None = None) -> None:
        self._note(why, None if error is None else error.code)

    def _note(self, what: str, value: object) -> None:
        self.told.append((round(self._now() - self._start_s, 3), what, value))

    def whats(self) -> list[str]:
        return [what for _, what, _ in self.told]

    def when(self, what: str) -> float:
        return next(at for at, kind, _ in self.told if kind == what)

    def value(self, what: str) -> object:
        return next(value for _, kind, value in self.told if kind == what)


class Scene:
    def __init__(self, listener: Listener, notes: Notes, ears: Ears, metrics: ListeningMetrics) -> None:
        self.listener, self.notes, self.metrics = listener, notes, metrics
        self.recognizer, self.detector = ears.recognizer, ears.detector
        self.pts_ms = 0.0

    async def send(self, ms: int, data: bytes = SOUND, *, pace: float = 1.0) -> None:
        """Audio in frames of 20 ms, as a microphone sends it."""
        for _ in range(ms // 20):
            self.listener.take(AppendAudio(data=data, pts_ms=self.pts_ms))
            self.pts_ms += 20
            await asyncio.sleep(0.02 * pace)

    async def until(self, what: str, timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while what not in self.notes.whats():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(
    script: tuple[Heard | str, ...] = ("What is down there in the sea?",),
    *,
    scores: tuple[float, ...] = (0.9,),
    recognizer: ScriptedRecognizer | None = None,
    detector: VoiceDetector | None = None,
    mode: Literal["auto", "push_to_talk"] = "auto",
    audio_in: AudioIn | None = None,
    settings: dict[str, object] | None = None,
) -> AsyncIterator[Scene]:
    ears = Ears(recognizer or ScriptedRecognizer(script), detector or ScriptedDetector(), ScriptedEndOfTurn(scores) if scores else None)
    for ear in (ears.recognizer, ears.detector, ears.end_of_turn):
        if ear is not None:
            await ear.start()
    notes, metrics = Notes(), ListeningMetrics(CollectorRegistry())
    now = asyncio.get_running_loop().time
    listener = Listener("s", audio_in or AudioIn(), mode, config.check(settings or {}), ears, metrics, now, notes)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listener.run(), name="listener")
        await asyncio.sleep(0)
        yield Scene(listener, notes, ears, metrics)
        task.cancel()


async def test_speech_and_silence_become_one_utterance() -> None:
    async with listening() as scene:
        await scene.send(500, SILENCE)
        await scene.send(1500)
        await scene.send(1000, SILENCE)
        told = scene.notes
        assert told.whats().count("started") == told.whats().count("ended") == told.whats().count("utterance") == 1
        assert told.value("utterance") == "What is down there in the sea?"
        assert told.value("started") == pytest.approx(500, abs=32)
        assert told.value("ended") == pytest.approx(2000, abs=32)
        assert told.when("started") - 0.5 <= 0.1
        assert told.when("ended") - 2.0 <= 0.26
        assert told.when("utterance") - 2.0 <= 0.26, "the final text was read while the end was not sure yet"
        assert scene.notes.utterances[0].ended_s == pytest.approx(1002.0, abs=0.05)


@pytest.mark.parametrize(
    ("heard", "waits_long"),
    [
        (Heard(text="I need a hotel enrollment.", rivals=("I need a hotel in Rome and.",)), True),
        (Heard(text="Newnack.", certainty=-1.2), True),
        (Heard(text="Ten of clubs.", rivals=("Ten of cloves.",), certainty=-0.5), False),
    ],
)
async def test_a_text_that_may_be_another_one_is_waited_for_where_the_sound_is_not_sure(heard: Heard, waits_long: bool) -> None:
    async with listening((heard, heard), scores=(0.7, 0.9)) as scene:
        for _ in range(2):
            await scene.send(1500)
            await scene.send(2000, SILENCE)
        assert [utterance.text for utterance in scene.notes.utterances] == [heard.text, heard.text]
        unsure, sure = (at for at, what, _ in scene.notes.told if what == "ended")
        assert 1.4 < unsure - 1.5 < 1.7 if waits_long else unsure - 1.5 < 0.5
        assert sure - 5.0 < 0.3


async def test_partial_texts_come_while_somebody_speaks() -> None:
    async with listening() as scene:
        await scene.send(2500)
        partials = [value for _, what, value in scene.notes.told if what == "text"]
        assert partials == ["What is", "What is down there", "What is down there in the"]


async def test_an_unsure_end_waits_longer_and_a_hesitation_longest() -> None:
    waits = []
    for text, score in (("What is it?", 0.9), ("What is it", 0.4), ("I would like to book a table for", 0.4)):
        async with listening((text,), scores=(score,)) as scene:
            await scene.send(1000)
            await scene.send(2500, SILENCE)
            waits.append(scene.notes.when("utterance") - 1.0)
    assert waits[0] < 0.26
    assert 0.8 <= waits[1] < 0.85
    assert 1.5 <= waits[2] < 1.56


async def test_a_pause_within_a_sentence_is_one_utterance_and_its_readings_are_dropped() -> None:
    async with listening(("I would like a coffee and", "I would like a coffee and a cake."), scores=(0.3, 0.95)) as scene:
        await scene.send(1000)
        await scene.send(600, SILENCE)
        await scene.send(1000)
        await scene.send(1000, SILENCE)
        assert scene.notes.whats().count("utterance") == 1
        assert "resumed" in scene.notes.whats()
        assert scene.metrics.utterances.labels("text")._value.get() == 1


async def speak_of_the_sea(scene: Scene, script: tuple[Heard | str, ...]) -> None:
    """Eight seconds for each text, and half a second of pause behind each but the last."""
    for n in range(len(script)):
        await scene.send(8000)
        await scene.send(500 if n + 1 < len(script) else 2500, SILENCE)
    await scene.until("utterance")


@pytest.mark.parametrize("final_ms", [80, 900])
async def test_a_speaker_of_seventy_seconds_is_heard_whole_and_read_piece_by_piece(final_ms: float) -> None:
    script = tuple(f"This is the {n}. thing that I say." for n in range(9))
    recognizer = ScriptedRecognizer(script, final_ms=final_ms)
    async with listening(recognizer=recognizer, scores=(0.3,)) as scene:
        await speak_of_the_sea(scene, script)
        assert [what for what in scene.notes.whats() if what in ("started", "ended", "utterance")] == ["started", "ended", "utterance"]
        assert scene.notes.utterances[0].text == " ".join(script)
        assert max(len(request.pcm) for request in recognizer.requests) < 9500 * 32
        partials = [str(value) for _, what, value in scene.notes.told if what == "text"]
        assert partials[-1] == " ".join(script)
        assert any(text.startswith(" ".join(script[:7])) for text in partials[:-2]), "what was said before stays in the partial texts"


async def test_a_piece_that_could_not_be_read_is_read_again() -> None:
    lost = Heard(text="second", errors=(EngineBusy,) * 30)
    async with listening(("First", lost, "third."), scores=(0.3,), settings={"hearing": {"final_s": 20.0}}) as scene:
        await speak_of_the_sea(scene, ("", "", ""))
        assert scene.notes.utterances[0].text == "First second third."
        assert scene.notes.utterances[0].is_whole


async def test_a_piece_that_stays_unread_takes_nothing_from_the_others() -> None:
    lost = Heard(text="second", errors=(EngineBusy,) * 999)
    async with listening(("First", lost, "third."), scores=(0.3,), settings={"hearing": {"final_s": 3.0}}) as scene:
        await speak_of_the_sea(scene, ("", "", ""))
        assert scene.notes.utterances[0].text == "First third."
        assert not scene.notes.utterances[0].is_whole


async def test_pieces_that_break_off_are_joined_without_the_stop_that_was_guessed() -> None:
    async with listening(("I would like a coffee and.", "A cake."), scores=(0.3,)) as scene:
        await speak_of_the_sea(scene, ("", ""))
        assert scene.notes.utterances[0].text == "I would like a coffee and A cake."


async def test_silence_and_noise_ask_nothing_of_the_recognizer() -> None:
    detector = ScriptedDetector(by_spans((1000, 1064), (3000, 3030)))
    async with listening(detector=detector) as scene:
        await scene.send(5000)
        assert scene.notes.whats() == ["started", "ended", "noise"]
        assert not scene.recognizer.requests  # type: ignore[attr-defined]  # the scripted one
        assert scene.metrics.utterances.labels("noise")._value.get() == 1


async def test_an_empty_text_is_told_as_one() -> None:
    async with listening(("",)) as scene:
        await scene.send(1000)
        await scene.send(2000, SILENCE)
        assert scene.notes.value("utterance") == ""
        assert scene.metrics.utterances.labels("empty")._value.get() == 1


async def test_a_microphone_that_stops_in_mid_word_is_silence() -> None:
    async with listening() as scene:
        await scene.send(1000)
        await scene.until("utterance", 3)
        assert scene.notes.when("utterance") - 1.0 <= 0.5


async def test_a_gap_in_media_time_is_silence_even_when_it_arrives_at_once() -> None:
    async with listening() as scene:
        await scene.send(1000)
        scene.pts_ms += 600
        scene.listener.take(AppendAudio(data=SILENCE, pts_ms=scene.pts_ms))
        await scene.until("utterance", 1)
        assert scene.notes.value("ended") == pytest.approx(1000, abs=32)


async def test_times_that_jump_back_are_taken_as_going_on() -> None:
    async with listening() as scene:
        await scene.send(500)
        scene.pts_ms = -1e9
        await scene.send(500)
        scene.pts_ms = float("nan")
        await scene.send(500, SILENCE)
        await scene.until("utterance", 2)
        assert scene.notes.whats().count("started") == 1


async def test_a_stalled_network_gives_no_silence_twice() -> None:
    async with listening(scores=(0.2,)) as scene:
        await scene.send(1000)
        await asyncio.sleep(0.5)
        scene.pts_ms += 500
        await scene.send(1000)
        await scene.send(1600, SILENCE)
        await scene.until("utterance", 2)
        assert scene.notes.whats().count("started") == 1
        assert scene.notes.value("ended") == pytest.approx(2500, abs=64)


async def test_a_recording_sent_at_once_is_heard_whole() -> None:
    async with listening(("One.", "Two.", "Three.")) as scene:
        for _ in range(3):
            for data, n in ((SOUND, 100), (SILENCE, 60)):
                for _ in range(n):
                    scene.listener.take(AppendAudio(data=data, pts_ms=scene.pts_ms))
                    scene.pts_ms += 20
        await asyncio.sleep(2)
        assert [utterance.text for utterance in scene.notes.utterances] == ["One.", "Two.", "Three."]
        assert [utterance.at_ms for utterance in scene.notes.utterances] == pytest.approx([2000, 5200, 8400], abs=32)
        lengths_ms = [len(request.pcm) / 32 for request in scene.recognizer.requests]  # type: ignore[attr-defined]  # the scripted one
        assert max(lengths_ms) < 2600, "no reading holds what was said after its pause"


async def test_audio_faster_than_real_time_is_bounded_and_still_understood() -> None:
    async with listening(settings={"endpointing": {"longest_utterance_s": 5.0}}) as scene:
        for _ in range(20 * 50):
            await scene.send(20, pace=0)
        await scene.send(1000, SILENCE)
        await asyncio.sleep(1)
        assert scene.notes.whats().count("utterance") >= 3
        assert max(len(request.pcm) for request in scene.recognizer.requests) <= 7 * 32_000  # type: ignore[attr-defined]  # the scripted one


async def test_a_recognizer_that_dies_gets_the_same_audio_again() -> None:
    recognizer = ScriptedRecognizer(("What is down there?",))
    async with listening(recognizer=recognizer) as scene:
        await scene.send(1000)
        recognizer.die()
        await scene.send(1000, SILENCE)
        await recognizer.start()
        await scene.until("utterance", 2)
        assert scene.notes.value("utterance") == "What is down there?"
        assert len(recognizer.requests[-1].pcm) >= 1000 * 32


async def test_a_busy_recognizer_is_asked_again() -> None:
    heard = Heard(text="What is down there?", errors=(EngineBusy,))
    async with listening((heard, heard, heard, heard)) as scene:
        await scene.send(400)
        await scene.send(1000, SILENCE)
        await scene.until("utterance", 9)


async def test_a_recognizer_that_stays_dead_is_told_after_its_deadline() -> None:
    async with listening((Heard(text="", errors=(EngineNotReady,) * 500),), settings={"hearing": {"final_s": 3.0}}) as scene:
        await scene.send(1000)
        await scene.send(1000, SILENCE)
        await scene.until("failed", 4)
        assert scene.notes.value("failed") == "asr_failed"


async def test_a_detector_that_hangs_keeps_no_utterance_open() -> None:
    detector = ScriptedDetector()
    async with listening(detector=detector) as scene:
        await scene.send(1000)
        detector.die()
        await scene.send(4000)
        assert scene.notes.whats().count("utterance") == 1


async def test_a_dead_end_of_turn_model_leaves_text_and_silence_to_decide() -> None:
    async with listening(scores=()) as scene:
        await scene.send(1000)
        await scene.send(1500, SILENCE)
        assert 0.5 < scene.notes.when("utterance") - 1.0 < 0.62


async def test_push_to_talk_hears_what_the_button_says() -> None:
    async with listening(mode="push_to_talk") as scene:
        with pytest.raises(InputEmpty):
            scene.listener.commit()
        await scene.send(1000)
        await scene.send(2000, SILENCE)
        await scene.send(1000)
        assert "utterance" not in scene.notes.whats()
        scene.listener.commit()
        await scene.until("utterance", 1)
        assert len(scene.recognizer.requests[-1].pcm) >= 3900 * 32  # type: ignore[attr-defined]  # the scripted one
        with pytest.raises(InputEmpty):
            scene.listener.commit()


async def test_clear_throws_away_what_was_said() -> None:
    async with listening() as scene:
        await scene.send(1000)
        scene.listener.clear()
        await scene.send(1000, SILENCE)
        assert "cleared" in scene.notes.whats()
        assert "utterance" not in scene.notes.whats()


async def test_a_commit_ends_the_utterance_at_once() -> None:
    async with listening(scores=(0.1,)) as scene:
        await scene.send(1000)
        scene.listener.commit()
        await scene.until("utterance", 0.2)


async def test_muting_ends_what_was_said_and_hears_nothing_more() -> None:
    async with listening() as scene:
        await scene.send(1000)
        scene.listener.mute(on=True)
        await scene.until("utterance", 0.2)
        await scene.send(1000)
        scene.listener.mute(on=False)
        await scene.send(1000, SILENCE)
        assert scene.notes.whats().count("started") == 1


async def test_the_deaf_hear_silence() -> None:
    async with listening() as scene:
        scene.notes.is_deaf = True
        await scene.send(2000)
        scene.notes.is_deaf = False
        await scene.send(500, SILENCE)
        assert scene.notes.told == []


@pytest.mark.parametrize(
    ("audio_in", "frame"),
    [
        (AudioIn(codec="pcm16", rate_hz=48_000), b"\x00\x10" * 960),
        (AudioIn(codec="pcm16", rate_hz=8_000), b"\x00\x10" * 160),
        (AudioIn(codec="g711u"), b"\x05" * 160),
        (AudioIn(codec="g711a"), b"\x05" * 160),
    ],
)
async def test_other_rates_and_codecs_keep_their_time(audio_in: AudioIn, frame: bytes) -> None:
    async with listening(audio_in=audio_in) as scene:
        await scene.send(2000, frame)
        await asyncio.sleep(1)
        assert scene.notes.value("ended") == pytest.approx(2000, abs=150)
        assert scene.notes.whats().count("started") == 1


async def test_odd_bytes_and_empty_frames_do_no_harm() -> None:
    async with listening() as scene:
        for n in range(100):
            scene.listener.take(AppendAudio(data=SOUND[: n % 7], pts_ms=0))
        await scene.send(1000)
        await scene.send(500, SILENCE)
        await scene.until("utterance", 2)


async def test_nothing_is_left_in_the_engines() -> None:
    recognizer, detector = ScriptedRecognizer(), ScriptedDetector()
    async with listening(recognizer=recognizer, detector=detector) as scene:
        await scene.send(1500)
    await asyncio.sleep(0)
    assert detector.n_open == 0
    assert recognizer.n_open == 0
