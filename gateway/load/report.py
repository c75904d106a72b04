"""Everything a load found, in one frozen tree: its windows, the gateway's and the client's own use, and what may be read off them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gateway.bench.measuring import Summary
from gateway.bench.report import Machine
from gateway.load.plan import Plan, Window
from gateway.load.tally import TIMES, Tally
from gateway.load.watch import Sample, Scrape, quantile_ms

CLIENT_LATE_MS = 20.0  # p99 of the client's own lag: from here on its figures are partly about itself
CLIENT_BUSY = 0.85  # of a core, in one process
SETTLED_SHARE = 2 / 3  # of the samples come before a slope is drawn: pools and caches fill, and the first full collection has to come
Pages = tuple[Scrape | None, Scrape | None]  # at both edges of a window
SLOPE_S = 60.0  # over less than this, an allocator's page steps are all there is to see
TURN_ENDS = ("completed", "interrupted", "superseded", "failed", "refused")


class GatewayUse(Struct, frozen=True, kw_only=True):
    """Of one window; CPU as a share of one core."""

    cpu: float | None = None
    workers_cpu: float | None = None
    cpu_per_guest: float | None = None
    rss_mb: float | None = None
    loop_lag_p99_ms: float | None = None


class ClientUse(Struct, frozen=True, kw_only=True):
    """This side of the measurement. `is_late`: it was itself so late that the window's times are not the gateway's alone."""

    cpu: float
    n_processes: int
    lag_p99_ms: float | None
    is_late: bool


class Stretch(Struct, frozen=True, kw_only=True):
    """One window's figures, or those of the whole load. `guests`: on average; `late_share`: of the audio frames."""

    label: str
    from_s: float
    until_s: float
    guests: float
    counts: dict[str, int]
    errors: dict[str, int]
    times: dict[str, Summary]
    late_share: float | None
    gateway: GatewayUse
    client: ClientUse


class Knocks(Struct, frozen=True, kw_only=True):
    """Connections to a full house: how many were refused, with which codes, and how soon."""

    n: int
    refused: int
    codes: dict[str, int]
    times: Summary | None


class Drain(Struct, frozen=True, kw_only=True):
    """SIGTERM under load. `lost`: turns under way that never ended; `exit_code` of the gateway."""

    open_turns: int
    lost: int
    seconds: float
    exit_code: int | None


class Verdict(Struct, frozen=True, kw_only=True):
    """One limit and what was found. `got` None: the figure was not measured, which breaks the limit."""

    figure: str
    where: str
    expected: str
    got: float | None
    is_kept: bool


class Report(Struct, frozen=True, kw_only=True):
    """All of it. Slopes over the last third of the samples, of a load whose guests stay as many."""

    url: str
    engines: str
    plan: Plan
    machine: Machine
    wall_s: float
    whole: Stretch
    windows: list[Stretch]
    samples: list[Sample]
    rss_slope_kb_per_min: float | None
    files_slope_per_min: float | None
    gateway_errors: dict[str, int]
    knocks: Knocks | None = None
    drain: Drain | None = None
    verdicts: list[Verdict] = []
    notes: list[str] = []

    @property
    def is_kept(self) -> bool:
        """Every limit is kept; without limits: somebody came, and nobody met an error or lost a turn."""
        if self.verdicts:
            return all(verdict.is_kept for verdict in self.verdicts)
        counts = self.whole.counts
        is_clean = not self.whole.errors and not any(counts.get(name) for name in ("lost", "failed", "unanswered"))
        return is_clean and bool(counts.get("visits"))


def stretch(window: Window, tally: Tally, samples: Sequence[Sample], pages: Pages, client: ClientUse) -> Stretch:
    """A window's figures from what was counted and seen in it."""
    times = {name: found for name in TIMES if name in tally.times and (found := tally.times[name].summary()) is not None}
    n_audio, n_late = tally.counts.get("audio_frames", 0), tally.counts.get("late_frames", 0)
    inside = [sample for sample in samples if window.from_s <= sample.at_s <= window.until_s]
    guests = statistics.fmean(sample.live for sample in inside) if inside else 0.0
    return Stretch(
        label=window.label,
        from_s=window.from_s,
        until_s=window.until_s,
        guests=guests,
        counts=dict(sorted(tally.counts.items())),
        errors=dict(sorted(tally.errors.items())),
        times=times,
        late_share=n_late / n_audio if n_audio else None,
        gateway=_gateway_use(inside, guests, pages),
        client=client,
    )


def _gateway_use(inside: Sequence[Sample], guests: float, pages: Pages) -> GatewayUse:
    cpu, workers = _rate([(s.at_s, s.cpu_s) for s in inside]), _rate([(s.at_s, s.workers_cpu_s) for s in inside])
    rss = next((sample.rss_bytes for sample in reversed(inside) if sample.rss_bytes is not None), None)
    before, after = pages
    return GatewayUse(
        cpu=cpu,
        workers_cpu=workers,
        cpu_per_guest=cpu / guests if cpu is not None and guests >= 1 else None,
        rss_mb=None if rss is None else rss / 1e6,
        loop_lag_p99_ms=quantile_ms(before, after, "stretto_loop_lag_seconds", 0.99) if before and after else None,
    )


def client_use(cpu_s: float, seconds: float, n_processes: int, tally: Tally) -> ClientUse:
    """How busy and how late this side was."""
    lag = tally.times["client_lag"].summary() if "client_lag" in tally.times else None
    cpu = cpu_s / seconds if seconds > 0 else 0.0
    is_late = (lag is not None and lag.p99 > CLIENT_LATE_MS) or cpu > CLIENT_BUSY * n_processes
    return ClientUse(cpu=cpu, n_processes=n_processes, lag_p99_ms=None if lag is None else lag.p99, is_late=is_late)


def _rate(points: list[tuple[float, float | None]]) -> float | None:
    known = [(at, value) for at, value in points if value is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def slope_per_min(points: Sequence[tuple[float, float | None]]) -> float | None:
    """Of the last third of a series, per minute; None where they span too little time."""
    known = [(at, value) for at, value in points if value is not None]
    late = known[int(len(known) * SETTLED_SHARE) :]
    if len(late) < 5 or late[-1][0] - late[0][0] < SLOPE_S:
        return None
    return statistics.linear_regression([at for at, _ in late], [value for _, value in late]).slope * 60


def machine_line(report: Report) -> str:
    """What the figures are worth."""
    machine = report.machine
    load = "" if machine.load_average is None else f", load average {machine.load_average:.1f}"
    return f"{machine.system}, {machine.cores} cores, Python {machine.python}{load}"


def as_json(report: Report) -> str:
    """Indented, keys as in `Report`."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
