"""A speaking client: scripted ears, and a microphone that sends 20 ms of sound or silence at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from engine.api import EndOfTurn, Recognizer, VoiceDetector
from engine.fake import Script, ScriptedModel, ScriptedVoice
from engine.fake_listening import Heard, ScriptedDetector, ScriptedEndOfTurn, ScriptedRecognizer
from gateway.config import KeySettings
from gateway.events import AppendAudio, AudioIn, StartSession
from gateway.turn import Moderator, TurnWatcher
from tests.session.stage import Stage, stage

SOUND = b"\x00\x10" * 320
SILENCE = bytes(640)
FRAME_S = 0.02


class ScriptedEars(Struct, frozen=True):
    recognizer: Recognizer
    detector: VoiceDetector
    end_of_turn: EndOfTurn | None


class Microphone:
    """Sends silence all the time, and sound while somebody speaks, in a task of its own."""

    def __init__(self, scene: Stage) -> None:
        self.scene = scene
        self.is_speaking = False
        self.pts_ms = 0.0
        self.stopped_s = 0.0  # scene time at which the last word ended

    async def run(self) -> None:
        while True:
            data = SOUND if self.is_speaking else SILENCE
            self.scene.send(AppendAudio(data=data, pts_ms=self.pts_ms))
            self.pts_ms += 20
            await asyncio.sleep(FRAME_S)

    async def say(self, ms: float) -> None:
        """Speak for so long."""
        self.is_speaking = True
        await asyncio.sleep(ms / 1000)
        self.is_speaking = False
        self.stopped_s = self.scene.time()


@asynccontextmanager
async def talking(
    heard: Sequence[Heard | str] = ("What is down there?",),
    replies: Sequence[Script | str] = ("One two three four five. Six seven eight nine ten.",),
    *,
    scores: Sequence[float] = (0.9,),
    final_ms: float = 80.0,
    recognizer: ScriptedRecognizer | None = None,
    detector: ScriptedDetector | None = None,
    model: ScriptedModel | None = None,
    voice: ScriptedVoice | None = None,
    settings: dict[str, Any] | None = None,  # Any: a settings tree as TOML gives it
    start: StartSession | None = None,
    watchers: tuple[TurnWatcher, ...] = (),
    moderator: Moderator | None = None,
    limits: KeySettings | None = None,
    streams: bool = True,
) -> AsyncIterator[tuple[Stage, Microphone]]:
    """A session that listens, and its microphone, running where it `streams`."""
    recognizer = recognizer or ScriptedRecognizer(heard, final_ms=final_ms)
    ears = ScriptedEars(recognizer, detector or ScriptedDetector(), ScriptedEndOfTurn(scores) if scores else None)
    for ear in (ears.recognizer, ears.detector, ears.end_of_turn):
        if ear is not None:
            await ear.start()
    start = start or StartSession(audio_in=AudioIn())
    async with (
        stage(
            replies,
            model=model,
            voice=voice,
            settings=settings,
            start=start,
            ears=ears,
            watchers=watchers,
            moderator=moderator,
            limits=limits,
        ) as scene,
        asyncio.TaskGroup() as tasks,
    ):
        microphone = Microphone(scene)
        task = tasks.create_task(microphone.run(), name="microphone") if streams else None
        try:
            yield scene, microphone
        finally:
            if task is not None:
                task.cancel()
