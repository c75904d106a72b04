"""Backends compared: what a file may say, what a turn costs, and two of them measured by the same script."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from gateway import bench
from gateway.bench import backends
from gateway.bench import report as reports
from gateway.bench.command import measure
from gateway.bench.measuring import Tally
from gateway.bench.scenario import Plan
from gateway.config import BackendSettings, ConfigError
from tests.doubles.openai_chat import Answer, ChatServer, counts, piece
from tests.load import cloud_bench

ROOT = Path(__file__).parents[2]
FILE = """
[tts]
engines = ["fake"]
[asr]
engine = "off"
[fake]
reply = "Well, the sea is wide."
[backends.quick]
llm = {engine = "fake"}
gpu_hour_price = 3.6
gpus = 2
[backends.cloud]
llm = {engine = "openai", endpoints = ["ADDRESS"], model = "sea-7b", vllm = {}}
input_price = 2.0
cached_price = 0.5
output_price = 8.0
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "compared.toml"
    path.write_text(text, "utf-8")
    return path


def report_of(n_turns: int, wall_s: float, tokens: reports.Tokens) -> reports.Report:
    return reports.Report(
        url="ws://x",
        engines="fake",
        plan=Plan(),
        machine=reports.machine(),
        n_turns=n_turns,
        n_failed=0,
        faults={},
        mean_talking=1.0,
        times=reports.times_of(Tally()),
        load=reports.load_of(wall_s, None, None, 0.1, None),
        wire_bytes=1,
        wire_share_of_json=None,
        n_frames=1,
        n_audio_frames=1,
        tokens=tokens,
    )


def test_tokens_cost_what_was_read_anew_read_again_and_written() -> None:
    report = report_of(10, 60.0, reports.Tokens(prompt=10_000, cached=8_000, output=500))
    cost = backends.cost_of(BackendSettings(input_price=2.0, cached_price=0.5, output_price=8.0), report)
    assert cost is not None
    assert cost.tokens == pytest.approx((2_000 * 2.0 + 8_000 * 0.5 + 500 * 8.0) / 1e6 / 10 * 1000)
    assert cost.gpus == 0


def test_gpus_cost_their_hour_however_few_turns_they_answer() -> None:
    report = report_of(100, 360.0, reports.Tokens())
    cost = backends.cost_of(BackendSettings(gpu_hour_price=3.0, gpus=2), report)
    assert cost is not None
    assert cost.total == pytest.approx(2 * 3.0 / 1000 * 1000)  # a thousand turns an hour
    assert backends.cost_of(BackendSettings(), report_of(0, 60.0, reports.Tokens())) is None


def test_a_value_is_written_as_toml() -> None:
    value = {"engine": "vllm", "on": True, "n": 3, "list": ["a", 1.5], "below": {"x": {}}, 'q"': "é\n"}
    assert tomllib.loads(f"value = {backends.toml(value)}")["value"] == value


@pytest.mark.parametrize(
    ("text", "names", "told"),
    [
        (FILE, ["quick", "slow"], r"no section \[backends\.slow\]; it has cloud, quick"),
        ('[backends.a]\nllm = {engine = "gpt"}', ["a"], "llm.engine: invalid enum value 'gpt'"),
        ("[backends.a]\ncurrency = 1", ["a"], "unknown key backends.currency; valid here: cached_price"),
        ("[backends.a]\ninput_price = -1", ["a"], "input_price"),
        ('[backends.a]\npython = "/no/python"', ["a"], "backends.a.python is '/no/python'; expected an interpreter"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, names: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        backends.read(written(tmp_path, text), names)


def test_backends_without_a_file_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    assert bench.run(parser.parse_args(["--backends", "a"])) == 2
    assert "give it with --config" in capsys.readouterr().err


async def test_two_backends_answer_the_same_script(tmp_path: Path) -> None:
    async with ChatServer().running() as server:
        server.default = Answer(
            pieces=(piece("Well, the sea "), piece("is wide."), piece(None, "stop"), counts(prompt=40, output=8, cached=30)), piece_s=0.02
        )
        path = written(tmp_path, FILE.replace("ADDRESS", server.address))
        plan = Plan(n_talkers=2, seconds=60.0, turns=1, think_s=0.1, ramp_s=0.1)
        rows = await backends.compare(backends.read(path, ["quick", "cloud"]), plan, measure)
    assert [row.fault for row in rows] == [None, None]
    quick, cloud = (row.report for row in rows)
    assert quick is not None
    assert cloud is not None
    assert (quick.n_turns, cloud.n_turns) == (2, 2)
    assert (cloud.tokens.prompt, cloud.tokens.cached, cloud.tokens.output) == (80, 60, 16)
    assert rows[1].cost is not None
    assert rows[1].cost.tokens == pytest.approx((20 * 2.0 + 60 * 0.5 + 16 * 8.0) / 1e6 / 2 * 1000)
    asked = [request["messages"][-1]["content"] for request in server.requests]
    assert any(text.startswith("Tell me something about the sea.") for text in asked)
    text = backends.as_text(rows)
    assert "first audio" in text
    assert json.loads(backends.as_json(rows))[0]["name"] == "quick"
    assert msgspec.json.decode(backends.as_json(rows))[1]["cost"]["gpus"] == 0


async def test_a_backend_that_does_not_start_leaves_the_others(tmp_path: Path) -> None:
    broken = '[backends.broken]\nllm = {engine = "openai", endpoints = ["http://127.0.0.1:9/v1"], key_variable = "NO_SUCH_KEY"}\n'
    path = written(tmp_path, FILE + broken)
    plan = Plan(n_talkers=1, seconds=3.0, turns=1, think_s=0.1, ramp_s=0.1)
    rows = await backends.compare(backends.read(path, ["broken", "quick"]), plan, measure)
    assert rows[0].fault is not None
    assert "NO_SUCH_KEY" in rows[0].fault
    assert rows[1].report is not None
    assert rows[1].report.n_turns == 1
    assert "broken: not measured" in backends.as_text(rows)


def test_the_file_to_copy_is_valid() -> None:
    found = backends.read(ROOT / "configs/backends.toml", ["cloud", "llamacpp", "own-72b"])
    assert [each.settings.gpus * each.settings.gpu_hour_price for each in found] == [0.0, 0.08, 6.0]
    assert found[0].python == sys.executable


def names_in(folder: Path) -> list[str] | None:
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else None


async def test_a_server_of_the_benchs_own_is_ended_and_that_of_others_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    for name in ("weights", "vllm-serve"):
        (cache / name).mkdir(parents=True)
    (cache / "vllm-serve/others.json").write_text("{}", "utf-8")
    said = tmp_path / "stopped"
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\necho "$STRETTO_CACHE_DIR $*" > {said}\n', "utf-8")
    interpreter.chmod(0o755)
    config = written(tmp_path, f'cache_dir = "{cache}"\n[backends.a]\nllm = {{engine = "vllm-serve"}}\npython = "{interpreter}"\n')
    (backend,) = backends.read(config, ["a"])
    async with backends.own_servers(backend) as settings:
        lent = Path(settings["STRETTO_CACHE_DIR"])
        assert names_in(lent) == ["weights"]
    assert said.read_text("utf-8").split()[0] == str(lent)
    assert "--stop-engine" in said.read_text("utf-8")
    assert names_in(lent) is None
    assert (cache / "vllm-serve/others.json").exists()


def test_a_note_stands_below_the_table() -> None:
    rows = [backends.Row(name="cloud", note="PLAYED"), backends.Row(name="own", fault="no GPU")]
    assert backends.as_text(rows).splitlines()[-2:] == ["cloud: PLAYED", "own: not measured: no GPU"]


def test_turns_an_hour_follow_from_what_a_caller_waits_hears_and_thinks() -> None:
    assert cloud_bench.turns_per_hour(2, 500.0, 8_500.0, 1.0) == 720.0
    assert cloud_bench.derive(64, 193, 2, 3.0).endswith("= 26,322 turns an hour; 2 x 3 x 1000 / 26,322 = 0.228 for 1,000 turns")
