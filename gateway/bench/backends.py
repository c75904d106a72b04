"""`stretto bench --backends a,b`: the same script against several language models, and what each costs.

Each runs behind a gateway of the bench's own with the same settings but for [llm], so that voice, segmenter and network are the same.
Costs hold for the load of this bench: a GPU costs its hour however few turns it answers, so compare at the load you expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.bench.measuring import Summary
from gateway.bench.own_gateway import own_gateway
from gateway.bench.report import Report
from gateway.bench.scenario import Plan
from gateway.client import ConversationError
from gateway.config import BackendSettings, ConfigError, check, load

START_S = 1800.0  # a 72B model from a slow disk, compiled for the first time
SERVERS = "vllm-serve"  # in the cache folder: what runs on behind a gateway
_PER = 1000  # turns that a cost is told for
Measure = Callable[[Plan, str, str | None, int | None, str], Awaitable[Report]]


class Backend(Struct, frozen=True, kw_only=True):
    """One to compare. `environment` makes the gateway's [llm] section from the file's and its own keys."""

    name: str
    config: Path
    settings: BackendSettings
    environment: dict[str, str]
    key: str | None
    engine: str = ""
    cache: Path = Path()

    @property
    def python(self) -> str:
        """The interpreter of its gateway."""
        return self.settings.python or sys.executable


class Cost(Struct, frozen=True, kw_only=True):
    """Of a thousand turns."""

    tokens: float
    gpus: float

    @property
    def total(self) -> float:
        """Both."""
        return self.tokens + self.gpus


class Row(Struct, frozen=True, kw_only=True):
    """What was found; `fault`: why nothing was."""

    name: str
    report: Report | None = None
    cost: Cost | None = None
    fault: str | None = None
    note: str = ""


def read(config: Path | None, names: Sequence[str]) -> list[Backend]:
    """The named sections of the file. Raises `ConfigError`: no file, an unknown name, settings that do not hold together."""
    if config is None:
        raise ConfigError("--backends names sections of a settings file: give it with --config")
    settings = load(config)
    known = ", ".join(sorted(settings.backends)) or "none"
    found = []
    for name in names:
        if name not in settings.backends:
            raise ConfigError(f"{config} has no section [backends.{name}]; it has {known}")
        backend = settings.backends[name]
        whole = msgspec.to_builtins(settings)
        whole["llm"] |= backend.llm
        checked = check(whole)
        if backend.python and shutil.which(backend.python) is None:
            raise ConfigError(f"backends.{name}.python is {backend.python!r}; expected an interpreter that can be run from here")
        keys = [*settings.server.keys, *(key.key for key in settings.keys.values())]
        environment = {f"STRETTO_LLM__{key.upper()}": toml(value) for key, value in backend.llm.items()}
        found.append(
            Backend(
                name=name,
                config=config,
                settings=backend,
                environment=environment,
                key=keys[0] if keys else None,
                engine=checked.llm.engine,
                cache=checked.cache_path,
            )
        )
    return found


def toml(value: Any) -> str:  # Any: a TOML value
    """The value as TOML writes it on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return msgspec.json.encode(value).decode()  # the same for strings, numbers and truth values


async def compare(backends: Sequence[Backend], plan: Plan, measure: Measure) -> list[Row]:
    """One after the other. One that does not start is a row with a fault, and the others are still measured."""
    rows = []
    for backend in backends:
        print(f"backend {backend.name}: starting its gateway", file=sys.stderr, flush=True)
        try:
            rows.append(await _measured(backend, plan, measure))
        except ConversationError as error:
            rows.append(Row(name=backend.name, fault=str(error), note=backend.settings.note))
    return rows


async def _measured(backend: Backend, plan: Plan, measure: Measure) -> Row:
    own = {"STRETTO_SERVER__HOST": "127.0.0.1", "STRETTO_SERVER__TLS_CERTIFICATE": "", "STRETTO_SERVER__TLS_KEY": ""}
    stamps = {"STRETTO_SERVER__DEBUG_STAMPS": "true", "STRETTO_SERVER__DRAIN_S": "1.0", "STRETTO_LOG__LEVEL": "warning"}
    command = (backend.python, "-m", "gateway", "serve", "--port", "0", "--config", str(backend.config))
    async with own_servers(backend) as cache:
        environment = {**own, **stamps, **cache, **backend.environment}
        async with own_gateway(plan.n_talkers, command, environment, START_S) as gateway:
            report = await measure(plan, gateway.url, backend.key, gateway.pid, backend.name)
    return Row(name=backend.name, report=report, cost=cost_of(backend.settings, report), note=backend.settings.note)


@contextlib.asynccontextmanager
async def own_servers(backend: Backend) -> AsyncGenerator[dict[str, str], None]:
    """A server that the gateway would leave running ends with the block, and one that serves others is left alone.

    Both follow from a cache folder of the bench's own, which lends everything but the servers from the real one.
    """
    if backend.engine != "vllm-serve":
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="stretto-bench-") as folder:
        for entry in backend.cache.iterdir() if backend.cache.is_dir() else ():
            if entry.name != SERVERS:
                (Path(folder) / entry.name).symlink_to(entry)
        settings = {"STRETTO_CACHE_DIR": folder, **backend.environment}
        try:
            yield settings
        finally:
            stop = (backend.python, "-m", "gateway", "serve", "--stop-engine", "--config", str(backend.config))
            process = await asyncio.create_subprocess_exec(*stop, env={**os.environ, **settings})
            await process.wait()


def cost_of(prices: BackendSettings, report: Report) -> Cost | None:
    """What a thousand such turns cost at this load; None where no turn was answered."""
    if not report.n_turns:
        return None
    tokens, cached_price = report.tokens, prices.input_price if prices.cached_price is None else prices.cached_price
    read = (tokens.prompt - tokens.cached) * prices.input_price + tokens.cached * cached_price
    turns_per_hour = report.n_turns / report.load.wall_s * 3600
    return Cost(
        tokens=(read + tokens.output * prices.output_price) / 1e6 / report.n_turns * _PER,
        gpus=prices.gpus * prices.gpu_hour_price / turns_per_hour * _PER,
    )


def as_text(rows: Sequence[Row]) -> str:
    """A table, one backend a column."""
    table = [
        ("milliseconds, p50 / p99", [row.name for row in rows]),
        ("TTFT", [_pair(row, "ttft") for row in rows]),
        ("first segment", [_pair(row, "first_segment") for row in rows]),
        ("first audio", [_pair(row, "first_audio") for row in rows]),
        ("tokens/s within a reply, p50", [_told(row, _speed) for row in rows]),
        ("tokens read / cached / written, a turn", [_told(row, _tokens) for row in rows]),
        ("turns, failed", [_told(row, lambda report: f"{report.n_turns}, {report.n_failed}") for row in rows]),
        ("cost of 1,000 turns: tokens", ["-" if row.cost is None else f"{row.cost.tokens:.3f}" for row in rows]),
        ("cost of 1,000 turns: hours, at this load", ["-" if row.cost is None else f"{row.cost.gpus:.3f}" for row in rows]),
        ("cost of 1,000 turns", ["-" if row.cost is None else f"{row.cost.total:.3f}" for row in rows]),
    ]
    lines = [f"{title:<42}" + "".join(f"{cell:>20}" for cell in cells) for title, cells in table]
    notes = [f"{row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, *notes, *(f"{row.name}: not measured: {row.fault}" for row in rows if row.fault is not None)])


def as_json(rows: Sequence[Row]) -> str:
    """Everything, indented."""
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _told(row: Row, tell: Callable[[Report], str]) -> str:
    return "-" if row.report is None else tell(row.report)


def _pair(row: Row, name: str) -> str:
    found: Summary | None = row.report.times.get(name) if row.report is not None else None
    return "-" if found is None else f"{found.p50:.0f} / {found.p99:.0f}"


def _speed(report: Report) -> str:
    return "-" if report.tokens.per_s is None else f"{report.tokens.per_s.p50:.0f}"


def _tokens(report: Report) -> str:
    n, tokens = max(1, report.n_turns), report.tokens
    return f"{tokens.prompt / n:.0f} / {tokens.cached / n:.0f} / {tokens.output / n:.0f}"
