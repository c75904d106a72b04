"""From settings to a process that serves, and from SIGTERM to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import ssl
import sys
from collections.abc import Sequence

from msgspec import structs

from engine.api import EngineSetupError
from engine.build import SHARED_MODELS, Engines, build, choose_model
from engine.settings import EngineSettings
from gateway import transport
from gateway.config import Settings
from gateway.server import metrics_door
from gateway.server.gateway import Gateway
from gateway.speech.markup import rules_from
from gateway.speech.phrases import spoken_phrases
from gateway.workers import Launch, Row, supervise


async def serve(
    settings: Settings, tls: ssl.SSLContext | None, listener_ready: asyncio.Future[int] | None = None, *, row: Row | None = None
) -> None:
    """Run a gateway until SIGTERM or SIGINT; a second signal stops it at once. `row`: it is one of several workers.

    Raises `EngineSetupError`, `transport.CannotListen`.
    """
    listeners = _listeners(settings, shares_port=row is not None)
    try:
        port, *own_port = (int(listener.getsockname()[1]) for listener in listeners)
        engines = build(_engine_settings(settings))
        if row is None:
            _banner(settings, engines, port, tls is not None)
        else:
            settings = row.share_of(settings)
        gateway = Gateway(settings, engines, row=row)
        sockets, scrapes = (None if row is None else row.crowds.of(kind) for kind in ("socket", "scrape"))
        servers = [transport.server(gateway.app, settings, tls, sockets)]
        if own_port:
            servers.append(transport.server(gateway.metrics_door.app, settings, None, scrapes))
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with gateway.running(stop.set), asyncio.TaskGroup() as tasks:
            _settle_memory()
            for server, listener in zip(servers, listeners, strict=True):
                tasks.create_task(server.serve(sockets=[listener]), name="server")
            if row is None:
                _announce(settings, port, own_port, tls is not None)
            if listener_ready is not None:
                listener_ready.set_result(port)
            await stop.wait()
            stop.clear()
            await _drain(gateway, stop, speaks=row is None)
            for server in servers:
                server.should_exit = True
    finally:
        for listener in listeners:
            listener.close()


async def _drain(gateway: Gateway, stop: asyncio.Event, *, speaks: bool) -> None:
    """Let replies finish, unless a second signal comes."""
    if gateway.sessions.n_busy and speaks:
        drain_s = gateway.settings.server.drain_s
        _say(f"stopping: replies under way have {drain_s:g} s to finish; a second Ctrl-C (or signal) does not wait")
    async with asyncio.TaskGroup() as tasks:
        drain = tasks.create_task(gateway.drain(), name="drain")
        hurry = tasks.create_task(stop.wait(), name="second signal")
        await asyncio.wait([drain, hurry], return_when=asyncio.FIRST_COMPLETED)
        drain.cancel()
        hurry.cancel()


def _listeners(settings: Settings, *, shares_port: bool) -> list[socket.socket]:
    """Of the common port, and of the metrics where they have their own. Raises `transport.CannotListen`."""
    listeners = [transport.listen(settings.server.host, settings.server.port, shares_port=shares_port)]
    if settings.metrics.host:
        try:
            listeners.append(transport.listen(settings.metrics.host, settings.metrics.port, "metrics.port", shares_port=shares_port))
        except transport.CannotListen:
            listeners[0].close()
            raise
    return listeners


async def serve_in_workers(settings: Settings, arguments: Sequence[str], *, is_tls: bool) -> int:
    """Run `server.workers` gateways behind one port until SIGTERM or SIGINT; the exit status. `arguments`: of `serve`, for each of them.

    Raises `EngineSetupError`, also where each worker would load a language model of its own; `transport.CannotListen`.
    """
    host, count = settings.server.host, settings.server.workers
    engine, why = choose_model(settings.engine_settings())
    if engine not in SHARED_MODELS:
        raise EngineSetupError(
            f"{count} workers would each load the language model {engine} ({why}); expected an engine that they share, "
            'llm.engine = "vllm-serve" or "openai", or --workers 1'
        )
    engines = build(_engine_settings(settings))
    with contextlib.ExitStack() as held:
        port = _reserved(held, host, settings.server.port)
        own_port = [_reserved(held, settings.metrics.host, settings.metrics.port, "metrics.port")] if settings.metrics.host else []
        _banner(settings, engines, port, is_tls)
        _say(f"  workers: {count}, with one language model, and voices and ears for each")
        command = [sys.executable, "-m", "gateway", "serve", *arguments, "--port", str(port)]
        environment = {"STRETTO_METRICS__PORT": str(own_port[0])} if own_port else {}
        return await supervise(
            Launch(command=command, environment=environment, count=count), lambda: _announce(settings, port, own_port, is_tls)
        )


def _reserved(held: contextlib.ExitStack, host: str, port: int, setting: str = transport.PORT_SETTING) -> int:
    return int(held.enter_context(transport.reserve(host, port, setting)).getsockname()[1])


def _announce(settings: Settings, port: int, own_port: Sequence[int], is_tls: bool) -> None:
    """The last line that is printed before the first client can come."""
    if own_port:
        _say(f"  metrics on http://{_shown_host(settings.metrics.host)}:{own_port[0]}{metrics_door.PATH}")
    _say(f"ready: {'https' if is_tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")


def _engine_settings(settings: Settings) -> EngineSettings:
    """With the configured phrases as the voices will be asked for them."""
    engines = settings.engine_settings()
    languages = {settings.language, *(persona.language for persona in settings.personas.values() if persona.language)}
    phrases = (*settings.tts.phrases, *settings.label.notice.values())
    spoken = spoken_phrases(phrases, sorted(languages), rules_from(settings.speech), settings.speech.early_first_segment)
    return structs.replace(engines, tts=structs.replace(engines.tts, phrases=spoken))


def _settle_memory() -> None:
    """Keep the collector off what lives as long as the process: full collections took 70 to 100 ms at 200 sessions."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a young generation of a second's frames; a full collection once in minutes


def _banner(settings: Settings, engines: Engines, port: int, is_tls: bool) -> None:
    _say(f"Stretto on {'https' if is_tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")
    for note in engines.notes:
        _say(f"  {note}")
    n_keys = len(settings.server.keys) + len(settings.keys)
    who = f"{n_keys} key(s)" if n_keys else "no key: everyone who reaches this address may talk"
    _say(f"  access: {who}; at most {settings.session.max_sessions} conversations")
    if settings.capture.folder:
        _say(f"  kept: {_kept(settings)}, word for word, in {settings.capture.folder}")


def _kept(settings: Settings) -> str:
    """Which conversations go into files: who runs this should know."""
    if settings.capture.all:
        return "every conversation whose client does not object"
    keys = [f"of the key {name}" for name, key in settings.keys.items() if key.capture]
    asked = ["that ask for it"] if settings.capture.on_request else []
    return (
        f"conversations {' and '.join([*keys, *asked])}"
        if keys or asked
        else "no conversation (capture.all, on_request and the keys say so)"
    )


def _shown_host(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else host


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
