"""The decoders' process: the same sound as here, and one that dies takes its own stream with it and no other."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.opus import OpusDecoder, OpusEncoder
from engine.decoding import DecodingRoom, RemoteDecoder, StreamDied
from tests.doubles.spoken_tones import speak
from tests.unit import decoding_stages
from tests.unit.decoding_stages import DIES, HANGS, SLOW

RATE_HZ = 16_000


def packets(words: str) -> list[bytes]:
    return OpusEncoder(RATE_HZ).feed(speak(words, RATE_HZ))


def decoded(sound: list[bytes]) -> list[bytes]:
    decoder = OpusDecoder(RATE_HZ)
    return [decoder.decode(packet) for packet in sound]


@asynccontextmanager
async def room(stage: str = "FragileStage") -> AsyncIterator[DecodingRoom]:
    made = DecodingRoom(f"{decoding_stages.__name__}:{stage}")
    await made.start()
    try:
        async with asyncio.timeout(40):
            yield made
    finally:
        await made.close()


async def all_of(decoder: RemoteDecoder, sound: list[bytes]) -> list[bytes]:
    return [await decoder.decode(packet) for packet in sound]


async def test_many_streams_at_once_sound_as_they_do_here() -> None:
    sounds = [packets(f"words of stream {n}") for n in range(8)]
    async with room() as made:
        heard = await asyncio.gather(*(all_of(made.stream(), sound) for sound in sounds))
    assert heard == [decoded(sound) for sound in sounds]


async def test_a_broken_packet_costs_itself_alone() -> None:
    sound = packets("one two three")
    async with room() as made:
        decoder = made.stream()
        before = await all_of(decoder, sound[:5])
        for broken in (b"\xff" * 3, bytes(1501)):
            with pytest.raises(CorruptAudio):
                await decoder.decode(broken)
        assert before + await all_of(decoder, sound[5:]) == decoded(sound)


async def test_a_packet_that_kills_the_decoder_ends_its_own_stream_and_no_other() -> None:
    sound = packets("one two three four")
    async with room() as made:
        hostile, others = made.stream(), [made.stream() for _ in range(4)]
        for faults in (CorruptAudio, StreamDied):
            slow = asyncio.ensure_future(others[0].decode(SLOW))  # so that the others' packets wait behind the one that kills
            await asyncio.sleep(0)
            attack = asyncio.ensure_future(hostile.decode(DIES))
            await asyncio.sleep(0)
            heard = await asyncio.gather(*(all_of(decoder, sound) for decoder in others[1:]))
            assert all(len(pieces) == len(sound) and all(pieces) for pieces in heard), "nothing of theirs is lost"
            with pytest.raises(faults):
                await attack
            with pytest.raises(CorruptAudio):
                await slow
        with pytest.raises(StreamDied):
            await hostile.decode(sound[0])
        assert made.worker.restarts == 2


async def test_a_decoder_that_hangs_is_ended_and_the_others_go_on() -> None:
    sound = packets("one two")
    async with room() as made:
        hostile, other = made.stream(), made.stream()
        attack = asyncio.ensure_future(hostile.decode(HANGS))
        await asyncio.sleep(0)
        assert len(await all_of(other, sound)) == len(sound)
        with pytest.raises(CorruptAudio):
            await attack


async def test_a_process_that_somebody_else_kills_costs_one_packet_at_most() -> None:
    sound = packets("one two three four five six")
    lost = 0
    async with room() as made:

        async def speaks(decoder: RemoteDecoder) -> None:
            nonlocal lost
            for packet in sound:
                try:
                    await decoder.decode(packet)
                except CorruptAudio:
                    lost += 1

        speakers = [asyncio.ensure_future(speaks(made.stream())) for _ in range(6)]
        await asyncio.sleep(0.01)
        assert made.worker.pid is not None
        os.kill(made.worker.pid, signal.SIGKILL)
        await asyncio.gather(*speakers)
        assert lost <= 1
        assert made.health().ready


async def test_streams_that_are_over_are_forgotten() -> None:
    async with room("CountingStage") as made:
        for _ in range(5):
            decoder = made.stream()
            assert await decoder.decode(b"count") == b"1"
            decoder.close()


async def test_streams_that_never_sent_a_packet_leave_nothing_to_forget() -> None:
    made = DecodingRoom()
    for _ in range(5):
        made.stream().close()
    assert made._over == []
