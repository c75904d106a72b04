"""`stretto check`: is a configuration valid, what would it run here, and what is missing? Starts no engine and opens no port for long.

Exit codes: 0 it would run, 1 valid but not on this machine as it is now, 2 the settings are wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from engine.api import EngineSetupError, Voice
from engine.build import build, choose_model, vllm_plan
from engine.vllm_args import doctor
from engine.vllm_check import inspect
from gateway import tls
from gateway.check import files
from gateway.config import LOOPBACK, ConfigError, Settings, is_setting, lines_of, load, unread

WOULD_RUN, CANNOT_RUN, WRONG = 0, 1, 2
LITTLE_DISK_BYTES = 2_000_000_000  # weights of the laptop's engines are about 0.3 GB, a compile cache of vLLM over 1 GB
MARKS = {"fine": "ok  ", "note": "note", "fault": "FAIL"}


class Finding(Struct, frozen=True):
    """One line of the answer. A `fault` keeps the gateway from starting, a `note` is worth reading."""

    kind: Literal["fine", "note", "fault"]
    topic: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config",
        nargs="?",
        type=Path,
        help="settings, a voice table or limits of a load (TOML), or a pasted `vllm serve ...` command in quotes",
    )
    parser.add_argument("--engines", choices=["auto", "fake"], default="auto", help="as for `stretto serve`")
    parser.add_argument("--vllm", metavar="COMMAND", help="a pasted `vllm serve ...` command, or -: judge its flags, print a profile")


def run(args: argparse.Namespace) -> int:
    """Check and print."""
    pasted = args.vllm if args.vllm is not None else _pasted(args.config)
    if pasted is not None:
        return _explain_vllm(sys.stdin.read() if pasted == "-" else pasted)
    overrides = {"llm.engine": "fake", "tts.engines": ["fake"]} if args.engines == "fake" else {}
    text = ""
    try:
        if args.config is not None:
            kind, text, tree = files.read(args.config)
            if kind != "settings":
                return _check_file(args.config, kind, text, tree)
        settings = load(args.config, overrides=overrides)
    except files.NoKind as error:
        print(f"FAIL file: {error}", file=sys.stderr)
        return WRONG
    except ConfigError as error:
        print(f"FAIL settings: {error}{_place(str(error), args.config, text)}", file=sys.stderr)
        return WRONG
    findings = [_source(args.config), *(Finding("note", "settings", text) for text in unread(os.environ, settings)), *examine(settings)]
    for finding in findings:
        print(f"{MARKS[finding.kind]} {finding.topic}: {finding.text}")
    n_faults = sum(finding.kind == "fault" for finding in findings)
    print(f"\n{n_faults} fault(s): `stretto serve` would not start" if n_faults else "\n`stretto serve` would start")
    return CANNOT_RUN if n_faults else WOULD_RUN


def _check_file(path: Path, kind: files.Kind, text: str, tree: dict[str, Any]) -> int:  # Any: TOML
    """Judge a file that is no settings."""
    wrong = files.told(path, text, files.faults(kind, tree))
    for line in wrong:
        print(f"{MARKS['fault']} {kind}: {line}", file=sys.stderr)
    if kind == "voice table":
        for line in files.told(path, text, files.notes(tree)):
            print(f"{MARKS['note']} {kind}: {line}")
    if wrong:
        print(f"\n{len(wrong)} fault(s)", file=sys.stderr)
        return WRONG
    what = ", ".join(f"{len(rows)} {name.removesuffix('s')}(s)" for name, rows in tree.items())
    used = {"voice table": "tts.voice_table", "limits of a load": "stretto load --limits"}[kind]
    print(f"{MARKS['fine']} {kind}: {path} is valid ({what}); it is for {used}")
    return WOULD_RUN


def _place(message: str, path: Path | None, text: str) -> str:
    """The line of the first key that a message names and that the file has."""
    try:
        lines = lines_of(text)
    except RecursionError:
        return ""
    for named in re.findall(r"[a-z_]+(?:\.[\w-]+)*", message):
        parts = named.split(".")
        found = lines.get(tuple(parts)) or next((line for where, line in lines.items() if len(parts) > 1 and _is_it(where, parts)), None)
        if found is not None:
            return f" ({path}, line {found})"
    return ""


def _is_it(where: Sequence[str | int], parts: Sequence[str]) -> bool:
    """Whether a path is meant by a message that leaves out the names of tables: personas.voice of personas.captain.voice."""
    return where[0] == parts[0] and where[-1] == parts[-1] and len(where) == len(parts) + 1


def _pasted(config: Path | None) -> str | None:
    """The command that was given in the place of a file: it has spaces and is no file."""
    return str(config) if config is not None and " " in str(config).strip() and not config.exists() else None


def _explain_vllm(command: str) -> int:
    """Judge a pasted vLLM command; 1 where the vLLM of today would refuse it as it stands."""
    try:
        report = doctor.examine(command)
    except EngineSetupError as error:
        print(f"FAIL command: {error}", file=sys.stderr)
        return WRONG
    for finding in report.findings:
        print(finding)
    print(f"\n{report.profile}", end="")
    return WOULD_RUN if all(finding.exists for finding in report.findings) else CANNOT_RUN


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything worth knowing about valid settings on this machine, in the order of a start."""
    parts: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _address,
        _tls,
        _access,
        _limits,
        _cache,
        _engines,
        _vllm,
        _extras,
        _files,
        _memory,
    )
    for part in parts:
        yield from part(settings)


def _source(path: Path | None) -> Finding:
    names = sorted(name for name in os.environ if is_setting(name))
    origin = "defaults" if path is None else str(path)
    return Finding("fine", "settings", f"valid, from {origin}" + (f" and {', '.join(names)}" if names else ""))


def _address(settings: Settings) -> Iterator[Finding]:
    host, port = settings.server.host, settings.server.port
    reach = "this machine only" if host in LOOPBACK else "reachable from other machines"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        yield Finding("fault", "address", f"cannot listen on {host}:{port}: {error.strerror or error}")
    else:
        yield Finding("fine", "address", f"{host}:{port} is free, {reach}")


def _tls(settings: Settings) -> Iterator[Finding]:
    if not settings.server.tls_certificate:
        if settings.server.host not in LOOPBACK:
            yield Finding("note", "TLS", "off: browsers give no microphone to a page from another machine without it")
        return
    try:
        tls.context(settings)
    except ConfigError as error:
        yield Finding("fault", "TLS", str(error))
    else:
        yield Finding("fine", "TLS", settings.server.tls_certificate)


def _access(settings: Settings) -> Iterator[Finding]:
    keys = [*settings.server.keys, *(named.key for named in settings.keys.values())]
    if keys:
        yield Finding("fine", "access", f"{len(keys)} key(s)")
        short = sum(len(key) < 16 for key in keys)
        if short:
            yield Finding("note", "access", f"{short} key(s) shorter than 16 characters can be guessed")
    else:
        kind: Literal["fine", "note"] = "fine" if settings.server.host in LOOPBACK else "note"
        yield Finding(kind, "access", "no key: everyone who reaches the address may talk")
    if settings.server.origins:
        yield Finding("fine", "access", f"pages of {', '.join(settings.server.origins)} may connect")


def _limits(settings: Settings) -> Iterator[Finding]:
    session, turn = settings.session, settings.turn
    yield Finding(
        "fine",
        "limits",
        f"{session.max_sessions} conversations, replies of {turn.max_tokens} tokens, history of {session.context_tokens}; "
        f"messages of {session.message_bytes} bytes, {session.messages_per_s} a second; idle {session.idle_s:.0f} s, "
        f"resume {session.resume_s:.0f} s, lead {session.lead_ms} ms",
    )
    if settings.server.debug_stamps:
        yield Finding("note", "limits", "server.debug_stamps is on: frames carry the server's clock, for benches")


def _cache(settings: Settings) -> Iterator[Finding]:
    path = settings.cache_path
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        yield Finding("fault", "cache", f"{path} cannot be written; STRETTO_CACHE_DIR moves it")
        return
    free_bytes = shutil.disk_usage(existing).free
    kind: Literal["fine", "note"] = "note" if free_bytes < LITTLE_DISK_BYTES else "fine"
    state = "there" if path.exists() else "will be made at the first start, weights are then downloaded"
    yield Finding(kind, "cache", f"{path}: {state}; {free_bytes / 1e9:.1f} GB free")


def _engines(settings: Settings) -> Iterator[Finding]:
    try:
        engines = build(settings.engine_settings())
    except EngineSetupError as error:
        yield Finding("fault", "engines", str(error))
        return
    for note in engines.notes:
        yield Finding("fine", "engines", note)
    yield from _voices(settings, engines.voices.voices())


def _vllm(settings: Settings) -> Iterator[Finding]:
    """Whether the model, its memory and the GPUs go together; before minutes of loading."""
    engine_settings = settings.engine_settings()
    if choose_model(engine_settings)[0] not in ("vllm", "vllm-serve"):
        return
    session = settings.session
    try:
        plan = vllm_plan(engine_settings)
    except EngineSetupError as error:
        if importlib.util.find_spec("vllm") is None:  # else it is told with the engines
            yield Finding("fault", "vLLM", str(error))
        return
    tokens = session.context_tokens + settings.turn.max_tokens
    for remark in inspect(plan, conversations=session.max_sessions, tokens=tokens, cache_path=settings.cache_path):
        yield Finding(remark.kind, "vLLM", remark.text)


def _extras(settings: Settings) -> Iterator[Finding]:
    """What else a start asks for: packages that the settings need, and keys in the environment."""
    for setting, value, package, extra in (
        ("moderation.url", settings.moderation.url, "httpx", "http"),
        ("tracing.endpoint", settings.tracing.endpoint, "opentelemetry", "otel"),
        ("session.store_url", settings.session.store_url, "redis", "redis"),
    ):
        if value and importlib.util.find_spec(package) is None:
            yield Finding(
                "fault", "packages", f"{setting} is set and {package} is missing: {sys.executable} -m pip install 'stretto[{extra}]'"
            )
    for setting, variable in (("moderation", settings.moderation.key_variable), ("usage", settings.usage.key_variable)):
        if variable and not os.environ.get(variable):
            yield Finding("fault", "environment", f"{setting}.key_variable names {variable}, which is not set")


def _files(settings: Settings) -> Iterator[Finding]:
    """Where it would write, other than the cache."""
    file, folder = Path(settings.usage.file).expanduser(), Path(settings.capture.folder).expanduser()
    if settings.usage.file and not os.access(file if file.exists() else file.parent, os.W_OK):
        yield Finding("fault", "files", f"usage.file {file} cannot be written to")
    if settings.capture.folder and not os.access(next(f for f in (folder, *folder.parents) if f.exists()), os.W_OK):
        yield Finding("fault", "files", f"capture.folder {folder} cannot be written to")


def _voices(settings: Settings, voices: tuple[Voice, ...]) -> Iterator[Finding]:
    if not voices:
        yield Finding("note", "voices", "listed once they have been loaded")
        return
    yield Finding("fine", "voices", ", ".join(f"{voice.id} ({'/'.join(voice.languages)})" for voice in voices[:12]))
    ids = {voice.id for voice in voices}
    for name, persona in settings.personas.items():
        if persona.voice and persona.voice not in ids:
            yield Finding("fault", "voices", f"persona {name} wants {persona.voice!r}, which is none of them")


def _memory(_: Settings) -> Iterator[Finding]:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    free_bytes = int(fields["MemAvailable"].split()[0]) * 1024
    yield Finding("fine", "machine", f"{os.cpu_count()} cores, {free_bytes / 1e9:.1f} GB of memory free")
