"""The bench: its plan, its arithmetic, its light client, and the report, against a scripted server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from gateway import bench
from gateway.bench import own_gateway
from gateway.bench import report as reports
from gateway.bench.measuring import Tally, own_cpu_s, summarize, usage
from gateway.bench.scenario import QUESTIONS, Line, Plan, lines, start_s
from gateway.bench.talker import Talker
from gateway.client import ConnectFailed, PlayoutClock, Refused
from gateway.events import AudioFrame, ErrorRaised, ReplyDone, ReportPlayout, SegmentDecided, StartSession, Timeline, TurnDone, UsageInfo
from tests.doubles.scripted_server import FRAME_20_MS, Peer, reply_with_two_segments, serving


def test_a_plan_is_bounded_and_the_same_every_time() -> None:
    plan = Plan(n_talkers=3, turns=5, think_s=2.0)
    said = [list(lines(plan, talker)) for talker in range(3)]
    assert said == [list(lines(plan, talker)) for talker in range(3)]
    assert [len(of_one) for of_one in said] == [5, 5, 5]
    assert all(1.0 <= line.think_s <= 3.0 for of_one in said for line in of_one)
    assert len({line.think_s for of_one in said for line in of_one}) == 15
    assert list(lines(plan, 0)) != list(lines(Plan(n_talkers=3, turns=5, think_s=2.0, seed=1), 0))


def test_callers_who_ask_the_same_hold_conversations_of_their_own() -> None:
    plan = Plan(n_talkers=64, turns=3)
    said = [tuple(line.text for line in lines(plan, talker)) for talker in range(64)]
    assert len({texts[0] for texts in said}) == 64  # a prefix cache must not know a stranger's conversation
    assert len({texts[1:] for texts in said}) == len(QUESTIONS["en"])


def test_beginnings_are_spread_over_the_ramp() -> None:
    plan = Plan(n_talkers=4, ramp_s=8.0)
    assert [start_s(plan, n) for n in range(4)] == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("language", sorted(QUESTIONS))
def test_every_language_has_lines(language: str) -> None:
    assert all(line.text for line in lines(Plan(language=language, turns=20), 3))


def test_percentiles_are_nearest_rank() -> None:
    found = summarize([float(n) for n in range(1, 201)])
    assert found is not None
    assert (found.n, found.p50, found.p95, found.p99, found.max) == (200, 100, 190, 198, 200)
    assert summarize([]) is None
    one = summarize([7.0])
    assert one is not None
    assert (one.p50, one.p99) == (7.0, 7.0)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_usage_of_a_process_grows_with_its_work() -> None:
    before, cpu_s = usage(os.getpid()), own_cpu_s()
    while own_cpu_s() - cpu_s < 0.05:
        sum(range(10_000))
    after = usage(os.getpid())
    assert before is not None
    assert after is not None
    assert after.cpu_s > before.cpu_s
    assert after.rss_bytes > 1_000_000
    assert usage(2**22 + 1) is None


def test_a_starved_player_is_measured() -> None:
    clock = PlayoutClock()
    clock.add(100, now_s=1.0)
    assert clock.starved_ms(1.05) == 0
    assert clock.starved_ms(1.13) == pytest.approx(30)


async def test_a_talker_measures_a_turn_and_reports_playout() -> None:
    tally = Tally()
    async with serving(reply_with_two_segments) as server:
        talker = Talker(server.url, None, StartSession(), tally, is_sampled=True)
        await talker.open()
        await talker.talk([Line(think_s=0.0, text="Hello.")], until_s=time.monotonic() + 30)
        talker.close()
    assert (tally.n_turns, tally.n_failed, tally.n_audio_frames) == (1, 0, 2)
    assert (len(tally.first_segment_ms), len(tally.first_audio_ms), len(tally.ttft_ms)) == (1, 1, 1)
    assert not tally.own_segment_ms, "frames without stamps give no share"
    assert tally.wire_bytes > tally.wire_sample_bytes > 2 * len(FRAME_20_MS)
    assert tally.json_sample_bytes > tally.wire_sample_bytes
    reports_sent = [e for e in server.received if isinstance(e, ReportPlayout)]
    assert reports_sent[0].played_ms < 40
    assert (reports_sent[-1].final, reports_sent[-1].played_ms) == (True, 40)


async def test_stamps_become_the_gateways_own_share() -> None:
    async def stamped(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        now_ms = time.monotonic() * 1000
        await peer.send(SegmentDecided(turn=1, index=0, text="Hi.", cut="stop", at_ms=now_ms - 50))
        await peer.send(AudioFrame(turn=1, index=0, pts_ms=0, data=FRAME_20_MS, at_ms=now_ms - 70))
        await peer.send(AudioFrame(turn=1, index=0, pts_ms=20, data=bytes(48 * 900), at_ms=now_ms - 90))  # fills the lead: held back
        await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=1, cached_tokens=0, output_tokens=1)))
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    tally = Tally()
    async with serving(stamped) as server:
        talker = Talker(server.url, None, StartSession(), tally)
        await talker.open()
        await talker.talk([Line(think_s=0.0, text="Hello.")], until_s=time.monotonic() + 30)
        talker.close()
    assert tally.own_segment_ms[0] >= 50
    assert list(tally.own_audio_ms) == list(tally.own_first_audio_ms)
    assert tally.own_first_audio_ms[0] >= 70


async def test_faults_are_counted_by_their_words() -> None:
    async def fail(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        await peer.send(ErrorRaised(code="engine_failed", message="The model failed.", retryable=True, turn=1))
        await peer.send(TurnDone(turn=1, status="failed", timeline=Timeline()))
        await peer.receive()
        await peer.socket.close(4004)

    tally = Tally()
    async with serving(fail) as server:
        talker = Talker(server.url, None, StartSession(), tally)
        await talker.open()
        await talker.talk([Line(think_s=0.0, text="One."), Line(think_s=0.0, text="Two.")], until_s=time.monotonic() + 30)
        talker.close()
    assert tally.n_turns == 1
    assert tally.n_failed == 3
    assert any("4004" in what for what in tally.faults)
    assert {"The model failed. (engine_failed)", "turn failed"} < set(tally.faults)


async def test_a_refused_session_raises() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.receive()
        await peer.send(ErrorRaised(code="unknown_voice", message="No.", retryable=False), numbered=False)
        await peer.socket.wait_closed()

    async with serving(refuse) as server:
        talker = Talker(server.url, None, StartSession(voice="x"), Tally())
        with pytest.raises(Refused):
            await talker.open()
        talker.close()


@pytest.mark.parametrize("url", ["ws://127.0.0.1:9/v1/voice", "wss://127.0.0.1:9/v1/voice", "nonsense"])
async def test_an_unreachable_gateway_raises(url: str) -> None:
    with pytest.raises(ConnectFailed):
        await Talker(url, None, StartSession(), Tally()).open()


async def test_a_gateway_that_does_not_start_gives_its_last_words() -> None:
    stderr = asyncio.StreamReader()
    stderr.feed_data(b"settings: unknown key\n")
    stderr.feed_eof()
    with pytest.raises(ConnectFailed, match="settings: unknown key"):
        await own_gateway.announced_port(stderr)


def sample_report(tally: Tally) -> reports.Report:
    load = reports.load_of(10.0, None, None, 0.5, None)
    return reports.Report(
        url="ws://x",
        engines="fake",
        plan=Plan(n_talkers=2),
        machine=reports.machine(),
        n_turns=tally.n_turns,
        n_failed=tally.n_failed,
        faults=tally.faults,
        mean_talking=1.5,
        times=reports.times_of(tally),
        load=load,
        wire_bytes=1000,
        wire_share_of_json=0.75,
        n_frames=10,
        n_audio_frames=5,
    )


def test_the_table_shows_figures_gaps_and_faults() -> None:
    tally = Tally()
    tally.first_audio_ms.extend([100.0, 300.0])
    tally.add_fault("turn failed")
    text = reports.as_text(sample_report(tally))
    row = next(line for line in text.splitlines() if line.startswith("first audio frame"))
    assert row.split()[-8:] == ["2", "100.00", "300.00", "300.00", "300.00", "300", "/", "600"]
    assert "failed 1 times: turn failed" in text
    assert "gateway CPU and memory: unknown" in text
    assert all(len(line) <= 110 for line in text.splitlines())


def test_json_holds_every_row() -> None:
    tree = json.loads(reports.as_json(sample_report(Tally())))
    assert set(tree["times"]) == set(reports.ROWS)
    assert tree["plan"]["n_talkers"] == 2


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser


def test_nobody_there_is_exit_code_3(parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(parser.parse_args(["--url", "ws://127.0.0.1:9/v1/voice"])) == 3
    said = capsys.readouterr().err
    assert "nothing listens at ws://127.0.0.1:9" in said
    assert "`make serve` starts one here" in said


@pytest.mark.parametrize("wrong", [["-n", "0"], ["-n", "5000"], ["--turns", "0"], ["--language", "tlh"], ["-n", "x"]])
def test_wrong_arguments_are_refused(parser: argparse.ArgumentParser, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(wrong)
    assert caught.value.code == 2


async def test_what_fails_beside_an_own_gateway_comes_out_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend = "import sys, time; print('ready: http://localhost:1/', file=sys.stderr, flush=True); time.sleep(60)"
    monkeypatch.setattr(own_gateway, "COMMAND", (sys.executable, "-c", pretend))
    with pytest.raises(ConnectFailed, match="as it is"):  # noqa: PT012 (the block is what is tested)
        async with own_gateway.own_gateway(1) as gateway:
            assert gateway.url == "ws://127.0.0.1:1/v1/voice"
            raise ConnectFailed("as it is")
    assert usage(gateway.pid) is None, "the process is gone"


def test_figures_that_cannot_be_kept_are_told_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    nowhere = ["--url", "ws://127.0.0.1:9/v1/voice", "--json"]
    assert bench.run(parser.parse_args([*nowhere, str(tmp_path / "none/report")])) == 2
    assert capsys.readouterr().err == f"stretto bench: cannot write {tmp_path}/none/report: No such file or directory\n"
    assert bench.run(parser.parse_args([*nowhere, str(tmp_path / "report")])) == 3
    assert not (tmp_path / "report").exists(), "what was not measured leaves no file"


async def test_ctrl_c_does_not_reach_the_benchs_own_gateway() -> None:
    command = (sys.executable, "-c", "import sys, time; print('ready: ws://127.0.0.1:1/', file=sys.stderr, flush=True); time.sleep(60)")
    async with own_gateway.own_gateway(1, command) as gateway:
        assert os.getpgid(gateway.pid) != os.getpgid(0), "a terminal sends the signal to its process group"
