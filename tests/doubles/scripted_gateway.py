"""A whole gateway on a real socket whose model answers by what it is asked: `python -m tests.doubles.scripted_gateway`.

Everything but the model is what `stretto serve --engines fake` runs; settings come from the environment. Where it listens
(`STRETTO_ASR__ENGINE=fake`), the n-th utterance of every session is the n-th of `fake.heard`. Prints `ready: URL`.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from msgspec import structs

from engine.build import build
from engine.fake_listening import Heard, ScriptedRecognizer
from gateway import config, transport
from gateway.server import Gateway
from tests.doubles.answering import AnsweringModel

FAKE = {"llm.engine": "fake", "tts.engines": ["fake"], "server.port": 0, "server.drain_s": 0.2, "log.level": "warning"}


class ByNumber(ScriptedRecognizer):
    """Each session's utterances from the beginning of the script, however many sessions there are."""

    def _next(self, utterance: str) -> Heard:
        return self.script[(int(utterance.rpartition(":")[2]) - 1) % len(self.script)]


async def serve() -> None:
    settings = config.load(None, overrides=FAKE)
    engines = build(settings.engine_settings())
    engines.model = AnsweringModel(ttft_ms=settings.fake.ttft_ms, itl_ms=settings.fake.itl_ms)
    if engines.ears is not None:
        heard = ByNumber(settings.fake.heard, final_ms=settings.fake.asr_final_ms, partial_ms=settings.fake.asr_partial_ms)
        engines.ears = structs.replace(engines.ears, recognizer=heard)
    listener = transport.listen(settings.server.host, 0)
    gateway = Gateway(settings, engines)
    server = transport.server(gateway.app, settings, None)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with gateway.running(), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]), name="server")
        print(f"ready: http://127.0.0.1:{listener.getsockname()[1]}/", file=sys.stderr, flush=True)
        await stop.wait()
        await gateway.drain()
        server.should_exit = True
    listener.close()


if __name__ == "__main__":
    asyncio.run(serve())
