"""A load's report as one HTML page: charts as inline SVG and the figures as tables. No script, no file beside it."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from gateway.load.charts import Line, chart
from gateway.load.report import Report, Stretch, machine_line
from gateway.load.tally import COUNTS, TIMES

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --rule: #d5dae1; --paper: #ffffff;
  --one: #2563a8; --two: #c2571a; --three: #3d8b40; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --rule: #3a4352; --paper: #161a20;
  --one: #7db2ea; --two: #eda06c; --three: #86c98a; --bad: #f2877f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; } p { margin: .3rem 0; }
.soft { color: var(--soft); } .bad { color: var(--bad); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 1.2rem; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: .2rem; } svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
"""


def as_html(report: Report) -> str:
    """The whole page."""
    failed = [verdict for verdict in report.verdicts if not verdict.is_kept]
    verdict = ""
    if report.verdicts:
        verdict = f'<p class="bad">{len(failed)} limit(s) broken</p>' if failed else "<p>All limits kept.</p>"
    body = [
        "<h1>Load on a Stretto gateway</h1>",
        f'<p class="soft">{escape(report.url)}; engines: {escape(report.engines)}; '
        f"{escape(machine_line(report))}; {report.wall_s:.0f} s</p>",
        verdict,
        *(f'<p class="bad">{escape(note)}</p>' for note in report.notes),
        f'<div class="charts">{"".join(_charts(report))}</div>',
        "<h2>Times, milliseconds p50 / p99</h2>",
        _table(report.windows, report.whole, _times_rows(report)),
        "<h2>Counts</h2>",
        _table(report.windows, report.whole, _count_rows(report)),
        *_errors(report),
        *_limits(report),
    ]
    return f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\
<title>Stretto load</title><style>{_STYLE}</style></head><body>{"".join(body)}</body></html>\n'


def _charts(report: Report) -> list[str]:
    is_steps = report.plan.curve == "steps"
    across = [(float(s.label) if is_steps else s.guests, s) for s in report.windows if s.counts]
    guests = "guests"
    times = [(sample.at_s, sample) for sample in report.samples if sample.at_s >= 0]
    first = [
        Line(f"{kind} {point}", [(x, getattr(s.times[name], point)) for x, s in across if name in s.times])
        for name, kind in (("first_audio", "typed"), ("first_audio_spoken", "spoken"))
        for point in ("p50", "p99")
    ]
    own = [
        Line(f"{kind} p99", [(x, s.times[name].p99) for x, s in across if name in s.times])
        for name, kind in (("own_segment", "delta to segment"), ("own_first_audio", "chunk to first audio"))
    ]
    late = [Line("late", [(x, 100 * s.late_share) for x, s in across if s.late_share is not None])]
    per_guest = [Line("per guest", [(x, 100 * s.gateway.cpu_per_guest) for x, s in across if s.gateway.cpu_per_guest is not None])]
    cpu = [Line("gateway", _cpu_points(report)), Line("client", [((s.from_s + s.until_s) / 2, 100 * s.client.cpu) for s in report.windows])]
    rss = [Line("memory", [(at, s.rss_bytes / 1e6) for at, s in times if s.rss_bytes is not None])]
    present = [Line("guests", [(at, float(s.live)) for at, s in times])]
    return [
        chart("First audio over guests", guests, "ms", first),
        chart("The gateway's own share over guests", guests, "ms", own),
        chart("Late audio frames over guests", guests, "%", late),
        chart("CPU a guest", guests, "% of a core", per_guest),
        chart("CPU over time", "seconds", "% of a core", cpu),
        chart("Memory of the gateway", "seconds", "MB", rss),
        chart("Guests", "seconds", "", present),
    ]


def _cpu_points(report: Report) -> list[tuple[float, float]]:
    known = [(sample.at_s, sample.cpu_s) for sample in report.samples if sample.cpu_s is not None and sample.at_s >= 0]
    return [((a + b) / 2, 100 * (y - x) / (b - a)) for (a, x), (b, y) in pairwise(known) if b > a]


def _times_rows(report: Report) -> list[tuple[str, list[str]]]:
    stretches = [*report.windows, report.whole]
    return [
        (title, ["-" if (found := s.times.get(name)) is None else f"{found.p50:.1f} / {found.p99:.1f}" for s in stretches])
        for name, title in TIMES.items()
        if any(name in s.times for s in stretches)
    ]


def _count_rows(report: Report) -> list[tuple[str, list[str]]]:
    stretches = [*report.windows, report.whole]
    return [(title, [f"{s.counts.get(name, 0):,}" for s in stretches]) for name, title in COUNTS.items() if report.whole.counts.get(name)]


def _table(windows: list[Stretch], whole: Stretch, rows: list[tuple[str, list[str]]]) -> str:
    head = "".join(f"<th>{escape(s.label)}</th>" for s in (*windows, whole))
    lines = "".join(f"<tr><td>{escape(title)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for title, cells in rows)
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{lines}</table></div>'


def _errors(report: Report) -> list[str]:
    rows = [(f"met by guests: {code}", n) for code, n in report.whole.errors.items()]
    rows += [(f"counted by the gateway: {code}", n) for code, n in report.gateway_errors.items()]
    if not rows:
        return ["<h2>Errors</h2><p>None.</p>"]
    return ["<h2>Errors</h2><table>", *(f"<tr><td>{escape(what)}</td><td>{n:,}</td></tr>" for what, n in rows), "</table>"]


def _limits(report: Report) -> list[str]:
    if not report.verdicts:
        return []
    lines = [
        f"<tr{'' if v.is_kept else ' class=bad'}><td>{escape(v.figure)}</td><td>{escape(v.where)}</td>"
        f"<td>{'not measured' if v.got is None else f'{v.got:.6g}'}</td><td>{escape(v.expected)}</td></tr>"
        for v in report.verdicts
    ]
    return [
        '<h2>Limits</h2><div class="scroll"><table><tr><th>figure</th><th>where</th><th>got</th><th>expected</th></tr>',
        *lines,
        "</table></div>",
    ]
