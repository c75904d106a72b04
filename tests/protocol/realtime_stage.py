"""A Realtime client on a virtual clock: real frames through the real codec into a real session; every event is checked for its order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from engine.fake import ScriptedModel, ScriptedVoice
from gateway.codecs.realtime import RealtimeCodec
from gateway.errors import ClientError
from gateway.session import error_frame
from tests.doubles.answering import AnsweringModel
from tests.protocol.order_rules import Json, OrderRules
from tests.session.stage import Stage, stage


class RealtimeStage:
    """Sends JSON and collects JSON; `events` in the order they left."""

    def __init__(self, scene: Stage, codec: RealtimeCodec, unread: asyncio.Event) -> None:
        self.scene = scene
        self.codec = codec
        self.rules = OrderRules()
        self._arrived = unread

    @property
    def events(self) -> list[Json]:
        return self.rules.events

    def send(self, kind: str, **fields: Any) -> None:  # Any: right or wrong values
        self.raw(json.dumps({"type": kind, **fields}))

    def raw(self, frame: str | bytes) -> None:
        """As the connection does it."""
        try:
            events = self.codec.decode(frame)
        except ClientError as error:
            self.scene.session.outbox.put(error_frame(error))
            return
        for event in events:
            self.scene.session.receive(event)

    def say(self, text: str, **fields: Any) -> None:  # Any: further fields of the item
        content = [{"type": "input_text", "text": text}]
        self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content, **fields})

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["type"] == kind]

    def kinds(self, prefix: str = "") -> list[str]:
        """Types in order, each run of the same one once."""
        found: list[str] = []
        for event in self.events:
            if event["type"].startswith(prefix) and found[-1:] != [event["type"]]:
                found.append(event["type"])
        return found

    def errors(self) -> list[tuple[str, str | None]]:
        """(code, event_id) of every error."""
        return [(event["error"]["code"], event["error"]["event_id"]) for event in self.of("error")]

    async def until(self, kind: str, n: int = 1) -> Json:
        async with asyncio.timeout(120):
            while len(found := self.of(kind)) < n:
                self._arrived.clear()
                await self._arrived.wait()
        return found[n - 1]

    async def settle(self) -> None:
        """Everything that can be answered at once has been."""
        await asyncio.sleep(0.005)

    async def read(self) -> None:
        while True:
            seq, event = await self.scene.session.outbox.next()
            for frame in self.codec.encode(event, seq):
                self.rules.frame(frame)
            self._arrived.set()


@asynccontextmanager
async def realtime(
    *,
    model: ScriptedModel | None = None,
    voice: ScriptedVoice | None = None,
    settings: dict[str, Any] | None = None,  # Any: a settings tree as TOML gives it
    is_slow_to_read: bool = False,
) -> AsyncIterator[RealtimeStage]:
    """An open conversation; nothing is read from it before the block's first wait, or ever when `is_slow_to_read`."""
    async with stage(model=model or AnsweringModel(), voice=voice, settings=settings, start=RealtimeCodec.opening) as scene:
        await scene.stop_reading()
        codec = RealtimeCodec("u", "stretto", 1 << 20, 3600)
        client = RealtimeStage(scene, codec, asyncio.Event())
        for frame in codec.welcome(scene.ready, scene.session.profile.described()):
            client.rules.frame(frame)
        async with asyncio.TaskGroup() as tasks:
            reader = None if is_slow_to_read else tasks.create_task(client.read(), name="realtime client")
            yield client
            if reader is not None:
                reader.cancel()
