"""A session with scripted engines on a virtual clock, and a client that records every frame with its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from engine.api import Ears, Synthesizer
from engine.fake import Script, ScriptedModel, ScriptedVoice
from engine.observer import Observable
from gateway import config
from gateway.admission import Admission
from gateway.config import KeySettings
from gateway.events import AudioFrame, ClientEvent, ReportPlayout, ServerEvent, StartSession
from gateway.key_watch import KeyWatch
from gateway.metrics import Metrics
from gateway.quota import Quota
from gateway.session import Attachment, Session
from gateway.sessions import Sessions
from gateway.shedding import Pressure
from gateway.speaker import Encoding, VoicePace
from gateway.speech.markup import DEFAULT, MarkupRules
from gateway.turn import Moderator, Parts, TurnWatcher
from gateway.voice_watch import VoiceWatch

E = TypeVar("E", bound=ServerEvent)


class Stage:
    """One client of one session. `frames`: (seconds since the start, seq, event) in the order they left."""

    def __init__(self, sessions: Sessions, parts: Parts, model: ScriptedModel, voice: ScriptedVoice) -> None:
        self.sessions, self.parts, self.model, self.voice = sessions, parts, model, voice
        self.frames: list[tuple[float, int, ServerEvent]] = []
        self.session: Session
        self.attachment: Attachment
        self.started_at = parts.now()
        self.reports_playout = False
        self._reader: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    async def start(self, start: StartSession | None = None) -> None:
        self.session, self.attachment, self.ready = await self.sessions.open(start or StartSession())
        self._reader = asyncio.create_task(self._read(), name="client")

    async def stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None

    def send(self, event: ClientEvent) -> None:
        self.session.receive(event)

    def time(self) -> float:
        return self.parts.now() - self.started_at

    def of(self, kind: type[E], turn: int | None = None) -> list[E]:
        """Frames of a kind that arrived, of one turn or all."""
        return [e for _, _, e in self.frames if isinstance(e, kind) and (turn is None or getattr(e, "turn", None) == turn)]

    def when(self, kind: type[ServerEvent], turn: int | None = None) -> float:
        """Seconds since the start at which the first frame of this kind arrived."""
        return next(at for at, _, e in self.frames if isinstance(e, kind) and (turn is None or getattr(e, "turn", None) == turn))

    def audio_ms(self, turn: int) -> float:
        """Milliseconds of audio that arrived."""
        return sum(len(frame.data) / 48 for frame in self.of(AudioFrame, turn))

    async def until(self, kind: type[E], turn: int | None = None, *, n: int = 1, timeout_s: float = 120.0) -> E:
        """Wait for the n-th frame of a kind."""
        async with asyncio.timeout(timeout_s):
            while len(found := self.of(kind, turn)) < n:
                self._arrived.clear()
                await self._arrived.wait()
        return found[n - 1]

    def report(self, turn: int, played_ms: float, *, final: bool = False) -> None:
        self.send(ReportPlayout(turn=turn, played_ms=played_ms, final=final))

    async def _read(self) -> None:
        while True:
            seq, event = await self.session.outbox.next()
            self.frames.append((self.time(), seq, event))
            self._arrived.set()
            if self.reports_playout and isinstance(event, AudioFrame) and event.pts_ms == 0:
                self.report(event.turn, 0)


@asynccontextmanager
async def stage(
    replies: Sequence[Script | str] = ("One two three four five. Six seven eight nine ten.",),
    *,
    model: ScriptedModel | None = None,
    voice: ScriptedVoice | None = None,
    settings: dict[str, Any] | None = None,  # Any: a settings tree as TOML gives it
    start: StartSession | None = None,
    ears: Ears | None = None,
    voices: Synthesizer | None = None,
    encoding: Encoding | None = None,
    pace: VoicePace | None = None,
    rules: MarkupRules = DEFAULT,
    watchers: tuple[TurnWatcher, ...] = (),
    moderator: Moderator | None = None,
    limits: KeySettings | None = None,
) -> AsyncIterator[Stage]:
    """A running session store with one started session. `voices`: others than the one scripted `voice`; `limits`: of its key."""
    tree = config.check(settings or {})
    model = model or ScriptedModel(replies)
    voice = voice or ScriptedVoice()
    await model.start()
    await voice.start()
    loop = asyncio.get_running_loop()
    metrics = Metrics(CollectorRegistry())
    quota = Quota({} if limits is None else {"": limits})  # sessions of the stage show no key
    parts = Parts(
        model=model,
        voices=voices or voice,
        metrics=metrics,
        settings=tree,
        rules=rules,
        now=loop.time,
        ears=ears,
        encoding=encoding,
        pace=pace or VoicePace(),
        pressure=Pressure(tree.shedding),
        watchers=(KeyWatch(quota), *watchers),
        moderator=moderator,
        quota=quota,
    )
    able: object = voices
    if isinstance(able, Observable):
        able.observe(VoiceWatch(parts.voices, metrics))
    admission = Admission(tree.session.max_sessions)
    admission.is_ready = True
    sessions = Sessions(parts, admission)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sessions.run())
        await sessions.started.wait()
        scene = Stage(sessions, parts, model, voice)
        try:
            await scene.start(start)
            yield scene
        finally:
            await scene.stop_reading()
            sessions.stop()
