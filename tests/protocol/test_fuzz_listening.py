"""Thousands of messages around a microphone, right, wrong and nearly right, for each codec: no crash, no lost session, every order kept."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from typing import Any

import msgspec
import pytest

from engine.fake import hum
from engine.fake_listening import ScriptedDetector, ScriptedEndOfTurn, ScriptedRecognizer
from gateway.codecs.native import NativeCodec
from gateway.codecs.realtime import RealtimeCodec
from gateway.errors import ClientError
from gateway.events import AudioIn, Cancel, ErrorRaised, SessionUpdated, StartSession, Transcribed, TurnDone, UpdateSession
from gateway.session import error_frame
from tests.doubles.answering import AnsweringModel
from tests.protocol.realtime_stage import RealtimeStage
from tests.protocol.test_fuzz import chosen
from tests.session.microphone import ScriptedEars
from tests.session.stage import stage

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(120), pytest.mark.may_block]

N_MESSAGES = 1_500
Value = Any  # Any: whatever a client might send
HEARD = ("Hello.", "mhm", "", "Talk at length.", "Stop it now please.", "How is the weather?")
SOUND, SILENCE = hum("fake-en", 24_000, 0, 100), bytes(4800)


def detections() -> list[dict[str, Value] | None]:
    number = {"threshold": 0.4, "prefix_padding_ms": 200, "silence_duration_ms": 300, "idle_timeout_ms": 1000}
    return [
        None,
        {"type": "server_vad", **number},
        {"type": "server_vad", "create_response": False, "interrupt_response": False},
        {"type": "semantic_vad", "eagerness": "high"},
    ]


def append(data: bytes) -> dict[str, Value]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}


REALTIME: list[dict[str, Value]] = [
    *(
        {"type": "session.update", "session": {"audio": {"input": {"turn_detection": detection, "format": {"type": kind}}}}}
        for detection in detections()
        for kind in ("audio/pcm", "audio/pcmu", "audio/pcma")
    ),
    {"type": "session.update", "session": {"audio": {"input": {"transcription": {"model": "w", "language": "en"}}}}},
    {"type": "session.update", "session": {"audio": {"output": {"format": {"type": "audio/pcmu"}, "speed": 1.5}}, "temperature": 0.2}},
    {"type": "session.update", "session": {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "speed": 0.25}}}},
    {"type": "response.create", "response": {"audio": {"output": {"format": {"type": "audio/pcma"}, "speed": 0.5}}}},
    {"type": "response.create"},
    {"type": "response.cancel"},
    {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 100},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    *(append(data) for data in (SOUND, SILENCE, SOUND[:999], b"\xff", SOUND * 20, SILENCE * 20) for _ in range(6)),
]
NATIVE: list[dict[str, Value]] = [
    *({"type": "audio", "data": data, "pts_ms": at} for data in (SOUND, SILENCE, SOUND[:999]) for at in (0, 100, 1e300, -5.0, 250.5)),
    *({"type": "audio", "data": data} for data in (SOUND, SILENCE, SOUND[:999], b"\xff", SOUND * 10, SILENCE * 10) for _ in range(6)),
    {"type": "session.update", "endpointing": {"speech_probability": 0.3, "preroll_ms": 0, "silence_ms": 200, "idle_timeout_ms": 1000}},
    {"type": "session.update", "endpointing": {"eagerness": "low"}, "turn_detection": "auto"},
    {"type": "session.update", "turn_detection": "push_to_talk", "auto_reply": False},
    {"type": "session.update", "turn_detection": "auto", "auto_reply": True, "allow_barge_in": False},
    *({"type": "session.update", "audio_in": {"codec": codec, "rate_hz": 24_000}} for codec in ("pcm16", "g711u", "g711a", "opus")),
    {"type": "session.update", "audio_out": {"codec": "g711u"}, "speed": 2.0, "temperature": 0.0},
    {"type": "reply.create", "audio_out": {"codec": "pcm16", "rate_hz": 16_000}, "speed": 0.5},
    {"type": "playout", "turn": 1, "played_ms": 250.0, "final": True},
    {"type": "commit", "id": "c"},
    {"type": "clear"},
    {"type": "mute", "on": True},
    {"type": "mute", "on": False},
    {"type": "mute", "on": False},
    {"type": "text", "text": "Hello"},
    {"type": "cancel"},
]


async def ears() -> ScriptedEars:
    made = ScriptedEars(ScriptedRecognizer(HEARD), ScriptedDetector(), ScriptedEndOfTurn((0.9, 0.4)))
    for ear in (made.recognizer, made.detector, made.end_of_turn):
        assert ear is not None
        await ear.start()
    return made


async def test_thousands_of_realtime_messages_around_a_microphone() -> None:
    chance, model = random.Random(1), AnsweringModel()
    codec = RealtimeCodec("u", "stretto", 1 << 20, 3600, can_listen=True)
    async with stage(model=model, start=codec.opening, ears=await ears()) as scene:
        await scene.stop_reading()
        client = RealtimeStage(scene, codec, asyncio.Event())
        for frame in codec.welcome(scene.ready, scene.session.profile.described()):
            client.rules.frame(frame)
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(client.read(), name="client")
            for n in range(N_MESSAGES):
                client.raw(json.dumps(chosen(REALTIME, chance)))
                if n % 4 == 0:
                    await asyncio.sleep(chance.choice([0, 0.02, 0.1, 0.5, 2.0]))
            client.send("response.cancel")
            client.send("session.update", session={"audio": {"input": {"turn_detection": None}}})
            await asyncio.sleep(60)
            client.send("session.update", event_id="last", session={"instructions": "Still here."})
            await client.settle()
            assert client.events[-1]["session"]["instructions"] == "Still here."
            reader.cancel()
        client.rules.finish()
        assert codec._asked == {}
        assert codec._responses == {}
        assert (model.n_open, scene.voice.n_open, scene.session.is_busy) == (0, 0, False)
        assert len(client.of("input_audio_buffer.committed")) > 10
        assert len(client.of("response.done")) > 10


async def test_thousands_of_native_messages_around_a_microphone() -> None:
    chance, model, codec = random.Random(3), AnsweringModel(), NativeCodec(65_536, 120)
    async with stage(model=model, start=StartSession(audio_in=AudioIn(rate_hz=24_000)), ears=await ears()) as scene:
        for n in range(N_MESSAGES):
            try:
                events = codec.decode(msgspec.msgpack.encode(chosen(NATIVE, chance)))
            except ClientError as error:
                scene.session.outbox.put(error_frame(error))
                continue
            for event in events:
                scene.send(event)
            if n % 4 == 0:
                await asyncio.sleep(chance.choice([0, 0.02, 0.1, 0.5, 2.0]))
                for seq, told in [(seq, told) for _, seq, told in scene.frames[-3:]]:
                    assert codec.encode(told, seq)
        scene.send(UpdateSession(turn_detection="push_to_talk"))
        scene.send(Cancel())
        await asyncio.sleep(60)
        scene.send(UpdateSession(instructions="Still here."))
        await asyncio.sleep(0.01)
        assert scene.of(SessionUpdated)[-1].instructions == "Still here."
        assert (model.n_open, scene.voice.n_open, scene.session.is_busy) == (0, 0, False)
        assert sum(told.final for told in scene.of(Transcribed)) > 10
        assert len(scene.of(TurnDone)) > 10
        assert len(scene.of(ErrorRaised)) > 50
