"""Thirty spoken questions: 24 spoken by Piper and, where its weights are, Kokoro; six recordings of Debian's pocketsphinx-testdata.

Clean, or in white noise of 20 or 10 dB below the speech, which goes on in the silence before and behind it.
"""

from __future__ import annotations

import contextlib
import re
import wave
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from engine.api import EngineSetupError, Synthesis, Synthesizer
from engine.tts.kokoro import Kokoro
from engine.tts.piper import Piper
from engine.weights import KOKORO, PIPER_JOE, fetch, locate
from gateway import config

QUESTIONS = (
    "What is the weather like tomorrow?", "Tell me a story about a dragon.", "How far is it to the moon?", "Who wrote Hamlet?",
    "What should I cook for dinner tonight?", "Set a timer for ten minutes.", "Why is the sky blue?", "Play some music in the kitchen.",
    "How do I get to the train station?", "What is the capital of Australia?", "Can you help me with my homework?",
    "Read me the news, please.", "When does the next bus leave?", "How many people live in Japan?", "Turn off the light in the hall.",
    "Do I need an umbrella today?", "What does this word mean?", "Call my sister, please.", "Is there a pharmacy near here?",
    "How long do I have to boil an egg?", "Wake me up at seven.", "Which team won the game last night?", "Add milk to the shopping list.",
    "Could you speak a little slower?",
)  # fmt: skip
INTERRUPTIONS = ("Stop, that is enough for now.", "Wait, I have another question.", "No, tell me something else instead.")
RECORDINGS = Path("/usr/share/pocketsphinx/test/data")  # BSD-2
CACHE = config.Settings().cache_path
RATE_HZ = 16_000
LOUD = 328  # 1 % of full scale: where sound begins and ends
TAIL_S = 2.0  # of silence behind an utterance
KOKORO_VOICES = ("af_heart", "bm_george")


class Said(Struct, frozen=True):
    """An utterance and its tail: its words, mono s16le at 16 kHz, and where its sound begins and ends in seconds."""

    text: str
    pcm: bytes
    begin_s: float
    end_s: float


def said(text: str, pcm: bytes) -> Said:
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > LOUD)
    return Said(text, pcm + bytes(int(TAIL_S * RATE_HZ) * 2), float(loud[0]) / RATE_HZ, float(loud[-1]) / RATE_HZ)


def noisy(utterance: Said, snr_db: float, chance: np.random.Generator) -> Said:
    """The same in noise so far below the loudness of its speech."""
    samples = np.frombuffer(utterance.pcm, "<i2").astype(np.float64)
    speech = samples[int(utterance.begin_s * RATE_HZ) : int(utterance.end_s * RATE_HZ)]
    loudness = float(np.sqrt(np.square(speech).mean())) / 10 ** (snr_db / 20)
    return structs.replace(utterance, pcm=to_pcm(samples + chance.standard_normal(len(samples)) * loudness))


def to_pcm(samples: NDArray[np.float64]) -> bytes:
    return bytes(samples.clip(-32_768, 32_767).astype("<i2").tobytes())


async def spoken(texts: Sequence[str], *, by_all: bool = True) -> list[Said]:
    """By the voices that are here, in turn; or by Piper alone, which takes a tenth of the time."""
    engines: list[Synthesizer] = [Piper([fetch(PIPER_JOE, CACHE, print) / PIPER_JOE.files[0].name])]
    if by_all:
        with contextlib.suppress(EngineSetupError):  # its weights are not here
            engines.append(Kokoro(locate(KOKORO, CACHE), KOKORO_VOICES))
    for engine in engines:
        await engine.start()
    voices = [(engine, voice.id) for engine in engines for voice in engine.voices()]
    found = []
    for n, text in enumerate(texts):
        engine, voice = voices[n % len(voices)]
        wanted = Synthesis(request_id=text, text=text, voice=voice, language="en", sample_rate_hz=RATE_HZ)
        async with aclosing(engine.synthesize(wanted)) as chunks:
            found.append(said(text, b"".join([chunk.pcm async for chunk in chunks])))
    for engine in engines:
        await engine.close()
    return found


def recorded() -> list[Said]:
    """Five sentences read aloud and one command; none where they are not installed."""
    table = RECORDINGS / "librivox" / "transcription"
    if not table.exists():
        return []
    found = [said("go forward ten meters", (RECORDINGS / "goforward.raw").read_bytes())]
    for text, name in re.findall(r"<s> (.*?) </s> \((.*?)\)", table.read_text()):
        with wave.open(str(table.with_name(f"{name}.wav"))) as file:
            found.append(said(text, file.readframes(file.getnframes())))
    return found


def words(text: str) -> list[str]:
    text = text.lower().replace("10", "ten").replace("mr.", "mister").replace("-", " ")
    return re.findall(r"[a-z']+", text.replace("7", "seven"))


def word_errors(text: str, heard: str) -> int:
    """Words to be changed, left out or put in."""
    row = list(range(len(words(heard)) + 1))
    for i, one in enumerate(words(text), 1):
        above, row[0] = row[0], i
        for j, other in enumerate(words(heard), 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (one != other))
    return row[-1]
