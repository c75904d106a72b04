"""The edge voice service as a `Synthesizer`. Text goes to a third party: off until an operator configures it.

Streams what the service sends as it comes, decoded; every wait has a deadline; a text that broke off raises `SpeechCut` with how
far it came, so that another voice can say the rest. The next text's connection is opened while this one is spoken.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from edge_tts.constants import WSS_URL

from engine.api import Health, SpeechChunk, Synthesis, Voice, VoiceUnavailable
from engine.settings import EdgeSettings
from engine.tts.decoders import Decoders, SpeechDecoders
from engine.tts.edge.connections import EdgeConnections
from engine.tts.edge.prosody import render
from engine.tts.edge.protocol import SAMPLE_RATE_HZ, ssml_message
from engine.tts.edge.recital import Recital
from engine.tts.script import can_read, scripts_of, speakable
from engine.tts.slots import Slots
from engine.tts.style import VoiceManner


class EdgeVoices:
    """`voices` come from the shipped table: the service is never asked for a list. Ids are `edge/` and the service's name."""

    name = "edge"

    def __init__(
        self,
        settings: EdgeSettings,
        voices: tuple[Voice, ...],
        manners: Mapping[str, VoiceManner],
        *,
        url: str = WSS_URL,
        wall: Callable[[], float] = time.time,
        decoders: Decoders | None = None,
    ) -> None:
        self._settings, self._voices, self._manners = settings, voices, manners
        self._scripts = {voice.id: scripts_of(voice.languages[0]) for voice in voices}
        self._slots = Slots(self.name, settings.streams, settings.waiting, settings.first_audio_s)
        self._connections = EdgeConnections(
            connect_s=settings.connect_s,
            max_spares=settings.streams if settings.open_ahead else 0,
            spare_s=settings.spare_s,
            proxy=settings.proxy or None,
            url=url,
            wall=wall,
        )
        self._decoders = decoders or SpeechDecoders(self.name)
        self._started = False

    async def start(self) -> None:
        await self._decoders.start()
        await self._connections.start()
        self._started = True

    async def close(self) -> None:
        self._started = False
        await self._connections.close()
        await self._decoders.close()

    def health(self) -> Health:
        """Ready without having asked the service: each call finds out."""
        return Health(ready=self._started, detail="text is sent to a third party" if self._started else "not started")

    def voices(self) -> tuple[Voice, ...]:
        return self._voices

    def can_speak(self, text: str, voice: str) -> bool:
        return voice in self._scripts and can_read(text, self._scripts[voice])

    def expect(self, voice: str) -> None:
        """A text for `voice` will follow within seconds: connect now. Never waits."""
        self._connections.expect()

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """Stream the segment; nothing speakable gives no chunk. A cancel frees the voice at once; its connection is closed behind it.

        Raises, beside the promised errors, `SpeechCut` when some of it was let out before it broke off.
        """
        if synthesis.voice not in self._scripts:
            raise VoiceUnavailable(f"expected one of {len(self._scripts)} edge voices, got {synthesis.voice!r}")
        if not speakable(synthesis.text):
            return
        request = self._request(synthesis)
        async with self._slots.hold():
            decoder = self._decoders.open("audio/mpeg", "mp3", SAMPLE_RATE_HZ, SAMPLE_RATE_HZ)
            async with aclosing(Recital(self._connections, self._settings, synthesis, decoder).run(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _request(self, synthesis: Synthesis) -> str:
        manner = self._manners.get(synthesis.voice, VoiceManner())
        prosody = render(synthesis.style, manner.base_hz, with_volume=synthesis.encoding == "mp3")
        try:
            return ssml_message(synthesis.text, synthesis.voice.removeprefix(f"{self.name}/"), prosody)
        except ValueError as error:
            raise VoiceUnavailable(f"the edge voice cannot be asked for this: {error}") from error
