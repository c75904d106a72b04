"""A gateway whose engines break when told to: one order a line on standard input. Everything else is what `serve` runs.

Scripted engines, or real ones where a language model is configured; that is killed and stopped from outside, orders for it do nothing.

model dies | model stalls | model lives | voice fails SHARE | voice stalls | voice lives | loop blocks S | disk full | disk free
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import uvloop

from engine.api import Delta, EngineError, Generation, Health, SpeechChunk, Synthesis, Synthesizer, Voice
from engine.build import build
from engine.fake import ScriptedModel, ScriptedVoice
from engine.observer import Observable, VoiceObserver
from engine.tts.phrases import KeptPhrases
from gateway import config, logs, transport
from gateway.server import Gateway

FAKE = {"llm.engine": "fake", "tts.engines": ["fake"]}


class BreakableModel(ScriptedModel):
    """Stops in the middle of its replies while it `stalls`."""

    is_stalled = False

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        async with aclosing(super().generate(generation)) as deltas:
            async for delta in deltas:
                while self.is_stalled and not self.is_cancelled(generation.request_id):
                    await asyncio.sleep(0.02)
                yield delta

    def is_cancelled(self, request_id: str) -> bool:
        return request_id in self.cancelled


class BreakableVoice:
    """Voices that fail every n-th text, or none; and keep silent while they `stall`."""

    every: float = 0.0
    is_stalled = False
    n_asked = 0

    def __init__(self, voices: Synthesizer) -> None:
        self._voices = voices

    @property
    def name(self) -> str:
        return self._voices.name

    async def start(self) -> None:
        await self._voices.start()

    async def close(self) -> None:
        await self._voices.close()

    def health(self) -> Health:
        return self._voices.health()

    def voices(self) -> tuple[Voice, ...]:
        return self._voices.voices()

    def can_speak(self, text: str, voice: str) -> bool:
        return self._voices.can_speak(text, voice)

    def observe(self, observer: VoiceObserver) -> None:
        able: object = self._voices
        if isinstance(able, Observable):
            able.observe(observer)

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        self.n_asked += 1
        if self.every and self.n_asked % round(self.every) == 0:
            raise EngineError("ordered to fail")
        while self.is_stalled:
            await asyncio.sleep(0.02)
        async with aclosing(self._voices.synthesize(synthesis)) as chunks:
            async for chunk in chunks:
                yield chunk


class Orders:
    """What each line does."""

    def __init__(self, model: BreakableModel, voice: BreakableVoice) -> None:
        self._model, self._voice = model, voice
        self._does: dict[str, Callable[[str], None]] = {
            "model dies": lambda _: self._model.die("killed on purpose"),
            "model stalls": lambda _: setattr(self._model, "is_stalled", True),
            "voice fails": lambda share: setattr(self._voice, "every", 1 / float(share)),
            "voice stalls": lambda _: setattr(self._voice, "is_stalled", True),
            "loop blocks": lambda seconds: block_the_loop(float(seconds)),
            "disk full": lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])),
            "disk free": lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
        }

    async def follow(self) -> None:
        """Until the input ends."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().strip():
            if line == "model lives":
                self._model.is_stalled = False
                await self._model.start()
            elif line == "voice lives":
                self._voice.every, self._voice.is_stalled = 0.0, False
            else:
                order = " ".join(line.split()[:2])
                self._does[order](line.removeprefix(order).strip())


def block_the_loop(seconds: float) -> None:
    """What must be found in the log. No sleep: under libfaketime Python's own fails."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


async def serve() -> None:
    is_scripted = "STRETTO_LLM__ENGINE" not in os.environ
    settings = config.load(None, overrides=FAKE if is_scripted else {})
    logs.configure(settings.log.level)
    fake = settings.fake
    engines = build(settings.engine_settings())
    model = BreakableModel([fake.reply], ttft_ms=fake.ttft_ms, itl_ms=fake.itl_ms)
    spoken = ScriptedVoice(first_chunk_ms=fake.tts_first_chunk_ms, rtf=fake.tts_rtf) if is_scripted else engines.voices
    voice = BreakableVoice(spoken)
    engines.voices = KeptPhrases(voice, settings.cache_path / "phrases", list(settings.tts.phrases))
    if is_scripted:
        engines.model = model
    gateway = Gateway(settings, engines)
    listener = transport.listen(settings.server.host, 0)
    server = transport.server(gateway.app, settings, None)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with gateway.running(), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]), name="server")
        orders = tasks.create_task(Orders(model, voice).follow(), name="orders")
        print(f"ready: http://127.0.0.1:{listener.getsockname()[1]}/", file=sys.stderr, flush=True)
        await stop.wait()
        await gateway.drain()
        orders.cancel()
        server.should_exit = True
    listener.close()


if __name__ == "__main__":
    uvloop.run(serve())
