"""Sound that nobody will hear is not kept: 130 KB of it stayed with every interrupted reply, and 256 KB with every ended session."""

from __future__ import annotations

import asyncio
import gc

from gateway.events import AudioFrame, Cancel, SendText, TurnDone
from gateway.speaker.track import Track
from tests.session.stage import stage

REPLY = "One two three four five six seven. Eight nine ten eleven twelve thirteen."


def tracks() -> list[Track]:
    """The segments that the process still knows."""
    return [found for found in gc.get_objects() if type(found) is Track]  # not isinstance: others leave dead weak proxies


def left_bytes(others: list[Track]) -> int:
    """How much sound is kept of segments that are not `others`, which an earlier test left to the garbage collector."""
    return sum(track.left_bytes for track in tracks() if all(track is not other for other in others))


async def test_an_interrupted_reply_keeps_none_of_its_sound() -> None:
    others = tracks()
    async with stage([REPLY]) as scene:
        for n in (1, 2, 3):
            scene.send(SendText(text="Hello?"))
            await scene.until(AudioFrame, n)
            await asyncio.sleep(0.5)
            assert left_bytes(others) > 0, "a voice faster than speech is ahead"
            scene.send(Cancel())
            await scene.until(TurnDone, n)
        assert len(tracks()) > len(others), "the replies are in the conversation"
        assert left_bytes(others) == 0


async def test_an_ended_session_keeps_no_frames() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Hello?"))
        await scene.until(TurnDone)
        outbox = scene.session.outbox
        assert outbox.kept_bytes > 100_000
        scene.sessions.lose(scene.session, scene.attachment, is_over=True)
        await asyncio.sleep(1.0)
        assert len(scene.sessions) == 0
        assert outbox.kept_bytes == 0
