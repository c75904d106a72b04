"""A speech server's decoders in this process: as in their own, without starting one for each test."""

from __future__ import annotations

from engine.tts.decoding import AudioFormat, SpeechDecoder


class DecodersHere:
    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def open(self, content_type: str | None, asked: AudioFormat, pcm_rate_hz: int, to_rate_hz: int) -> AnswerHere:
        return AnswerHere(SpeechDecoder(content_type, asked, pcm_rate_hz, to_rate_hz))


class AnswerHere:
    def __init__(self, decoder: SpeechDecoder) -> None:
        self._decoder = decoder

    async def feed(self, data: bytes | None) -> bytes:
        return self._decoder.flush() if data is None else self._decoder.feed(data)

    def close(self) -> None: ...
