"""The commands of `stretto`: serve, talk, check, bench, load, replay, key."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import re
import ssl
import sys
from collections.abc import Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any

from gateway import bench, check, key, replay, talk
from gateway import load as loading
from gateway.config import ConfigError, Settings, load, unread


def run(arguments: list[str] | None = None) -> int:
    """Run one; returns the exit status (0 fine, 1 failed, 2 wrong use or settings)."""
    parser, words = _parser(), sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(words)
    command: Any = options.command  # Any: argparse stores whatever set_defaults was given
    try:
        status = int(command(options))
        sys.stdout.flush()  # here, where a reader that has left is understood
        return status
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it closes it
        return 141


class _Parser(argparse.ArgumentParser):
    """Tells of what it does not know itself: argparse leaves that to the outermost parser, whose usage names no option."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # Any: as argparse has it
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"not known here: {' '.join(unknown)}{self._advice(unknown[0])}")
        return known, unknown

    def _advice(self, word: str) -> str:
        if not word.startswith("-"):
            return "; words that belong together want quotes"
        near = difflib.get_close_matches(word.partition("=")[0], re.findall(r"--[a-z-]+", self.format_usage()), 1)
        return f"; did you mean {near[0]}?" if near else ""


_OTHERS = (
    ("key", key, "make a key for a client, and the hash of it for the settings"),
    ("check", check, "check settings and say what they would run"),
    ("talk", talk, "say something to a running gateway and hear the answer"),
    ("bench", bench, "measure a running gateway with scripted conversations"),
    ("load", loading, "put a gateway under load: many guests, interruptions, lost lines; report and limits"),
    ("replay", replay, "tell a kept conversation, or have it again with a gateway"),
)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="stretto", description="A real-time voice gateway: one WebSocket in, a spoken reply out.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run the gateway and its page on one port"))
    _add_fetch(commands.add_parser("fetch", help="download the weights that the settings need, where they are missing"))
    for name, module, says in _OTHERS:
        command = commands.add_parser(name, help=says)
        module.add_arguments(command)
        command.set_defaults(command=module.run)
    return parser


def _version() -> str:
    try:
        return f"stretto {metadata.version('stretto')}"
    except metadata.PackageNotFoundError:
        return "stretto, run from a folder without being installed"


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--config", type=Path, help="settings file (TOML); see configs/default.toml for every key")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port (default 8080; 0: any free one, printed)")
    serve.add_argument(
        "--workers", type=int, help="gateway processes behind this port (default 1); they need a language model that they share"
    )
    serve.add_argument("--worker", help=argparse.SUPPRESS)  # NUMBER/COUNT: this process is one of them
    serve.add_argument("--row", type=Path, help=argparse.SUPPRESS)  # the folder that they share
    serve.add_argument("--engines", choices=["auto", "fake"], default="auto", help="fake: scripted model and voice, for tests and benches")
    serve.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop", help="event loop (default uvloop)")
    serve.add_argument("--tls", action="store_true", help="serve HTTPS; without a configured certificate a self-signed one is made")
    serve.add_argument("--stop-engine", action="store_true", help="end the vLLM server that a gateway left running, and serve nothing")
    serve.set_defaults(command=_serve)


def _add_fetch(fetch: argparse.ArgumentParser) -> None:
    fetch.add_argument("--config", type=Path, help="settings file (TOML)")
    fetch.set_defaults(command=_fetch)


def _fetch(options: argparse.Namespace) -> int:
    from engine.api import EngineSetupError
    from engine.build import prepare

    try:
        settings = load(options.config)
        _warn(settings)
        prepare(settings.engine_settings(), lambda line: print(line, file=sys.stderr, flush=True))
        print(f"weights: complete, in {settings.cache_path}", file=sys.stderr)
    except ConfigError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except EngineSetupError as error:
        print(f"cannot fetch: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(options: argparse.Namespace) -> int:
    from engine.api import EngineSetupError
    from gateway import logs, tls, transport

    try:
        settings = load(options.config, overrides=_overrides(options))
        logs.configure(settings.log.level)
        _warn(settings if options.worker is None else None)
        if options.stop_engine:
            return _stop_engine(settings)
        context = tls.context(settings) if options.tls or settings.server.tls_certificate else None
        return int(_run(_serving(settings, context, options), options.loop) or 0)
    except ConfigError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except EngineSetupError as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 1
    except transport.CannotListen as error:
        print(error, file=sys.stderr)
        return 1


def _warn(settings: Settings | None) -> None:
    """Tell of variables that nobody reads; a worker's parent has told."""
    for line in unread(os.environ, settings) if settings is not None else ():
        print(f"WARNING settings: {line}", file=sys.stderr, flush=True)


def _overrides(options: argparse.Namespace) -> dict[str, Any]:  # Any: TOML values
    given = {"server.host": options.host, "server.port": options.port, "server.workers": options.workers}
    fake = {"llm.engine": "fake", "tts.engines": ["fake"]} if options.engines == "fake" else {}
    return {key: value for key, value in given.items() if value is not None} | fake


def _serving(
    settings: Settings, context: ssl.SSLContext | None, options: argparse.Namespace
) -> Coroutine[Any, Any, int | None]:  # Any: of a coroutine
    """What is run: one gateway, the parent of several, or one of these."""
    from gateway import server
    from gateway.workers import Row, Worker

    if options.worker is not None:
        number, count = map(int, options.worker.split("/"))
        return server.serve(settings, context, row=Row(Worker(number=number, count=count, folder=options.row)))
    if settings.server.workers == 1:
        return server.serve(settings, context)
    arguments = ["--engines", options.engines, "--loop", options.loop, "--host", settings.server.host]
    arguments += ["--config", str(options.config)] if options.config is not None else []
    arguments += ["--tls"] if options.tls else []
    return server.serve_in_workers(settings, arguments, is_tls=context is not None)


def _stop_engine(settings: Settings) -> int:
    from engine.build import stop_served

    n_stopped = stop_served(settings.engine_settings())
    print(f"{n_stopped} vLLM server(s) of {settings.cache_path} stopped", file=sys.stderr)
    return 0


def _run(main: Coroutine[Any, Any, int | None], loop: str) -> int | None:  # Any: of a coroutine
    """Run a coroutine on uvloop, which needs less time per message, or on asyncio's own loop."""
    if loop == "uvloop" and sys.platform != "win32":
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)
