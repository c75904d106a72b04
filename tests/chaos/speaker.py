"""Somebody who speaks with real sound: the same sentence again and again, and waits for the reply to it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import cache
from pathlib import Path

from websockets.exceptions import WebSocketException

from tests.chaos.crowd import Person
from tests.protocol.peer import Frame, Peer, peer

RECORDING = Path("/usr/share/pocketsphinx/test/data/goforward.raw")  # "go forward ten meters", 16 kHz mono
FRAME_BYTES, FRAME_S = 640, 0.02
ANSWER_S = 60.0  # from the first word to the end of the reply, engines restarted meanwhile
SIGNS = ("speech.ended", "turn.started", "text.delta", "segment")  # of life: what is told later, is counted from here


class Speaker(Person):
    """Their replies come as text: what they say must not be what they hear."""

    async def talk(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(random.random() * self._pause[1])
        while True:
            try:
                async with peer(self.url, start={"audio_in": {"codec": "pcm16", "rate_hz": 16_000}, "output": "text"}) as client:
                    while True:
                        await self._say_and_hear(client)
                        await self._think(client)
            except* (OSError, WebSocketException, TimeoutError) as lost:
                if self.asked_s is not None:
                    self._note("lost", self.asked_s, self.asked_s, type(lost.exceptions[0]).__name__)
            self.asked_s = None
            await asyncio.sleep(self.pause_s())

    async def _say_and_hear(self, client: Peer) -> None:
        self.asked_s = asked_s = self._now()
        async with asyncio.TaskGroup() as tasks:
            microphone = tasks.create_task(self._speak(client), name="microphone")
            async with asyncio.timeout(ANSWER_S):
                await self._hear(client, asked_s)
            microphone.cancel()
        self.asked_s = None

    async def _hear(self, client: Peer, asked_s: float) -> None:
        """Until the reply's end, or until it is told that there is none."""
        since_s = asked_s
        while True:
            frame = await client.receive()
            if frame["type"] in SIGNS:
                since_s = self._now()
            if frame["type"] == "error":
                self._told(frame, asked_s, since_s)
                if "turn" not in frame:
                    return
            if frame["type"] == "segment":
                self._note("answered", asked_s, self._now())
            if frame["type"] == "turn.done" and frame["status"] != "superseded":
                self._note("ended", asked_s, since_s, frame["status"])
                return

    async def _think(self, client: Peer) -> None:
        """Between two turns; what comes late comes now."""
        began_s = self._now()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.pause_s()):
                while True:
                    frame = await client.receive()
                    if frame["type"] == "error":
                        self._told(frame, began_s, began_s)

    def _told(self, frame: Frame, asked_s: float, since_s: float) -> None:
        self._note("told", asked_s, since_s, frame["code"])

    async def _speak(self, client: Peer) -> None:
        sound, at, began_s = recorded(), 0, self._now()
        while True:
            data = sound[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
            await client.send(type="audio", data=data, pts_ms=round(1000 * began_s) + at / 32)
            at += FRAME_BYTES
            await asyncio.sleep(max(0.0, began_s + at / 32_000 - self._now()))


@cache
def recorded() -> bytes:
    """Samples of somebody's speech. Raises where the Debian package is missing."""
    if not RECORDING.exists():
        raise AssertionError("recorded speech is missing: apt-get install pocketsphinx-testdata")
    return RECORDING.read_bytes()
