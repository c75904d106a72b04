"""MP3 to PCM while it arrives, sample-exact, with the encoder's delay cut off.

miniaudio decodes whole clips only, so each new run of frames is decoded together with the few frames before it that its sound
depends on (bit reservoir, block overlap, filter bank), and only the new samples are kept. Costs about 0.1 ms for 120 ms of
audio; bit-identical to decoding the whole clip at once (tested).
"""

from __future__ import annotations

import miniaudio

from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.mp3_frames import ENCODER_DELAY_SAMPLES, Frame, FrameReader

_RESERVOIR_BYTES = 511  # how far back main data may begin; 13818-3 allows 255, 11172-3 511
_MAX_SKIPPED_BYTES = 4096  # an ID3 tag or a hole is smaller; more than this is no MP3
_SAMPLE_BYTES = 2


class Mp3Decoder:
    """Decodes one clip. Mono s16le at the clip's own rate; stereo is mixed down.

    Raises `CorruptAudio` when the bytes are not MP3.
    """

    def __init__(self, delay_samples: int = ENCODER_DELAY_SAMPLES) -> None:
        self._reader = FrameReader()
        self._warm_up: list[Frame] = []
        self._to_cut = delay_samples
        self.sample_rate_hz: int | None = None

    def feed(self, data: bytes) -> bytes:
        """PCM of the frames that are complete now."""
        frames = [frame for frame in self._reader.feed(data) if not frame.is_tag]
        if self._reader.skipped_bytes > _MAX_SKIPPED_BYTES:
            raise CorruptAudio(f"expected MP3, got {self._reader.skipped_bytes} bytes that belong to no frame")
        if not frames:
            return b""
        self.sample_rate_hz = frames[0].sample_rate_hz
        pcm = _decode(self._warm_up, frames)
        self._warm_up = _needed_before_next(self._warm_up + frames)
        cut = min(len(pcm), self._to_cut * _SAMPLE_BYTES)
        self._to_cut -= cut // _SAMPLE_BYTES
        return pcm[cut:]

    def flush(self) -> None:
        """The clip is over. Raises `CorruptAudio` when it held no frame at all."""
        self._reader.flush()
        if self.sample_rate_hz is None:
            raise CorruptAudio(f"expected MP3, got {self._reader.skipped_bytes} bytes without a frame")


def _decode(warm_up: list[Frame], frames: list[Frame]) -> bytes:
    """The samples of `frames`; a frame that cannot be decoded is silence, so that time stays true."""
    wanted_bytes = sum(frame.n_samples for frame in frames) * _SAMPLE_BYTES
    try:
        sound = miniaudio.mp3_read_s16(b"".join(frame.data for frame in [*warm_up, *frames]))
    except miniaudio.DecodeError:
        return bytes(wanted_bytes)
    pcm: bytes = sound.samples.tobytes()
    if sound.nchannels == 2:
        mixed = miniaudio.convert_frames(
            miniaudio.SampleFormat.SIGNED16, 2, sound.sample_rate, pcm, miniaudio.SampleFormat.SIGNED16, 1, sound.sample_rate
        )
        pcm = bytes(mixed)
    return bytes(pcm[-wanted_bytes:]).rjust(wanted_bytes, b"\0")


def _needed_before_next(frames: list[Frame]) -> list[Frame]:
    """The last frames that the next one's sound depends on: two for overlap and filter bank, and their reservoir."""
    start, reservoir = max(0, len(frames) - 2), 0
    while start > 0 and reservoir < _RESERVOIR_BYTES:
        start -= 1
        reservoir += frames[start].main_data_bytes
    return frames[start:]
