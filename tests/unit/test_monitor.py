"""What the process does beside its conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import CollectorRegistry

from engine.api import Health
from engine.fake import ScriptedVoice
from engine.tts.phrases import KeptPhrases
from gateway.admission import Admission
from gateway.metrics import Metrics
from gateway.monitor import TICK_S, keep_phrases, watch_engines


def n_kept(folder: Path) -> int:
    return len(list(folder.glob("*.phrase")))


async def test_configured_phrases_are_made_before_somebody_waits(tmp_path: Path) -> None:
    voice = ScriptedVoice(first_chunk_ms=1, rtf=0.001)
    await voice.start()
    await keep_phrases(KeptPhrases(voice, tmp_path, ["Hello there.", "One moment."]), "", "en")
    assert sorted(request.text for request in voice.requests) == ["Hello there.", "One moment."]
    assert n_kept(tmp_path) == 2


async def test_voices_without_phrases_are_left_alone() -> None:
    voice = ScriptedVoice()
    await voice.start()
    await keep_phrases(voice, "", "en")
    assert not voice.requests


async def test_a_voice_that_fails_on_a_phrase_keeps_the_gateway_going(tmp_path: Path) -> None:
    voice = ScriptedVoice()
    await keep_phrases(KeptPhrases(voice, tmp_path, ["Hello there."]), "", "en")
    assert n_kept(tmp_path) == 0


async def test_each_time_that_an_engine_goes_is_counted_once() -> None:
    metrics, engines = Metrics(CollectorRegistry()), {"llm": Health(ready=False, detail="loading"), "asr": Health(ready=True, detail="")}

    def counted(engine: str) -> float | None:
        return metrics.registry.get_sample_value("stretto_engine_outages_total", {"engine": engine})

    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(watch_engines(lambda: engines, lambda: engines["llm"].ready, Admission(1), metrics))
        for is_ready in (False, True, False, False, True):
            engines["llm"] = Health(ready=is_ready, detail="")
            await asyncio.sleep(3 * TICK_S)
        watch.cancel()
    assert (counted("llm"), counted("asr")) == (1, 0)
