"""What the process does beside its conversations."""

from __future__ import annotations

from pathlib import Path

from engine.fake import ScriptedVoice
from engine.tts.phrases import KeptPhrases
from gateway.monitor import keep_phrases


def n_kept(folder: Path) -> int:
    return len(list(folder.glob("*.phrase")))


async def test_configured_phrases_are_made_before_somebody_waits(tmp_path: Path) -> None:
    voice = ScriptedVoice(first_chunk_ms=1, rtf=0.001)
    await voice.start()
    await keep_phrases(KeptPhrases(voice, tmp_path, ["Hello there.", "One moment."]), "", "en")
    assert sorted(request.text for request in voice.requests) == ["Hello there.", "One moment."]
    assert n_kept(tmp_path) == 2


async def test_voices_without_phrases_are_left_alone() -> None:
    voice = ScriptedVoice()
    await voice.start()
    await keep_phrases(voice, "", "en")
    assert not voice.requests


async def test_a_voice_that_fails_on_a_phrase_keeps_the_gateway_going(tmp_path: Path) -> None:
    voice = ScriptedVoice()
    await keep_phrases(KeptPhrases(voice, tmp_path, ["Hello there."]), "", "en")
    assert n_kept(tmp_path) == 0
