"""Where the sound of a reply goes: a file, or a program of this machine that plays its standard input."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import wave
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from gateway.client import Player, SimulatedPlayer
from gateway.events import AudioFrame

DRAIN_S = 10.0  # a player that has not finished this long after the turn's end is stuck
# In order of preference: programs that play raw mono s16le from their standard input.
SPEAKERS: tuple[tuple[str, ...], ...] = (
    ("paplay", "--raw", "--format=s16le", "--channels=1", "--rate={rate}"),
    ("aplay", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}", "-"),
    ("play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet", "-f", "s16le", "-ar", "{rate}", "-i", "-"),
)


class Sink(Player, Protocol):
    """Where the sound goes. `close` waits until all of it is out."""

    @property
    def description(self) -> str:
        """For the last line."""

    def open(self, rate_hz: int) -> None:
        """Before the first frame."""

    def close(self) -> None:
        """After the last one."""


class WavFile:
    """A file that hears everything at once, so that the reply is not slowed down to real time."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._wave = stack.enter_context(wave.open(stack.enter_context(path.open("wb"))))  # noqa: SIM115 (the stack closes both)
        self._wave.setnchannels(1)
        self._wave.setsampwidth(2)
        self._wave.setframerate(24_000)
        self._played_ms: dict[int, float] = {}

    @property
    def description(self) -> str:
        return f"written to {self._path}"

    def open(self, rate_hz: int) -> None:
        self._wave.setframerate(rate_hz)

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        self._wave.writeframes(frame.data)
        self._played_ms[frame.turn] = self._played_ms.get(frame.turn, 0.0) + n_ms

    def played_ms(self, turn: int) -> float:
        return self._played_ms.get(turn, 0.0)

    def pause(self, turn: int) -> None:
        pass

    def resume(self, turn: int) -> None:
        pass

    def stop(self, turn: int) -> None:
        pass

    def close(self) -> None:
        pass


class Speaker:
    """A program of this machine that plays its standard input; how far it is, we take from the clock."""

    def __init__(self, command: tuple[str, ...], stack: ExitStack) -> None:
        self._command = command
        self._stack = stack
        self._process: subprocess.Popen[bytes] | None = None
        self._clock: SimulatedPlayer | None = None
        self._rate_hz = 24_000
        self._has_ended = False

    @property
    def description(self) -> str:
        return f"not heard to its end ({self._command[0]} ended)" if self._has_ended else f"played by {self._command[0]}"

    def open(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._clock = SimulatedPlayer(asyncio.get_running_loop().time)
        self._start()

    def _start(self) -> None:
        command = [part.format(rate=self._rate_hz) for part in self._command]
        self._process = self._stack.enter_context(
            subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )  # no buffer: closing one of a player that has ended raises
        self._stack.callback(self._process.kill)  # after Ctrl-C or an error nothing plays on; no effect on one that has ended

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        assert self._process is not None, "open() comes first"
        assert self._process.stdin is not None, "the process was made with a pipe"
        assert self._clock is not None, "open() comes first"
        self._clock.play(frame, n_ms)
        if self._has_ended:
            return
        try:
            self._process.stdin.write(frame.data)  # a second of lead at most: it fits into the pipe
        except BrokenPipeError:
            self._has_ended = True
            advice = "has this machine a sound device? --out FILE.wav writes the sound instead"
            print(f"stretto talk: the player {self._command[0]} ended; {advice}", file=sys.stderr)

    def played_ms(self, turn: int) -> float:
        return 0.0 if self._clock is None else self._clock.played_ms(turn)

    def pause(self, turn: int) -> None:
        if self._clock is not None:
            self._clock.pause(turn)
        self._signal("SIGSTOP")

    def resume(self, turn: int) -> None:
        if self._clock is not None:
            self._clock.resume(turn)
        self._signal("SIGCONT")

    def stop(self, turn: int) -> None:
        """What the program holds is not heard any more: another one plays the next turn."""
        if self._clock is not None:
            self._clock.stop(turn)
        if self._process is not None and not self._has_ended:
            self._process.kill()
            self._start()

    def _signal(self, name: str) -> None:
        if self._process is not None and hasattr(signal, name):  # Windows has neither
            self._process.send_signal(getattr(signal, name))

    def close(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        self._signal("SIGCONT")
        self._process.stdin.close()
        try:
            self._process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


def sink(out: Path | None, stack: ExitStack) -> Sink:
    """`out`, or what this machine has to play with; without anything the file reply.wav. Raises `OSError`."""
    if out is not None:
        return WavFile(out, stack)
    for command in SPEAKERS:
        if shutil.which(command[0]):
            return Speaker(command, stack)
    print("No audio player here (looked for paplay, aplay, play, ffplay); writing reply.wav.", file=sys.stderr)
    return WavFile(Path("reply.wav"), stack)
