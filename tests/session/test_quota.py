"""A key that has used what it may: told so, and its other turns go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import convert
from prometheus_client import CollectorRegistry

from engine.fake import ScriptedModel, ScriptedVoice
from engine.fake_listening import Heard
from gateway.admission import Admission
from gateway.auth import Rights
from gateway.config import KeySettings, check
from gateway.errors import UnknownVoice
from gateway.events import (
    AudioFrame,
    Cancel,
    ClearInput,
    ErrorRaised,
    RequestReply,
    Say,
    SendText,
    SpeechStarted,
    StartSession,
    Transcribed,
    TurnDone,
    TurnStarted,
)
from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.quota import LIMITS, Quota, Report, Told
from gateway.sessions import Sessions
from gateway.settling import Settling
from gateway.speech.markup import DEFAULT
from gateway.turn import Parts
from tests.session.microphone import talking
from tests.session.stage import Stage, stage


def refused(scene: Stage) -> float:
    told = scene.parts.metrics.registry.get_sample_value
    return sum(told("stretto_quota_refused_total", {"key": "", "limit": limit}) or 0 for limit in LIMITS)


async def test_one_turn_too_many_is_refused_until_the_minute_is_over() -> None:
    async with stage(limits=KeySettings(key="k", turns_per_min=2)) as scene:
        scene.send(SendText(text="One?", id="a"))
        await scene.until(TurnDone)
        scene.send(Say(text="Two.", id="b"))
        await scene.until(TurnDone, n=2)
        for wish in (SendText(text="Three?", id="c"), Say(text="Three.", id="d"), RequestReply(id="e")):
            scene.send(wish)
            error = await scene.until(ErrorRaised, n=len(scene.of(ErrorRaised)) + 1)
            assert (error.code, error.ref, error.retryable) == ("quota_exceeded", wish.id, True)
        assert refused(scene) == 3
        assert len(scene.session.history) == 3, "a refused text is no item"
        assert error.retry_after_ms is not None
        await asyncio.sleep(error.retry_after_ms / 1000)
        scene.send(SendText(text="Three?", id="f"))
        await scene.until(TurnDone, n=3)


async def test_a_reply_that_uses_the_tokens_up_is_finished_and_the_next_is_refused() -> None:
    async with stage(limits=KeySettings(key="k", tokens_per_h=5)) as scene:
        scene.send(SendText(text="One?"))
        assert (await scene.until(TurnDone)).status == "completed"
        scene.send(SendText(text="Two?"))
        error = await scene.until(ErrorRaised)
        assert (error.code, refused(scene)) == ("quota_exceeded", 1)
        assert "5 tokens an hour" in error.message


async def test_an_interrupted_reply_counts_with_what_was_made_of_it() -> None:
    async with stage(limits=KeySettings(key="k", audio_s_per_h=1)) as scene:
        scene.send(SendText(text="One?"))
        await scene.until(AudioFrame, n=15)
        scene.send(Cancel())
        assert (await scene.until(TurnDone)).status == "interrupted"
        scene.send(SendText(text="Two?"))
        assert "seconds of audio" in (await scene.until(ErrorRaised)).message


async def test_a_spoken_turn_too_many_is_understood_and_refused() -> None:
    async with talking(("One?", "Two?"), limits=KeySettings(key="k", turns_per_min=1)) as (scene, microphone):
        await microphone.say(600)
        await scene.until(TurnDone)
        await microphone.say(600)
        error = await scene.until(ErrorRaised)
        assert error.code == "quota_exceeded"
        last = scene.of(Transcribed)[-1]
        assert (last.final, last.text, last.turn) == (True, "Two?", None), "no turn is promised"
        assert len(scene.of(TurnStarted)) == 1
        await asyncio.sleep(61)
        await microphone.say(600)
        await scene.until(TurnStarted, n=2)


async def test_speech_counts_whether_it_is_answered_refused_or_taken_back() -> None:
    async with talking(("One?", "Two?", "Three?"), limits=KeySettings(key="k", turns_per_min=1)) as (scene, microphone):
        audio = scene.parts.quota.of("").audio_s
        await microphone.say(600)
        await scene.until(TurnDone)
        answered_s = audio.used(scene.parts.now())
        assert answered_s > 0.5 + sum(len(frame.data) for frame in scene.of(AudioFrame)) / 48_000
        await microphone.say(600)
        await scene.until(ErrorRaised)
        refused_s = audio.used(scene.parts.now())
        assert 0.5 < refused_s - answered_s < 1
        microphone.is_speaking = True
        await scene.until(SpeechStarted, n=3)
        await asyncio.sleep(0.6)
        scene.send(ClearInput())
        await asyncio.sleep(0.1)
        assert 0.5 < audio.used(scene.parts.now()) - refused_s < 1


async def test_speech_that_is_not_understood_in_time_counts_for_as_long_as_it_was() -> None:
    lost = Heard(text="One?", final_ms=60_000)
    async with talking((lost,), limits=KeySettings(key="k", audio_s_per_h=100), settings={"hearing": {"final_s": 10.0}}) as (
        scene,
        microphone,
    ):
        await microphone.say(600)
        assert (await scene.until(ErrorRaised)).code == "asr_failed"
        assert 0.5 < scene.parts.quota.of("").audio_s.used(scene.parts.now()) < 2


async def test_a_key_that_may_have_no_turn_has_no_draft() -> None:
    async with talking(("One?", "Two?"), limits=KeySettings(key="k", turns_per_min=1)) as (scene, microphone):
        await microphone.say(600)
        await scene.until(TurnDone)
        tokens = scene.parts.quota.of("").tokens_hour
        before = tokens.used(scene.parts.now())
        assert before > 0
        await microphone.say(600)
        await scene.until(ErrorRaised)
        await asyncio.sleep(5)
        assert tokens.used(scene.parts.now()) == before


class SlowBook:
    """It takes its time, and does not hear who hangs up before it has answered."""

    def __init__(self) -> None:
        self.ledger, self.asked = Ledger(), asyncio.Event()

    async def settle(self, reports: Sequence[Report]) -> Sequence[Told]:
        self.asked.set()
        await asyncio.sleep(0.05)
        return [self.ledger.settle("0", report, asyncio.get_running_loop().time()) for report in reports]


def kept_by(book: SlowBook, **limits: int) -> tuple[Sessions, Quota]:
    """A process that shares the book of the key `kiosk`."""
    now, metrics = asyncio.get_running_loop().time, Metrics(CollectorRegistry())
    quota = Quota({"kiosk": convert({"key": "k", **limits}, KeySettings)}, is_shared=True)
    model, voice = ScriptedModel(), ScriptedVoice()
    parts = Parts(model=model, voices=voice, metrics=metrics, settings=check({}), rules=DEFAULT, now=now, quota=quota)
    return Sessions(parts, Admission(1), settling=Settling(quota, book, metrics.process.quota_alone, now)), quota


async def test_what_the_last_turns_used_is_paid_though_the_process_stops_while_it_pays() -> None:
    book = SlowBook()
    sessions, quota = kept_by(book, tokens_per_h=100)
    now = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        quota.of("kiosk").spend(60, 0.0, now())
        await book.asked.wait()
        quota.of("kiosk").spend(7, 0.0, now())
        sessions.stop()
    told = book.ledger.settle("1", Report(account="kiosk", n_sessions=0), now())
    assert sum(told.amounts[1]) == 67


async def test_who_asks_for_what_is_not_there_holds_no_place_in_the_book() -> None:
    book = SlowBook()
    sessions, _ = kept_by(book, sessions=1)
    with pytest.raises(UnknownVoice):
        await sessions.open(StartSession(voice="nobody"), Rights(name="kiosk"))
    assert not book.asked.is_set()
