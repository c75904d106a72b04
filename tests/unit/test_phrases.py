"""Configured phrases are made once; nothing else touches the disk."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from engine.api import EngineError, SpeechChunk, Style, Synthesis
from engine.tts.phrases import KeptPhrases
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import Mishap, ToneVoice

GREETING = "Hello, how can I help?"


def ask(text: str = GREETING, **more: object) -> Synthesis:
    return Synthesis(request_id="r", text=text, voice="first/0", language="en", **more)  # type: ignore[arg-type]  # keywords of the test


async def collect(voices: KeptPhrases, synthesis: Synthesis) -> list[SpeechChunk]:
    async with aclosing(voices.synthesize(synthesis)) as stream:
        return [chunk async for chunk in stream]


def kept_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.phrase"))


def cut_short(path: Path, data: bytes | None) -> None:
    path.write_bytes(path.read_bytes()[:-10] if data is None else data)


@pytest.fixture
def voice() -> ToneVoice:
    return ToneVoice("first")


@pytest.fixture
def kept(voice: ToneVoice, tmp_path: Path) -> KeptPhrases:
    return KeptPhrases(voice, tmp_path / "phrases", [GREETING])


async def test_a_phrase_is_made_once_and_sounds_the_same(kept: KeptPhrases, voice: ToneVoice) -> None:
    first, second = await collect(kept, ask()), await collect(kept, ask())
    assert len(voice.requests) == 1
    assert b"".join(c.pcm for c in first) == b"".join(c.pcm for c in second)
    assert [word for c in first for word in c.words] == [word for c in second for word in c.words]
    assert listen(b"".join(c.pcm for c in second)) == [tone_of(word) for word in words_of(GREETING)]
    assert {c.voice for c in second} == {"first/0"}
    assert len(second) > 3


async def test_another_style_or_rate_is_another_sound(kept: KeptPhrases, voice: ToneVoice) -> None:
    for wanted in (ask(), ask(style=Style(rate=1.1)), ask(sample_rate_hz=16_000), ask(encoding="mp3")):
        await collect(kept, wanted)
    assert len(voice.requests) == 4


async def test_what_is_not_configured_is_never_written(kept: KeptPhrases, voice: ToneVoice, tmp_path: Path) -> None:
    for _ in range(2):
        await collect(kept, ask("My secret is safe."))
    assert len(voice.requests) == 2
    assert kept_files(tmp_path) == []


@pytest.mark.parametrize("spoil", [b"", b"garbage", None])
async def test_a_broken_file_is_made_anew(kept: KeptPhrases, voice: ToneVoice, tmp_path: Path, spoil: bytes | None) -> None:
    await collect(kept, ask())
    (path,) = kept_files(tmp_path)
    cut_short(path, spoil)
    await collect(kept, ask())
    await collect(kept, ask())
    assert len(voice.requests) == 2


async def test_a_phrase_that_was_not_finished_is_not_kept(kept: KeptPhrases, voice: ToneVoice, tmp_path: Path) -> None:
    stream = kept.synthesize(ask())
    await anext(stream)
    await stream.aclose()
    voice.mishaps.append(Mishap(error=EngineError("x"), words=2))
    with pytest.raises(EngineError):
        await collect(kept, ask())
    assert kept_files(tmp_path) == []


async def test_a_folder_that_cannot_be_written_costs_no_speech(voice: ToneVoice, tmp_path: Path) -> None:
    (tmp_path / "phrases").write_text("a file")
    kept = KeptPhrases(voice, tmp_path / "phrases", [GREETING])
    for _ in range(2):
        assert await collect(kept, ask())
    assert len(voice.requests) == 2


async def test_phrases_can_be_made_ahead(kept: KeptPhrases, voice: ToneVoice) -> None:
    await kept.prepare("first/0", "en", Style(), 24_000)
    await collect(kept, ask())
    assert len(voice.requests) == 1


async def test_the_rest_of_the_promise_is_the_voices(kept: KeptPhrases, voice: ToneVoice) -> None:
    await kept.start()
    kept.expect("first/0")
    assert (kept.name, kept.voices(), kept.health().ready, voice.expected) == ("first", voice.voices(), True, ["first/0"])
    assert kept.can_speak("hi", "first/0")
    await kept.close()
    assert not voice.is_ready
