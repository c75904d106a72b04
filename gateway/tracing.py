"""A trace of every turn: its stages as spans, made from the turn's record when it is over, and sent by OTLP (http/protobuf).

On the loop a turn costs one entry in a bounded backlog; spans are built and sent in its thread. Ids follow from session and turn, so that
a turn can name the one it interrupted whichever of them ends first. Attributes are ids, names, counts and lengths, never content.
OpenTelemetry is imported here alone, and only where an endpoint is configured.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from gateway.backlog import Backlog
from gateway.config import ConfigError, TracingSettings
from gateway.metrics import Metrics
from gateway.turn import Caller, TurnRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

MOST_TURNS = 4096  # waiting for the collector; about 3 KB each
PAUSE_S = 1.0  # turns are gathered for so long
SEND_S = 5.0  # for one request, its retries included
CLOSE_S = 2.0  # for what is left when the gateway stops
REMEMBERED_SESSIONS = 4096  # whose interrupted turns and dropped drafts the next turn may have to name
REMEMBERED_STOPS = 8  # of one session; a turn that is interrupted before its record comes has interrupted another one itself
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Attributes = Mapping[str, str | int | float]


class Stage(Struct, frozen=True, kw_only=True):
    """A span to be: seconds of the loop's clock. `events`: (name, moment) inside it."""

    name: str
    start_s: float
    end_s: float
    attributes: Attributes = {}
    events: tuple[tuple[str, float], ...] = ()
    has_failed: bool = False


class _Past(Struct):
    """What the next turn of a session links to: (turn, draft, who it was for) of interrupted turns and of dropped drafts."""

    stopped: list[tuple[int, int, Caller]] = []
    drafts: list[tuple[int, int, Caller]] = []


class _Job(Struct, frozen=True):
    """`offset_ns`: wall time less the loop's."""

    record: TurnRecord
    links: tuple[tuple[str, int, int, Caller], ...]
    offset_ns: int


def stages(record: TurnRecord) -> Iterator[Stage]:
    """The stages of a turn, in the order in which they begin; the turn itself is their parent."""
    spoken, end_s = record.spoken, record.ended_s
    if spoken is not None:
        yield Stage(name="listening", start_s=spoken.began_s, end_s=spoken.ended_s)
        yield Stage(name="endpointing", start_s=spoken.ended_s, end_s=spoken.decided_s)
        yield Stage(name="asr.final", start_s=spoken.decided_s, end_s=spoken.text_s)
    yield from _generation(record)
    if record.segments and record.first_delta_s is not None:
        yield Stage(name="segmenter.first_segment", start_s=record.first_delta_s, end_s=record.segments[0].decided_s)
    for segment in record.segments:
        if segment.asked_s is None:
            continue
        about: dict[str, str | int | float | None]
        about = {"index": segment.index, "characters": segment.n_characters, "voice": segment.voice, "status": segment.status}
        yield Stage(
            name="tts.segment",
            start_s=segment.asked_s,
            end_s=end_s if segment.made_s is None else segment.made_s,
            attributes=_named(about | {"audio_ms": segment.audio_ms, "waited_ms": _ms(segment.asked_s - segment.decided_s)}),
            events=() if segment.sounded_s is None else (("first_chunk", segment.sounded_s),),
            has_failed=segment.status == "failed",
        )
    if record.timeline.first_audio_ms is not None:
        heard = record.timeline.first_playout_ms
        yield Stage(
            name="playout",
            start_s=record.started_s + record.timeline.first_audio_ms / 1000,
            end_s=end_s,
            attributes=_named({"audio_ms": record.audio_ms, "heard_ms": record.heard_ms}),
            events=() if heard is None else (("first_playout", record.started_s + heard / 1000),),
        )


def _generation(record: TurnRecord) -> Iterator[Stage]:
    """Nothing for `say`, of which no model makes a token."""
    has_failed, first_s = record.status == "failed", record.first_delta_s
    if first_s is None:
        yield Stage(name="llm.first_token", start_s=record.asked_s, end_s=record.ended_s, has_failed=has_failed)
    elif record.usage.output_tokens or record.timeline.ttft_ms is not None:
        made_s = record.ended_s if record.generated_s is None else record.generated_s
        yield Stage(name="llm.first_token", start_s=record.asked_s, end_s=first_s)
        tokens = {"gen_ai.usage.input_tokens": record.usage.prompt_tokens, "gen_ai.usage.output_tokens": record.usage.output_tokens}
        cached = {"gen_ai.usage.cache_read.input_tokens": record.usage.cached_tokens}
        yield Stage(name="llm.generation", start_s=first_s, end_s=made_s, attributes={**tokens, **cached})


def whole(record: TurnRecord) -> Stage:
    """The turn, or the draft that was thrown away."""
    begins_s = min(record.started_s, record.asked_s) if record.spoken is None else record.spoken.began_s
    names = ("turn", "status", "input", "output", "language", "voice", "n_segments", "n_characters", "audio_ms", "heard_ms", "draft")
    about = {name: getattr(record, name) for name in names}
    about |= {"session_id": record.session_id, "key": record.caller.key, "stopped_by": record.stopped_by, "error": record.error}
    about |= structs.asdict(record.timeline)
    return Stage(
        name="stretto.draft" if record.status == "dropped" and record.draft else "stretto.turn",
        start_s=begins_s,
        end_s=record.ended_s,
        attributes=_named(about),
        has_failed=record.status == "failed",
    )


class Tracer:
    """A `TurnWatcher`. Raises `ConfigError` where OpenTelemetry is not installed."""

    def __init__(self, settings: TracingSettings, metrics: Metrics, now: Callable[[], float]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise ConfigError(
                f"tracing.endpoint is set and OpenTelemetry is missing: {sys.executable} -m pip install 'stretto[otel]'"
            ) from error
        self._settings, self._outcomes, self._now = settings, metrics.watching.traces, now
        self._exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=SEND_S)
        self._resource = Resource.create({"service.name": settings.service})
        self._past: OrderedDict[str, _Past] = OrderedDict()
        self._is_closed = False
        self._backlog: Backlog[_Job] = Backlog("traces", MOST_TURNS, self._send, PAUSE_S)

    def turn_stopped(self, session_id: str, turn: int, caller: Caller) -> None:
        past = self._past_of(session_id)
        past.stopped = [*past.stopped[-REMEMBERED_STOPS:], (turn, 0, caller)]

    def turn_ended(self, record: TurnRecord) -> None:
        past, links = self._past_of(record.session_id), []
        if record.status == "dropped" and record.draft:
            past.drafts.append((record.turn, record.draft, record.caller))
        elif record.has_floor:
            links = [link for link in past.drafts if link[0] == record.turn]
            links += [stop for stop in past.stopped if stop[0] < record.turn][-1:]
            past.stopped = [stop for stop in past.stopped if stop[0] >= record.turn]
            past.drafts = []
        if not self._is_wanted(record):
            return
        named = tuple((record.session_id, *link) for link in links)
        if not self._backlog.put(_Job(record, named, time.time_ns() - round(self._now() * 1e9))):
            self._outcomes.labels("dropped").inc()

    def close(self) -> None:
        """Send what is left, for two seconds at most; blocks as long."""
        n_left = self._backlog.close(CLOSE_S)
        self._is_closed = True  # what still hangs is given up, and counted here
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # OpenTelemetry leaves it without
        self._outcomes.labels("dropped").inc(n_left)

    def _past_of(self, session_id: str) -> _Past:
        past = self._past.pop(session_id, None) or _Past()
        self._past[session_id] = past
        if len(self._past) > REMEMBERED_SESSIONS:
            self._past.popitem(last=False)
        return past

    def _is_wanted(self, record: TurnRecord) -> bool:
        """Whose caller has decided already is traced as they decided, of the others a share."""
        given = _TRACEPARENT.fullmatch(record.caller.traceparent)
        if given is not None:
            return bool(int(given[3], 16) & 1)
        return _number(8, record.session_id, record.turn, "share") < self._settings.share * 2**64

    def _send(self, jobs: list[_Job]) -> None:
        """In the backlog's thread."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [span for job in jobs for span in self._spans(job)]
        is_sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        if not self._is_closed:
            self._outcomes.labels("sent" if is_sent else "failed").inc(len(jobs))

    def _spans(self, job: _Job) -> Iterator[ReadableSpan]:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        record = job.record

        def span(stage: Stage, context: SpanContext, parent: SpanContext | None, links: tuple[Link, ...], kind: SpanKind) -> ReadableSpan:
            return ReadableSpan(
                name=stage.name,
                context=context,
                parent=parent,
                resource=self._resource,
                attributes=dict(stage.attributes),
                events=[Event(name, timestamp=_ns(at_s, job.offset_ns)) for name, at_s in stage.events],
                links=links,
                kind=kind,
                status=Status(StatusCode.ERROR if stage.has_failed else StatusCode.UNSET),
                start_time=_ns(stage.start_s, job.offset_ns),
                end_time=_ns(max(stage.start_s, stage.end_s), job.offset_ns),
            )

        own, parent = _context(record.session_id, record.turn, _draft_of(record), record.caller)
        links = tuple(Link(_context(*link)[0], {"stretto.link": "draft" if link[2] else "interrupted"}) for link in job.links)
        yield span(whole(record), own, parent, links, SpanKind.SERVER)
        for place, stage in enumerate(stages(record)):
            yield span(stage, _child(own, place), own, (), SpanKind.INTERNAL)


def _draft_of(record: TurnRecord) -> int:
    """A draft that was kept is the turn; one that was dropped has a span of its own."""
    return record.draft if record.status == "dropped" else 0


def _context(session_id: str, turn: int, draft: int, caller: Caller) -> tuple[SpanContext, SpanContext | None]:
    """The span of a turn, and its parent where the caller named one."""
    from opentelemetry.trace import SpanContext, TraceFlags

    sampled, span_id = TraceFlags(TraceFlags.SAMPLED), _number(8, session_id, turn, draft)
    given = _TRACEPARENT.fullmatch(caller.traceparent)
    if given is None:
        return SpanContext(_number(16, session_id, turn, draft), span_id, is_remote=False, trace_flags=sampled), None
    trace_id = int(given[1], 16)
    parent = SpanContext(trace_id, int(given[2], 16), is_remote=True, trace_flags=sampled)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=sampled), parent


def _child(own: SpanContext, place: int) -> SpanContext:
    from opentelemetry.trace import SpanContext

    return SpanContext(own.trace_id, _number(8, own.trace_id, own.span_id, place), is_remote=False, trace_flags=own.trace_flags)


def _number(n_bytes: int, *parts: object) -> int:
    """The same for the same parts, and else as good as chance; never 0."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=n_bytes).digest()
    return int.from_bytes(digest, "big") or 1


def _named(fields: Mapping[str, str | int | float | None]) -> Attributes:
    return {f"stretto.{name}": value for name, value in fields.items() if value is not None and value != ""}


def _ns(seconds: float, offset_ns: int) -> int:
    return round(seconds * 1e9) + offset_ns


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
