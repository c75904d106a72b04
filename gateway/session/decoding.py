"""A client's compressed microphone, decoded in the decoders' process before the session sees it; what comes as samples passes by."""

from __future__ import annotations

from msgspec import structs

from engine.api import EngineError
from engine.decoding import DecodingRoom, RemoteDecoder, StreamDied
from gateway.errors import AudioRefused
from gateway.events import AppendAudio, AudioIn
from gateway.metrics import ListeningMetrics

_SAMPLES = AudioIn(codec="pcm16", rate_hz=16_000)  # what the decoders give
_FAULT = "The decoder fails on this audio and takes no more of it; expected another audio_in, by session.update."


class Decoding:
    """One session's. Without a room opus is left to the listener, which decodes it in this process."""

    def __init__(self, room: DecodingRoom | None, metrics: ListeningMetrics) -> None:
        self._room, self._metrics = room, metrics
        self._decoder: RemoteDecoder | None = None
        self._is_refused = False

    @property
    def is_remote(self) -> bool:
        """Whether audio has to go through `decoded` before the session takes it."""
        return self._decoder is not None

    def heard_as(self, audio_in: AudioIn) -> AudioIn:
        """What the listener gets of a microphone that sends this."""
        return _SAMPLES if audio_in.codec == "opus" and self._room is not None else audio_in

    def begin(self, audio_in: AudioIn) -> None:
        """The microphone sends this from now on."""
        self.close()
        if audio_in.codec == "opus" and self._room is not None:
            self._decoder, self._is_refused = self._room.stream(), False

    async def decoded(self, event: AppendAudio) -> AppendAudio:
        """The event with samples; without any where the packet is broken, which is counted.

        Waits for the process, for seconds when it has to come back. Raises `AudioRefused` once, when the decoder died on this stream.
        """
        if self._decoder is None or not event.data:
            return event
        try:
            return structs.replace(event, data=await self._decoder.decode(event.data))
        except EngineError as error:
            self._metrics.ear_errors.labels("codec", error.kind).inc()
            if isinstance(error, StreamDied) and not self._is_refused:
                self._is_refused = True
                raise AudioRefused(_FAULT) from error
            return structs.replace(event, data=b"")

    def close(self) -> None:
        """No more of this stream comes."""
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None
