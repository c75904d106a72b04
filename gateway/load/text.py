"""A load's report as text: one table with a column for each window, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Callable

from gateway.load.limits import broken
from gateway.load.report import Report, Stretch, machine_line
from gateway.load.tally import COUNTS, TIMES

COLUMNS = 8  # windows side by side; of more, the first and the last ones
_LABEL, _CELL = 54, 17


def as_text(report: Report) -> str:
    """The table, then knocks, drain, errors, notes and limits."""
    shown = report.windows if len(report.windows) <= COLUMNS else [*report.windows[: COLUMNS // 2], *report.windows[-COLUMNS // 2 :]]
    stretches = [*shown, report.whole] if len(shown) != 1 else shown
    counts = report.whole.counts
    lines = [
        f"{counts.get('visits', 0)} visits, {counts.get('asked', 0)} turns asked for in {report.wall_s:.0f} s at {report.url}",
        f"engines: {report.engines}; {machine_line(report)}",
        "",
        _row("guests (" + ("step" if report.plan.curve == "steps" else "from") + ")", [s.label for s in stretches]),
    ]
    lines += [
        _row(f"{title}, ms p50 / p99", [_pair(s, name) for s in stretches])
        for name, title in TIMES.items()
        if any(name in s.times for s in stretches)
    ]
    lines += [_row(title, [tell(s) for s in stretches]) for title, tell in _USE.items()]
    lines += [
        _row(title, [f"{s.counts.get(name, 0):,}" for s in (*shown, report.whole)] if len(shown) != 1 else [f"{counts[name]:,}"])
        for name, title in COUNTS.items()
        if counts.get(name)
    ]
    return "\n".join([*lines, "", *_facts(report)])


def _facts(report: Report) -> list[str]:
    lines = [f"error {code}: {n}" for code, n in report.whole.errors.items()]
    lines += [f"the gateway counted error {code}: {n}" for code, n in report.gateway_errors.items()]
    if (knocks := report.knocks) is not None:
        soon = (
            "" if knocks.times is None else f"; p50 {knocks.times.p50:.1f} ms, p99 {knocks.times.p99:.1f} ms, max {knocks.times.max:.1f} ms"
        )
        codes = ", ".join(f"{code} {n}" for code, n in knocks.codes.items())
        lines.append(f"knocks at a full house: {knocks.refused} of {knocks.n} refused ({codes}){soon}")
    if (drain := report.drain) is not None:
        lines.append(
            f"drain: {drain.open_turns} turns under way, {drain.lost} lost; over in {drain.seconds:.1f} s, exit code {drain.exit_code}"
        )
    if report.rss_slope_kb_per_min is not None:
        lines.append(f"memory slope: {report.rss_slope_kb_per_min:+.1f} KB a minute over the last third")
    lines += report.notes
    lines += [f"limit kept: {v.figure} ({v.where}): {v.got:.6g}, {v.expected}" for v in report.verdicts if v.is_kept]
    lines += [broken(verdict) for verdict in report.verdicts if not verdict.is_kept]
    return lines


_USE: dict[str, Callable[[Stretch], str]] = {
    "late audio frames, share": lambda s: "-" if s.late_share is None else f"{s.late_share:.4%}",
    "gateway CPU, of a core": lambda s: _share(s.gateway.cpu),
    "gateway CPU a guest": lambda s: "-" if s.gateway.cpu_per_guest is None else f"{s.gateway.cpu_per_guest:.3%}",
    "gateway memory": lambda s: "-" if s.gateway.rss_mb is None else f"{s.gateway.rss_mb:.0f} MB",
    "gateway loop lag, p99": lambda s: "-" if s.gateway.loop_lag_p99_ms is None else f"<= {s.gateway.loop_lag_p99_ms:g} ms",
    "this client: CPU, lag p99": lambda s: (
        f"{s.client.cpu:.0%} {'-' if s.client.lag_p99_ms is None else f'{s.client.lag_p99_ms:.1f} ms'}{' LATE' if s.client.is_late else ''}"
    ),
}


def _row(title: str, cells: list[str]) -> str:
    return f"{title:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _pair(found: Stretch, name: str) -> str:
    summary = found.times.get(name)
    return "-" if summary is None else f"{summary.p50:.1f} / {summary.p99:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
