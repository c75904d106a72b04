"""`stretto talk`: one question to a running gateway; prints each segment as it arrives, plays or writes the sound.

Exit codes: 0 the reply is complete, 1 it failed, 2 the request cannot work (address, key, voice), 3 no gateway there or it is
full (try again), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import wave
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from gateway.client import (
    ConnectFailed,
    Conversation,
    ConversationError,
    ConversationLost,
    NoAnswer,
    Player,
    Refused,
    Reply,
    SimulatedPlayer,
    connect,
)
from gateway.client.conversation import DEFAULT_URL
from gateway.events import (
    AudioFrame,
    ErrorRaised,
    ReplyDone,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    ServerEvent,
    StartSession,
    TurnDone,
)

OK, FAILED, WRONG, ABSENT, STOPPED = 0, 1, 2, 3, 130
DRAIN_S = 10.0  # a player that has not finished this long after the turn's end is stuck
# In order of preference: programs that play raw mono s16le from their standard input.
SPEAKERS: tuple[tuple[str, ...], ...] = (
    ("paplay", "--raw", "--format=s16le", "--channels=1", "--rate={rate}"),
    ("aplay", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}", "-"),
    ("play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-"),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet", "-f", "s16le", "-ar", "{rate}", "-i", "-"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help='what to say, as in: stretto talk "Tell me something about the sea."; - reads standard input')
    parser.add_argument("--url", default=DEFAULT_URL, help="the gateway (default %(default)s)")
    parser.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    parser.add_argument("--out", type=Path, metavar="FILE.wav", help="write the sound into this file and play nothing")
    parser.add_argument("--text-only", action="store_true", help="ask for text alone")
    parser.add_argument("--voice", help="a voice's id; a wrong one lists those there are")
    parser.add_argument("--language", help="language of the conversation, as in en or zh")
    parser.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")


def run(args: argparse.Namespace) -> int:
    """Have the conversation; everything a newcomer must know is printed."""
    text = sys.stdin.read() if args.text == "-" else args.text
    try:
        with ExitStack() as stack:
            sink = _sink(args, stack)
            return asyncio.run(_talk(args, text, sink))
    except KeyboardInterrupt:
        return STOPPED
    except OSError as error:
        return _complain(WRONG, f"cannot write {args.out}: {error.strerror or error}")
    except ConnectFailed as error:
        return _complain(ABSENT if error.retryable else WRONG, f"{error}\n{_advice(error, args)}")
    except Refused as error:
        return _complain(ABSENT if error.retryable else WRONG, str(error))
    except (ConversationLost, NoAnswer) as error:
        return _complain(FAILED, str(error))
    except ConversationError as error:
        return _complain(FAILED, str(error))


def _advice(error: ConnectFailed, args: argparse.Namespace) -> str:
    if error.status == 401:
        return "Give its key with --key, or set STRETTO_KEY." if not args.key else "Ask the gateway's owner for a valid key."
    if error.status == 503:
        return "Try again in a moment."
    if error.status is None and error.retryable:
        return "Is the gateway running? `make serve` starts one here; --url names another."
    return "Check --url."


def _complain(code: int, message: str) -> int:
    print(f"stretto talk: {message}", file=sys.stderr)
    return code


# --- sound ---


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

    @property
    def description(self) -> str:
        return f"played by {self._command[0]}"

    def open(self, rate_hz: int) -> None:
        command = [part.format(rate=rate_hz) for part in self._command]
        self._process = self._stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        self._stack.callback(self._process.kill)  # after Ctrl-C or an error nothing plays on; no effect on one that has ended
        self._clock = SimulatedPlayer(asyncio.get_running_loop().time)

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        assert self._process is not None, "open() comes first"
        assert self._process.stdin is not None, "the process was made with a pipe"
        assert self._clock is not None, "open() comes first"
        try:
            self._process.stdin.write(frame.data)  # a second of lead at most: it fits into the pipe
            self._process.stdin.flush()
        except BrokenPipeError:
            print("stretto talk: the player stopped; --out FILE.wav writes the sound instead", file=sys.stderr)
        self._clock.play(frame, n_ms)

    def played_ms(self, turn: int) -> float:
        return 0.0 if self._clock is None else self._clock.played_ms(turn)

    def stop(self, turn: int) -> None:
        if self._clock is not None:
            self._clock.stop(turn)

    def close(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.close()
            self._process.wait(DRAIN_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()


def _sink(args: argparse.Namespace, stack: ExitStack) -> Sink | None:
    if args.text_only:
        return None
    if args.out is not None:
        return WavFile(args.out, stack)
    for command in SPEAKERS:
        if shutil.which(command[0]):
            return Speaker(command, stack)
    print("No audio player here (looked for paplay, aplay, play, ffplay); writing reply.wav.", file=sys.stderr)
    return WavFile(Path("reply.wav"), stack)


# --- the conversation ---


async def _talk(args: argparse.Namespace, text: str, sink: Sink | None) -> int:
    start = StartSession(language=args.language, voice=args.voice, output="text" if args.text_only else "audio")
    async with connect(args.url, key=args.key, start=start, player=sink, tls=_tls(args)) as conversation:
        _greet(args.url, conversation)
        if sink is not None:
            sink.open(conversation.ready.audio_out.rate_hz)
        show = Transcript(print)
        code = await _listen(await conversation.text(text), show)
        if sink is not None:
            await asyncio.to_thread(sink.close)
            show.end(sink.description)
        else:
            show.end(None)
        return code


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.url.startswith("wss:"):
        return None
    context = ssl.create_default_context()
    if args.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _greet(url: str, conversation: Conversation) -> None:
    voices = ", ".join(voice.id for voice in conversation.ready.voices) or "none"
    print(f"connected to {url}; voices: {voices}")


async def _listen(reply: Reply, show: Transcript) -> int:
    code = FAILED
    async for at_ms, event in reply.timed():
        show.add(at_ms, event)
        if isinstance(event, TurnDone):
            code = OK if event.status == "completed" and not show.has_failed else FAILED
    return code


class Transcript:
    """What the terminal shows: one line per segment with its time since the question was sent, and a last line of figures."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._first_segment_ms: float | None = None
        self._first_audio_ms: float | None = None
        self._audio_ms = 0
        self._n_tokens = 0
        self.has_failed = False

    def add(self, at_ms: float, event: ServerEvent) -> None:
        match event:
            case SegmentDecided():
                self._first_segment_ms = at_ms if self._first_segment_ms is None else self._first_segment_ms
                self._line(at_ms, event.text.strip())
            case SegmentAudio() if event.index == 0:
                self._line(at_ms, f"(spoken by {event.voice})")
            case AudioFrame() if self._first_audio_ms is None:
                self._first_audio_ms = at_ms
                self._line(at_ms, "(first audio)")
            case SegmentDone():
                self._audio_ms += event.audio_ms
                if event.status != "ok":
                    self._line(at_ms, f"(segment {event.index + 1} has no sound: {event.status})")
            case ErrorRaised():
                self.has_failed = True
                self._line(at_ms, f"(error {event.code}: {event.message})")
            case ReplyDone():
                self._n_tokens = event.usage.output_tokens
            case TurnDone() if event.status != "completed":
                self._line(at_ms, f"(the reply was {event.status})")

    def end(self, sound: str | None) -> None:
        """The figures."""
        parts = [f"first segment {_ms(self._first_segment_ms)}"]
        if sound is not None:
            parts += [f"first audio {_ms(self._first_audio_ms)}", f"{self._audio_ms / 1000:.1f} s of speech {sound}"]
        self._write("; ".join([*parts, f"{self._n_tokens} tokens"]))

    def _line(self, at_ms: float, text: str) -> None:
        self._write(f"{at_ms:7.0f} ms  {text}")


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f} ms"
