"""The parts of one gateway process: built once, started and stopped in order, drained before they go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware

from engine.api import EngineSetupError
from engine.audio_codecs.encoders import EncodingRoom
from engine.build import Engines
from engine.decoding import DecodingRoom
from engine.observer import Observable
from gateway.admission import Admission
from gateway.config import Settings
from gateway.heartbeat import Heartbeat
from gateway.key_watch import KeyWatch
from gateway.metrics import Metrics
from gateway.monitor import keep_phrases, watch_engines, watch_gpu, watch_loop, watch_pressure
from gateway.quota import LIMITS, Quota
from gateway.server.doors import Doors
from gateway.server.guard import Guard
from gateway.sessions import Sessions
from gateway.settling import Book, Settling
from gateway.shedding import Pressure
from gateway.speech.markup import rules_from
from gateway.tickets import MemoryKeeper, TicketKeeper
from gateway.turn import Parts
from gateway.voice_watch import VoiceWatch
from gateway.watching import Watching
from gateway.workers import Desk, Row

TICK_S = 0.05  # how often the drain looks whether turns have finished
CLOSE_S = 3.0  # for the last sockets to take their close frame

if TYPE_CHECKING:
    from gateway.redis_store import RedisStore  # its package is an extra

log = logging.getLogger("stretto.server")


class Gateway:
    """One gateway process: engines, sessions, and the ASGI application over them. Raises `ConfigError` where a library is missing."""

    def __init__(self, settings: Settings, engines: Engines, metrics: Metrics | None = None, row: Row | None = None) -> None:
        self.settings = settings
        self.engines = engines
        self.metrics = metrics or Metrics()
        self.row = row
        n_workers = 1 if row is None else row.worker.count
        self.metrics.process.max_sessions.set(settings.session.max_sessions / n_workers)
        self.admission = Admission(settings.session.max_sessions, None if row is None else row.places)
        self.encoding = EncodingRoom()
        quota = _quota(settings, row)
        has_opus = engines.ears is not None and "opus" in self.encoding.rates()
        self.decoding = DecodingRoom() if has_opus else None
        self.watching = Watching(settings, self.metrics, time.monotonic)
        self.parts = Parts(
            model=engines.model,
            voices=engines.voices,
            metrics=self.metrics,
            settings=settings,
            rules=rules_from(settings.speech),
            now=time.monotonic,  # the loop's own base, but to the microsecond: uvloop counts whole milliseconds
            ears=engines.ears,
            encoding=self.encoding,
            quota=quota,
            decoding=self.decoding,
            pressure=Pressure(settings.shedding),
            watchers=(KeyWatch(quota), *self.watching.watchers),
            moderator=self.watching.moderator,
        )
        self.metrics.process.foresee_keys(settings.keys, LIMITS)
        voices: object = engines.voices
        if isinstance(voices, Observable):
            voices.observe(VoiceWatch(engines.voices, self.metrics))
        store = _shared_store(self.parts)
        settling = Settling(quota, _book(store, row), self.metrics.process.quota_alone, self.parts.now)
        self.sessions = Sessions(self.parts, self.admission, store, None if row is None else row.siblings.holder, settling)
        doors = Doors(self.parts, engines, self.sessions, _keeper(store, row), row, self.watching.captures)
        quota.know(rights.account for rights in doors.entry.access.key_rights)
        self.admission.is_shared = row is not None or bool(settings.session.store_url)
        self.metrics_door = doors.metrics_door
        self.app = Starlette(routes=doors.routes(), middleware=[Middleware(Guard, access=doors.entry.access)])

    @contextlib.asynccontextmanager
    async def running(self, stop: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
        """Engines started, sessions owned, monitors on; everything stopped in reverse. `stop`: begins the end.

        Raises `EngineSetupError`.
        """
        with contextlib.closing(self.encoding):  # after the last turn
            async with self.watching.running(), self.engines.running(), _running(self.decoding), asyncio.TaskGroup() as tasks:
                tasks.create_task(self.sessions.run(), name="sessions")
                await self.sessions.started.wait()
                self.metrics.foresee_voices(voice.engine for voice in self.engines.voices.voices())
                monitors = [
                    tasks.create_task(watch_loop(self.metrics, self.parts.pressure), name="loop monitor"),
                    tasks.create_task(
                        watch_pressure(self.parts.pressure, self.admission, self.metrics, self.parts.now), name="pressure monitor"
                    ),
                    tasks.create_task(
                        watch_engines(self.engines.health, lambda: self.engines.is_ready, self.admission, self.metrics),
                        name="engine monitor",
                    ),
                    tasks.create_task(watch_gpu(self.metrics), name="gpu monitor"),
                    tasks.create_task(Heartbeat(self.parts, self.admission).run(), name="heartbeat"),
                    tasks.create_task(keep_phrases(self.engines.voices, self.settings.tts.voice, self.settings.language), name="phrases"),
                ]
                self.admission.is_ready = self.engines.is_ready
                if self.row is not None:
                    monitors += self._in_row(self.row, tasks, stop)
                try:
                    yield
                finally:
                    self.sessions.stop()
                    for monitor in monitors:
                        monitor.cancel()

    def _in_row(self, row: Row, tasks: asyncio.TaskGroup, stop: Callable[[], None]) -> list[asyncio.Task[None]]:
        """Be there for the other workers, and go with the parent."""
        self.metrics.process.worker_restarts.set(row.places.n_restarts)
        desk = Desk(self.parts, self.sessions, row.own_tickets, self.metrics_door.own_page, self.watching.captures)
        return [
            tasks.create_task(desk.run(row.worker.socket(row.worker.number)), name="desk"),
            tasks.create_task(row.follow_parent(stop), name="parent watch"),
        ]

    async def drain(self) -> None:
        """Refuse newcomers, let running turns finish until the deadline, then close every socket with 4004."""
        self.admission.is_draining = True
        deadline_s = self.settings.server.drain_s
        log.info("draining", extra={"n_sessions": len(self.sessions), "deadline_s": deadline_s})
        self.sessions.drain(deadline_s)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline_s
        while (self.sessions.n_busy or self.admission.carried) and loop.time() < ends_at:
            await self.sessions.flush()  # another gateway may go on with what is dismissed
            self.sessions.dismiss(busy_too=False)
            await asyncio.sleep(TICK_S)
        await self.sessions.flush()
        self.sessions.dismiss(busy_too=True)
        while self.admission.connected and loop.time() < ends_at + CLOSE_S:
            await asyncio.sleep(TICK_S)


def _quota(settings: Settings, row: Row | None) -> Quota:
    """The accounts of the keys, as far as they are shared with other processes."""
    is_shared = row is not None or bool(settings.session.store_url)
    return Quota(settings.keys, is_shared=is_shared, house=None if row is None else row.crowds.of("key"))


def _keeper(store: RedisStore | None, row: Row | None) -> TicketKeeper | None:
    """Where tickets are: with whom everything else is shared."""
    if store is not None:
        return store.tickets(MemoryKeeper(time.monotonic))
    return None if row is None else row.tickets


def _book(store: RedisStore | None, row: Row | None) -> Book | None:
    """Where what keys use is counted: with whom everything else is shared."""
    if store is not None:
        return store.book()
    return None if row is None else row.book


def _shared_store(parts: Parts) -> RedisStore | None:
    """Where other gateways find these sessions; None where they live here alone. Raises `EngineSetupError`."""
    session = parts.settings.session
    if not session.store_url:
        return None
    try:
        from gateway.redis_store import RedisStore
    except ImportError as error:
        raise EngineSetupError(
            f"session.store_url needs the Python package redis; install it: {sys.executable} -m pip install 'stretto[redis]'"
        ) from error
    try:
        return RedisStore(session.store_url, session.store_prefix, session.resume_s, parts.metrics.process.store, parts.now)
    except ValueError as error:  # without its message: the address may hold a password
        raise EngineSetupError("session.store_url is not an address; expected one like redis://:PASSWORD@HOST:6379/0") from error


@contextlib.asynccontextmanager
async def _running(decoding: DecodingRoom | None) -> AsyncIterator[None]:
    """The decoders' process, where clients may send opus; closed after the last session. Raises `EngineSetupError`."""
    if decoding is None:
        yield
        return
    await decoding.start()
    try:
        yield
    finally:
        await decoding.close()
