"""What a dead engine, a failing voice or a slow reader does to a conversation: it is told, and the conversation goes on."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import EngineError, EngineNotReady
from engine.fake import Fault, Script, ScriptedModel, ScriptedVoice, tokenize
from gateway.errors import SlowReader
from gateway.events import (
    AudioFrame,
    ErrorRaised,
    Heard,
    Interrupted,
    ReportPlayout,
    SegmentDecided,
    SegmentDone,
    SendText,
    TurnDone,
)
from tests.session.stage import stage

THREE = "This is the first sentence. This is the second sentence. This is the third sentence."


async def test_a_model_that_dies_mid_reply_is_told_and_the_next_turn_works() -> None:
    broken = Script(tokens=tokenize(THREE), fault=Fault(at=12))
    async with stage(model=ScriptedModel([broken, "Back again."])) as scene:
        scene.send(SendText(text="Go."))
        done = await scene.until(TurnDone)
        assert done.status == "failed"
        assert [(e.code, e.turn, e.retryable) for e in scene.of(ErrorRaised)] == [("engine_failed", 1, True)]
        assert len(scene.of(Heard, 1)) == 1
        scene.send(SendText(text="And now?"))
        assert (await scene.until(TurnDone, 2)).status == "completed"


async def test_a_model_that_stalls_ends_the_turn_instead_of_silence() -> None:
    silent = Script(tokens=tokenize(THREE), fault=Fault(at=3, error=None))
    async with stage(model=ScriptedModel([silent, "Here."]), settings={"turn": {"next_delta_s": 4.0}}) as scene:
        scene.send(SendText(text="Go."))
        error = await scene.until(ErrorRaised)
        assert error.code == "engine_stalled"
        assert scene.time() < 5
        await scene.until(TurnDone, 1)
        assert scene.model.n_open == 0
        scene.send(SendText(text="Still there?"))
        assert (await scene.until(TurnDone, 2)).status == "completed"


async def test_a_voice_that_fails_on_one_segment_loses_no_other() -> None:
    voice = ScriptedVoice(faults={"second": Fault(at=0, error=EngineError)})
    async with stage([THREE], voice=voice) as scene:
        scene.send(SendText(text="Go."))
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert [d.status for d in scene.of(SegmentDone)] == ["ok", "failed", "ok"]
        assert [e.code for e in scene.of(ErrorRaised)] == ["tts_failed"]
        assert "".join(s.text for s in scene.of(SegmentDecided)) == THREE


async def test_a_voice_that_hangs_is_given_up_after_its_deadline() -> None:
    voice = ScriptedVoice(faults={"second": Fault(at=0, error=None)})
    async with stage([THREE], voice=voice, settings={"turn": {"first_chunk_s": 3.0}}) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(TurnDone)
        assert [d.status for d in scene.of(SegmentDone)] == ["ok", "failed", "ok"]
        assert voice.n_open == 0


async def test_an_engine_that_is_not_ready_fails_the_turn_and_keeps_the_session() -> None:
    model = ScriptedModel(["Hello."])
    async with stage(model=model) as scene:
        model.die()
        scene.send(SendText(text="Go."))
        done = await scene.until(TurnDone)
        assert done.status == "failed"
        assert scene.of(ErrorRaised)[0].code == "engine_not_ready"
        await model.start()
        scene.send(SendText(text="Again."))
        assert (await scene.until(TurnDone, 2)).status == "completed"


@pytest.mark.parametrize("report", [-5, "much", None, float("nan"), True, [1]])
async def test_playout_reports_without_sense_are_ignored_and_counted(report: object) -> None:
    async with stage([THREE]) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(AudioFrame, n=3)
        scene.send(ReportPlayout(turn=1, played_ms=report))
        assert (await scene.until(TurnDone)).status == "completed"
        assert scene.parts.metrics.playout_ignored._value.get() == 1
        assert not scene.of(ErrorRaised)


async def test_a_report_beyond_what_was_sent_is_clamped() -> None:
    async with stage([THREE]) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(AudioFrame)
        scene.report(1, 1e9)
        sent_ms = scene.audio_ms(1)
        assert scene.session.is_busy
        scene.send(SendText(text="Stop."))
        heard = await scene.until(Heard, 1)
        assert heard.heard_ms <= sent_ms + 400


async def test_a_player_that_stands_still_ends_its_connection_not_its_session() -> None:
    async with stage([THREE * 5], settings={"session": {"slow_reader_s": 5.0}}) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(AudioFrame)
        scene.report(1, 0)
        reason = await asyncio.wait_for(asyncio.shield(scene.attachment.ended), 60)
        assert isinstance(reason, SlowReader)
        assert not scene.of(Interrupted)
        assert scene.session.session_id in scene.sessions.ids()


async def test_a_reader_that_takes_nothing_is_found_out() -> None:
    async with stage([THREE * 5], settings={"session": {"slow_reader_s": 5.0}}) as scene:
        scene.send(SendText(text="Go."))
        await scene.until(AudioFrame)
        await scene.stop_reading()
        await asyncio.sleep(6)
        with pytest.raises(SlowReader):
            await scene.session.outbox.next()


async def test_a_turn_that_failed_before_its_first_sound_is_late() -> None:
    async with stage([Script(tokens=("One",), fault=Fault(at=0, error=EngineNotReady)), "Fine. Really."]) as scene:
        late = scene.parts.metrics.promise_missed.labels("text")._value
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone)).status == "failed"
        assert late.get() == 1
        scene.send(SendText(text="Hello?"))
        await scene.until(TurnDone, 2)
        assert late.get() == 1


async def test_a_reply_of_reasoning_alone_is_a_failure_and_no_silence() -> None:
    async with stage(["<think>Where shall I begin? So much to", "Fine."]) as scene:
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone)).status == "failed"
        assert [error.code for error in scene.of(ErrorRaised)] == ["engine_failed"]
        scene.send(SendText(text="Hello?"))
        assert (await scene.until(TurnDone, n=2)).status == "completed"
