"""How long a speaker waits for the first sound of an answer: many conversations in one process, engines scripted as a GPU serves them.

Run: `python -m tests.load.listening_bench REPLIES.jsonl` (lines with `text` and `lang`: what the model answers), or with
`--interruptions 1000` for interruptions at random times on a virtual clock. Prints JSON; nothing is asserted, machines differ.

Scripted: final text 80 ms, first token 52 ms, then one each 17 ms, first chunk of speech 60 ms, end-of-turn score 20 ms. Of the utterances
70 % end surely, 20 % not surely, 10 % have a pause within; one partial text of five differs from the final one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from prometheus_client import CollectorRegistry

from engine.api import EndOfTurn, EngineNotReady, Health, Recognizer, Transcript, Transcription, VoiceDetector
from engine.fake import ScriptedModel, ScriptedVoice
from engine.fake_listening import ScriptedDetector, ScriptedEndOfTurn
from gateway import config
from gateway.admission import Admission
from gateway.events import AppendAudio, AudioFrame, AudioIn, Cancel, StartSession, TextDelta, Transcribed, TurnDone, TurnStarted
from gateway.metrics import Metrics
from gateway.session import Session
from gateway.sessions import Sessions
from gateway.speech.markup import DEFAULT
from gateway.turn import Parts
from tests.session.virtual_loop import VirtualLoop

FRAME_MS = 20
SAMPLES = 320
HIDDEN_S = 0.02  # a first sound so soon after the end is decided was ready before
HEARD_MS = 900  # of each answer, then the speaker stops it and asks again
SURE, UNSURE, PAUSING, PAUSED_ON = 4000, 5000, 6000, 7000  # loudness says which kind of speech a frame belongs to
DIFFERS = 500  # added to it: partial texts of this utterance differ from the final one
SCORES = {SURE: 0.95, UNSURE: 0.4, PAUSING: 0.4, PAUSED_ON: 0.95}
TEXTS = {
    SURE: "What is down there in the deep sea?",
    UNSURE: "Tell me about the animals in the deep sea",
    PAUSING: "I would like to know what lives",
    PAUSED_ON: "I would like to know what lives down there in the sea.",
}
PARTIAL = "Tell me what is there"


def loudness(pcm: bytes) -> int:
    """Of the last sound."""
    samples = array("h", pcm[: len(pcm) // 2 * 2])
    return next((sample for sample in reversed(samples[::80]) if sample), 0)


def kind_of(pcm: bytes) -> tuple[int, bool]:
    """The kind of speech, and whether its partial texts differ."""
    loud = loudness(pcm)
    return (loud - DIFFERS, True) if loud % 1000 else (loud, False)


class BenchRecognizer:
    """Reads the text from the loudness of the last sound."""

    name = "bench"

    def __init__(self, final_ms: float = 80.0) -> None:
        self._wait_s = final_ms / 1000
        self._newest: dict[str, Transcription] = {}
        self.n_asked = 0

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def health(self) -> Health:
        return Health(ready=True, detail="bench")

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        self.n_asked += 1
        self._newest[transcription.utterance] = transcription
        await asyncio.sleep(self._wait_s)
        if self._newest.get(transcription.utterance) is not transcription:
            return None
        kind, differs = kind_of(transcription.pcm)
        if kind not in TEXTS:
            raise EngineNotReady(f"there is no speech of loudness {kind}")
        return Transcript(text=PARTIAL if differs and not transcription.is_final else TEXTS[kind])

    def cancel(self, utterance: str) -> None:
        self._newest.pop(utterance, None)


class BenchEars(Struct, frozen=True):
    recognizer: Recognizer
    detector: VoiceDetector
    end_of_turn: EndOfTurn | None


class Speaker:
    """One conversation: its script of loudness, its microphone, its ears for our answers."""

    def __init__(self, session: Session, chance: random.Random) -> None:
        self.session = session
        self.waits: dict[int, list[float]] = {SURE: [], UNSURE: [], PAUSED_ON: []}
        self.n_superseded = self.n_hidden = self.n_tokens = 0
        self._chance = chance
        self._frames: list[int] = []
        self._silence = array("h", bytes(2 * SAMPLES)).tobytes()
        self._loud = {level: array("h", [level] * SAMPLES).tobytes() for kind in SCORES for level in (kind, kind + DIFFERS)}
        self._pts_ms = 0.0
        self._stopped_s = 0.0
        self._kind = 0
        self.speak(chance.uniform(0, 4))

    def speak(self, after_s: float) -> None:
        """The next utterance, after a while."""
        chance = self._chance
        spoken = [0] * int(after_s * 50)
        differs = DIFFERS if chance.random() < 0.2 else 0
        draw = chance.random()
        self._kind = SURE if draw < 0.7 else UNSURE if draw < 0.9 else PAUSED_ON
        if self._kind == PAUSED_ON:
            spoken += [PAUSING + differs] * chance.randint(40, 80) + [0] * chance.randint(15, 60)
        spoken += [self._kind + differs] * chance.randint(50, 120)
        self._frames = spoken[::-1]

    def tick(self, now: float) -> None:
        """20 ms of the microphone."""
        level = self._frames.pop() if self._frames else 0
        if level and not self._frames:
            self._stopped_s = now
        data = self._loud[level] if level else self._silence
        self.session.receive(AppendAudio(data=data, pts_ms=self._pts_ms))
        self._pts_ms += FRAME_MS

    async def listen(self) -> None:
        """Note when answers begin, and stop each one after a while."""
        asked: dict[int, float] = {}
        heard: dict[int, float] = {}
        while True:
            _, event = await self.session.outbox.next()
            match event:
                case Transcribed() if event.final and event.turn is not None:
                    asked[event.turn] = asyncio.get_running_loop().time()
                case TextDelta():
                    self.n_tokens += event.tokens
                case TurnDone():
                    self.n_superseded += event.status == "superseded"
                case TurnStarted() if not self._frames:
                    heard[event.turn] = 0.0
                case AudioFrame() if event.turn in heard:
                    if heard[event.turn] == 0:
                        now = asyncio.get_running_loop().time()
                        self.waits[self._kind].append(now - self._stopped_s)
                        self.n_hidden += now - asked.pop(event.turn, 0.0) < HIDDEN_S
                    heard[event.turn] += len(event.data) / 48
                    if heard[event.turn] >= HEARD_MS:
                        del heard[event.turn]
                        self.session.receive(Cancel(turn=event.turn))
                        self.speak(self._chance.uniform(0.5, 1.5))


async def converse(n_sessions: int, seconds: float, replies: Sequence[str], settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """So many conversations for so long. Any: a settings tree, and figures as JSON."""
    chance = random.Random(seed)
    model = ScriptedModel([*chance.sample(list(replies), len(replies))], ttft_ms=52, itl_ms=17)
    voice, recognizer = ScriptedVoice(first_chunk_ms=60), BenchRecognizer()
    ears = BenchEars(recognizer, ScriptedDetector(), ScriptedEndOfTurn(delay_ms=20, judge=lambda pcm: SCORES.get(kind_of(pcm)[0], 0.5)))
    for engine in (model, voice, ears.detector, ears.end_of_turn):
        if engine is not None:
            await engine.start()
    loop = asyncio.get_running_loop()
    metrics = Metrics(CollectorRegistry())
    tree = config.check({"session": {"max_sessions": n_sessions}, **settings})
    parts = Parts(model=model, voices=voice, metrics=metrics, settings=tree, rules=DEFAULT, now=loop.time, ears=ears)
    admission = Admission(n_sessions)
    admission.is_ready = True
    sessions = Sessions(parts, admission)
    started, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    late: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        speakers = []
        for n in range(n_sessions):
            session, _, _ = await sessions.open(StartSession(audio_in=AudioIn()))
            speakers.append(Speaker(session, random.Random(seed * 1000 + n)))
        listeners = [tasks.create_task(speaker.listen(), name="speaker") for speaker in speakers]
        began_s = loop.time()
        for n in range(int(seconds * 1000 / FRAME_MS)):
            due_s = began_s + n * FRAME_MS / 1000
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            late.append(loop.time() - due_s)
            for speaker in speakers:
                speaker.tick(loop.time())
        for listener in listeners:
            listener.cancel()
        sessions.stop()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime
    figures = {**told(speakers, metrics, model), "asr_requests": recognizer.n_asked}
    figures["microphone_late_ms_p99"] = round(1000 * percentile(late, 99), 1)
    figures["cpu_share_of_a_core"] = round(cpu_s / (time.monotonic() - started), 2)
    return figures


def told(speakers: Sequence[Speaker], metrics: Metrics, model: ScriptedModel) -> dict[str, Any]:
    """Any: figures as JSON."""
    figures: dict[str, Any] = {}
    for kind, name in ((SURE, "sure"), (UNSURE, "unsure"), (PAUSED_ON, "paused within")):
        waits = [1000 * wait for speaker in speakers for wait in speaker.waits[kind]]
        if waits:
            figures[name] = {"n": len(waits), **{f"p{p}_ms": round(percentile(waits, p)) for p in (50, 95, 99)}}
    outcomes = {
        sample.labels["outcome"]: int(sample.value)
        for family in metrics.listening.speculation.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    wasted = metrics.listening.speculation_wasted._value.get()
    figures["drafts"] = outcomes
    figures["tokens_wasted"] = {
        "drafts": int(wasted),
        "per_draft": round(wasted / max(1, sum(outcomes.values())), 1),
    }
    n_turns = sum(len(waits) for speaker in speakers for waits in speaker.waits.values())
    figures["tokens_wasted"]["percent"] = round(100 * wasted / max(1, wasted + sum(speaker.n_tokens for speaker in speakers)), 1)
    figures["first_sound_hidden_percent"] = round(100 * sum(speaker.n_hidden for speaker in speakers) / max(1, n_turns), 1)
    figures["superseded"] = sum(speaker.n_superseded for speaker in speakers)
    figures["requests"] = len(model.requests)
    return figures


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else values[0]


async def interrupt(n: int) -> None:
    from tests.session.test_barge_in import Interruptions, interrupt_at_random

    rounds: list[Interruptions] = []
    while sum(seen.n for seen in rounds) < n:
        rounds.append(await interrupt_at_random(len(rounds), 100))
    figures = {
        "interruptions": sum(seen.n for seen in rounds),
        "frames_of_the_old_turn_after_interrupted": sum(seen.stray_frames for seen in rounds),
        "heard_off_by_words_at_most": max(seen.words_off for seen in rounds),
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replies", type=Path, nargs="?")
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interruptions", type=int, default=0, help="so many on a virtual clock, instead")
    parser.add_argument("--virtual", action="store_true", help="on a virtual clock: what the rules cost, without this machine's own delays")
    asked = parser.parse_args()
    if asked.interruptions:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(interrupt(asked.interruptions))
        return
    if asked.replies is None:
        parser.error("expected a file of replies, or --interruptions")
    lines = [json.loads(line) for line in asked.replies.read_text("utf-8").splitlines() if line.strip()]
    replies = [line["text"] for line in lines if line["text"].strip() and "<" not in line["text"]]  # reasoning is no reply
    for name, settings in (("with drafts", {}), ("without", {"speculation": {"enabled": False}})):
        with asyncio.Runner(loop_factory=VirtualLoop if asked.virtual else None) as runner:
            figures = runner.run(converse(asked.conversations, asked.seconds, replies, settings, asked.seed))
        print(json.dumps({name: figures}, indent=1))


if __name__ == "__main__":
    main()
