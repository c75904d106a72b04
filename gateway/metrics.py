"""Every Prometheus instrument, and the timeline of a turn from which the latencies derive.

Base unit seconds; labels from closed sets. Each latency is recorded when it happens. A turn that is cancelled before its
first audio counts as abandoned, and against the latency promise when it was older than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Literal, get_args

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from gateway.errors import StrettoError
from gateway.events import InterruptReason, Timeline, TurnStatus, UsageInfo

# Dense to one second, because that is where people feel the difference (vLLM's own buckets start at 0.3 s).
LATENCY_BUCKETS_S = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0,
)  # fmt: skip
SHORT_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

InputKind = Literal["text", "speech"]
PROMISED_FIRST_AUDIO_S = 0.6  # the p99 promise of typed turns
FAULTS = ("failed", "not_ready", "stalled", "busy")  # of any engine; and those of some:
LLM_FAULTS = (*FAULTS, "context_too_long", "cut", "unreachable", "unreadable")
VOICE_FAULTS = (*FAULTS, "refused", "no_voice", "cut", "lost", "protocol", "corrupt")
EAR_FAULTS = (*FAULTS, "refused", "protocol")


class Metrics:
    """All instruments of one gateway process, in one registry (the default one is where vLLM's own metrics are)."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def histogram(name: str, text: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self.registry = registry
        self.ttft = histogram("stretto_ttft_seconds", "Commit to the first token of the reply")
        self.first_segment = histogram("stretto_first_segment_seconds", "Commit to the first segment frame")
        self.tts_first_chunk = histogram("stretto_tts_first_chunk_seconds", "Voice asked to its first chunk of audio", ("engine",))
        self.ttfa = histogram("stretto_ttfa_seconds", "Commit or end of speech to the first audio frame out", ("input",))
        self.perceived = histogram("stretto_perceived_latency_seconds", "Commit or end of speech to the client's first playout", ("input",))
        self.outbox_wait = histogram("stretto_outbox_wait_seconds", "Time a frame waits for the socket", buckets=SHORT_BUCKETS_S)
        self.loop_lag = histogram("stretto_loop_lag_seconds", "How late the event loop wakes up", buckets=SHORT_BUCKETS_S)
        self.segments = counter("stretto_segments", "Segments by why they were cut and how they end", ("cut", "ends", "language"))
        self.turns = counter("stretto_turns", "Turns by how they ended", ("status",))
        self.abandoned = counter("stretto_turns_abandoned", "Turns stopped before their first audio", ("stage",))
        self.promise_missed = counter(
            "stretto_turns_late", "Turns whose first audio, or abandonment, came after the promise or never", ("input",)
        )
        self.interruptions = counter("stretto_interruptions", "Replies stopped before their end", ("kind",))
        self.refused = counter("stretto_admission_refused", "Connections refused", ("reason",))
        self.errors = counter("stretto_errors", "Errors sent to clients", ("code",))
        self.tts_errors = counter("stretto_tts_errors", "Segments a voice failed on", ("engine", "kind"))
        self.tts_faults = counter("stretto_tts_faults", "Faults of voice engines, made good by another one or not", ("engine", "kind"))
        self.tts_rests = counter("stretto_tts_rests", "Times a voice engine was left alone for a while after its faults", ("engine",))
        self.voice_changes = counter("stretto_tts_voice_changes", "Texts that another voice took over", ("asked", "spoken_by"))
        self.engine_errors = counter("stretto_llm_errors", "Replies the language model failed on", ("kind",))
        self.tokens = counter("stretto_tokens", "Tokens by kind; summary and warm_up: beside the turns, less what was cached", ("kind",))
        self.playout_ignored = counter("stretto_playout_reports_ignored", "Playout reports that made no sense")
        self.slow_readers = counter("stretto_slow_readers", "Connections closed because they read too slowly")
        self.sessions = Gauge("stretto_sessions", "Open sessions", registry=registry)
        self.connections = Gauge("stretto_connections", "Open connections", registry=registry)
        self.ready = Gauge("stretto_ready", "1 while engines accept requests", registry=registry)
        self.process = ProcessMetrics(registry)
        self.prompts = PromptMetrics(registry)
        self.watching = WatchingMetrics(registry)
        self.listening = ListeningMetrics(registry)
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Every count that can be foreseen stands there from the start: `rate()` does not see the event that a series begins with."""
        _foresee(self.turns, get_args(TurnStatus))
        _foresee(self.abandoned, ("ttft", "first_segment", "first_audio"))
        _foresee(self.promise_missed, get_args(InputKind))
        _foresee(self.interruptions, get_args(InterruptReason))
        _foresee(self.refused, ("overloaded", "full", "draining", "rate_limited", "shedding", "fair_share"))
        _foresee(self.engine_errors, LLM_FAULTS)
        _foresee(self.errors, sorted(_codes(StrettoError)))
        _foresee(self.tokens, ("prompt", "cached", "output", "summary", "warm_up"))
        for histogram in (self.ttfa, self.perceived):
            _foresee(histogram, get_args(InputKind))

    def foresee_voices(self, engines: Iterable[str]) -> None:
        """These voice engines may fail, rest, and step in for each other."""
        names = sorted(set(engines))
        _foresee(self.tts_errors, names, VOICE_FAULTS)
        _foresee(self.tts_faults, names, VOICE_FAULTS)
        _foresee(self.tts_rests, names)
        _foresee(self.voice_changes, names, names)


class ProcessMetrics:
    """What a gateway process is, may do, refuses, and runs on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # A birth date beside every count, which no rule reads, was a third of each scrape.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client leaves it without
        self.gpu_used = Gauge("stretto_gpu_memory_used_bytes", "GPU memory in use (NVML)", ("gpu",), registry=registry)
        self.gpu_total = Gauge("stretto_gpu_memory_total_bytes", "GPU memory (NVML)", ("gpu",), registry=registry)
        self.max_sessions = Gauge("stretto_max_sessions", "Sessions that are let in at once", registry=registry)
        self.resumed = _counter(registry, "stretto_sessions_resumed", "Sessions whose client came back on another connection")
        self.outages = _counter(registry, "stretto_engine_outages", "Times an engine was ready and then was not", ("engine",))
        _foresee(self.outages, ("llm", "tts", "asr", "vad", "end_of_turn"))
        self.loop_stalls = _counter(
            registry, "stretto_loop_stalls", "Times the event loop was blocked for over 100 ms; the log says by what"
        )
        self.worker_restarts = Gauge("stretto_worker_restarts", "How often this worker was started again after it died", registry=registry)
        self.carried = _counter(
            registry, "stretto_connections_carried", "Connections that were brought to the worker that has their session"
        )
        self.shedding = Gauge("stretto_shedding", "0 open, 1 no drafts and warm-ups, 2 no new sessions", registry=registry)
        self.shed = _counter(registry, "stretto_shedding_changes", "Times the process began to shed more, by why", ("to", "reason"))
        _foresee(self.shed, ("eased", "closed"), ("lag", "ttft"))
        self.store = StoreMetrics(registry)
        refused = "Turns and sessions beyond what their key may use"
        self.quota_refused = _counter(registry, "stretto_quota_refused", refused, ("key", "limit"))
        self.quota_alone = Gauge(
            "stretto_quota_alone", "1 while what keys use at other gateways is not heard: each counts alone", registry=registry
        )
        Gauge("stretto_build_info", "1; which version this is", ("version",), registry=registry).labels(_version()).set(1)

    def foresee_keys(self, names: Iterable[str], limits: Sequence[str]) -> None:
        """These keys may have limits."""
        _foresee(self.quota_refused, sorted(names), limits)


class PromptMetrics:
    """What is done for prompts between turns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.trims = _counter(registry, "stretto_history_trims", "Times the oldest part of a conversation was left out", ("how",))
        self.warm_ups = _counter(registry, "stretto_warm_ups", "Prompts read into the engine's cache ahead", ("kind", "outcome"))
        _foresee(self.trims, ("dropped", "summarized"))
        _foresee(self.warm_ups, ("persona", "conversation"), ("done", "failed"))


class WatchingMetrics:
    """The instruments of those who keep books. `dropped`: their queue was full; `failed`: whoever should take it did not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.traces = _counter(registry, "stretto_traces", "Turns by what became of their trace", ("outcome",))
        self.captures = _counter(registry, "stretto_captures", "Kept conversations by what became of them", ("outcome",))
        self.usage = _counter(registry, "stretto_usage_records", "Records of what turns used, by what became of them", ("outcome",))
        self.moderation = _counter(registry, "stretto_moderation", "Words that were judged before they were heard", ("kind", "verdict"))
        self.moderation_seconds = _histogram(registry, "stretto_moderation_seconds", "How long a judgement took", ("kind",))
        _foresee(self.moderation, ("input", "segment"), ("allowed", "refused", "failed"))
        _foresee(self.traces, ("sent", "dropped", "failed"))
        _foresee(self.usage, ("written", "sent", "retried", "refused", "dropped"))
        _foresee(self.captures, ("begun", "full", "line_dropped", "deleted"))


class ListeningMetrics:
    """The instruments of listening and of drafts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.utterances = _counter(registry, "stretto_utterances", "Stretches of user speech by what became of them", ("outcome",))
        self.end_wait = _histogram(registry, "stretto_end_of_turn_wait_seconds", "Silence that ended an utterance", ("why",))
        self.final_transcript = _histogram(registry, "stretto_final_transcript_seconds", "End of speech to the final text of the utterance")
        self.barge_ins = _counter(registry, "stretto_barge_ins", "Speech over a reply by what it was", ("outcome",))
        self.barge_in_pause = _histogram(registry, "stretto_barge_in_pause_seconds", "Speech over a reply to the pause of its playout")
        self.speculation = _counter(registry, "stretto_speculation", "Draft replies by what became of them", ("outcome",))
        self.speculation_wasted = _counter(registry, "stretto_speculation_wasted_tokens", "Tokens of drafts that were thrown away")
        self.audio_dropped = _counter(registry, "stretto_audio_in_dropped_seconds", "Microphone audio that was not listened to", ("why",))
        self.ear_errors = _counter(registry, "stretto_ear_errors", "Failures of the engines of listening", ("ear", "kind"))
        _foresee(self.utterances, ("text", "empty", "noise", "crowded", "failed"))
        _foresee(self.barge_ins, ("confirmed", "merged", "dismissed"))
        _foresee(self.speculation, ("committed", "changed", "resumed", "cancelled", "failed", "no_headroom"))
        _foresee(self.audio_dropped, ("too_long", "behind"))
        _foresee(self.ear_errors, ("asr", "end_of_turn"), EAR_FAULTS)


class StoreMetrics:
    """The instruments of a store that several gateways share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.away = Gauge("stretto_store_away", "1 while the shared session store does not answer", registry=registry)
        self.errors = _counter(registry, "stretto_store_errors", "Calls of the shared session store that failed", ("call",))
        self.moved = _counter(registry, "stretto_sessions_moved", "Sessions that came from another gateway, or left to one", ("direction",))
        _foresee(self.errors, ("claim", "save", "ticket", "quota"))
        _foresee(self.moved, ("in", "out"))


def _histogram(registry: CollectorRegistry, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
    return Histogram(name, text, labels, buckets=LATENCY_BUCKETS_S, registry=registry)


def _counter(registry: CollectorRegistry, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(name, text, labels, registry=registry)


def _codes(kind: type[StrettoError]) -> set[str]:
    """Every code that a client may be told."""
    return {kind.code}.union(*(_codes(below) for below in kind.__subclasses__()))


def _foresee(metric: Counter | Histogram, *labels: Sequence[str]) -> None:
    """Begin its series: one for every combination."""
    for values in product(*labels):
        metric.labels(*values)


def _version() -> str:
    try:
        return version("stretto")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


class TurnClock:
    """The moments of one turn, marked once; every latency is recorded as its moment comes."""

    def __init__(self, metrics: Metrics, kind: InputKind, started_at: float) -> None:
        self._metrics = metrics
        self._kind = kind
        self.started_at = started_at
        self.ttft_s: float | None = None
        self.first_segment_s: float | None = None
        self.first_audio_s: float | None = None
        self.first_playout_s: float | None = None
        self.reply_done_s: float | None = None

    def first_token(self, now: float) -> None:
        """The engine's first token arrived."""
        if self.ttft_s is None:
            self.ttft_s = now - self.started_at
            self._metrics.ttft.observe(self.ttft_s)

    def segment(self, now: float) -> None:
        """A segment frame was handed out."""
        if self.first_segment_s is None:
            self.first_segment_s = now - self.started_at
            self._metrics.first_segment.observe(self.first_segment_s)

    def audio(self, now: float) -> None:
        """An audio frame was handed out."""
        if self.first_audio_s is None:
            self.first_audio_s = now - self.started_at
            self._metrics.ttfa.labels(self._kind).observe(self.first_audio_s)
            if self.first_audio_s > PROMISED_FIRST_AUDIO_S:
                self._metrics.promise_missed.labels(self._kind).inc()

    def playout(self, now: float, played_ms: float) -> None:
        """The client reported playout; the first sample left its speaker `played_ms` before the report."""
        if self.first_playout_s is None and self.first_audio_s is not None:
            self.first_playout_s = max(self.first_audio_s, now - played_ms / 1000 - self.started_at)
            self._metrics.perceived.labels(self._kind).observe(self.first_playout_s)

    def reply_done(self, now: float) -> None:
        """Everything of the reply was sent."""
        self.reply_done_s = now - self.started_at

    def used(self, usage: UsageInfo) -> None:
        """What the language model has read and made for the turn, however it ended."""
        for kind, n in (("prompt", usage.prompt_tokens), ("cached", usage.cached_tokens), ("output", usage.output_tokens)):
            self._metrics.tokens.labels(kind).inc(n)

    def ended(self, now: float, status: str, *, wants_audio: bool) -> None:
        """The turn is over; one that never sounded was abandoned, or failed and is waited for in vain."""
        self._metrics.turns.labels(status).inc()
        if status == "failed" and wants_audio and self.first_audio_s is None:
            self._metrics.promise_missed.labels(self._kind).inc()
        if status in ("interrupted", "superseded") and wants_audio and self.first_audio_s is None:
            stage = "ttft" if self.ttft_s is None else "first_segment" if self.first_segment_s is None else "first_audio"
            self._metrics.abandoned.labels(stage).inc()
            if now - self.started_at > PROMISED_FIRST_AUDIO_S:
                self._metrics.promise_missed.labels(self._kind).inc()

    def timeline(self) -> Timeline:
        """The moments in milliseconds from the start, as they go on the wire and into the log."""
        return Timeline(
            ttft_ms=_ms(self.ttft_s),
            first_segment_ms=_ms(self.first_segment_s),
            first_audio_ms=_ms(self.first_audio_s),
            first_playout_ms=_ms(self.first_playout_s),
            reply_done_ms=_ms(self.reply_done_s),
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
