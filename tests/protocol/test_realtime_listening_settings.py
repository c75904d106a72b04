"""How a Realtime session is listened to: formats, turn detection and its numbers, as they are asked for, in force and shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.audio_codecs import g711
from tests.protocol.realtime_talker import talking, update

pytestmark = pytest.mark.virtual


async def test_a_session_that_can_listen_says_so() -> None:
    async with talking(["Hello."]) as (client, _):
        heard = client.events[0]["session"]["audio"]["input"]
        assert heard["turn_detection"]["type"] == "server_vad"
        update(client, turn_detection=None, transcription={"model": "whisper-1", "language": "en"}, format={"type": "audio/pcmu"})
        updated = (await client.until("session.updated"))["session"]["audio"]["input"]
        assert updated["turn_detection"] is None
        assert updated["transcription"] == {"model": "whisper-1", "language": "en"}
        assert updated["format"] == {"type": "audio/pcmu"}
        update(client, turn_detection={"type": "semantic_vad", "eagerness": "low"})
        assert (await client.until("session.updated", 2))["session"]["audio"]["input"]["turn_detection"]["eagerness"] == "low"


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
async def test_both_kinds_of_turn_detection_tell_the_same_events_in_the_same_order(kind: str) -> None:
    async with talking(["What is down there?"]) as (client, talker):
        update(client, turn_detection={"type": kind}, transcription={"model": "whisper-1"})
        await talker.say(1200)
        await client.until("response.done")
        assert client.kinds("input_audio_buffer") == [
            f"input_audio_buffer.{what}" for what in ("speech_started", "speech_stopped", "committed")
        ]
        kinds = [event["type"] for event in client.events]
        assert kinds.index("conversation.item.input_audio_transcription.completed") < kinds.index("response.created")


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (
            {"type": "server_vad"},
            {"threshold": 0.5, "prefix_padding_ms": 320, "silence_duration_ms": None, "idle_timeout_ms": None},
        ),
        (
            {"type": "server_vad", "threshold": 0.7, "prefix_padding_ms": 100, "silence_duration_ms": 700, "idle_timeout_ms": 6000},
            {"threshold": 0.7, "prefix_padding_ms": 100, "silence_duration_ms": 700, "idle_timeout_ms": 6000},
        ),
        (
            {"type": "server_vad", "threshold": 1, "prefix_padding_ms": 9000, "silence_duration_ms": 10.4},
            {"threshold": 0.95, "prefix_padding_ms": 2000, "silence_duration_ms": 100, "idle_timeout_ms": None},
        ),
        ({"type": "semantic_vad"}, {"eagerness": "auto"}),
        ({"type": "semantic_vad", "eagerness": "high"}, {"eagerness": "high"}),
    ],
)
async def test_the_session_shows_the_numbers_that_are_in_force(asked: dict[str, Any], shown: dict[str, Any]) -> None:  # Any: JSON
    async with talking(["Hello."]) as (client, _):
        update(client, turn_detection={"type": "server_vad", "threshold": 0.3, "silence_duration_ms": 300})
        update(client, turn_detection=asked)
        detection = (await client.until("session.updated", 2))["session"]["audio"]["input"]["turn_detection"]
        assert detection == {"type": asked["type"], "create_response": True, "interrupt_response": True, **shown}
        client.send("session.update", session={"instructions": "Be kind."})
        again = (await client.until("session.updated", 3))["session"]["audio"]["input"]["turn_detection"]
        assert again == detection, "what was not named stays"


@pytest.mark.parametrize(
    ("detection", "waited_ms"),
    [
        ({"type": "server_vad", "silence_duration_ms": 1200}, 1200),
        ({"type": "server_vad", "silence_duration_ms": 300}, 300),
        ({"type": "semantic_vad", "eagerness": "low"}, 1600),
        ({"type": "semantic_vad", "eagerness": "high"}, 400),
    ],
)
async def test_a_client_has_the_wait_that_it_asked_for(detection: dict[str, Any], waited_ms: int) -> None:  # Any: JSON
    async with talking(["Hello there"], scores=(0.5,)) as (client, talker):
        update(client, turn_detection=detection)
        await talker.say(1000)
        stopped_s = client.scene.time()
        await client.until("input_audio_buffer.speech_stopped")
        assert 1000 * (client.scene.time() - stopped_s) == pytest.approx(waited_ms, abs=60)


async def test_updates_right_behind_one_another_keep_what_each_asked_for() -> None:
    """openai-agents sends a second one before it has read the answer to the first."""
    async with talking(["Hello."]) as (client, _):
        update(client, transcription={"model": "whisper-1"}, turn_detection={"type": "server_vad", "create_response": False})
        client.send("session.update", session={"type": "realtime", "tracing": "auto"})
        update(client, format={"type": "audio/pcmu"})
        heard = (await client.until("session.updated", 3))["session"]["audio"]["input"]
        assert (heard["transcription"], heard["format"]) == ({"model": "whisper-1"}, {"type": "audio/pcmu"})
        assert heard["turn_detection"]["create_response"] is False


async def test_a_format_that_changes_in_mid_stream_keeps_the_clock() -> None:
    """Appends right behind the update are of the new format, whenever its answer is read; a refused update changes nothing."""
    async with talking(["What is down there?"] * 2, streams=False) as (client, talker):
        update(client, transcription={"model": "whisper-1"})
        for _ in range(50):
            talker.append(talker.silence)
        update(client, format={"type": "audio/pcmu"})
        telephone = g711.encode(b"\x00\x10" * 160, "g711u")
        for _ in range(50):
            talker.append(telephone)
        client.send("session.update", session={"voice": "ghost", "audio": {"input": {"format": {"type": "audio/pcm"}}}})
        for _ in range(100):
            talker.append(b"\xff" * 160)
        await client.until("input_audio_buffer.speech_stopped")
        assert client.of("input_audio_buffer.speech_started")[0]["audio_start_ms"] == pytest.approx(1000, abs=100)
        assert client.of("input_audio_buffer.speech_stopped")[0]["audio_end_ms"] == pytest.approx(2000, abs=100)


async def test_create_response_false_only_makes_items() -> None:
    async with talking(["Hello.", "Are you there?"]) as (client, talker):
        update(client, turn_detection={"type": "server_vad", "create_response": False})
        await talker.say(1000)
        await client.until("input_audio_buffer.committed")
        await asyncio.sleep(2)
        assert not client.of("response.created")
        client.send("response.create")
        await client.until("response.done")


@pytest.mark.parametrize(
    ("hears", "param"),
    [
        ({"format": {"type": "audio/flac"}}, "session.audio.input.format"),
        ({"format": {"type": "audio/pcm", "rate": 16000}}, "session.audio.input.format.rate"),
        ({"turn_detection": {"type": "psychic"}}, "session.audio.input.turn_detection.type"),
        ({"turn_detection": {"type": "server_vad", "create_response": 1}}, "session.audio.input.turn_detection.create_response"),
        ({"turn_detection": {"type": "server_vad", "threshold": 1.5}}, "session.audio.input.turn_detection.threshold"),
        ({"turn_detection": {"type": "server_vad", "threshold": "low"}}, "session.audio.input.turn_detection.threshold"),
        ({"turn_detection": {"type": "server_vad", "prefix_padding_ms": -1}}, "session.audio.input.turn_detection.prefix_padding_ms"),
        ({"turn_detection": {"type": "server_vad", "silence_duration_ms": -1}}, "session.audio.input.turn_detection.silence_duration_ms"),
        ({"turn_detection": {"type": "server_vad", "idle_timeout_ms": 20}}, "session.audio.input.turn_detection.idle_timeout_ms"),
        ({"turn_detection": {"type": "semantic_vad", "eagerness": "very"}}, "session.audio.input.turn_detection.eagerness"),
    ],
)
async def test_wrong_settings_are_told_with_their_place(hears: dict[str, Any], param: str) -> None:  # Any: wrong values
    async with talking(["Hello."]) as (client, _):
        update(client, **hears)
        assert (await client.until("error"))["error"]["param"] == param
        assert not client.of("session.updated")
