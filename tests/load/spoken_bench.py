"""Thirty spoken questions through the real ears of this machine (Whisper, Silero, smart-turn), answered by a scripted model and voice.

Run: `python -m tests.load.spoken_bench` (a quarter of an hour, in real time; `--questions 6` for a short form). Prints JSON: end of speech
to final text and to first sound, with drafts and without, clean and in noise; words misheard; pauses and stops of a reply; CPU for each
second of one session. End of speech is the last sample above 1 % of full scale. The weights are those of `stretto fetch`.
Many who speak at once: `tests.load.crowd_bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from prometheus_client import CollectorRegistry

from engine.api import Ears
from engine.build_listening import build_ears
from engine.fake import ScriptedModel, ScriptedVoice
from engine.settings import AsrSettings, EngineSettings
from gateway import config
from gateway.admission import Admission
from gateway.events import (
    AppendAudio,
    AudioFrame,
    AudioIn,
    Interrupted,
    PlayoutPaused,
    ServerEvent,
    StartSession,
    Transcribed,
    TurnDone,
)
from gateway.metrics import Metrics
from gateway.sessions import Sessions
from gateway.speech.markup import DEFAULT
from gateway.turn import Parts
from tests.load.spoken_questions import (
    CACHE,
    INTERRUPTIONS,
    QUESTIONS,
    RATE_HZ,
    Said,
    noisy,
    recorded,
    spoken,
    word_errors,
    words,
)

LONG = " ".join(["This is one of the many sentences of a rather long reply about the sea."] * 12)
SHORT = "The sea covers most of our planet."
FRAME = 640  # bytes of 20 ms
TICKS_S = os.sysconf("SC_CLK_TCK")


class Client:
    """One conversation: speaks recordings in real time and notes when what arrives."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._now = asyncio.get_running_loop().time
        self.arrived: list[tuple[float, ServerEvent]] = []
        self._news = asyncio.Event()

    async def open(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        self.session, _, _ = await self._sessions.open(StartSession(audio_in=AudioIn(), language="en"))
        return tasks.create_task(self._read(), name="client")

    async def _read(self) -> None:
        while True:
            _, event = await self.session.outbox.next()
            self.arrived.append((self._now(), event))
            self._news.set()

    async def speak(self, pcm: bytes) -> float:
        """The moment at which the recording began; returns after it."""
        began_s = self._now()
        for n, start in enumerate(range(0, len(pcm), FRAME)):
            await asyncio.sleep(max(0.0, began_s + n * 0.02 - self._now()))
            self.session.receive(AppendAudio(data=pcm[start : start + FRAME], pts_ms=0))
        return began_s

    def when(self, kind: type[ServerEvent], since_s: float) -> float | None:
        return next((at for at, event in self.arrived if at >= since_s and isinstance(event, kind)), None)

    async def until(self, kind: type[ServerEvent], since_s: float, timeout_s: float = 15.0) -> float | None:
        try:
            async with asyncio.timeout(timeout_s):
                while (at := self.when(kind, since_s)) is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return None
        return at

    def final(self, since_s: float) -> tuple[float, str]:
        """When the last final text came, and all of them."""
        found = [(at, event.text) for at, event in self.arrived if at >= since_s and isinstance(event, Transcribed) and event.final]
        return (found[-1][0] if found else since_s), " ".join(text for _, text in found)


class Asked(Struct):
    """What became of some questions: seconds from the end of speech, word errors of how many words."""

    n: int = 0
    finals: list[float] = []
    sounds: list[float] = []
    errors: int = 0
    n_words: int = 0

    def told(self) -> dict[str, Any]:
        """Any: figures as JSON."""
        return {
            "answered": len(self.sounds),
            "of": self.n,
            "final_text_ms": quantiles(self.finals),
            "first_sound_ms": quantiles(self.sounds),
            "word_errors_percent": round(100 * self.errors / max(1, self.n_words), 1),
        }


async def ask(recordings: Sequence[Said], parts: Parts) -> Asked:
    """Each question when the answer to the one before is over."""
    asked = Asked(n=len(recordings))
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(parts, admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        for recording in recordings:
            began_s = await client.speak(recording.pcm)
            sound_s = await client.until(AudioFrame, began_s)
            final_s, text = client.final(began_s)
            asked.errors += word_errors(recording.text, text)
            asked.n_words += len(words(recording.text))
            if sound_s is None or not text:
                continue
            asked.finals.append(final_s - began_s - recording.end_s)
            asked.sounds.append(sound_s - began_s - recording.end_s)
            await client.until(TurnDone, sound_s)
        reader.cancel()
        sessions.stop()
    return asked


async def interrupt(opening: Said, recordings: Sequence[Said], parts: Parts) -> dict[str, Any]:
    """Any: figures as JSON."""
    pauses: list[float] = []
    stops: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(parts, admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        began_s = await client.speak(opening.pcm)
        for recording in recordings:
            await client.until(AudioFrame, began_s)
            await asyncio.sleep(2.5)
            began_s = await client.speak(recording.pcm)
            for kind, found in ((PlayoutPaused, pauses), (Interrupted, stops)):
                at = await client.until(kind, began_s, 5.0)
                if at is not None:
                    found.append(at - began_s - recording.begin_s)
        reader.cancel()
        sessions.stop()
    return {"interruptions": len(recordings), "paused_ms": quantiles(pauses), "stopped_ms": quantiles(stops), "stopped": len(stops)}


async def cpu_of(pcm: bytes, parts: Parts, pids: Sequence[int]) -> float:
    """CPU seconds of gateway and ears for each second of a session that hears this."""
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(parts, admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        before = sum(map(cpu_s, pids))
        await client.speak(pcm)
        used = sum(map(cpu_s, pids)) - before
        reader.cancel()
        sessions.stop()
    return round(used / (len(pcm) / 2 / RATE_HZ), 3)


def cpu_s(pid: int) -> float:
    """What a process has used so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def admitting(n_sessions: int = 4) -> Admission:
    admission = Admission(n_sessions)
    admission.is_ready = True
    return admission


def quantiles(seconds: Sequence[float]) -> dict[str, int]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "p50": round(1000 * statistics.median(ordered)),
        **{f"p{p}": round(1000 * ordered[int(p / 100 * (len(ordered) - 1) + 0.5)]) for p in (95, 99)},
    }


def outcomes(metrics: Metrics) -> dict[str, int]:
    """What became of the drafts."""
    return {
        sample.labels["outcome"]: int(sample.value)
        for family in metrics.listening.speculation.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def show(what: str, figures: dict[str, Any]) -> None:  # Any: figures as JSON
    print(json.dumps({what: figures, "load": round(os.getloadavg()[0], 1)}), flush=True)


class Bench:
    """Real ears, a scripted rest."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears

    async def parts(self, reply: str, *, drafts: bool, hearing: dict[str, float] | None = None) -> Parts:
        model, voices = ScriptedModel([reply], ttft_ms=52, itl_ms=17), ScriptedVoice()
        await model.start()
        await voices.start()
        tree = config.check({"speculation": {"enabled": drafts}, "session": {"max_sessions": 200}, "hearing": hearing or {}})
        now, metrics = asyncio.get_running_loop().time, Metrics(CollectorRegistry())
        return Parts(model=model, voices=voices, metrics=metrics, settings=tree, rules=DEFAULT, now=now, ears=self._ears)

    async def run(self, questions: Sequence[Said], stops: Sequence[Said]) -> None:
        chance = np.random.default_rng(5)
        for noise, heard in (
            ("clean", questions),
            ("20 dB", [noisy(question, 20, chance) for question in questions]),
            ("10 dB", [noisy(question, 10, chance) for question in questions]),
        ):
            for name, drafts in (("with drafts", True), ("without", False)) if noise == "clean" else (("with drafts", True),):
                parts = await self.parts(SHORT, drafts=drafts)
                figures = (await ask(heard, parts)).told()
                show(f"{noise}, {name}", {**figures, "drafts": outcomes(parts.metrics)})
        show("barge-in", await interrupt(questions[0], stops, await self.parts(LONG, drafts=False)))
        speech = b"".join(question.pcm[: int(question.end_s * RATE_HZ) * 2] for question in questions)[: 30 * RATE_HZ * 2]
        pids = [os.getpid(), *(pid for ear in (self._ears.recognizer, self._ears.detector, self._ears.end_of_turn) if (pid := ear.pid))]  # type: ignore[union-attr]  # the packaged ears have processes
        for name, pcm in (("silence", bytes(30 * RATE_HZ * 2)), ("speech", speech)):
            show("cpu", {"heard": name, "seconds_per_session_second": await cpu_of(pcm, await self.parts(SHORT, drafts=True), pids)})


async def bench(n_questions: int) -> None:
    settings = EngineSettings(cache_path=CACHE, asr=AsrSettings(engine="whisper"))
    ears, note = build_ears(settings)
    if ears is None or ears.end_of_turn is None:
        raise SystemExit(note)
    made = await spoken([*QUESTIONS, *INTERRUPTIONS])
    questions, stops = [*made[: len(QUESTIONS)], *recorded()], made[len(QUESTIONS) :] * 3
    every = max(1, len(questions) // n_questions)
    await asyncio.gather(ears.recognizer.start(), ears.detector.start(), ears.end_of_turn.start())
    show("ears", {"are": note, "cores": os.cpu_count(), "questions": len(questions[::every])})
    await Bench(ears).run(questions[::every], stops)
    await asyncio.gather(ears.recognizer.close(), ears.detector.close(), ears.end_of_turn.close())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=30, help="how many of them")
    asked = parser.parse_args()
    asyncio.run(bench(asked.questions))


if __name__ == "__main__":
    main()
