"""One conversation as data, and two clients that have it: one speaks native frames, the other Realtime JSON.

What it must come to is the same: the items, what the model was told, what each reply said, and its sound.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from engine.fake import ScriptedModel
from gateway.codecs import Codec
from gateway.codecs.native import NativeCodec
from gateway.codecs.realtime import RealtimeCodec
from gateway.events import StartSession
from tests.doubles.answering import AnsweringModel
from tests.session.stage import Stage, stage

Json = dict[str, Any]  # Any: frames of either protocol
HEARD_MS = 1500
WEATHER = {"name": "get_weather", "description": "Weather of a city.", "parameters": {"type": "object"}}


class Step(Struct, frozen=True):
    """One thing that happens. `does`: settings | ask | stop | aside | tool | note | forget; `text` is what it is about."""

    does: str
    text: str = ""


SCENARIO = (
    Step("settings", "Be kind."),
    Step("note", "They met before."),
    Step("ask", "Hello"),
    Step("tool", "How is the weather?"),
    Step("aside", "Classify this."),
    Step("stop", "Talk at length."),
    Step("forget"),
    Step("ask", "Hello"),
)


class Outcome(Struct):
    """What a conversation came to."""

    replies: list[tuple[str, int]] = []  # what was said, bytes of sound; of replies that were not stopped
    items: list[tuple[str, str]] = []
    prompts: list[list[tuple[str, str]]] = []


class Client(Protocol):
    """Does a step and waits until it is over."""

    async def step(self, step: Step, outcome: Outcome) -> None:
        """Adds the reply to the outcome."""


class Frames:
    """Frames through a codec into a session, and back."""

    def __init__(self, scene: Stage, codec: Codec) -> None:
        self.scene, self.codec = scene, codec
        self.frames: list[Json] = []
        self._arrived = asyncio.Event()

    def push(self, frame: bytes | str) -> None:
        for event in self.codec.decode(frame):
            self.scene.session.receive(event)

    async def read(self) -> None:
        while True:
            seq, event = await self.scene.session.outbox.next()
            for frame in self.codec.encode(event, seq):
                self.frames.append(json.loads(frame) if isinstance(frame, str) else msgspec.msgpack.decode(frame))
            self._arrived.set()

    async def until(self, kind: str, since: int, n: int = 1) -> Json:
        """The n-th frame of a kind behind the first `since`."""
        async with asyncio.timeout(120):
            while len(found := [frame for frame in self.frames[since:] if frame["type"] == kind]) < n:
                self._arrived.clear()
                await self._arrived.wait()
        return found[n - 1]


class NativeClient(Frames):
    """Speaks `stretto.msgpack.v1`."""

    def send(self, kind: str, **fields: Any) -> None:  # Any: of the message
        self.push(msgspec.msgpack.encode({"type": kind, **fields}))

    async def step(self, step: Step, outcome: Outcome) -> None:
        since = len(self.frames)
        if step.does == "settings":
            self.send("session.update", instructions=step.text, tools=[WEATHER])
        elif step.does == "note":
            self.send("item.add", role="assistant", text=step.text, item_id="note")
        elif step.does == "forget":
            self.send("item.delete", item_id="note")
        elif step.does == "aside":
            self.send("reply.create", conversation="none", output="text", input=[{"text": step.text}])
        else:
            self.send("text", text=step.text)
        if step.does == "tool":
            call = await self.until("tool.call", since)
            self.send("tool.result", call_id=call["call_id"], output="sunny")
        if step.does == "stop":
            await self._stop(since)
        elif step.does in ("ask", "tool", "aside"):
            await self.until("turn.done", since)
            said = "".join(frame["text"] for frame in self.frames[since:] if frame["type"] == "text.delta")
            outcome.replies.append((said, sum(len(frame["data"]) for frame in self.frames[since:] if frame["type"] == "audio")))

    async def _stop(self, since: int) -> None:
        turn = (await self.until("audio", since, 25))["turn"]
        self.send("cancel")
        self.send("playout", turn=turn, played_ms=HEARD_MS, final=True)
        await self.until("turn.done", since)


class RealtimeClient(Frames):
    """Speaks OpenAI Realtime."""

    def send(self, kind: str, **fields: Any) -> None:  # Any: of the message
        self.push(json.dumps({"type": kind, **fields}))

    def add(self, role: str, text: str, **fields: Any) -> None:  # Any: of the item
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        self.send("conversation.item.create", item={"type": "message", "role": role, "content": content, **fields})

    async def step(self, step: Step, outcome: Outcome) -> None:
        since = len(self.frames)
        if step.does == "settings":
            self.send("session.update", session={"instructions": step.text, "tools": [{"type": "function", **WEATHER}]})
        elif step.does == "note":
            self.add("assistant", step.text, id="note")
        elif step.does == "forget":
            self.send("conversation.item.delete", item_id="note")
        elif step.does == "aside":
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": step.text}]}
            self.send("response.create", response={"conversation": "none", "output_modalities": ["text"], "input": [item]})
        else:
            self.add("user", step.text)
            self.send("response.create")
        if step.does == "tool":
            call = (await self.until("response.done", since))["response"]["output"][-1]
            self.send("conversation.item.create", item={"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"})
            self.send("response.create")
        if step.does == "stop":
            await self._stop(since)
        elif step.does in ("ask", "tool", "aside"):
            await self.until("response.done", since, 2 if step.does == "tool" else 1)
            outcome.replies.append(self._reply(since))

    def _reply(self, since: int) -> tuple[str, int]:
        spoken = ("response.output_text.delta", "response.output_audio_transcript.delta")
        said = "".join(frame["delta"] for frame in self.frames[since:] if frame["type"] in spoken)
        sound = [base64.b64decode(frame["delta"]) for frame in self.frames[since:] if frame["type"] == "response.output_audio.delta"]
        return said, sum(map(len, sound))

    async def _stop(self, since: int) -> None:
        delta = await self.until("response.output_audio.delta", since, 25)
        self.send("response.cancel")
        self.send("conversation.item.truncate", item_id=delta["item_id"], content_index=0, audio_end_ms=HEARD_MS)
        await self.until("conversation.item.truncated", since)


async def play(kind: type[NativeClient] | type[RealtimeClient], steps: tuple[Step, ...] = SCENARIO) -> Outcome:
    """Have the conversation over one protocol, on a virtual clock."""
    model, outcome = AnsweringModel(), Outcome()
    codec: Codec = NativeCodec(65_536, 120) if kind is NativeClient else RealtimeCodec("u", "stretto", 1 << 20, 3600)
    async with stage(model=model, start=codec.opening or StartSession()) as scene:
        await scene.stop_reading()
        codec.welcome(scene.ready, scene.session.profile.described())
        client = kind(scene, codec)
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(client.read(), name="client")
            for step in steps:
                await client.step(step, outcome)
            reader.cancel()
        outcome.items = [(item.role if item.kind == "message" else item.kind, item.text) for item in scene.session.history]
    outcome.prompts = prompts(model)
    return outcome


def prompts(model: ScriptedModel) -> list[list[tuple[str, str]]]:
    """What the model was told at each request: role and words, calls by name."""
    return [
        [(message.role, message.text + "".join(f"<{call.name}>" for call in message.tool_calls)) for message in request.prompt.messages]
        for request in model.requests
    ]
