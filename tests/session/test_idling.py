"""A silence behind a reply: when the assistant speaks again, when it does not, and what is told of it."""

from __future__ import annotations

import asyncio

import pytest

from engine.audio import peak
from engine.fake_listening import ScriptedDetector, ScriptedRecognizer
from gateway.auth import FULL_RIGHTS
from gateway.config import KeySettings
from gateway.events import (
    AppendAudio,
    AudioIn,
    Endpointing,
    ErrorRaised,
    Mute,
    RequestReply,
    SendText,
    SessionUpdated,
    SilenceTimedOut,
    SpeechEnded,
    StartSession,
    TurnDone,
    TurnStarted,
    UpdateSession,
)
from gateway.session import saving
from tests.session.microphone import SILENCE, SOUND, talking

WISH = UpdateSession(endpointing=Endpointing(idle_timeout_ms=5000))
REPLY = "One two three four five. Six seven eight nine ten."
CLOCKED = StartSession(audio_in=AudioIn(), playout="clock")


@pytest.mark.parametrize("start", [StartSession(audio_in=AudioIn()), CLOCKED])
async def test_a_silence_behind_a_reply_is_answered_once(start: StartSession) -> None:
    async with talking(["Hello."], [REPLY, "Are you still there?"], start=start) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        heard_s = scene.time()
        told = await scene.until(SilenceTimedOut)
        assert scene.time() - heard_s == pytest.approx(5, abs=0.05)
        assert told.to_ms - told.from_ms == pytest.approx(5000, abs=50)
        assert told.to_ms == pytest.approx(microphone.pts_ms, abs=50)
        assert (await scene.until(TurnStarted, 2)).item_id == told.item_id
        await scene.until(TurnDone, 2)
        assert [(item.role, item.text) for item in scene.session.history][2:] == [("user", "..."), ("assistant", "Are you still there?")]
        assert scene.model.requests[-1].prompt.messages[-1].text == "..."
        await asyncio.sleep(60)
        assert len(scene.of(SilenceTimedOut)) == 1, "an empty room is not talked to all night"


async def test_it_is_armed_again_when_somebody_has_spoken() -> None:
    async with talking(["Hello.", "Yes, I am."], [REPLY, "Still there?", "Good.", "And now?"]) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 2)
        await microphone.say(1000)
        await scene.until(TurnDone, 4)
        assert len(scene.of(SilenceTimedOut)) == 2


async def test_speech_within_the_time_is_answered_and_nothing_else_happens() -> None:
    async with talking(["Hello.", "Go on please."], [REPLY, REPLY]) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        await asyncio.sleep(4.5)
        await microphone.say(1500)
        await scene.until(TurnStarted, 2)
        assert not scene.of(SilenceTimedOut)


async def test_a_noise_begins_the_time_anew() -> None:
    async with talking(["Hello.", ""], [REPLY, REPLY]) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        await asyncio.sleep(4)
        await microphone.say(600)
        ended_s = scene.time()
        await scene.until(SpeechEnded, n=2)
        await scene.until(SilenceTimedOut)
        assert scene.time() - ended_s == pytest.approx(5.5, abs=0.6)


async def test_writing_and_asking_stop_the_time() -> None:
    async with talking(["Hello."], [REPLY] * 4) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        for event in (SendText(text="And in writing?"), RequestReply()):
            await asyncio.sleep(4)
            scene.send(event)
            await scene.until(TurnDone, scene.session.n_turns)
        assert not scene.of(SilenceTimedOut)
        await scene.until(SilenceTimedOut)


async def test_an_out_of_band_reply_neither_stops_nor_starts_it() -> None:
    async with talking(["Hello."], [REPLY] * 3) as (scene, microphone):
        scene.send(RequestReply(conversation="none", output="text"))
        await scene.until(TurnDone, 1)
        scene.send(WISH)
        await asyncio.sleep(10)
        assert not scene.of(SilenceTimedOut), "there was no reply to hear"
        await microphone.say(1000)
        await scene.until(TurnDone, 2)
        await asyncio.sleep(3)
        scene.send(RequestReply(conversation="none", output="text"))
        await scene.until(SilenceTimedOut)


@pytest.mark.parametrize(
    "change",
    [
        UpdateSession(endpointing=Endpointing()),
        UpdateSession(turn_detection="push_to_talk"),
        UpdateSession(auto_reply=False),
        UpdateSession(turn_detection="push_to_talk", endpointing=Endpointing(idle_timeout_ms=5000)),
        UpdateSession(auto_reply=False, endpointing=Endpointing(idle_timeout_ms=5000)),
    ],
)
async def test_a_session_that_does_not_want_it_any_more_is_left_in_peace(change: UpdateSession) -> None:
    async with talking(["Hello."], [REPLY] * 2) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        await asyncio.sleep(3)
        scene.send(change)
        await asyncio.sleep(30)
        assert not scene.of(SilenceTimedOut)


async def test_nobody_is_asked_whose_connection_is_gone() -> None:
    async with talking(["Hello."], [REPLY] * 2) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        scene.session.detach(scene.attachment)
        await asyncio.sleep(20)
        assert scene.session.n_turns == 1


async def test_a_microphone_that_is_off_says_nothing_and_is_asked_all_the_same() -> None:
    async with talking(["Hello."], [REPLY] * 2) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        scene.send(Mute(on=True))
        told = await scene.until(SilenceTimedOut)
        assert told.from_ms <= told.to_ms


async def test_the_numbers_in_force_are_shown_and_wrong_ones_refused() -> None:
    async with talking() as (scene, _):
        scene.send(UpdateSession(endpointing=Endpointing(silence_ms=20, eagerness="low", idle_timeout_ms=5000)))
        shown = (await scene.until(SessionUpdated)).endpointing
        assert shown == Endpointing(speech_probability=0.5, preroll_ms=320, silence_ms=100, eagerness="low", idle_timeout_ms=5000)
        scene.send(UpdateSession(endpointing=Endpointing(idle_timeout_ms=5)))
        assert (await scene.until(ErrorRaised)).message == "endpointing.idle_timeout_ms is 5; expected 1000 to 600000."
        assert scene.session.profile.endpointing == shown


@pytest.mark.parametrize(("endpointing", "waited_s"), [(Endpointing(silence_ms=1200), 1.2), (Endpointing(silence_ms=300), 0.3)])
async def test_a_session_has_its_own_silence(endpointing: Endpointing, waited_s: float) -> None:
    async with talking(["Hello."], [REPLY], scores=(0.9,)) as (scene, microphone):
        scene.send(UpdateSession(endpointing=endpointing))
        await microphone.say(1000)
        await scene.until(SpeechEnded)
        assert scene.time() - microphone.stopped_s == pytest.approx(waited_s, abs=0.06)


@pytest.mark.parametrize(("eagerness", "waited_s"), [("low", 1.6), ("auto", 0.8), ("high", 0.4)])
async def test_eagerness_moves_the_wait_for_an_end_that_is_not_sure(eagerness: str, waited_s: float) -> None:
    async with talking(["Hello"], [REPLY], scores=(0.5,)) as (scene, microphone):
        scene.send(UpdateSession(endpointing=Endpointing(eagerness=eagerness)))  # type: ignore[arg-type]  # one of the four
        await microphone.say(1000)
        await scene.until(SpeechEnded)
        assert scene.time() - microphone.stopped_s == pytest.approx(waited_s, abs=0.06)


@pytest.mark.parametrize("preroll_ms", [0, 320, 1000])
async def test_a_session_has_its_own_preroll(preroll_ms: int) -> None:
    recognizer = ScriptedRecognizer(["Hello."])
    async with talking(recognizer=recognizer, scores=(0.9,)) as (scene, microphone):
        scene.send(UpdateSession(endpointing=Endpointing(preroll_ms=preroll_ms, silence_ms=300)))
        await asyncio.sleep(2)
        await microphone.say(1000)
        await scene.until(SpeechEnded)
        await scene.until(TurnStarted)
        pcm = recognizer.requests[-1].pcm
        first = next(at for at in range(0, len(pcm), 2) if pcm[at : at + 2] != b"\0\0")
        assert first / 32 == pytest.approx(preroll_ms, abs=34), "milliseconds in front of the first sound, to a frame of the detector"


async def test_a_session_has_its_own_threshold() -> None:
    async with talking(["Hello."], detector=ScriptedDetector(lambda _, pcm: 0.7 * (peak(pcm) > 0.01))) as (scene, microphone):
        scene.send(UpdateSession(endpointing=Endpointing(speech_probability=0.8)))
        await microphone.say(1000)
        await asyncio.sleep(2)
        assert not scene.of(SpeechEnded), "a murmur"
        scene.send(UpdateSession(endpointing=Endpointing(speech_probability=0.6)))
        await microphone.say(1000)
        await scene.until(SpeechEnded)


async def test_a_key_that_has_used_its_turns_up_is_not_told_so_for_a_silence() -> None:
    limits = KeySettings(key="k", turns_per_min=1)
    async with talking(["Hello."], [REPLY] * 2, limits=limits) as (scene, microphone):
        scene.send(WISH)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        await asyncio.sleep(20)
        assert scene.session.n_turns == 1
        assert not scene.of(ErrorRaised)
        assert not scene.of(SilenceTimedOut)


async def test_whoever_goes_on_with_a_session_waits_as_its_client_had_asked() -> None:
    async with talking(["Hello."], [REPLY], scores=(0.9,), streams=False) as (scene, _):
        scene.send(UpdateSession(endpointing=Endpointing(silence_ms=1500)))
        again = saving.restored(saving.decode(saving.encode(scene.session)), scene.parts, last_seq=0, rights=FULL_RIGHTS)
        scene.session.close()
        await asyncio.sleep(0.1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(again.run())
            await again.opened.wait()
            again.attach()
            n_ended = []
            for n, data in enumerate([SOUND] * 50 + [SILENCE] * 90):
                again.receive(AppendAudio(data=data))
                await asyncio.sleep(0.02)
                if n in (110, 139):
                    n_ended.append(sum(isinstance(event, SpeechEnded) for event in again.outbox.waiting()))
            again.close()
        assert n_ended == [0, 1], "not after 1.2 s of silence, but after 1.8 s"
