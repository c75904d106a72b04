"""A Realtime client with a microphone: scripted ears on a virtual clock, real frames through the real codec."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from engine.fake import ScriptedModel
from engine.fake_listening import Heard, ScriptedDetector, ScriptedEndOfTurn, ScriptedRecognizer
from gateway.codecs.realtime import RealtimeCodec
from tests.protocol.realtime_stage import RealtimeStage
from tests.session.microphone import ScriptedEars
from tests.session.stage import stage

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
