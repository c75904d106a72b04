"""How fast replies sound, for the scripted voice and for the raw rows' listeners alike."""

from __future__ import annotations

from engine.fake import voice

_spoken_ms = voice.speech_ms


def hurry(times: float) -> None:
    """From now on replies sound so many times shorter than spoken ones."""
    voice.speech_ms = lambda text: round(_spoken_ms(text) / times)


def heard_ms(text: str) -> int:
    """How long somebody listens to `text`."""
    return voice.speech_ms(text)
