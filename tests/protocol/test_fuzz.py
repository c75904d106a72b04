"""Ten thousand messages for each codec, right, wrong and nearly right: no crash, no leak, no lost session.

Seeded, so that a failure is found again; on a virtual clock, so that the turns which such messages start cost no time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
from typing import Any

import msgspec
import pytest

from gateway.codecs.native import NativeCodec
from gateway.errors import ClientError
from gateway.events import AddItem, Cancel, ErrorRaised, ReplyDone, SendText, ServerEvent, SessionUpdated, TurnDone, UpdateSession
from gateway.session import error_frame
from tests.doubles.answering import AnsweringModel
from tests.protocol.realtime_stage import realtime
from tests.session.stage import stage

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(120), pytest.mark.may_block]  # a busy machine starves what never waits

N_MESSAGES = 10_000
BATCH = 40  # between two looks at the other side
Value = Any  # Any: whatever a client might send

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
TEXT = [{"type": "input_text", "text": "Hello"}]
REALTIME: list[dict[str, Value]] = [
    {"type": "session.update", "session": {"instructions": "Be kind.", "tools": [WEATHER], "output_modalities": ["text"]}},
    {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"voice": "ash", "format": {"type": "audio/pcm"}}}}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": TEXT}},
    {
        "type": "conversation.item.create",
        "previous_item_id": "root",
        "item": {"id": "i", "type": "message", "role": "system", "content": TEXT},
    },
    {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "call_w", "output": "sunny"}},
    {"type": "conversation.item.create", "item": {"type": "message", "content": [{"type": "input_text", "text": "Look silently."}]}},
    {"type": "conversation.item.retrieve", "item_id": "i"},
    {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 100},
    {"type": "conversation.item.delete", "item_id": "i"},
    {"type": "response.create"},
    {
        "type": "response.create",
        "response": {"conversation": "none", "input": [{"type": "item_reference", "id": "i"}], "metadata": {"a": "b"}},
    },
    {"type": "response.create", "response": {"input": [], "max_output_tokens": 2, "tool_choice": "required"}},
    {"type": "response.cancel"},
    {"type": "response.cancel", "response_id": "resp_u_3"},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
]
NATIVE: list[dict[str, Value]] = [
    {"type": "text", "text": "Hello"},
    {"type": "text", "id": "a", "text": "Look silently."},
    {"type": "say", "text": "Attention."},
    {"type": "reply.create", "conversation": "none", "output": "text", "input": [{"text": "Classify"}, {"item_id": "i"}]},
    {"type": "reply.create", "instructions": "Be brief.", "max_tokens": 3},
    {"type": "item.add", "role": "user", "text": "Hi.", "item_id": "i", "after": "root"},
    {"type": "item.add", "kind": "result", "call_id": "call_w", "text": "sunny"},
    {"type": "item.delete", "item_id": "i"},
    {"type": "item.retrieve", "item_id": "i"},
    {"type": "item.truncate", "item_id": "i", "audio_ms": 100},
    {"type": "cancel"},
    {"type": "cancel", "turn": 3},
    {"type": "playout", "turn": 1, "played_ms": 250.0, "final": False},
    {"type": "tool.result", "call_id": "call_w", "output": "sunny"},
    {"type": "session.update", "voice": "fake-low", "tools": [{"name": "get_weather"}], "tool_choice": "auto"},
    {"type": "session.start"},
    {"type": "audio", "data": b"\0\0", "pts_ms": 0},
    {"type": "commit"},
    {"type": "ping", "t": 1.5, "id": "p"},
]
STRANGE: list[Value] = [
    None,
    True,
    -1,
    0,
    2**40,
    1.5,
    "",
    "\x00",
    "\u202e",
    "x" * 300,
    [],
    {},
    [[]],
    {"": {}},
    ["text"],
    "i",
    "call_w",
    "none",
]


def mutated(value: Value, chance: random.Random) -> Value:
    """The same with one thing changed somewhere: another value, a key lost, a key too many."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        copy, key = dict(value), chance.choice(list(value))
        match chance.randrange(6):
            case 0:
                del copy[key]
            case 1:
                copy[chance.choice(["id", "item_id", "type", "x"])] = chance.choice(STRANGE)
            case _:
                copy[key] = mutated(value[key], chance)
        return copy
    if isinstance(value, list) and value and chance.random() < 0.7:
        return [mutated(one, chance) for one in value] * chance.randint(1, 2)
    return chance.choice(STRANGE)


def chosen(messages: list[dict[str, Value]], chance: random.Random) -> Value:
    message = chance.choice(messages)
    return message if chance.random() < 0.3 else mutated(message, chance)


def broken(frame: bytes, chance: random.Random) -> bytes:
    """Bytes cut, flipped or doubled."""
    at = chance.randrange(len(frame))
    return chance.choice([frame[:at], frame[:at] + bytes([chance.randrange(256)]) + frame[at + 1 :], frame + frame, chance.randbytes(at)])


async def test_ten_thousand_realtime_messages() -> None:
    chance = random.Random(6)
    model = AnsweringModel()
    async with realtime(model=model) as client:
        for n in range(N_MESSAGES):
            frame = json.dumps(chosen(REALTIME, chance))
            if chance.random() < 0.1:
                frame = broken(frame.encode(), chance).decode("utf-8", "surrogateescape" if n % 2 else "replace")
            client.raw(frame)
            if n % BATCH == 0:
                await asyncio.sleep(chance.choice([0, 0.05, 0.5, 3.0]))
        client.send("response.cancel")
        await asyncio.sleep(60)
        client.send("session.update", event_id="last", session={"instructions": "Still here."})
        await client.settle()
        assert client.events[-1]["session"]["instructions"] == "Still here."
        client.rules.finish()
        assert client.codec._asked == {}
        assert client.codec._responses == {}
        assert (model.n_open, client.scene.voice.n_open, client.scene.session.is_busy) == (0, 0, False)
        assert len(client.of("response.done")) > 50
        assert len(client.of("error")) > 1000


async def test_ten_thousand_native_messages() -> None:
    chance = random.Random(7)
    model, codec = AnsweringModel(), NativeCodec(65_536, 120)
    async with stage(model=model) as scene:
        for n in range(N_MESSAGES):
            frame = msgspec.msgpack.encode(chosen(NATIVE, chance))
            try:
                events = codec.decode(broken(frame, chance) if chance.random() < 0.1 else frame)
            except ClientError as error:
                scene.session.outbox.put(error_frame(error))
                continue
            for event in events:
                scene.send(event)
            if n % BATCH == 0:
                await asyncio.sleep(chance.choice([0, 0.05, 0.5, 3.0]))
                for seq, told in [(seq, told) for _, seq, told in scene.frames[-3:]]:
                    assert codec.encode(told, seq)
        scene.send(Cancel())
        await asyncio.sleep(60)
        scene.send(UpdateSession(instructions="Still here.", tools=()))
        await asyncio.sleep(0.01)
        last: ServerEvent = scene.frames[-1][2]
        assert isinstance(last, SessionUpdated)
        assert last.instructions == "Still here."
        assert (model.n_open, scene.voice.n_open, scene.session.is_busy) == (0, 0, False)
        assert len(scene.of(TurnDone)) > 50
        assert len(scene.of(ErrorRaised)) > 1000


async def test_a_long_conversation_keeps_no_turns() -> None:
    """What a session holds grows with its history, and that is bounded; turns, calls and answers are let go."""
    async with stage(["Yes."]) as scene:
        for n in range(300):
            scene.send(AddItem(text="Hi."))
            scene.send(SendText(id=f"t{n}", text="Hello"))
            await scene.until(ReplyDone, n + 1)
            await scene.until(TurnDone, n + 1)
        scene.frames.clear()
        gc.collect()
        kinds = [type(one).__name__ for one in gc.get_objects()]
        assert kinds.count("Turn") < 40
        assert kinds.count("Speaker") < 40
