"""The last stretch of a microphone's audio, and the three clocks on it: the stream's own, the client's, and the loop's.

The stream's clock counts every millisecond that was taken in, silence put into gaps included. Audio is mono s16le at 16 kHz.
"""

from __future__ import annotations

from collections import deque

BYTES_PER_MS = 32
_JITTER_MS = 20.0  # rounding of a client's times; less is no gap
_LONGEST_GAP_MS = 6000.0  # silence put into one gap: enough to end any utterance, and no more work than that
_LATEST_MS = 1e13  # three hundred years; a wall clock's milliseconds are a tenth of it
_ANCHORS = 64  # places where the client's clock jumped, kept for telling times


class Tape:
    """Keeps `keep_ms` at most; the oldest audio is forgotten."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_bytes = keep_ms * BYTES_PER_MS
        self._pcm = bytearray()
        self._begin_bytes = 0  # stream position of the first byte kept

    @property
    def begin_ms(self) -> float:
        """Where the audio that is kept begins."""
        return self._begin_bytes / BYTES_PER_MS

    @property
    def end_ms(self) -> float:
        """How long the stream is."""
        return (self._begin_bytes + len(self._pcm)) / BYTES_PER_MS

    def append(self, pcm: bytes, *, needed_from_ms: float | None) -> float:
        """Take audio in; milliseconds that were forgotten although they are needed."""
        self._pcm += pcm
        needed = self._begin_bytes + len(self._pcm) if needed_from_ms is None else int(needed_from_ms * BYTES_PER_MS)
        over = len(self._pcm) - self._keep_bytes
        if over <= 0:
            return 0.0
        del self._pcm[:over]
        self._begin_bytes += over
        return min(over, max(0, self._begin_bytes - needed)) / BYTES_PER_MS

    def forget_before(self, ms: float) -> None:
        """What lies before is not needed any more."""
        n_bytes = min(int(ms) * BYTES_PER_MS - self._begin_bytes, len(self._pcm))
        if n_bytes > 0:
            del self._pcm[:n_bytes]
            self._begin_bytes += n_bytes

    def cut(self, from_ms: float, to_ms: float | None = None) -> bytes:
        """The audio between two moments, as far as it is kept."""
        start = max(0, round(from_ms * BYTES_PER_MS / 2) * 2 - self._begin_bytes)
        end = len(self._pcm) if to_ms is None else max(0, round(to_ms * BYTES_PER_MS / 2) * 2 - self._begin_bytes)
        return bytes(self._pcm[start:end])


class MediaClock:
    """A client's times against the stream's and the loop's. Milliseconds of media, seconds of the loop."""

    def __init__(self) -> None:
        self.n_jumps_back = 0
        self._next_pts_ms: float | None = None
        self._filled_ms = 0.0  # silence put in since the last audio, because none came
        self._arrived_s: float | None = None
        self._arrived_ms = 0.0  # end of the stream when the last audio had come
        self._anchors: deque[tuple[float, float]] = deque(maxlen=_ANCHORS)  # (stream, client)

    def arrive(self, pts_ms: float | None, stream_ms: float) -> float:
        """Audio of the client's time `pts_ms` comes: the silence that belongs in front of it. Call `took` when it is in.

        Times that stand still or jump back (a restarted clock) count as going on where the last audio ended; so does audio without
        a time, or with one that no clock shows.
        """
        if pts_ms is None or not abs(pts_ms) < _LATEST_MS:
            pts_ms = self._next_pts_ms or 0.0
        expected = pts_ms if self._next_pts_ms is None else self._next_pts_ms
        gap_ms = pts_ms - expected
        silence_ms = 0.0
        if gap_ms > _JITTER_MS:
            silence_ms = min(max(0.0, gap_ms - self._filled_ms), _LONGEST_GAP_MS)
        elif gap_ms < -_JITTER_MS:
            self.n_jumps_back += 1
        self._filled_ms = 0.0
        client_ms = max(pts_ms, expected)
        self._next_pts_ms = client_ms
        start_ms = stream_ms + silence_ms
        if not self._anchors or abs(start_ms - self._anchors[-1][0] - (client_ms - self._anchors[-1][1])) > 1.0:
            self._anchors.append((start_ms, client_ms))
        return silence_ms

    def took(self, length_ms: float, stream_ms: float, now: float) -> None:
        """The audio is in; the stream is `stream_ms` long."""
        self._next_pts_ms = (self._next_pts_ms or 0.0) + length_ms
        self._arrived_s, self._arrived_ms = now, stream_ms

    def missing_ms(self, gap_ms: float, now: float) -> float:
        """Silence to put in because nothing has come for longer than `gap_ms`; call `filled` with what was put in."""
        if self._arrived_s is None:
            return 0.0
        elapsed_ms = (now - self._arrived_s) * 1000
        return max(0.0, elapsed_ms - self._filled_ms) if elapsed_ms > gap_ms else 0.0

    def filled(self, ms: float) -> None:
        """So much silence was put in."""
        self._filled_ms += ms

    def client_ms(self, stream_ms: float) -> int:
        """A moment of the stream on the client's clock."""
        anchor = next(
            (found for found in reversed(self._anchors) if found[0] <= stream_ms), self._anchors[0] if self._anchors else (0.0, 0.0)
        )
        return max(0, round(anchor[1] + stream_ms - anchor[0]))

    def loop_s(self, stream_ms: float, now: float) -> float:
        """When a moment of the stream was spoken, as far as arrival tells."""
        if self._arrived_s is None:
            return now
        return min(now, self._arrived_s + (stream_ms - self._arrived_ms) / 1000)
