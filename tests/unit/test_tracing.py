"""A turn's record as spans, and what becomes of them when the collector hangs or is not there. A real exporter, a collector double."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from engine.api import Usage
from gateway import tracing
from gateway.config import TracingSettings
from gateway.events import Timeline
from gateway.metrics import Metrics
from gateway.speaker import SegmentRecord
from gateway.tracing import MOST_TURNS, Tracer, stages, whole
from gateway.turn import Caller, Spoken, TurnRecord
from tests.doubles.collector import Collector, attributes, collector

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def segment(index: int, at_s: float, **changed: Any) -> SegmentRecord:  # Any: of each field's own type
    made = SegmentRecord(
        index=index, n_characters=20, voice="v", status="ok", audio_ms=900.0, decided_s=at_s,
        asked_s=at_s + 0.01, sounded_s=at_s + 0.07, made_s=at_s + 0.2, sent_s=at_s + 0.5,
    )  # fmt: skip
    return structs.replace(made, **changed)


RECORD = TurnRecord(
    session_id="sess_1", turn=3, status="completed", caller=Caller(key="kiosk"), input="text", output="audio", language="en", voice="v",
    draft=0, has_floor=True, started_s=100.0, asked_s=100.0, ended_s=103.0, first_delta_s=100.05, generated_s=100.6,
    timeline=Timeline(ttft_ms=50.0, first_segment_ms=120.0, first_audio_ms=190.0, first_playout_ms=240.0, reply_done_ms=2000.0),
    usage=Usage(prompt_tokens=40, cached_tokens=30, output_tokens=12), n_characters=40, n_segments=2, audio_ms=1800, heard_ms=1800,
    segments=(segment(0, 100.12), segment(1, 100.4)),
)  # fmt: skip
SPOKEN = structs.replace(
    RECORD, input="speech", started_s=100.0, asked_s=99.9, spoken=Spoken(began_s=98.0, ended_s=100.0, decided_s=100.2, text_s=100.25)
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds are much for what is left, and a busy machine may need more."""
    monkeypatch.setattr(tracing, "CLOSE_S", 60.0)


class Sender:
    """A tracer, its counts and its collector."""

    def __init__(self, url: str, **settings: Any) -> None:  # Any: of each setting's own type
        self.registry = CollectorRegistry()
        self.tracer = Tracer(TracingSettings(endpoint=url, **settings), Metrics(self.registry), lambda: 104.0)

    def count(self, outcome: str) -> float:
        return self.registry.get_sample_value("stretto_traces_total", {"outcome": outcome}) or 0.0


def sent(*told: TurnRecord | tuple[int, Caller], **settings: Any) -> list[Any]:  # Any: settings, protobuf
    """Every span that arrives when these records (and turns that are stopped) are told in order."""
    with collector() as double:
        sender = Sender(double.url, **settings)
        for each in told:
            if isinstance(each, TurnRecord):
                sender.tracer.turn_ended(each)
            else:
                sender.tracer.turn_stopped("sess_1", *each)
        sender.tracer.close()
        return double.spans


def root(spans: list[Any], turn: int) -> Any:  # Any: protobuf
    return next(s for s in spans if s.name in ("stretto.turn", "stretto.draft") and attributes(s)["stretto.turn"] == turn)


def test_the_stages_of_a_spoken_turn_follow_each_other() -> None:
    names = [stage.name for stage in stages(SPOKEN)]
    assert names == [
        "listening", "endpointing", "asr.final", "llm.first_token", "llm.generation", "segmenter.first_segment", "tts.segment",
        "tts.segment", "playout",
    ]  # fmt: skip
    turn = whole(SPOKEN)
    assert turn.start_s == 98.0
    for stage in stages(SPOKEN):
        assert turn.start_s <= stage.start_s <= stage.end_s <= turn.end_s, stage.name


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"first_delta_s": None, "segments": (), "timeline": Timeline(), "status": "failed"}, {"llm.generation", "tts.segment", "playout"}),
        ({"usage": Usage(), "timeline": Timeline(first_audio_ms=70.0)}, {"llm.first_token", "llm.generation"}),
        ({"segments": (segment(0, 100.1, asked_s=None),)}, {"tts.segment"}),
        ({"output": "text", "segments": (), "timeline": Timeline(ttft_ms=50.0)}, {"tts.segment", "playout", "segmenter.first_segment"}),
    ],
    ids=["no word came", "say", "no voice was asked", "text alone"],
)
def test_a_stage_that_was_not_reached_has_no_span(changed: dict[str, Any], missing: set[str]) -> None:
    names = {stage.name for stage in stages(structs.replace(RECORD, **changed))}
    assert names
    assert not names & missing


def test_a_turn_is_one_trace_with_its_stages_below_it() -> None:
    spans = sent(SPOKEN)
    top = root(spans, 3)
    assert {span.trace_id for span in spans} == {top.trace_id}
    assert {span.parent_span_id for span in spans if span is not top} == {top.span_id}
    assert len({span.span_id for span in spans}) == len(spans) == 10
    assert (top.end_time_unix_nano - top.start_time_unix_nano) / 1e9 == pytest.approx(5.0)
    voice = next(span for span in spans if span.name == "tts.segment")
    (event,) = voice.events
    assert (event.name, (event.time_unix_nano - voice.start_time_unix_nano) / 1e9) == ("first_chunk", pytest.approx(0.06))
    made = next(span for span in spans if span.name == "llm.generation")
    assert attributes(made)["gen_ai.usage.output_tokens"] == 12


def test_two_turns_are_two_traces() -> None:
    spans = sent(RECORD, structs.replace(RECORD, turn=4))
    assert len({span.trace_id for span in spans}) == 2


def test_the_interrupting_turn_names_the_interrupted_one_whichever_ends_first() -> None:
    first = structs.replace(RECORD, status="interrupted", stopped_by="text")
    second = structs.replace(RECORD, turn=4)
    for order in ((first, second), (second, first)):
        spans = sent((3, Caller()), *order)
        (link,) = root(spans, 4).links
        assert (link.trace_id, link.span_id) == (root(spans, 3).trace_id, root(spans, 3).span_id)
        assert attributes(link) == {"stretto.link": "interrupted"}
        assert not root(spans, 3).links


def test_a_turn_that_interrupts_and_is_interrupted_keeps_both_links() -> None:
    told: list[TurnRecord | tuple[int, Caller]] = [(3, Caller()), (4, Caller()), *(structs.replace(RECORD, turn=n) for n in (3, 4, 5))]
    spans = sent(*told)
    assert [[link.span_id for link in root(spans, n).links] for n in (3, 4, 5)] == [[], [root(spans, 3).span_id], [root(spans, 4).span_id]]


def test_a_dropped_draft_is_a_trace_of_its_own_that_the_turn_names() -> None:
    draft = structs.replace(RECORD, status="dropped", draft=1)
    spans = sent(draft, structs.replace(SPOKEN, draft=2))
    dropped = next(span for span in spans if span.name == "stretto.draft")
    kept = next(span for span in spans if span.name == "stretto.turn")
    (link,) = kept.links
    assert (link.span_id, attributes(link)["stretto.link"]) == (dropped.span_id, "draft")
    assert dropped.trace_id != kept.trace_id


def test_a_callers_trace_is_gone_on_with() -> None:
    spans = sent(structs.replace(RECORD, caller=Caller(traceparent=f"00-{TRACE}-{SPAN}-01")))
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert root(spans, 3).parent_span_id.hex() == SPAN


@pytest.mark.parametrize(
    "header",
    ["", "nonsense", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"],
)
def test_a_header_that_is_none_is_ignored(header: str) -> None:
    spans = sent(structs.replace(RECORD, caller=Caller(traceparent=header)))
    assert root(spans, 3).parent_span_id == b""


def test_a_caller_that_does_not_sample_is_not_traced_and_one_that_does_is_whatever_the_share() -> None:
    told = [structs.replace(RECORD, turn=n, caller=Caller(traceparent=f"00-{TRACE}-{SPAN}-0{n}")) for n in (0, 1)]
    spans = sent(*told, share=0.0)
    assert [attributes(s)["stretto.turn"] for s in spans if s.name == "stretto.turn"] == [1]


def test_a_share_of_the_turns_is_traced() -> None:
    spans = sent(*(structs.replace(RECORD, turn=n, segments=()) for n in range(200)), share=0.25)
    assert 25 < sum(span.name == "stretto.turn" for span in spans) < 80


def test_a_failed_turn_is_an_error_with_its_code() -> None:
    top = root(sent(structs.replace(RECORD, status="failed", error="engine_stalled")), 3)
    assert top.status.code == 2
    assert attributes(top)["stretto.error"] == "engine_stalled"


def test_who_the_service_is() -> None:
    with collector() as double:
        sender = Sender(double.url, service="voice-eu")
        sender.tracer.turn_ended(RECORD)
        sender.tracer.close()
    assert double.resources[0]["service.name"] == "voice-eu"


def test_a_hanging_collector_costs_traces_and_every_one_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "CLOSE_S", 0.2)
    with collector() as double:
        double.hang.set()
        sender = Sender(double.url)
        n_turns = MOST_TURNS + 300
        for n in range(n_turns):
            sender.tracer.turn_ended(structs.replace(RECORD, turn=n, segments=()))
        dropped_on_the_way = sender.count("dropped")
        sender.tracer.close()
        assert dropped_on_the_way > 0
        assert sender.count("dropped") == n_turns
        assert sender.count("sent") == 0


def test_a_collector_that_is_not_there_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "CLOSE_S", 0.2)
    with collector() as double:
        gone = double.url
    sender = Sender(gone)
    sender.tracer.turn_ended(RECORD)
    sender.tracer.close()
    assert sender.count("sent") == 0
    assert sender.count("failed") + sender.count("dropped") == 1


def test_a_collector_that_refuses_is_counted(unwell: Collector) -> None:
    sender = Sender(unwell.url)
    sender.tracer.turn_ended(RECORD)
    sender.tracer.close()
    assert sender.count("failed") == 1


@pytest.fixture
def unwell() -> Iterator[Collector]:
    with collector() as double:
        double.status = 400
        yield double


def test_nothing_is_imported_for_what_is_off() -> None:
    code = "import sys, gateway.server, gateway.watching; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
