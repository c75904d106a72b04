"""A hundred people who talk at once to ears that can follow three: nobody is kept for ever, nobody always loses, each is told."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from engine.api import EndOfTurn, Health, Recognizer, Transcript, Transcription, VoiceDetector
from engine.asr.desk import Desk
from engine.fake_listening import ScriptedDetector, ScriptedEndOfTurn
from gateway import config
from gateway.events import AppendAudio, AudioIn
from gateway.listener import Listener
from gateway.metrics import ListeningMetrics
from tests.session.test_listener import SILENCE, SOUND, Ears, Notes

N_SPEAKERS, N_ROUNDS = 100, 4
READING_S = 0.14  # one inference: in the time that a final text has, every third speaker can be read
FINAL_S, ROUND_S = 4.0, 6.5
ROOM = 256


class SlowRecognizer:
    """One inference at a time, behind the real line."""

    name = "slow"

    def __init__(self) -> None:
        self._desk = Desk(self._serve, 1, ROOM)
        self.most_waiting = self.n_served = 0

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def health(self) -> Health:
        return Health(ready=True, detail="slow")

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        self.most_waiting = max(self.most_waiting, self._desk.n_waiting)
        return await self._desk.transcribe(transcription)

    def cancel(self, utterance: str) -> None:
        self._desk.cancel(utterance)

    async def _serve(self, wanted: Transcription) -> Transcript:
        await asyncio.sleep(READING_S)
        self.n_served += 1
        return Transcript(text=f"I am {wanted.session}.")


async def test_a_hundred_speakers_at_once_are_understood_in_turn_or_told_in_time() -> None:
    slow, detector, judge = SlowRecognizer(), ScriptedDetector(), ScriptedEndOfTurn((0.9,))
    recognizer: Recognizer = slow
    voices: VoiceDetector = detector
    end_of_turn: EndOfTurn = judge
    await asyncio.gather(detector.start(), judge.start())
    ears, settings = Ears(recognizer, voices, end_of_turn), config.check({"hearing": {"final_s": FINAL_S}})
    metrics, now = ListeningMetrics(CollectorRegistry()), asyncio.get_running_loop().time
    crowd: list[tuple[Listener, Notes]] = []
    for number in range(N_SPEAKERS):
        notes = Notes()
        crowd.append((Listener(f"s{number}", AudioIn(), "auto", settings, ears, metrics, now, notes), notes))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(listener.run(), name="listener") for listener, _ in crowd]
        await asyncio.sleep(0)
        for at in range(int(N_ROUNDS * ROUND_S * 50)):  # 1.5 s of speech, then waiting
            data = SOUND if at % int(ROUND_S * 50) < 75 else SILENCE
            for listener, _ in crowd:
                listener.take(AppendAudio(data=data, pts_ms=at * 20))
            await asyncio.sleep(0.02)
        for task in running:
            task.cancel()
    for number, (_, notes) in enumerate(crowd):
        ends = [at for at, what, _ in notes.told if what == "ended"]
        answers = [(at, what, value) for at, what, value in notes.told if what in ("utterance", "failed")]
        assert len(ends) == len(answers) == N_ROUNDS, "each utterance has exactly one outcome"
        waits = [answer[0] - end for end, answer in zip(ends, answers, strict=True)]
        assert max(waits) < FINAL_S + 1.0
        assert {value for _, what, value in answers if what == "failed"} <= {"asr_failed"}
        assert {value for _, what, value in answers if what == "utterance"} == {f"I am s{number}."}, "understood at least once"
    assert slow.most_waiting <= 2 * N_SPEAKERS
    assert slow.n_served * READING_S > 0.5 * N_ROUNDS * FINAL_S, "the ears were busy all the while"
