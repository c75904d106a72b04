"""What the Python client asks of a session while it lasts, and the formats that turns come in."""

from __future__ import annotations

import pytest

from gateway.client import connect
from gateway.client.playout import length_ms
from gateway.events import (
    AudioFrame,
    AudioOut,
    Endpointing,
    ReplyDone,
    ReportPlayout,
    SessionUpdated,
    Timeline,
    TurnDone,
    TurnStarted,
    UpdateSession,
    UsageInfo,
)
from tests.doubles.scripted_server import Peer, serving

TELEPHONE = AudioOut(codec="g711u", rate_hz=8000)
SETTINGS = SessionUpdated(instructions="", language="en", voice="amy", output="audio", allow_barge_in=True)


def test_g711_sounds_as_long_as_its_bytes() -> None:
    assert length_ms(bytes(160), TELEPHONE) == 20
    assert length_ms(bytes(801), AudioOut(codec="g711a", rate_hz=8000)) == pytest.approx(100.125)


async def test_a_turn_in_another_format_is_played_at_its_own_rate() -> None:
    async def reply(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id, audio_out=TELEPHONE))
        await peer.send(AudioFrame(turn=1, index=0, pts_ms=0, data=bytes(320)))
        await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=9, cached_tokens=0, output_tokens=8)))
        await peer.receive_until(lambda event: isinstance(event, ReportPlayout) and event.final)
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    async with serving(reply) as server, connect(server.url) as conversation:
        await (await conversation.text("Hello.")).finished()
    last = server.received[-1]
    assert isinstance(last, ReportPlayout)
    assert (last.final, last.played_ms) == (True, pytest.approx(40, abs=0.6))


async def test_endpointing_and_speed_are_asked_for_and_what_is_in_force_comes_back() -> None:
    wish = Endpointing(silence_ms=20, idle_timeout_ms=5000)

    async def agree(peer: Peer) -> None:
        await peer.start()
        asked = await peer.receive()
        assert isinstance(asked, UpdateSession)
        assert (asked.endpointing, asked.speed, asked.voice) == (wish, 1.25, None)
        await peer.send(SessionUpdated(**{name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | {"ref": asked.id}))
        await peer.socket.wait_closed()

    async with serving(agree) as server, connect(server.url) as conversation:
        assert (await conversation.update(endpointing=wish, speed=1.25)).voice == "amy"
