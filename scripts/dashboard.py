"""Write `configs/grafana/dashboards/stretto.json`: the Grafana dashboard, out of the table of panels below.

python scripts/dashboard.py            writes the file
python scripts/dashboard.py --check    ends with 1 when the file is not what this table says
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "configs" / "grafana" / "dashboards" / "stretto.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
OWN = 'job=~"$job", instance=~"$instance"'  # what the gateways' own metrics are chosen by
JOB = 'job=~"$job"'  # recorded over all replicas
RATE = "[$__rate_interval]"
WIDTH = 24  # Grafana's grid


class Query(NamedTuple):
    """One expression and its legend (`{{label}}` stands for a label's value)."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One panel; it is placed after the one before. `limits`: (value, color) from which a value is bad, drawn as lines."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False
    limits: tuple[tuple[float, str], ...] = ()
    most: float | None = None


def quantiles(metric: str, by: str = "", shares: tuple[float, ...] = (0.5, 0.95, 0.99), legend: str = "") -> tuple[Query, ...]:
    """Percentiles of a histogram over the dashboard's own interval."""
    labels = ", ".join(filter(None, ("le", by)))
    rate = f"sum by ({labels}) (rate({metric}_bucket{{{OWN}}}{RATE}))"
    return tuple(Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g} {legend}".strip()) for share in shares)


def mean(metric: str) -> str:
    """The mean of a histogram; of means alone the stages of a wait add up."""
    return f"(sum(rate({metric}_sum{{{OWN}}}{RATE})) / sum(rate({metric}_count{{{OWN}}}{RATE})))"


def per_second(metric: str, by: str, legend: str) -> Query:
    """Events a second by a label."""
    return Query(f"sum by ({by}) (rate({metric}{{{OWN}}}{RATE}))", legend)


TTFT, SEGMENT, AUDIO, PLAYED = (
    mean(f"stretto_{name}_seconds") for name in ("ttft", "first_segment", "ttfa", "perceived_latency")
)  # each of them counted from the commit
SEGMENT_LIMIT, AUDIO_LIMIT = ((0.4, "orange"), (0.5, "red")), ((0.5, "orange"), (0.6, "red"))

FELT = (
    Panel(
        "First segment, p99",
        "s",
        (Query(f"stretto:first_segment_seconds:p99_5m{{{JOB}}}", "{{job}}"),),
        "Promised: 500 ms.",
        "stat",
        6,
        4,
        limits=SEGMENT_LIMIT,
    ),
    Panel(
        "First audio of typed turns, p99",
        "s",
        (Query(f'stretto:ttfa_seconds:p99_5m{{{JOB}, input="text"}}', "{{job}}"),),
        "Promised: 600 ms.",
        "stat",
        6,
        4,
        limits=AUDIO_LIMIT,
    ),
    Panel(
        "Perceived latency, p50",
        "s",
        (Query(f"stretto:perceived_latency_seconds:p50_5m{{{JOB}}}", "{{input}}"),),
        "Commit or end of speech to the first sound at the listener.",
        "stat",
        6,
        4,
        limits=AUDIO_LIMIT,
    ),
    Panel(
        "Turns later than promised",
        "percentunit",
        (Query(f"stretto:turns_late:ratio5m{{{JOB}}}", "{{job}}"),),
        "Those included that were given up before they sounded.",
        "stat",
        6,
        4,
        limits=((0.005, "orange"), (0.01, "red")),
    ),
    Panel(
        "Where the wait goes",
        "s",
        (
            Query(TTFT, "1 engine: first token"),
            Query(f"clamp_min({SEGMENT} - {TTFT}, 0)", "2 engine: to the first segment"),
            Query(f"clamp_min({AUDIO} - {SEGMENT}, 0)", "3 voice: to the first audio"),
            Query(f"clamp_min({PLAYED} - {AUDIO}, 0)", "4 network and player: to the first sound"),
        ),
        "Mean length of each stage of a turn, one on top of the other. The upper edge is the mean perceived latency.",
        width=12,
        height=9,
        stacked=True,
    ),
    Panel("Perceived latency", "s", quantiles("stretto_perceived_latency_seconds", "input", legend="{{input}}"), width=12, height=9),
    Panel("TTFT", "s", quantiles("stretto_ttft_seconds"), "Commit to the first token."),
    Panel("First segment", "s", quantiles("stretto_first_segment_seconds"), "Commit to the first segment frame.", limits=((0.5, "red"),)),
    Panel("First audio", "s", quantiles("stretto_ttfa_seconds", "input", legend="{{input}}"), limits=((0.6, "red"),)),
)
TALK = (
    Panel(
        "Talkers",
        "short",
        (
            Query(f"sum(stretto_sessions{{{OWN}}})", "sessions"),
            Query(f"sum(stretto_connections{{{OWN}}})", "connections"),
            Query(f"sum(stretto_max_sessions{{{OWN}}})", "places"),
            Query(f"count(stretto_ready{{{OWN}}} == 1)", "gateways ready"),
        ),
        "A session outlives its connection while its client may come back.",
    ),
    Panel("Turns by how they ended", "ops", (per_second("stretto_turns_total", "status", "{{status}}"),), stacked=True),
    Panel(
        "Interruptions",
        "ops",
        (
            per_second("stretto_interruptions_total", "kind", "{{kind}}"),
            per_second("stretto_turns_abandoned_total", "stage", "before {{stage}}"),
            per_second("stretto_barge_ins_total", "outcome", "speech over a reply: {{outcome}}"),
        ),
        "By what stopped a reply; and turns that were stopped before they sounded, by what had not come yet.",
    ),
    Panel(
        "Refused",
        "ops",
        (
            per_second("stretto_admission_refused_total", "reason", "{{reason}}"),
            per_second("stretto_quota_refused_total", "key, limit", "key {{key}}: {{limit}}"),
            Query(f"sum by (instance) (stretto_quota_alone{{{OWN}}})", "counts keys alone: {{instance}}"),
        ),
        "Callers turned away, and turns and sessions beyond what their key may use.",
    ),
    Panel(
        "Errors",
        "ops",
        (
            per_second("stretto_errors_total", "code", "to clients: {{code}}"),
            per_second("stretto_llm_errors_total", "kind", "model: {{kind}}"),
            per_second("stretto_ear_errors_total", "ear, kind", "{{ear}}: {{kind}}"),
            per_second("stretto_engine_outages_total", "engine", "{{engine}} went away"),
        ),
    ),
    Panel(
        "Moderation",
        "ops",
        (per_second("stretto_moderation_total", "kind, verdict", "{{kind}} {{verdict}}"),),
        "Words that were judged before they were heard.",
    ),
    Panel("Moderation: time to a verdict", "s", quantiles("stretto_moderation_seconds", "kind", legend="{{kind}}")),
    Panel(
        "Connections in trouble",
        "ops",
        (
            Query(f"sum(rate(stretto_slow_readers_total{{{OWN}}}{RATE}))", "slow readers closed"),
            Query(f"sum(rate(stretto_playout_reports_ignored_total{{{OWN}}}{RATE}))", "playout reports ignored"),
        ),
    ),
)
SPEECH = (
    Panel(
        "Punctuation hit rate",
        "percentunit",
        (Query(f"stretto:punctuation_hits:ratio15m{{{JOB}}}", "{{language}}"),),
        "Segments that end with a sentence. Under 60 % the splitter or the model's punctuation needs work.",
        limits=((0.6, "red"),),
        most=1,
    ),
    Panel("Segments by what cut them", "ops", (per_second("stretto_segments_total", "cut", "{{cut}}"),), stacked=True),
    Panel(
        "Speculation", "ops", (per_second("stretto_speculation_total", "outcome", "{{outcome}}"),), "Draft replies by what became of them."
    ),
    Panel(
        "Tokens of drafts thrown away",
        "percentunit",
        (Query(f"stretto:speculation_wasted:ratio5m{{{JOB}}}", "{{job}}"),),
        limits=((0.3, "red"),),
    ),
    Panel("Voices: segment to first chunk", "s", quantiles("stretto_tts_first_chunk_seconds", "engine", (0.5, 0.95), "{{engine}}")),
    Panel("Voices: segments that failed", "ops", (per_second("stretto_tts_errors_total", "engine, kind", "{{engine}}: {{kind}}"),)),
    Panel(
        "Voices: faults",
        "ops",
        (
            per_second("stretto_tts_faults_total", "engine, kind", "{{engine}}: {{kind}}"),
            per_second("stretto_tts_rests_total", "engine", "{{engine}} rests"),
        ),
        "Those too that another engine made good. An engine that fails is left alone for a while.",
    ),
    Panel(
        "Voices: another one stepped in",
        "percentunit",
        (Query(f"stretto:tts_voice_changes:ratio5m{{{JOB}}}", "{{spoken_by}} for {{asked}}"),),
        "Share of the segments.",
        limits=((0.05, "red"),),
    ),
    Panel("Listening: silence that ended a turn", "s", quantiles("stretto_end_of_turn_wait_seconds", "why", (0.5, 0.95), "{{why}}")),
    Panel("Listening: speech over a reply to its pause", "s", quantiles("stretto_barge_in_pause_seconds")),
    Panel("Listening: end of speech to text", "s", quantiles("stretto_final_transcript_seconds")),
    Panel("Microphone audio that was not listened to", "s", (per_second("stretto_audio_in_dropped_seconds_total", "why", "{{why}}"),)),
    Panel("Utterances by what became of them", "ops", (per_second("stretto_utterances_total", "outcome", "{{outcome}}"),), stacked=True),
)
ENGINE = (
    Panel("KV cache in use", "percentunit", (Query("vllm:kv_cache_usage_perc", "{{instance}}"),), limits=((0.9, "red"),), most=1),
    Panel(
        "Requests",
        "short",
        (
            Query("vllm:num_requests_running", "running {{instance}}"),
            Query("vllm:num_requests_waiting", "waiting {{instance}}"),
        ),
        "A request that waits for a place has already missed the promise.",
    ),
    Panel(
        "Prefix cache: tokens that were not read again",
        "percentunit",
        (
            Query(f"sum(rate(vllm:prefix_cache_hits_total{RATE})) / sum(rate(vllm:prefix_cache_queries_total{RATE}))", "engine"),
            Query(
                f'sum(rate(stretto_tokens_total{{{OWN}, kind="cached"}}{RATE}))'
                f' / sum(rate(stretto_tokens_total{{{OWN}, kind="prompt"}}{RATE}))',
                "conversations",
            ),
        ),
        most=1,
    ),
    Panel(
        "Prompts between turns",
        "ops",
        (
            per_second("stretto_history_trims_total", "how", "history {{how}}"),
            per_second("stretto_warm_ups_total", "kind, outcome", "{{kind}} warmed: {{outcome}}"),
        ),
    ),
    Panel("Tokens", "ops", (per_second("stretto_tokens_total", "kind", "{{kind}}"),)),
    Panel(
        "Between tokens",
        "s",
        tuple(
            Query(f"histogram_quantile({share}, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket{RATE})))", f"p{share * 100:g}")
            for share in (0.5, 0.99)
        ),
    ),
    Panel(
        "Preemptions",
        "ops",
        (Query(f"sum by (instance) (rate(vllm:num_preemptions_total{RATE}))", "{{instance}}"),),
        "Replies that lost their place in a full cache and start over.",
    ),
)
MACHINE = (
    Panel(
        "GPU memory",
        "percentunit",
        (Query(f"stretto_gpu_memory_used_bytes{{{OWN}}} / stretto_gpu_memory_total_bytes{{{OWN}}}", "{{instance}} GPU {{gpu}}"),),
        most=1,
    ),
    Panel(
        "GPU memory: swing within a minute",
        "percentunit",
        (Query("stretto:gpu_memory_swing:ratio1m", "{{instance}} GPU {{gpu}}"),),
        limits=((0.15, "red"),),
    ),
    Panel(
        "Event loop: how late it wakes, p99",
        "s",
        (Query(f"stretto:loop_lag_seconds:p99_5m{{{OWN}}}", "{{instance}}"),),
        limits=((0.05, "red"),),
    ),
    Panel("Event loop: stalls over 100 ms", "ops", (per_second("stretto_loop_stalls_total", "instance", "{{instance}}"),)),
    Panel("Outbox: time a frame waits for its socket", "s", quantiles("stretto_outbox_wait_seconds")),
    Panel(
        "CPU of the gateway",
        "percentunit",
        (Query(f"rate(process_cpu_seconds_total{{{OWN}}}{RATE})", "{{instance}}"),),
        "1 is a whole core.",
    ),
    Panel(
        "Books: traces, usage, kept conversations",
        "ops",
        (
            per_second("stretto_traces_total", "outcome", "traces {{outcome}}"),
            per_second("stretto_usage_records_total", "outcome", "usage {{outcome}}"),
            per_second("stretto_captures_total", "outcome", "kept {{outcome}}"),
        ),
        "Dropped: who should take them is slower than the turns.",
    ),
    Panel(
        "Shedding",
        "short",
        (
            Query(f"max by (instance, worker) (stretto_shedding{{{OWN}}})", "{{instance}} {{worker}}"),
            per_second("stretto_shedding_changes_total", "to, reason", "to {{to}}: {{reason}}"),
        ),
        "0 open, 1 no drafts and warm-ups, 2 no newcomers; and how often a second it began, by why.",
    ),
    Panel(
        "Workers and moved sessions",
        "ops",
        (
            Query(f"sum by (instance) (stretto_worker_restarts{{{OWN}}})", "restarts {{instance}} (in all)"),
            per_second("stretto_sessions_resumed_total", "job", "clients that came back"),
            per_second("stretto_sessions_moved_total", "direction", "sessions moved {{direction}}"),
            per_second("stretto_connections_carried_total", "job", "connections carried to their worker"),
            per_second("stretto_store_errors_total", "call", "store: {{call}}"),
            Query(f"sum by (instance) (stretto_store_away{{{OWN}}})", "store away {{instance}}"),
        ),
    ),
    Panel("Gateways by version", "short", (Query(f"count by (version) (stretto_build_info{{{OWN}}})", "{{version}}"),)),
    Panel("Memory of the gateway", "bytes", (Query(f"process_resident_memory_bytes{{{OWN}}}", "{{instance}}"),)),
)
ROWS = {"What a listener feels": FELT, "Conversations": TALK, "Speech": SPEECH, "Engine": ENGINE, "Machine": MACHINE}


def document() -> dict[str, Any]:  # Any: JSON
    """The whole dashboard."""
    return {
        "uid": "stretto",
        "title": "Stretto",
        "tags": ["stretto"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": [_alerts()]},
        "panels": _placed(),
    }


def _variables() -> list[dict[str, Any]]:  # Any: JSON
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    chosen = []
    for name, query in (("job", "label_values(stretto_ready, job)"), ("instance", 'label_values(stretto_ready{job=~"$job"}, instance)')):
        every = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        chosen.append({"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, **every})
    return [source, *chosen]


def _alerts() -> dict[str, Any]:  # Any: JSON
    expression = 'ALERTS{alertname=~"Stretto.*", alertstate="firing"}'
    return {"name": "Alerts", "datasource": SOURCE, "enable": True, "iconColor": "red", "expr": expression, "titleFormat": "{{alertname}}"}


def _placed() -> list[dict[str, Any]]:  # Any: JSON
    """Rows of panels, filled from left to right; numbered in order."""
    placed: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        placed.append({"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(_panel(panel, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    for number, panel_json in enumerate(placed, 1):
        panel_json["id"] = number
    return placed


def _panel(panel: Panel, x: int, y: int) -> dict[str, Any]:  # Any: JSON
    """One panel as Grafana reads it."""
    steps = [{"color": "green", "value": None}, *({"color": color, "value": value} for value, color in panel.limits)]
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 40 if panel.stacked else 8, "showPoints": "never"}
    custom |= {"stacking": {"mode": "normal"}} if panel.stacked else {}
    custom |= {"thresholdsStyle": {"mode": "line"}} if panel.limits else {}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    defaults |= {"custom": custom} if panel.kind == "timeseries" else {}
    defaults |= {} if panel.most is None else {"max": panel.most}
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options if panel.kind == "timeseries" else {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"},
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend, "range": True}
            for n, query in enumerate(panel.queries)
        ],
    }


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 when the file is out of date")
    options = parser.parse_args()
    text = json.dumps(document(), indent=1) + "\n"
    if not options.check:
        FILE.write_text(text, "utf-8")
        return 0
    if not FILE.is_file() or FILE.read_text("utf-8") != text:
        print(f"{FILE.name} is not what the table says; run: python scripts/dashboard.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
