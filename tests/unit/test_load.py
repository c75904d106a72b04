"""The load's plan, its arithmetic, its limits and its pages. What guests do is tried against a gateway in tests/load."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import wave
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec import structs

from gateway import load
from gateway.bench.measuring import summarize
from gateway.bench.report import machine
from gateway.load import limits, report
from gateway.load.charts import Line, chart, ticks
from gateway.load.command import plan_of
from gateway.load.crew import Errand
from gateway.load.load import left, notes_on
from gateway.load.microphone import FRAME_MS, from_wav, synthetic
from gateway.load.page import as_html
from gateway.load.plan import Mix, Plan, Window, role_of, visits, windows
from gateway.load.tally import COUNTS, TIMES, Sketch, Tally, empty, merged
from gateway.load.text import as_text
from gateway.load.watch import Sample, Scrape, quantile_ms, read_page, thinned


def test_guests_of_a_higher_step_arrive_while_the_others_stay() -> None:
    found = visits(Plan(steps=(2, 4), step_s=10, settle_s=2))
    assert [(v.from_s, v.until_s) for v in found] == [(0, 20), (1, 20), (10, 20), (11, 20)]


def test_a_lower_step_sends_guests_away_and_a_higher_one_brings_new_ones() -> None:
    found = visits(Plan(steps=(3, 1, 2), step_s=10, settle_s=0))
    assert sorted((v.from_s, v.until_s) for v in found) == [(0, 10), (0, 10), (0, 30), (20, 30)]


@pytest.mark.parametrize(
    ("at_s", "told"),
    [
        (-2.4, "begins in 3 s"),
        (0.0, "8 s of 8 left"),
        (5.5, "3 s of 8 left"),
        (8.0, "last replies end, within 60 s"),
        (17.0, "last replies end, within 51 s"),
        (90.0, "last replies end, within 0 s"),
    ],
)
def test_progress_tells_what_is_left(at_s: float, told: str) -> None:
    assert left(at_s, 8.0) == told


def test_a_ramp_fills_evenly_and_poisson_arrivals_come_at_their_rate() -> None:
    ramp = visits(Plan(curve="ramp", steps=(5,), seconds=50))
    assert [v.from_s for v in ramp] == [0, 10, 20, 30, 40]
    poisson = Plan(curve="poisson", rate_per_s=2.0, seconds=500)
    assert 850 < len(visits(poisson)) < 1150
    assert visits(poisson) == visits(poisson)
    assert visits(poisson) != visits(structs.replace(poisson, seed=1))


def test_a_load_without_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 20000 visits"):
        visits(Plan(curve="poisson", rate_per_s=1000, seconds=3600))


def test_every_hundred_guests_hold_the_mix() -> None:
    mix = Mix(spoken=0.3, listeners=0.1, slow=0.05)
    for first in (0, 100, 900):
        roles = [role_of(mix, guest) for guest in range(first, first + 100)]
        assert abs(roles.count("spoken") - 30) <= 2
        assert abs(roles.count("listener") - 10) <= 2
        assert abs(roles.count("slow") - 5) <= 2


def test_windows_leave_arrivals_out() -> None:
    assert windows(Plan(steps=(50, 100), step_s=20, settle_s=5)) == [
        Window(label="50", from_s=5, until_s=20),
        Window(label="100", from_s=25, until_s=40),
    ]
    slices = windows(Plan(curve="ramp", seconds=60))
    assert (len(slices), slices[0].from_s, slices[-1].until_s) == (10, 0, 60)


def test_a_sketch_tells_percentiles_within_one_percent() -> None:
    values = [0.02 * 1.01**n for n in range(1000)]
    sketch = Sketch(steps={})
    for value in values:
        sketch.add(value)
    told, exact = sketch.summary(), summarize(values)
    assert told is not None
    assert exact is not None
    for point in ("p50", "p95", "p99"):
        assert getattr(told, point) == pytest.approx(getattr(exact, point), rel=0.011)
    assert (told.n, told.max) == (1000, max(values))
    assert Sketch(steps={}).summary() is None


def test_parts_of_a_series_add_up_to_the_whole() -> None:
    parts, whole = [empty() for _ in range(3)], empty()
    for n in range(300):
        for tally in (parts[n % 3], whole):
            tally.time("first_audio", n / 7)
            tally.count("frames")
    parts[0].error("close_1006")
    whole.error("close_1006")
    assert merged(parts) == whole


def found_by(tally: Tally, *, guests: str = "10", **more: object) -> report.Report:
    """A report of one window."""
    plan = Plan(steps=(int(guests),), step_s=20, settle_s=0)
    samples = [Sample(at_s=float(at), live=10, cpu_s=0.1 * at, rss_bytes=50_000_000, n_files=30) for at in range(21)]
    use = report.client_use(2.0, 20, 1, tally)
    window = report.stretch(windows(plan)[0], tally, samples, (None, None), use)
    made = report.Report(
        url="ws://127.0.0.1:1/<&>",
        engines="fake",
        plan=plan,
        machine=machine(),
        wall_s=21,
        whole=structs.replace(window, label="all"),
        windows=[window],
        samples=samples,
        rss_slope_kb_per_min=None,
        files_slope_per_min=None,
        gateway_errors={"rate_limited": 2},
    )
    return structs.replace(made, **more)


def some_tally() -> Tally:
    tally = empty()
    for name in ("visits", "asked", "started", "completed"):
        tally.count(name, 10)
    tally.count("audio_frames", 1000)
    tally.count("late_frames", 5)
    tally.error("overloaded")
    for n in range(100):
        tally.time("first_audio", 200 + n)
        tally.time("client_lag", 0.1)
    return tally


@pytest.mark.parametrize(
    ("figure", "bound", "is_kept"),
    [
        ("first_audio.p99", {"max": 400}, True),
        ("first_audio.p99", {"max": 100}, False),
        ("first_audio.p99", {"max": 400, "guests": 10}, True),
        ("first_audio.p99", {"max": 400, "guests": 11}, False),  # no such step: nothing was measured
        ("own_segment.p99", {"max": 400}, False),  # not measured
        ("completed", {"min": 10}, True),
        ("completed", {"min": 11}, False),
        ("lost", {"max": 0}, True),
        ("errors", {"max": 0}, False),
        ("errors.overloaded", {"max": 1}, True),
        ("errors.close_1006", {"max": 0}, True),
        ("late_share", {"max": 0.005}, True),
        ("late_share", {"max": 0.001}, False),
        ("gateway.cpu", {"max": 0.2}, True),
        ("gateway.cpu_per_guest", {"max": 0.005}, False),
        ("gateway.rss_mb", {"max": 60}, True),
        ("knocks.p99", {"max": 100}, False),
    ],
)
def test_a_limit_is_kept_or_broken(figure: str, bound: dict[str, float], is_kept: bool) -> None:
    limit = limits.Limit(figure=figure, **bound)  # type: ignore[arg-type]  # guests is a whole number in the table
    (verdict,) = limits.judge((limit,), found_by(some_tally()))
    assert verdict.is_kept is is_kept


def test_a_broken_limit_says_what_was_got_and_expected() -> None:
    made = found_by(some_tally())
    verdicts = limits.judge((limits.Limit(figure="errors", max=0), limits.Limit(figure="own_segment.p99", max=10)), made)
    made = structs.replace(made, verdicts=verdicts)
    assert not made.is_kept
    assert "limit broken: errors (whole load): got 1, expected at most 0" in as_text(made)
    assert "limit broken: own_segment.p99 (whole load): nothing was measured, expected at most 10" in as_text(made)


def test_without_limits_errors_and_lost_turns_are_what_fails() -> None:
    tally = some_tally()
    assert not found_by(tally).is_kept, "somebody met an error"
    tally.errors.clear()
    assert found_by(tally).is_kept
    tally.count("lost")
    assert not found_by(tally).is_kept
    assert not found_by(empty()).is_kept, "nobody came"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", r"no \[\[limit\]\] in it"),
        ("[[limit]]\nfigure = 'frist_audio.p99'\nmax = 1", "unknown figure 'frist_audio.p99'; expected errors.CODE or one of"),
        ("[[limit]]\nfigure = 'lost'", "neither max nor min"),
        ("[[limit]]\nfigure = 'lost'\nmaximum = 1", "unknown field `maximum`"),
        ("[[limit]]\nfigure = 'lost'\nmax = 'none'", "Expected `float"),
        ("[[limit]]\nfigure = 'drain.lost'\nmax = 0\nguests = 5", "one of the whole load"),
        ("[[limit", "short.toml"),
    ],
)
def test_a_limits_file_that_cannot_be_used_is_explained(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "short.toml"
    path.write_text(text)
    with pytest.raises(limits.LimitsError, match=fault):
        limits.read(path)


def test_shipped_limits_can_be_read() -> None:
    files = list((Path(__file__).parents[2] / "configs/load").glob("*.toml"))
    assert files
    for path in files:
        limits.read(path)


def test_the_page_is_one_file_whose_charts_are_well_formed() -> None:
    html = as_html(structs.replace(found_by(some_tally()), notes=["<b>late</b>"]))
    assert not re.search(r"(src|href)=|<script|<link|@import|url\(", html), "nothing is fetched from elsewhere"
    assert "ws://127.0.0.1:1/&lt;&amp;&gt;" in html
    assert "<b>late" not in html
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) >= 4
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_a_chart_has_a_point_for_each_value_and_says_when_it_has_none() -> None:
    drawn = chart("Latency", "guests", "ms", [Line("p50", [(50, 10), (100, 20)]), Line("none", [])])
    assert drawn.count("<circle") == 2
    assert "not measured" in chart("Latency", "guests", "ms", [Line("p50", [])])


@pytest.mark.parametrize("most", [0, 0.003, 1, 7, 99, 1000, 123_456])
def test_axes_have_a_few_round_values_and_reach_the_highest_point(most: float) -> None:
    values = ticks(most)
    assert values[0] == 0
    assert values[-1] >= most
    assert 2 <= len(values) <= 7


def test_a_metrics_page_is_read_and_a_quantile_taken_between_two() -> None:
    text = 'a_total 3.0\nb_total{code="x",who="y"} 2\nh_bucket{le="0.01"} %d\nh_bucket{le="0.05"} %d\nh_bucket{le="+Inf"} %d\n'
    before, after = (Scrape(at_s=0, values=read_page(text % n)) for n in ((100, 100, 100), (150, 198, 200)))
    assert before.total("a_total") == 3
    assert before.values["b_total"] == {"code=x,who=y": 2}
    assert before.total("c_total") is None
    assert quantile_ms(before, after, "h", 0.5) == 10
    assert quantile_ms(before, after, "h", 0.9) == 50
    assert quantile_ms(before, before, "h", 0.5) is None


def test_slopes_are_drawn_over_the_settled_part_and_over_enough_time() -> None:
    rising = [(float(at), 100.0 if at < 100 else 100.0 + (at - 100) * 2) for at in range(301)]
    assert report.slope_per_min(rising) == pytest.approx(120)
    assert report.slope_per_min(rising[:30]) is None
    assert report.slope_per_min([(float(at), None) for at in range(300)]) is None


def test_long_series_are_thinned_with_both_ends_kept() -> None:
    samples = [Sample(at_s=float(at)) for at in range(3601)]
    kept = thinned(samples)
    assert len(kept) == 600
    assert (kept[0].at_s, kept[-1].at_s) == (0, 3600)


def test_a_recording_is_cut_into_frames_of_a_microphone(tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\1\0" * 8000)
    speech = from_wav(path)
    assert speech.rate_hz == 8000
    assert {len(frame) for frame in speech.frames} == {2 * 8000 * FRAME_MS // 1000} == {len(speech.silence)}
    assert len(synthetic().frames) * FRAME_MS == 1500


def test_a_recording_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\1\0\1\0")
    with pytest.raises(ValueError, match=r"got 16 bits, 2 channel\(s\); expected 16-bit mono"):
        from_wav(path)
    path.write_bytes(b"no sound")
    with pytest.raises(ValueError, match="not a WAV file"):
        from_wav(path)


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    load.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (("-n", "ten"), "got 'ten', expected numbers like"),
        (("-n", "0"), "expected 1 to 5000"),
        (("--step", "0"), "--step: got 0"),
        (("--settle", "20"), "expected less than --step"),
        (("--spoken", "0.7", "--slow", "0.4"), "make more than 1 together"),
        (("--barge-in", "0.7", "--drop", "0.4"), "make more than 1 together"),
        (("--curve", "poisson", "--rate", "1000", "--seconds", "1000"), "more than 20000 visits"),
    ],
)
def test_wrong_use_is_explained(given: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        plan_of(arguments(*given))


def test_drain_goes_with_an_own_gateway_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.run(arguments("--drain", "--url", "ws://127.0.0.1:9/v1/voice")) == 2
    assert "--drain stops the gateway" in capsys.readouterr().err


def test_every_figure_has_words_and_no_two_the_same_name() -> None:
    assert not COUNTS.keys() & TIMES.keys()


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_a_report_that_cannot_be_kept_is_told_before_anybody_comes(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    load.add_arguments(parser)
    assert load.run(parser.parse_args(["--url", "ws://127.0.0.1:9/v1/voice", option, str(tmp_path / "none/report")])) == 2
    assert capsys.readouterr().err == f"stretto load: cannot write {tmp_path}/none/report: No such file or directory\n"


def test_a_missing_key_is_told_in_words() -> None:
    assert notes_on({"unauthorized": 2}) == ["The gateway wants a key: --key, or the variable STRETTO_KEY."]
    assert notes_on({"overdue": 2}) == []


def test_a_client_process_whose_load_has_gone_ends_without_a_word() -> None:
    plan = Plan(steps=(1,), step_s=30, settle_s=0, think_s=60)
    errand = msgspec.json.encode(Errand(plan=plan, url="ws://127.0.0.1:9/v1/voice", began_s=time.monotonic() + 30))
    command = [sys.executable, "-c", "from gateway.load.crew import main; main()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as crew:
        assert crew.stdin is not None
        assert crew.stdout is not None
        assert crew.stderr is not None
        crew.stdin.write(errand + b"\n")
        crew.stdin.flush()
        crew.stdout.readline()  # it has begun to tell
        crew.stdout.close()
        crew.stdin.close()
        assert crew.stderr.read() == b""
        assert crew.wait() == 0
