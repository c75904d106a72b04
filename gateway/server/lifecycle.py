"""From settings to a process that serves, and from SIGTERM to its end."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import sys

from msgspec import structs

from engine.build import Engines, build
from engine.settings import EngineSettings
from gateway import transport
from gateway.config import Settings
from gateway.server import metrics_door
from gateway.server.gateway import Gateway
from gateway.speech.markup import rules_from
from gateway.speech.phrases import spoken_phrases


async def serve(settings: Settings, tls: ssl.SSLContext | None, listener_ready: asyncio.Future[int] | None = None) -> None:
    """Run a gateway until SIGTERM or SIGINT; a second signal stops it at once.

    Raises `EngineSetupError`, `transport.CannotListen`.
    """
    listeners = _listeners(settings)
    try:
        port, *own_port = (int(listener.getsockname()[1]) for listener in listeners)
        engines = build(_engine_settings(settings))
        _banner(settings, engines, port, tls is not None)
        gateway = Gateway(settings, engines)
        servers = [transport.server(gateway.app, settings, tls)]
        if own_port:
            _say(f"  metrics on http://{_shown_host(settings.metrics.host)}:{own_port[0]}{metrics_door.PATH}")
            servers.append(transport.server(gateway.metrics_door.app, settings, None))
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal, stop)
        async with gateway.running(), asyncio.TaskGroup() as tasks:
            _settle_memory()
            for server, listener in zip(servers, listeners, strict=True):
                tasks.create_task(server.serve(sockets=[listener]), name="server")
            _say(f"ready: {'https' if tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")
            if listener_ready is not None:
                listener_ready.set_result(port)
            await stop.wait()
            stop.clear()
            if gateway.sessions.n_busy:
                _say(f"stopping: replies under way have {settings.server.drain_s:g} s to finish; a second Ctrl-C (or signal) does not wait")
            drain = tasks.create_task(gateway.drain(), name="drain")
            hurry = tasks.create_task(stop.wait(), name="second signal")
            await asyncio.wait([drain, hurry], return_when=asyncio.FIRST_COMPLETED)
            drain.cancel()
            hurry.cancel()
            for server in servers:
                server.should_exit = True
    finally:
        for listener in listeners:
            listener.close()


def _listeners(settings: Settings) -> list[socket.socket]:
    """Of the common port, and of the metrics where they have their own. Raises `transport.CannotListen`."""
    listeners = [transport.listen(settings.server.host, settings.server.port)]
    if settings.metrics.host:
        try:
            listeners.append(transport.listen(settings.metrics.host, settings.metrics.port, "metrics.port"))
        except transport.CannotListen:
            listeners[0].close()
            raise
    return listeners


def _engine_settings(settings: Settings) -> EngineSettings:
    """With the configured phrases as the voices will be asked for them."""
    engines = settings.engine_settings()
    languages = {settings.language, *(persona.language for persona in settings.personas.values() if persona.language)}
    spoken = spoken_phrases(settings.tts.phrases, sorted(languages), rules_from(settings.speech), settings.speech.early_first_segment)
    return structs.replace(engines, tts=structs.replace(engines.tts, phrases=spoken))


def _settle_memory() -> None:
    """Keep the collector off what lives as long as the process: full collections took 70 to 100 ms at 200 sessions."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a young generation of a second's frames; a full collection once in minutes


def _on_signal(stop: asyncio.Event) -> None:
    stop.set()


def _banner(settings: Settings, engines: Engines, port: int, is_tls: bool) -> None:
    _say(f"Stretto on {'https' if is_tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")
    for note in engines.notes:
        _say(f"  {note}")
    n_keys = len(settings.server.keys) + len(settings.keys)
    who = f"{n_keys} key(s)" if n_keys else "no key: everyone who reaches this address may talk"
    _say(f"  access: {who}; at most {settings.session.max_sessions} conversations")


def _shown_host(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else host


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
