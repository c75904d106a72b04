"""The `stretto` command: serve, talk, check, bench, load, key."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from gateway import bench, check, key, talk
from gateway import load as loading
from gateway.config import ConfigError, Settings, load


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status (0 fine, 1 failed, 2 wrong use or settings)."""
    options = _parser().parse_args(arguments)
    command: Any = options.command  # Any: argparse stores whatever set_defaults was given
    try:
        return int(command(options))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stretto", description="A real-time voice gateway: one WebSocket in, a spoken reply out.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run the gateway and its page on one port"))
    _add_fetch(commands.add_parser("fetch", help="download the weights that the settings need, where they are missing"))
    keys = commands.add_parser("key", help="make a key for a client, and the hash of it for the settings")
    key.add_arguments(keys)
    keys.set_defaults(command=key.run)
    checking = commands.add_parser("check", help="check settings and say what they would run")
    check.add_arguments(checking)
    checking.set_defaults(command=check.run)
    talking = commands.add_parser("talk", help="say something to a running gateway and hear the answer")
    talk.add_arguments(talking)
    talking.set_defaults(command=talk.run)
    measuring = commands.add_parser("bench", help="measure a running gateway with scripted conversations")
    bench.add_arguments(measuring)
    measuring.set_defaults(command=bench.run)
    crowd = commands.add_parser("load", help="put a gateway under load: many guests, interruptions, lost lines; report and limits")
    loading.add_arguments(crowd)
    crowd.set_defaults(command=loading.run)
    return parser


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--config", type=Path, help="settings file (TOML); see configs/default.toml for every key")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port (default 8080; 0: any free one, printed)")
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
        prepare(load(options.config).engine_settings(), lambda line: print(line, file=sys.stderr, flush=True))
    except ConfigError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except EngineSetupError as error:
        print(f"cannot fetch: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(options: argparse.Namespace) -> int:
    from engine.api import EngineSetupError
    from gateway import logs, server, tls, transport

    overrides: dict[str, Any] = {}  # Any: TOML values
    if options.host is not None:
        overrides["server.host"] = options.host
    if options.port is not None:
        overrides["server.port"] = options.port
    if options.engines == "fake":
        overrides |= {"llm.engine": "fake", "tts.engines": ["fake"]}
    try:
        settings = load(options.config, overrides=overrides)
        logs.configure(settings.log.level)
        if options.stop_engine:
            return _stop_engine(settings)
        context = tls.context(settings) if options.tls or settings.server.tls_certificate else None
        _run(server.serve(settings, context), options.loop)
    except ConfigError as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    except EngineSetupError as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 1
    except transport.CannotListen as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _stop_engine(settings: Settings) -> int:
    from engine.build import stop_served

    n_stopped = stop_served(settings.engine_settings())
    print(f"{n_stopped} vLLM server(s) of {settings.cache_path} stopped", file=sys.stderr)
    return 0


def _run(main: Any, loop: str) -> None:
    """Run a coroutine on uvloop, which needs less time per message, or on asyncio's own loop (Any: what it returns does not matter)."""
    if loop == "uvloop" and sys.platform != "win32":
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)


if __name__ == "__main__":
    sys.exit(main())
