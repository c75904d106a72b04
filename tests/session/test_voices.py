"""Who speaks each segment of a reply, who steps in, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.api import EngineError, EngineNotReady
from engine.fake import ScriptedVoice
from engine.tts.chain import VoiceChain
from engine.tts.phrases import KeptPhrases
from gateway.events import (
    AudioFrame,
    Cancel,
    ErrorRaised,
    Interrupted,
    Say,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    SendText,
    StartSession,
    TurnDone,
)
from gateway.speech.markup import DEFAULT
from gateway.speech.phrases import spoken_phrases
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import Mishap, ToneVoice
from tests.session.stage import Stage, stage

REPLY = "Every sentence arrives whole today. The second one follows the first."
MIXED = "Here is what she said to me. 你好，很高兴见到你。 It means that she is glad. 我们说 Python 吧。"


@asynccontextmanager
async def spoken(
    reply: str,
    *voices: ToneVoice,
    start: StartSession = StartSession(),  # noqa: B008  # frozen
) -> AsyncGenerator[Stage, None]:
    chain = VoiceChain(voices)
    await chain.start()
    async with stage([reply], voices=chain, start=start) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(TurnDone)
        yield scene


def tones(scene: Stage) -> list[int]:
    return listen(b"".join(frame.data for frame in scene.of(AudioFrame)))


def counted(scene: Stage, name: str, **labels: str) -> float:
    return scene.parts.metrics.registry.get_sample_value(name, labels) or 0.0


def n_kept(folder: Path) -> int:
    return len(list(folder.iterdir()))


async def test_the_voice_that_steps_in_is_told_and_counted() -> None:
    first, second = ToneVoice("first"), ToneVoice("second")
    first.mishaps.append(Mishap(error=EngineNotReady("gone")))
    async with spoken(REPLY, first, second) as scene:
        assert [(event.index, event.voice) for event in scene.of(SegmentAudio)] == [(0, "second/0"), (1, "second/0")]
        assert [done.status for done in scene.of(SegmentDone)] == ["ok", "ok"]
        assert counted(scene, "stretto_tts_voice_changes_total", asked="first", spoken_by="second") == 2
        assert counted(scene, "stretto_tts_faults_total", engine="first", kind="not_ready") == 1
        assert counted(scene, "stretto_tts_rests_total", engine="first") == 1
        assert counted(scene, "stretto_tts_first_chunk_seconds_count", engine="second") == 2


async def test_a_voice_that_finishes_anothers_segment_is_told_where_it_begins() -> None:
    first, second = ToneVoice("first"), ToneVoice("second")
    first.mishaps.extend([Mishap(error=EngineNotReady("gone"), words=2)])
    async with spoken(REPLY, first, second) as scene:
        events = [event for _, _, event in scene.frames if isinstance(event, SegmentAudio | AudioFrame) and event.index == 0]
        voices = [event.voice for event in events if isinstance(event, SegmentAudio)]
        assert voices == ["first/0", "second/0"]
        place = next(i for i, event in enumerate(events) if isinstance(event, SegmentAudio) and event.voice == "second/0")
        assert isinstance(events[place - 1], AudioFrame)
        assert tones(scene) == [tone_of(word) for word in words_of(REPLY)], "no word lost, none said twice"
        assert [done.status for done in scene.of(SegmentDone)] == ["ok", "ok"]


async def test_a_segment_that_nobody_could_finish_has_failed_and_the_next_one_goes_on() -> None:
    only = ToneVoice("only")
    only.mishaps.extend([Mishap(error=EngineError("broken"), words=2), Mishap(error=EngineError("broken"))])
    async with spoken(REPLY, only) as scene:
        assert [done.status for done in scene.of(SegmentDone)] == ["failed", "ok"]
        assert scene.of(SegmentDone)[0].audio_ms > 0
        assert [error.code for error in scene.of(ErrorRaised)] == ["tts_failed"]
        assert (
            counted(scene, "stretto_tts_errors_total", engine="only", kind="failed")
            + counted(scene, "stretto_tts_errors_total", engine="only", kind="cut")
            == 1
        )


@pytest.mark.parametrize(("language", "home"), [("en", "en/0"), ("zh-CN", "zh/0")])
async def test_a_reply_in_two_languages_changes_its_voice_by_the_clause(language: str, home: str) -> None:
    english, chinese = ToneVoice("en"), ToneVoice("zh", ("zh",))
    async with spoken(MIXED, english, chinese, start=StartSession(language=language)) as scene:
        assert scene.session.profile.voice == home
        texts = {event.index: event.text.strip() for event in scene.of(SegmentDecided)}
        voices = {texts[event.index]: event.voice for event in scene.of(SegmentAudio)}
        chinese_text = {text for text in texts.values() if any(sign >= "\u4e00" for sign in text)}
        assert {text for text, voice in voices.items() if voice == "zh/0"} == chinese_text
        assert all(synthesis.language == "zh" for synthesis in chinese.requests)
        assert all(synthesis.language == "en" for synthesis in english.requests)
        assert {done.status for done in scene.of(SegmentDone)} == {"ok"}


async def test_a_single_foreign_word_does_not_change_the_voice() -> None:
    english, chinese = ToneVoice("en"), ToneVoice("zh", ("zh",))
    async with spoken("我喜欢 Python。OK。再见。", english, chinese, start=StartSession(language="zh")) as scene:
        assert {event.voice for event in scene.of(SegmentAudio)} == {"zh/0"}


async def test_a_script_that_nobody_reads_is_shown_and_not_spoken() -> None:
    async with spoken("He says. Привет, как дела сегодня? That was it.", ToneVoice("en"), ToneVoice("zh", ("zh",))) as scene:
        statuses = {scene.of(SegmentDecided)[done.index].text.strip()[:4]: done.status for done in scene.of(SegmentDone)}
        assert statuses == {"He s": "ok", "Прив": "no_voice", "That": "ok"}
        assert not scene.of(ErrorRaised)


async def test_voices_are_told_ahead_what_they_will_have_to_speak() -> None:
    english, chinese = ToneVoice("en"), ToneVoice("zh", ("zh",))
    async with spoken("Now then. 你好，很高兴见到你。", english, chinese) as scene:
        assert len(scene.of(SegmentAudio)) >= 2
        assert english.expected[:2] == ["en/0", "en/0"], "when the turn begins, and when its segment is decided"
        assert chinese.expected == ["zh/0"] * len(chinese.requests)


async def test_a_configured_greeting_is_made_once_whatever_it_is_written_like(tmp_path: Path) -> None:
    greeting, voice = "Hello! You have 3 new messages, **Anna**. 你好，很高兴见到你。", ToneVoice("first")
    texts = spoken_phrases([greeting], ["en", "zh"], DEFAULT, early_first=True)
    kept = KeptPhrases(VoiceChain([voice, ToneVoice("zh", ("zh",))]), tmp_path, texts)
    await kept.start()
    async with stage(voices=kept) as scene:
        sounds = []
        for turn in (1, 2):
            scene.send(Say(text=greeting))
            await scene.until(TurnDone, turn)
            sounds.append(b"".join(frame.data for frame in scene.of(AudioFrame, turn)))
        n_segments = len(scene.of(SegmentDone, 1))
        assert n_segments >= 2
        assert n_kept(tmp_path) == n_segments, "every segment of it is on disk"
        assert len({synthesis.text for synthesis in voice.requests}) == len(voice.requests), "no text was asked for twice"
        assert sounds[0] == sounds[1] != b""
        scene.send(Say(text="Something else."))
        await scene.until(TurnDone, 3)
        assert n_kept(tmp_path) == n_segments, "what is not configured is never written"


async def test_no_audio_leaves_after_a_cancel() -> None:
    long = " ".join(["Word after word goes by in this sentence."] * 8)
    async with stage([long], voice=ScriptedVoice(rtf=0.01)) as scene:
        for moment_ms in (70, 130, 400, 1500):
            n_turns = len(scene.of(TurnDone))
            scene.send(SendText(text="Go on."))
            await scene.until(AudioFrame, n_turns + 1)
            await asyncio.sleep(moment_ms / 1000)
            canceled_at = scene.time()
            scene.send(Cancel())
            await scene.until(TurnDone, n_turns + 1)
            last = max(at for at, _, event in scene.frames if isinstance(event, AudioFrame) and event.turn == n_turns + 1)
            assert last <= canceled_at + 0.02
            assert scene.when(Interrupted, n_turns + 1) <= canceled_at + 0.02
