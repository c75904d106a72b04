"""Audio in over the Realtime protocol: server VAD, manual commits, barge-in; every event in its order."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.audio_codecs import g711
from engine.fake import ScriptedModel
from engine.fake_listening import Heard, ScriptedDetector, ScriptedEndOfTurn, ScriptedRecognizer
from gateway.codecs.realtime import RealtimeCodec
from tests.protocol.realtime_stage import RealtimeStage
from tests.session.microphone import ScriptedEars
from tests.session.stage import stage

pytestmark = pytest.mark.virtual

LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))
QUICK = {"hearing": {"partial_ms": 300}, "speculation": {"enabled": False}}  # replies come in the order of their script
FRAME = 960  # bytes of 20 ms at 24 kHz


class Talker:
    """Appends 20 ms of audio at a time, as long as the conversation lasts."""

    def __init__(self, client: RealtimeStage) -> None:
        self.client = client
        self.is_speaking = False
        self.sound, self.silence = b"\x00\x10" * (FRAME // 2), bytes(FRAME)

    async def run(self) -> None:
        while True:
            self.append(self.sound if self.is_speaking else self.silence)
            await asyncio.sleep(0.02)

    def append(self, data: bytes) -> None:
        self.client.send("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    async def say(self, ms: int) -> None:
        self.is_speaking = True
        await asyncio.sleep(ms / 1000)
        self.is_speaking = False


@asynccontextmanager
async def talking(
    heard: Sequence[Heard | str],
    replies: Sequence[str] = ("One two three. Four five six.",),
    *,
    scores: Sequence[float] = (0.9,),
    streams: bool = True,
) -> AsyncIterator[tuple[RealtimeStage, Talker]]:
    ears = ScriptedEars(ScriptedRecognizer(heard), ScriptedDetector(), ScriptedEndOfTurn(scores))
    for ear in (ears.recognizer, ears.detector, ears.end_of_turn):
        assert ear is not None
        await ear.start()
    codec = RealtimeCodec("u", "stretto", 1 << 20, 3600, can_listen=True)
    async with stage(model=ScriptedModel(replies), settings=QUICK, start=codec.opening, ears=ears) as scene:
        await scene.stop_reading()
        client = RealtimeStage(scene, codec, asyncio.Event())
        for frame in codec.welcome(scene.ready, scene.session.profile.described()):
            client.rules.frame(frame)
        async with asyncio.TaskGroup() as tasks:
            talker = Talker(client)
            running = [tasks.create_task(client.read(), name="client")]
            if streams:
                running.append(tasks.create_task(talker.run(), name="talker"))
            yield client, talker
            for task in running:
                task.cancel()


def update(client: RealtimeStage, **hears: Any) -> None:  # Any: right or wrong values
    client.send("session.update", session={"type": "realtime", "audio": {"input": hears}})


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


async def test_audio_that_is_not_base64_is_told() -> None:
    async with talking(["Hello."]) as (client, _):
        client.send("input_audio_buffer.append", audio="ä!", event_id="e")
        await client.until("error")
        assert client.errors() == [("invalid_value", "e")]
