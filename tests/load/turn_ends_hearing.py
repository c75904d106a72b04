"""What the real ears make of the silences in `turn_ends.tsv`: speaks each utterance up to each pause, asks smart-turn and Whisper.

Run: `python -m tests.load.turn_ends_hearing [--halves abc]` (about 25 minutes on two cores; Piper, Kokoro, their weights and
`stretto[local-zh]`). Writes `turn_ends_heard.tsv`, which the bench and its test read. What stands before a pause is spoken as a text that
ends in a comma, so that the voice stays up; the parts are joined with 700 ms of silence. Recordings (Debian's pocketsphinx-testdata) are
cut at their own pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import wave
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
from msgspec import Struct

from engine.api import Synthesis, Synthesizer, Transcription
from engine.asr.whisper import Whisper
from engine.end_of_turn import SmartTurn
from engine.tts.kokoro import Kokoro
from engine.tts.piper import Piper
from engine.weights import KOKORO, PIPER_JOE, SMART_TURN, WHISPER_BASE, fetch
from tests.e2e.local_engines import CACHE, weights
from tests.load.turn_ends_bench import RIVAL

SET = Path(__file__).with_name("turn_ends.tsv")
HEARD = Path(__file__).with_name("turn_ends_heard.tsv")
RECORDINGS = Path("/usr/share/pocketsphinx/test/data")  # BSD-2
HZ = 16_000
BEFORE_MS, BETWEEN_MS = 300, 700
READ_MS = 130  # of silence that Whisper gets: the detector's lateness (60 to 90 ms) and `likely_ms`
SCORED_MS = 180  # that smart-turn gets: the same and `score_ms`
VOICES = {  # each half has voices of its own
    ("a", "en"): ("piper/en_US-joe-medium", "kokoro/af_heart"),
    ("a", "zh"): ("kokoro/zf_xiaobei", "kokoro/zm_yunyang"),
    ("b", "en"): ("kokoro/bf_emma", "kokoro/am_michael"),
    ("b", "zh"): ("kokoro/zm_yunxi", "kokoro/zf_xiaoni"),
    ("c", "en"): ("kokoro/bm_george", "kokoro/af_bella"),
    ("c", "zh"): ("kokoro/zm_yunjian", "kokoro/zf_xiaoyi"),
}
RECORDED = {  # file -> half, kind, and whether it ends as a speaker ends
    "librivox/sense_and_sensibility_01_austen_64kb-0870.wav": ("a", "recorded", True),
    "librivox/sense_and_sensibility_01_austen_64kb-0880.wav": ("b", "recorded", True),
    "librivox/sense_and_sensibility_01_austen_64kb-0890.wav": ("b", "recorded", True),
    "librivox/sense_and_sensibility_01_austen_64kb-0920.wav": ("a", "recorded", True),
    "librivox/sense_and_sensibility_01_austen_64kb-0930.wav": ("c", "recorded", True),
    "cards/001.wav": ("a", "recorded", True),
    "cards/002.wav": ("b", "recorded", True),
    "cards/003.wav": ("c", "recorded", True),
    "cards/005.wav": ("a", "recorded", True),
    "goforward.raw": ("b", "recorded", True),
    "something.raw": ("c", "recorded", True),
    "numbers.raw": ("b", "dictation", True),
}
HEAD = """\
# half	kind	language	voice	end (1) or pause (0)	smart-turn's score	what is said	what Whisper read	its certainty	rivals
# Made by `python -m tests.load.turn_ends_hearing`: smart-turn v3.2 (cpu), Whisper base (int8); spoken by Piper (joe), Kokoro v1.0 (int8);
# recordings: Debian's pocketsphinx-testdata 0.8+5prealpha+1-15 (LibriVox and card games, BSD-2). None of the audio is kept.
"""


class Silence(Struct, frozen=True):
    """One silence within or behind an utterance, and all audio before it."""

    half: str
    kind: str
    language: str
    voice: str
    is_end: bool
    said: str
    pcm: bytes


def utterances(halves: str) -> Iterator[tuple[str, str, str, list[str]]]:
    for line in SET.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            kind, language, half, said = line.split("\t")
            if half in halves:
                yield half, kind, language, said.split(" / ")


@asynccontextmanager
async def voices() -> AsyncIterator[list[Synthesizer]]:
    names = [name.partition("/")[2] for names in VOICES.values() for name in names if name.startswith("kokoro/")]
    made: list[Synthesizer] = [Piper([weights(PIPER_JOE)]), Kokoro(fetch(KOKORO, CACHE, print), names)]
    for engine in made:
        await engine.start()
    yield made
    for engine in made:
        await engine.close()


async def speak(engines: Sequence[Synthesizer], text: str, voice: str, language: str) -> bytes:
    """Without the silence at its ends."""
    engine = next(engine for engine in engines if voice in {known.id for known in engine.voices()})
    wanted = Synthesis(request_id=text, text=text, voice=voice, language=language, sample_rate_hz=HZ)
    async with aclosing(engine.synthesize(wanted)) as chunks:
        pcm = b"".join([chunk.pcm async for chunk in chunks])
    return trimmed(pcm)


def trimmed(pcm: bytes) -> bytes:
    samples = np.frombuffer(pcm, "<i2")
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 330)
    return samples[loud[0] : loud[-1] + 1].tobytes() if len(loud) else b""


def still(ms: float) -> bytes:
    return bytes(round(ms * HZ / 1000) * 2)


async def spoken(halves: str) -> AsyncIterator[Silence]:
    async with voices() as engines:
        for half, kind, language, parts in utterances(halves):
            for voice in VOICES[half, language]:
                pcm = still(BEFORE_MS)
                for n, part in enumerate(parts, 1):
                    is_end = n == len(parts)
                    text = part if is_end else part.rstrip(" ,，、.。") + ("，" if language == "zh" else ",")
                    pcm += await speak(engines, text, voice, language)
                    said = ("" if language == "zh" else " ").join(parts[:n])
                    yield Silence(half, kind, language, voice, is_end, said, pcm)
                    pcm += still(BETWEEN_MS)


def recorded(halves: str) -> Iterator[Silence]:
    """The silences of 200 ms and more in each recording, found by loudness, and its end."""
    for name, (half, kind, is_end) in RECORDED.items():
        if half not in halves:
            continue
        pcm = trimmed(samples_of(RECORDINGS / name))
        for pause in pauses(pcm):
            yield Silence(half, kind, "en", name, False, "", still(BEFORE_MS) + pcm[:pause])
        yield Silence(half, kind, "en", name, is_end, "", still(BEFORE_MS) + pcm)


def samples_of(path: Path) -> bytes:
    if path.suffix == ".raw":
        return path.read_bytes()
    with wave.open(str(path)) as file:
        return bytes(file.readframes(file.getnframes()))


def pauses(pcm: bytes) -> list[int]:
    """Where in the bytes 200 ms and more of quiet begin, by spans of 20 ms below a tenth of the usual loudness."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    spans = samples[: len(samples) // 320 * 320].reshape(-1, 320)
    loudness = np.sqrt(np.square(spans).mean(axis=1))
    is_quiet = loudness < 0.1 * np.percentile(loudness, 80)
    found, run = [], 0
    for at, quiet in enumerate(is_quiet):
        run = run + 1 if quiet else 0
        if run == 10:
            found.append((at - 9) * 640)
    return [place for place in found if 16_000 < place < len(pcm) - 32_000]  # the last second is the end, with its breath and room


async def main(halves: str, only_recorded: bool) -> None:
    recognizer, judge = Whisper(fetch(WHISPER_BASE, CACHE, print)), SmartTurn(weights(SMART_TURN))
    await asyncio.gather(recognizer.start(), judge.start())
    known = HEARD.read_text("utf-8").splitlines() if HEARD.exists() else []
    kept = [
        line
        for line in known
        if line[:1] not in halves + "#" or (only_recorded and line[:1] != "#" and line.split("\t")[3] not in RECORDED)
    ]
    lines: list[str] = []

    async def hear(silence: Silence) -> None:
        wanted = Transcription(
            utterance=f"{len(lines)}", session="s", pcm=silence.pcm + still(READ_MS), language=silence.language, is_final=True
        )
        transcript = await recognizer.transcribe(wanted)
        score = await judge.score(silence.pcm + still(SCORED_MS))
        text = "" if transcript is None else transcript.text
        columns = (
            silence.half,
            silence.kind,
            silence.language,
            silence.voice,
            str(int(silence.is_end)),
            f"{score:.3f}",
            silence.said,
            text,
            "" if transcript is None or transcript.certainty is None else f"{transcript.certainty:.2f}",
            "" if transcript is None else RIVAL.join(transcript.rivals),
        )
        lines.append("\t".join(columns))
        print(lines[-1], file=sys.stderr, flush=True)

    if not only_recorded:
        async for silence in spoken(halves):
            await hear(silence)
    for silence in recorded(halves):
        await hear(silence)
    await asyncio.gather(recognizer.close(), judge.close())
    HEARD.write_text(HEAD + "\n".join(sorted([*kept, *lines])) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halves", default="abc", help="which to hear anew; the others are kept")
    parser.add_argument("--recorded", action="store_true", help="the recordings alone; what was spoken is kept")
    asked = parser.parse_args()
    asyncio.run(main(asked.halves, asked.recorded))
