"""What the terminal shows of a reply."""

from __future__ import annotations

from collections.abc import Callable

from gateway.events import (
    AudioFrame,
    ErrorRaised,
    ReplyDone,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    ServerEvent,
    TurnDone,
)


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
