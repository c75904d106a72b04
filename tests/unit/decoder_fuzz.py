"""Feeds a decoder what strangers might, for so long: `python -m tests.unit.decoder_fuzz NAME --seconds 2 --seed 1`.

Run as a process, because the compiled decoders do not raise when they break. A decoder may give sound, or say that the audio is corrupt;
anything else ends the run with its input in hex. Prints how many inputs there were.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import opuscodec

from engine.audio_codecs import CorruptAudio, g711
from engine.audio_codecs.encoders import Mp3Encoder
from engine.audio_codecs.incoming import IncomingAudio
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.audio_codecs.mp3_frames import FrameReader
from engine.audio_codecs.opus import OggOpusDecoder, OpusDecoder, OpusEncoder
from engine.audio_codecs.wav import WavDecoder
from engine.tts.decoding import SpeechDecoder, UnexpectedAnswer
from tests.doubles.scripted_encoding import mp3_frames
from tests.doubles.spoken_tones import speak
from tests.unit.test_audio_codecs import wav

GROWN_KB = 150_000  # of memory, over a whole run: buffers are bounded
SOUND = speak("one two three", 24_000)


def opus_packets() -> list[bytes]:
    return [packet for rate_hz in (8_000, 16_000, 48_000) for packet in OpusEncoder(rate_hz).feed(speak("one two", rate_hz))]


def ogg_opus(pcm: bytes) -> bytes:
    encoder = opuscodec.OpusBufferedEncoder(sample_rate=24_000, channels=1)
    return bytes(encoder.write(np.frombuffer(pcm, "<i2").reshape(-1, 1)) + encoder.flush())


def mp3() -> bytes:
    encoder = Mp3Encoder(24_000)
    return b"".join(encoder.feed(SOUND) + encoder.flush())


def mutated(good: bytes, chance: random.Random) -> bytes:
    """Nearly right: bits flipped, pieces cut out, doubled, or from somewhere else."""
    data = bytearray(good)
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        if not data:
            break
        at, length = chance.randrange(len(data)), chance.choice((1, 2, 4, 30))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + length] = chance.randbytes(length)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length]
            case 4:
                data[at : at + length] = chance.choice((b"\0", b"\xff", b"\x7f")) * length
    return bytes(data)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """At any cuts."""
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def streamed(make: Callable[[], Mp3Decoder | OggOpusDecoder | WavDecoder | SpeechDecoder], data: bytes, chance: random.Random) -> None:
    decoder = make()
    for piece in pieces(data, chance):
        decoder.feed(piece)
    decoder.flush()


class Fuzz:
    """A decoder with what is right for it. `once` decodes one input, whatever it is."""

    def __init__(self, goods: list[bytes], once: Callable[[bytes, random.Random], object]) -> None:
        self.goods, self.once = goods, once


def opus(data: bytes, chance: random.Random) -> None:
    OPUS[chance.randrange(len(OPUS))].decode(data)  # with the state that earlier packets left


def microphone(data: bytes, chance: random.Random) -> None:
    IncomingAudio(chance.choice(("pcm16", "opus", "g711u", "g711a"))).feed(data)


def g711_both(data: bytes, chance: random.Random) -> None:
    for law in ("g711u", "g711a"):
        pcm = g711.decode(data, law)
        assert g711.decode(g711.encode(pcm, law), law) == pcm


def http_voice(data: bytes, chance: random.Random) -> None:
    kind = chance.choice(
        ("audio/mpeg", "audio/ogg", "audio/wav", "audio/pcm; rate=24000", "application/octet-stream", "text/html", None, "\0;=")
    )
    streamed(lambda: SpeechDecoder(kind, "mp3", 24_000, 16_000), data, chance)


OPUS = [OpusDecoder(rate_hz) for rate_hz in (16_000, 48_000)]
FUZZES: dict[str, Callable[[], Fuzz]] = {
    "opus": lambda: Fuzz(opus_packets(), opus),
    "microphone": lambda: Fuzz([*opus_packets(), SOUND[:4000]], microphone),
    "ogg": lambda: Fuzz([ogg_opus(SOUND)], lambda data, chance: streamed(OggOpusDecoder, data, chance)),
    "mp3": lambda: Fuzz([mp3(), mp3_frames(3, b"\0")], lambda data, chance: streamed(Mp3Decoder, data, chance)),
    "mp3 frames": lambda: Fuzz([mp3()], lambda data, chance: [FrameReader().feed(piece) for piece in pieces(data, chance)]),
    "wav": lambda: Fuzz(
        [wav(SOUND[:2000]), wav(SOUND[:2000], channels=2, size=0)], lambda data, chance: streamed(WavDecoder, data, chance)
    ),
    "g711": lambda: Fuzz([bytes(range(256))], g711_both),
    "http voice": lambda: Fuzz([mp3(), ogg_opus(SOUND), wav(SOUND[:2000])], http_voice),
}


def run(name: str, seconds: float, seed: int) -> int:
    """How many inputs it took. Raises whatever a decoder must not."""
    fuzz, chance = FUZZES[name](), random.Random(seed)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends_s, n = time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        for _ in range(20):
            data = chance.randbytes(chance.randrange(300)) if chance.random() < 0.2 else mutated(chance.choice(fuzz.goods), chance)
            try:
                fuzz.once(data, chance)
            except (CorruptAudio, UnexpectedAnswer):
                pass
            except BaseException:
                print(f"{name}, seed {seed}, input {n}: {data.hex()}", file=sys.stderr)
                raise
            n += 1
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < GROWN_KB, f"{name} grew by {grown_kb} KB over {n} inputs"
    return n


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(FUZZES))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for one in options.names:
        print(f"{one}: {run(one, options.seconds, options.seed)} inputs", flush=True)
