"""`stretto talk --mic` with a double of sounddevice: what the microphone hears goes out, what the loudspeaker plays is counted."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Self

import pytest

from gateway import talk
from gateway.events import AppendAudio, AudioFrame, StartSession
from gateway.talk import device
from tests.doubles.scripted_server import Peer, serving

FRAME = bytes(range(200)) * 2  # 200 samples


class PortAudioError(Exception):
    pass


class Stream:
    """One of sounddevice's raw streams; the test is PortAudio's thread."""

    def __init__(self, *, callback: Callable[..., None], **options: Any) -> None:  # Any: sounddevice's own
        self.callback, self.options, self.is_open = callback, options, False

    def __enter__(self) -> Self:
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def pull(self, n_samples: int) -> bytes:
        out = bytearray(2 * n_samples)
        self.callback(memoryview(out), n_samples, None, None)
        return bytes(out)


class Sounddevice:
    def __init__(self, *, has_device: bool = True) -> None:
        self.PortAudioError = PortAudioError
        self.streams: dict[str, Stream] = {}
        self._has_device = has_device

    def _open(self, kind: str, **options: Any) -> Stream:  # Any: as above
        if not self._has_device:
            raise PortAudioError("Error querying device -1")
        self.streams[kind] = Stream(**options)
        return self.streams[kind]

    def RawInputStream(self, **options: Any) -> Stream:
        return self._open("in", **options)

    def RawOutputStream(self, **options: Any) -> Stream:
        return self._open("out", **options)


def speaker() -> tuple[device.DeviceSpeaker, Stream]:
    sounddevice = Sounddevice()
    made = device.DeviceSpeaker(sounddevice, ExitStack())
    made.open(10_000)
    return made, sounddevice.streams["out"]


def frame(turn: int, data: bytes = FRAME) -> AudioFrame:
    return AudioFrame(turn=turn, index=0, pts_ms=0, data=data)


def test_frames_are_played_in_order_and_counted() -> None:
    made, stream = speaker()
    assert stream.options["samplerate"] == 10_000
    made.play(frame(1), 20)
    made.play(frame(1), 20)
    assert stream.pull(150) == FRAME[:300]
    assert made.played_ms(1) == 15
    assert stream.pull(300) == FRAME[300:] + FRAME + bytes(100)
    assert made.played_ms(1) == 40
    assert stream.pull(10) == bytes(20)
    assert made.played_ms(1) == 40


def test_a_pause_is_silent_at_once_and_goes_on_where_it_was() -> None:
    made, stream = speaker()
    made.play(frame(1), 20)
    stream.pull(50)
    made.pause(1)
    assert stream.pull(500) == bytes(1000)
    made.resume(1)
    assert stream.pull(150) == FRAME[100:]


def test_a_stopped_turn_is_not_heard_and_the_next_one_is() -> None:
    made, stream = speaker()
    made.play(frame(1), 20)
    stream.pull(50)
    made.pause(1)
    made.stop(1)
    made.play(frame(1), 20)  # late
    made.play(frame(2, FRAME[::-1]), 20)
    assert stream.pull(200) == FRAME[::-1]
    assert (made.played_ms(1), made.played_ms(2)) == (5, 20)
    made.close()  # returns: nothing waits


def parsed(url: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    talk.add_arguments(parser)
    return parser.parse_args(["--mic", "--text-only", "--url", url])


async def test_what_the_microphone_hears_goes_out_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sounddevice = Sounddevice()
    monkeypatch.setitem(sys.modules, "sounddevice", sounddevice)
    heard: list[AppendAudio] = []

    async def script(peer: Peer) -> None:
        start = await peer.start()
        assert start.audio_in is not None
        assert (start.audio_in.rate_hz, start.turn_detection) == (16_000, "auto")
        while "in" not in sounddevice.streams or not sounddevice.streams["in"].is_open:
            await asyncio.sleep(0.005)
        for number in range(3):
            await asyncio.to_thread(sounddevice.streams["in"].callback, bytes([number]) * 640, 320, None, None)
            event = await peer.receive()
            assert isinstance(event, AppendAudio)
            heard.append(event)
        await peer.socket.close(4004, "enough")

    async def know_nothing(peer: Peer) -> None:
        await peer.start(resumed=False)
        await peer.socket.wait_closed()

    async with serving(script, know_nothing) as server:
        assert await asyncio.to_thread(talk.run, parsed(server.url)) == 1
    assert [(event.pts_ms, event.data) for event in heard] == [(20.0 * i, bytes([i]) * 640) for i in range(3)]
    assert sounddevice.streams["in"].options["dtype"] == "int16"
    assert not sounddevice.streams["in"].is_open
    assert isinstance(server.received[0], StartSession)


async def test_without_a_device_it_is_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", Sounddevice(has_device=False))

    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.socket.wait_closed()

    async with serving(script) as server:
        assert await asyncio.to_thread(talk.run, parsed(server.url)) == 2
    assert "the microphone cannot be opened: Error querying device -1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "advice"),
    [(ImportError("No module"), "pip install 'stretto[mic]'"), (OSError("PortAudio library not found"), "apt-get install libportaudio2")],
)
def test_a_missing_package_or_library_says_how_to_get_it(
    error: Exception, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str) -> SimpleNamespace:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    assert talk.run(parsed("ws://127.0.0.1:9/v1/voice")) == 2
    assert advice in capsys.readouterr().err
