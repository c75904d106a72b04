"""The GPU run, as far as it goes without a GPU: its plan is one that its script takes, and its pace reaches the voice."""

from __future__ import annotations

import os
import subprocess
from contextlib import aclosing
from pathlib import Path

import pytest

from engine.api import Synthesis
from engine.fake import ScriptedVoice
from engine.inherited import inherited
from scripts.gpu import pace
from scripts.gpu.run import arguments
from scripts.gpu.settings import REPLIES_VARIABLE, RULES_VARIABLE, vllm

ROOT = Path(__file__).parents[2]


def planned(step: str) -> list[str]:
    """The commands of a step of `all.sh`."""
    command = ["bash", "scripts/gpu/all.sh", step, "/nowhere", "/nowhere"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PLAN": "1"}, capture_output=True, text=True, check=True, timeout=30)
    return [line for line in done.stdout.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("step", "gpus", "quantization"), [("72b-bf16", 2, None), ("72b-fp8-tp4", 4, "fp8"), ("32b-fp8", 1, "fp8")])
def test_a_step_of_the_gpu_run_takes_any_number_of_gpus(step: str, gpus: int, quantization: str | None) -> None:
    (command,) = planned(step)
    given = arguments(command.split("scripts.gpu.run")[1].split())
    section = vllm(given)
    assert section["tensor_parallel_size"] == gpus
    assert section.get("quantization") == quantization
    assert ("compilation_config" in section) is (gpus > 1)  # NVLink multicast stays off
    assert {"raw", "gateway"} <= set(given.rows.split(","))


def test_a_step_that_is_none_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        planned("72b-int8")
    assert "got 72b-int8, expected smoke" in caught.value.stderr


def test_the_engines_processes_learn_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (REPLIES_VARIABLE, RULES_VARIABLE):
        monkeypatch.setenv(name, "/file")
        assert inherited().get(name) == "/file"


async def test_a_hurried_reply_sounds_shorter() -> None:
    async def spoken_bytes() -> int:
        voice = ScriptedVoice(first_chunk_ms=0.0, rtf=0.0)
        await voice.start()
        wanted = Synthesis(request_id="1", text="The sea covers most of our planet.", voice="fake-en", language="en", sample_rate_hz=16_000)
        async with aclosing(voice.synthesize(wanted)) as chunks:
            return sum([len(chunk.pcm) async for chunk in chunks])

    usual = await spoken_bytes()
    pace.hurry(4.0)
    try:
        assert await spoken_bytes() == pytest.approx(usual / 4, rel=0.05)
    finally:
        pace.hurry(1.0)
