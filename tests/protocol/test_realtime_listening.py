"""Audio in over the Realtime protocol: server VAD, manual commits, barge-in; every event in its order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.api import EngineNotReady
from engine.fake_listening import Heard
from tests.protocol.realtime_talker import LONG, talking, update

pytestmark = pytest.mark.virtual


async def test_server_vad_hears_commits_and_answers_in_order() -> None:
    async with talking(["What is down there?"]) as (client, talker):
        update(client, transcription={"model": "whisper-1"})
        await talker.say(1200)
        await client.until("response.done")
        order = [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
            "response.output_audio.delta",
            "response.done",
        ]
        kinds = [event["type"] for event in client.events]
        assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
        item_ids = {client.of(kind)[0]["item_id"] for kind in (*order[:3], order[5])} | {client.of(order[3])[0]["item"]["id"]}
        assert len(item_ids) == 1
        done = client.of(order[5])[0]
        assert done["transcript"] == "What is down there?"
        assert done["usage"]["type"] == "duration"
        assert done["usage"]["seconds"] == pytest.approx(1.2, abs=0.1)
        assert client.of(order[0])[0]["audio_start_ms"] <= 32
        client.send("conversation.item.retrieve", item_id=item_ids.pop())
        (part,) = (await client.until("conversation.item.retrieved"))["item"]["content"]
        assert part == {"type": "input_audio", "transcript": "What is down there?"}, "agents-realtime takes its history from here"


@pytest.mark.parametrize("detection", [{"type": "server_vad"}, None])
async def test_speech_that_could_not_be_read_is_an_item_whose_transcription_failed(detection: dict[str, Any] | None) -> None:  # Any: JSON
    broken = Heard(text="Never read.", errors=(EngineNotReady,) * 1000)
    async with talking([broken, "Hello."]) as (client, talker):
        update(client, turn_detection=detection, transcription={"model": "whisper-1"})
        await talker.say(1000)
        if detection is None:
            client.send("input_audio_buffer.commit")
        failed = await client.until("conversation.item.input_audio_transcription.failed")
        assert (failed["error"]["type"], failed["error"]["code"]) == ("server_error", "asr_failed")
        assert client.kinds("conversation.item.")[:3] == [
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.failed",
        ]
        assert client.of("input_audio_buffer.committed")[0]["item_id"] == failed["item_id"]
        assert not client.of("error"), "it ends some clients"
        assert not client.of("response.created")
        await talker.say(1000)
        if detection is None:
            client.send("input_audio_buffer.commit")
        await client.until("conversation.item.input_audio_transcription.completed")


async def test_speech_over_a_reply_that_could_not_be_read_is_not_told() -> None:
    broken = Heard(text="Never read.", errors=(EngineNotReady,) * 1000)
    async with talking(["Tell me a lot.", broken], [LONG]) as (client, talker):
        await talker.say(1000)
        await client.until("response.output_audio.delta", 10)
        await talker.say(600)
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await asyncio.sleep(20)
        assert len(client.of("input_audio_buffer.committed")) == 1
        assert not client.of("conversation.item.input_audio_transcription.failed")


async def test_a_silence_behind_a_response_triggers_another_one() -> None:
    async with talking(["Hello."], ["One two three. Four five six.", "Are you still there?"]) as (client, talker):
        update(client, turn_detection={"type": "server_vad", "idle_timeout_ms": 5000}, transcription={"model": "whisper-1"})
        await talker.say(1000)
        await client.until("response.done", 2)
        kinds = [event["type"] for event in client.events]
        order = [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
        ]
        first = kinds.index("response.done")
        assert [kind for kind in kinds[first + 1 :] if kind in order][:6] == order
        told = client.of(order[0])[0]
        assert told["item_id"] == client.of(order[1])[-1]["item_id"]
        assert told["audio_end_ms"] - told["audio_start_ms"] == pytest.approx(5000, abs=50)
        assert isinstance(told["audio_end_ms"], int)
        assert client.of(order[4])[-1]["transcript"] == ""
        response = client.of("response.done")[1]["response"]
        assert (response["status"], response["output"][0]["content"][0]["transcript"]) == ("completed", "Are you still there?")
        await asyncio.sleep(60)
        assert len(client.of(order[0])) == 1


async def test_odd_byte_counts_shift_nothing() -> None:
    """A client that cuts its stream anywhere: the halves of a sample find each other."""
    async with talking(["Hello there."], streams=False) as (client, talker):
        sound = bytes(48_000) + b"\x00\x10" * 24_000 + bytes(96_000)
        for at in range(0, len(sound), 1001):
            talker.append(sound[at : at + 1001])
        await client.until("input_audio_buffer.speech_stopped")
        assert client.of("input_audio_buffer.speech_started")[0]["audio_start_ms"] == pytest.approx(1000, abs=64)
        assert client.of("input_audio_buffer.speech_stopped")[0]["audio_end_ms"] == pytest.approx(2000, abs=64)


async def test_without_transcription_no_transcript_is_told() -> None:
    async with talking(["What is down there?"]) as (client, talker):
        await talker.say(1200)
        await client.until("response.done")
        assert not client.of("conversation.item.input_audio_transcription.completed")


async def test_noise_is_not_committed() -> None:
    async with talking([""]) as (client, talker):
        await talker.say(1000)
        await asyncio.sleep(2)
        assert client.of("input_audio_buffer.speech_stopped")
        assert not client.of("input_audio_buffer.committed")
        assert not client.of("response.created")


async def test_manual_commit_makes_an_item_and_response_create_right_behind_it_waits_for_its_text() -> None:
    async with talking(["What is down there?"], streams=False) as (client, talker):
        update(client, turn_detection=None)
        client.send("input_audio_buffer.commit", event_id="early")
        await client.settle()
        assert client.errors() == [("input_audio_buffer_commit_empty", "early")]
        for _ in range(60):
            talker.append(talker.sound)
        client.send("input_audio_buffer.commit")
        client.send("response.create")
        await client.until("response.done")
        kinds = [event["type"] for event in client.events]
        assert kinds.index("input_audio_buffer.committed") < kinds.index("response.created")
        assert "input_audio_buffer.speech_started" not in kinds
        assert [item.text for item in client.scene.session.history if item.role == "user"] == ["What is down there?"]
        assert client.scene.model.requests[-1].prompt.messages[-1].text == "What is down there?"


async def test_manual_audio_while_a_reply_plays_stops_nothing() -> None:
    async with talking(["Tell me.", "More."], [LONG]) as (client, talker):
        update(client, turn_detection=None)
        talker.is_speaking = True
        await asyncio.sleep(1)
        client.send("input_audio_buffer.commit")
        client.send("response.create")
        await client.until("response.output_audio.delta", 10)
        client.send("input_audio_buffer.commit")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        assert len(client.of("input_audio_buffer.committed")) == 2


async def test_clear_throws_audio_away() -> None:
    async with talking(["Nothing."], streams=False) as (client, talker):
        update(client, turn_detection=None)
        for _ in range(60):
            talker.append(talker.sound)
        client.send("input_audio_buffer.clear")
        client.send("input_audio_buffer.commit")
        await client.until("input_audio_buffer.cleared")
        await client.until("error")
        assert client.errors()[0][0] == "input_audio_buffer_commit_empty"


async def test_words_over_a_reply_cancel_it_and_a_backchannel_is_not_even_told() -> None:
    async with talking(["Tell me a lot.", "mhm", "Stop it now please."], [LONG, "Fine."]) as (client, talker):
        await talker.say(1000)
        await client.until("response.output_audio.delta", 10)
        await talker.say(400)
        await asyncio.sleep(0.6)
        assert len(client.of("input_audio_buffer.speech_started")) == 1
        await talker.say(1200)
        done = await client.until("response.done")
        assert done["response"]["status"] == "cancelled"
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        kinds = [event["type"] for event in client.events]
        second = [place for place, kind in enumerate(kinds) if kind == "input_audio_buffer.speech_started"][1]
        assert second < kinds.index("response.done")
        assert "response.output_audio.delta" not in kinds[second : kinds.index("response.done")]
        await client.until("response.done", 2)
        assert [item.role for item in client.scene.session.history][-2:] == ["user", "assistant"]


async def test_audio_that_is_not_base64_is_told() -> None:
    async with talking(["Hello."]) as (client, _):
        client.send("input_audio_buffer.append", audio="ä!", event_id="e")
        await client.until("error")
        assert client.errors() == [("invalid_value", "e")]
