"""Spoken questions through the real ears of this machine (Whisper, Silero, smart-turn), answered by a scripted model and voice.

Run: `python -m tests.load.spoken_bench --voice VOICE.onnx [--recordings FOLDER]`. The questions are spoken by Piper; FOLDER holds further
WAV files. Prints JSON: end of speech to final text and to first sound, with drafts and without; pauses and stops of a reply; word errors.
End of speech is the last sample above 1 % of full scale. The weights are those of `stretto fetch`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import wave
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from prometheus_client import CollectorRegistry

from engine.api import Synthesis
from engine.audio import Resampler
from engine.build_listening import build_ears
from engine.fake import ScriptedModel, ScriptedVoice
from engine.settings import AsrSettings, EngineSettings
from engine.tts.piper import Piper
from gateway import config
from gateway.admission import Admission
from gateway.events import AppendAudio, AudioFrame, AudioIn, Interrupted, PlayoutPaused, ServerEvent, StartSession, Transcribed, TurnDone
from gateway.metrics import Metrics
from gateway.sessions import Sessions
from gateway.speech.markup import DEFAULT
from gateway.turn import Parts

QUESTIONS = (
    "What is the weather like tomorrow?", "Tell me a story about a dragon.", "How far is it to the moon?", "Who wrote Hamlet?",
    "What should I cook for dinner tonight?", "Set a timer for ten minutes.", "Why is the sky blue?", "Play some music in the kitchen.",
    "How do I get to the train station?", "What is the capital of Australia?", "Can you help me with my homework?",
    "Read me the news, please.",
)  # fmt: skip
INTERRUPTIONS = ("Stop, that is enough for now.", "Wait, I have another question.", "No, tell me something else instead.")
LONG = " ".join(["This is one of the many sentences of a rather long reply about the sea."] * 12)
SHORT = "The sea covers most of our planet. Its deepest valley lies almost eleven kilometers down."
CACHE = config.Settings().cache_path
RATE_HZ = 16_000
FRAME = 640
LOUD = 328


class Said(Struct, frozen=True):
    """A recording: its words where they are known, mono s16le at 16 kHz, and where its sound begins and ends in seconds."""

    text: str | None
    pcm: bytes
    begin_s: float
    end_s: float


def said(text: str | None, pcm: bytes) -> Said:
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > LOUD)
    return Said(text, pcm, float(loud[0]) / RATE_HZ, float(loud[-1]) / RATE_HZ)


async def spoken(voice: Path, texts: Sequence[str]) -> list[Said]:
    piper = Piper((voice,))
    await piper.start()
    found = []
    for text in texts:
        wanted = Synthesis(request_id=text, text=text, voice=piper.voices()[0].id, language="en", sample_rate_hz=RATE_HZ)
        async with aclosing(piper.synthesize(wanted)) as chunks:
            found.append(said(text, b"".join([chunk.pcm async for chunk in chunks])))
    await piper.close()
    return found


def recorded(folder: Path) -> list[Said]:
    found = []
    for path in sorted(folder.rglob("*.wav")):
        with wave.open(str(path)) as file:
            resampler = Resampler(file.getframerate(), RATE_HZ)
            found.append(said(None, resampler.feed(file.readframes(file.getnframes())) + resampler.flush()))
    return found


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

    async def speak(self, recording: Said, tail_s: float = 2.0) -> float:
        """The moment at which the recording began; returns after it and some silence."""
        data, began_s = recording.pcm + bytes(int(tail_s * RATE_HZ) * 2), self._now()
        for n, start in enumerate(range(0, len(data), FRAME)):
            await asyncio.sleep(max(0.0, began_s + n * 0.02 - self._now()))
            self.session.receive(AppendAudio(data=data[start : start + FRAME], pts_ms=0))
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


async def ask(recordings: Sequence[Said], parts: Parts) -> dict[str, Any]:
    """Any: figures as JSON."""
    finals: list[float] = []
    sounds: list[float] = []
    errors = n_words = 0
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(parts, admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        for recording in recordings:
            began_s = await client.speak(recording)
            sound_s = await client.until(AudioFrame, began_s)
            heard = [(at, e) for at, e in client.arrived if at >= began_s and isinstance(e, Transcribed) and e.final]
            if sound_s is None or not heard:
                continue
            finals.append(heard[-1][0] - began_s - recording.end_s)
            sounds.append(sound_s - began_s - recording.end_s)
            if recording.text is not None:
                errors += word_errors(recording.text, " ".join(event.text for _, event in heard))
                n_words += len(words(recording.text))
            await client.until(TurnDone, sound_s)
        reader.cancel()
        sessions.stop()
    return {
        "answered": len(sounds),
        "of": len(recordings),
        "final_text_ms": quantiles(finals),
        "first_sound_ms": quantiles(sounds),
        "word_errors_percent": round(100 * errors / max(1, n_words), 1),
    }


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
        began_s = await client.speak(opening)
        for recording in recordings:
            await client.until(AudioFrame, began_s)
            await asyncio.sleep(2.5)
            began_s = await client.speak(recording, tail_s=2.5)
            for kind, found in ((PlayoutPaused, pauses), (Interrupted, stops)):
                at = await client.until(kind, began_s, 5.0)
                if at is not None:
                    found.append(at - began_s - recording.begin_s)
        reader.cancel()
        sessions.stop()
    return {"interruptions": len(recordings), "paused_ms": quantiles(pauses), "stopped_ms": quantiles(stops), "stopped": len(stops)}


def admitting() -> Admission:
    admission = Admission(4)
    admission.is_ready = True
    return admission


def quantiles(seconds: Sequence[float]) -> dict[str, int]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {"p50": round(1000 * statistics.median(ordered)), "p95": round(1000 * ordered[int(0.95 * (len(ordered) - 1) + 0.5)])}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower().replace("10", "ten"))


def word_errors(said: str, heard: str) -> int:
    row = list(range(len(words(heard)) + 1))
    for i, one in enumerate(words(said), 1):
        above, row[0] = row[0], i
        for j, other in enumerate(words(heard), 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (one != other))
    return row[-1]


async def bench(voice: Path, folder: Path | None) -> None:
    texts = [*QUESTIONS, *INTERRUPTIONS]
    recordings = await spoken(voice, texts)
    questions, stops = recordings[: len(QUESTIONS)], recordings[len(QUESTIONS) :]
    if folder is not None:
        questions = [*questions, *recorded(folder)]
    settings = EngineSettings(cache_path=CACHE, asr=AsrSettings(engine="whisper"))
    ears, note = build_ears(settings)
    if ears is None or ears.end_of_turn is None:
        raise SystemExit(note)
    await asyncio.gather(ears.recognizer.start(), ears.detector.start(), ears.end_of_turn.start())
    print(json.dumps({"ears": note, "cores": os.cpu_count(), "load": [round(load, 1) for load in os.getloadavg()]}))
    model, voices = ScriptedModel([SHORT], ttft_ms=52, itl_ms=17), ScriptedVoice()
    await model.start()
    await voices.start()
    now = asyncio.get_running_loop().time
    for name, is_on in (("with drafts", True), ("without", False)):
        metrics = Metrics(CollectorRegistry())
        parts = Parts(
            model=model,
            voices=voices,
            metrics=metrics,
            settings=config.check({"speculation": {"enabled": is_on}}),
            rules=DEFAULT,
            now=now,
            ears=ears,
        )
        figures = await ask(questions, parts)
        figures["drafts"] = {
            sample.labels["outcome"]: int(sample.value)
            for family in metrics.listening.speculation.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        }
        print(json.dumps({name: figures}))
    talker = ScriptedModel([LONG], ttft_ms=52, itl_ms=17)
    await talker.start()
    tree = config.check({"speculation": {"enabled": False}})
    parts = Parts(model=talker, voices=voices, metrics=Metrics(CollectorRegistry()), settings=tree, rules=DEFAULT, now=now, ears=ears)
    print(json.dumps(await interrupt(questions[0], [*stops, *stops, *stops], parts)))
    await asyncio.gather(ears.recognizer.close(), ears.detector.close(), ears.end_of_turn.close())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, required=True, help="a Piper voice, with its .onnx.json beside it")
    parser.add_argument("--recordings", type=Path, help="further WAV files, mono")
    asked = parser.parse_args()
    asyncio.run(bench(asked.voice, asked.recordings))


if __name__ == "__main__":
    main()
