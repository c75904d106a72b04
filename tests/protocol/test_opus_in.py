"""Opus from clients' microphones, decoded in a process of its own, over the wire."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.audio_codecs.opus import OpusEncoder
from tests.doubles.spoken_tones import speak
from tests.protocol.peer import Peer, peer
from tests.running import Running, gateway

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the decoders' process in /proc")
EARS = {"STRETTO_ASR__ENGINE": "fake", "STRETTO_LISTEN__VAD": "fake", "STRETTO_LISTEN__END_OF_TURN": "fake"}
OPUS = {"output": "text", "audio_in": {"codec": "opus"}}
RATE_HZ = 16_000


@pytest.fixture
def running() -> Iterator[Running]:
    with gateway(EARS) as started:
        yield started


def decoders(running: Running) -> int:
    """The process id of the gateway's decoders."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue
        if b"engine.decoding.stage:DecodingStage" in words and int(parent) == running.process.pid:
            found.append(int(folder.name))
    assert len(found) == 1
    return found[0]


async def says(client: Peer, from_ms: int, *, broken: int = 0) -> int:
    """A second of speech and one of silence, a packet each 20 ms, some of them broken: where the next would begin."""
    encoder = OpusEncoder(RATE_HZ)
    sound = encoder.feed(speak("one two three", RATE_HZ)[: RATE_HZ * 2] + bytes(RATE_HZ * 2 * 2))
    for n, packet in enumerate(sound):
        await client.send(type="audio", data=b"\xff" * 3 if n < broken else packet, pts_ms=from_ms + n * 20)
        await asyncio.sleep(0.012)  # a little faster than real, under the rate that is let in
    return from_ms + len(sound) * 20


async def test_speech_in_opus_is_heard_and_a_decoder_that_dies_is_not_noticed(running: Running) -> None:
    async with peer(running.voice_url, start=OPUS) as one, peer(running.voice_url, start=OPUS) as two:
        nexts = await asyncio.gather(says(one, 0), says(two, 0, broken=3))
        for client in (one, two):
            await client.until("transcript", final=True)
            await client.until("turn.done")
        dead = await asyncio.to_thread(decoders, running)
        os.kill(dead, signal.SIGKILL)
        await asyncio.gather(says(one, nexts[0]), says(two, nexts[1]))
        for client in (one, two):
            await client.until("transcript", final=True, utterance=2)
            await client.until("turn.done")
        assert await asyncio.to_thread(decoders, running) != dead
    assert not [line for line in running.lines if '"level": "error"' in line]


async def test_a_change_of_the_microphones_format_begins_another_stream(running: Running) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client:
        await client.send(type="session.update", audio_in={"codec": "opus"}, id="u")
        await client.until("session.updated", ref="u")
        await says(client, 0)
        await client.until("transcript", final=True)
