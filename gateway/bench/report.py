"""What a bench prints: a table for people, JSON for machines, from the same figures."""

from __future__ import annotations

import os
import platform
from typing import Any

import msgspec
from msgspec import Struct

from gateway.bench.measuring import Summary, Tally, Usage, summarize
from gateway.bench.scenario import Plan


class Machine(Struct, frozen=True, kw_only=True):
    """What the figures are worth: the machine and the interpreter."""

    system: str
    python: str
    cores: int
    load_average: float | None


class Load(Struct, frozen=True, kw_only=True):
    """CPU and memory around the measured time. Shares are of one core; None where it could not be read."""

    wall_s: float
    gateway_cpu: float | None
    gateway_children_cpu: float | None
    bench_cpu: float
    gateway_rss_bytes: int | None
    rss_per_idle_session_bytes: float | None


class Tokens(Struct, frozen=True, kw_only=True):
    """By the model's own count, of all turns together; `per_s` within a reply."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    per_s: Summary | None = None


class Report(Struct, frozen=True, kw_only=True):
    """Everything a bench found. Times in milliseconds."""

    url: str
    engines: str
    plan: Plan
    machine: Machine
    n_turns: int
    n_failed: int
    faults: dict[str, int]
    mean_talking: float
    times: dict[str, Summary | None]
    load: Load
    wire_bytes: int
    wire_share_of_json: float | None
    n_frames: int
    n_audio_frames: int
    tokens: Tokens = Tokens()


# key -> (what it is, aim at p50, aim at p99); the aims are those of the README
ROWS: dict[str, tuple[str, float | None, float | None]] = {
    "ttft": ("TTFT (the gateway's clock)", None, None),
    "first_segment": ("first segment, at the client", None, None),
    "first_audio": ("first audio frame, at the client", 300.0, 600.0),
    "own_segment": ("own share: delta -> segment frame", 2.0, 10.0),
    "own_first_audio": ("own share: chunk -> first audio frame", 2.0, 10.0),
    "own_audio": ("own share: chunk -> any unpaced frame", 2.0, 10.0),
    "starved": ("player ran dry before a frame", None, None),
}


def times_of(tally: Tally) -> dict[str, Summary | None]:
    """The rows' figures."""
    return {
        "ttft": summarize(tally.ttft_ms),
        "first_segment": summarize(tally.first_segment_ms),
        "first_audio": summarize(tally.first_audio_ms),
        "own_segment": summarize(tally.own_segment_ms),
        "own_first_audio": summarize(tally.own_first_audio_ms),
        "own_audio": summarize(tally.own_audio_ms),
        "starved": summarize(tally.late_audio_ms),
    }


def tokens_of(tally: Tally) -> Tokens:
    """What the model read and wrote."""
    return Tokens(
        prompt=tally.n_prompt_tokens,
        cached=tally.n_cached_tokens,
        output=tally.n_output_tokens,
        per_s=summarize(tally.tokens_per_s),
    )


def load_of(wall_s: float, before: Usage | None, after: Usage | None, bench_cpu_s: float, idle_bytes: float | None) -> Load:
    """Shares of one core between two readings."""
    is_known = before is not None and after is not None
    return Load(
        wall_s=wall_s,
        gateway_cpu=(after.cpu_s - before.cpu_s) / wall_s if is_known and before and after else None,
        gateway_children_cpu=(after.children_cpu_s - before.children_cpu_s) / wall_s if is_known and before and after else None,
        bench_cpu=bench_cpu_s / wall_s,
        gateway_rss_bytes=after.rss_bytes if after else None,
        rss_per_idle_session_bytes=idle_bytes,
    )


def machine() -> Machine:
    """This machine now. A load average above the cores means that others' work is in the tails."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def as_json(report: Report) -> str:
    """Indented, keys as in `Report`."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_text(report: Report) -> str:
    """A table of at most 100 columns."""
    plan, load = report.plan, report.load
    lines = [
        f"{plan.n_talkers} conversations, {report.n_turns} turns in {load.wall_s:.0f} s, {report.mean_talking:.1f} talking on average; "
        f"{report.n_failed} failed",
        f"engines: {report.engines}; {report.machine.system}, {report.machine.cores} cores, Python {report.machine.python}{_busy(report)}",
        "",
        f"{'milliseconds':<40}{'n':>8}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}   aim p50/p99",
    ]
    lines += [_row(key, report.times[key]) for key in ROWS if key in report.times]
    lines += ["", *_load_lines(load), _wire_line(report)]
    lines += [f"failed {count} times: {what}" for what, count in sorted(report.faults.items())]
    if load.bench_cpu > 0.8:
        lines.append("The bench itself used over 80 % of a core: the times above include its own queue. Use fewer conversations.")
    return "\n".join(lines)


def _busy(report: Report) -> str:
    average = report.machine.load_average
    return "" if average is None else f", load average {average:.1f}"


def _row(key: str, summary: Summary | None) -> str:
    title, aim_p50, aim_p99 = ROWS[key]
    if summary is None:
        return f"{title:<40}{'-':>8}"
    aim = "" if aim_p50 is None else f"   {aim_p50:.0f} / {aim_p99:.0f}"
    return f"{title:<40}{summary.n:>8}{summary.p50:>9.2f}{summary.p95:>9.2f}{summary.p99:>9.2f}{summary.max:>9.2f}{aim}"


def _load_lines(load: Load) -> list[str]:
    lines = []
    if load.gateway_cpu is None or load.gateway_children_cpu is None:
        lines.append("gateway CPU and memory: unknown (--pid names its process; Linux only)")
    else:
        memory = f"{(load.gateway_rss_bytes or 0) / 1e6:.0f} MB"
        lines.append(f"gateway: {load.gateway_cpu:.0%} of a core, its workers {load.gateway_children_cpu:.0%}; memory {memory}")
    if load.rss_per_idle_session_bytes is not None:
        lines.append(f"memory per idle session: {load.rss_per_idle_session_bytes / 1e3:.0f} KB (aim 200)")
    lines.append(f"this bench: {load.bench_cpu:.0%} of a core")
    return lines


def _wire_line(report: Report) -> str:
    rate = report.wire_bytes / 1e6 / report.load.wall_s
    share = "" if report.wire_share_of_json is None else f"; {report.wire_share_of_json:.2f} of the same events as JSON"
    return f"wire: {rate:.2f} MB/s in {report.n_frames} frames ({report.n_audio_frames} audio){share}"


def plain(report: Report) -> Any:
    """Plain values, for tests (Any: a JSON tree)."""
    return msgspec.to_builtins(report)
