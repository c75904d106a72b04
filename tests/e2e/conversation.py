"""One conversation with a real gateway and real engines; the same for each language model. Order and counts, never wording."""

from __future__ import annotations

import asyncio

from tests.protocol.peer import Frame, Peer, peer
from tests.running import Running

ANSWER_S = 120.0  # five times what a tiny model needs on two busy cores


async def turn(client: Peer, text: str) -> list[Frame]:
    """Say something and hear it out, reporting playout as a client does."""
    await client.send(type="text", text=text)
    return await reply(client)


async def reply(client: Peer) -> list[Frame]:
    """All frames up to `turn.done`; the player is instantaneous, so that a long reply does not take its spoken length."""
    frames: list[Frame] = []
    async with asyncio.timeout(ANSWER_S):
        while not frames or frames[-1]["type"] != "turn.done":
            frames.append(await client.receive())
            if frames[-1]["type"] == "audio":
                end_ms = frames[-1]["pts_ms"] + len(frames[-1]["data"]) / 48
                await client.send(type="playout", turn=frames[-1]["turn"], played_ms=end_ms)
    return frames


def check_turn(frames: list[Frame]) -> None:
    """The promises of a completed turn."""
    of = {kind: [f for f in frames if f["type"] == kind] for kind in {f["type"] for f in frames}}
    assert frames[-1]["status"] == "completed", frames[-1]
    assert "error" not in of, of.get("error")
    assert [f["seq"] for f in frames] == list(range(frames[0]["seq"], frames[0]["seq"] + len(frames)))
    captions = "".join(f["text"] for f in of["text.delta"])
    assert captions == "".join(f["text"] for f in of["segment"])
    assert captions.strip()
    usage = of["reply.done"][0]["usage"]
    assert sum(f["tokens"] for f in of["text.delta"]) <= usage["output_tokens"]
    assert usage["prompt_tokens"] > 0
    assert [f["index"] for f in of["segment"]] == list(range(len(of["segment"])))
    assert [f["index"] for f in of["segment.done"]] == list(range(len(of["segment"])))
    for done in of["segment.done"]:
        sent_ms = sum(len(f["data"]) / 48 for f in of["audio"] if f["index"] == done["index"])
        assert abs(sent_ms - done["audio_ms"]) <= 1
    assert sum(len(f["data"]) for f in of["audio"]) > 4800
    timeline = frames[-1]["timeline"]
    assert 0 < timeline["ttft_ms"] <= timeline["first_segment_ms"] <= timeline["first_audio_ms"] <= timeline["reply_done_ms"]


async def converse(running: Running) -> None:
    """Three turns that remember, one that is interrupted, and two people at once."""
    persona = "You are a friendly voice assistant. Answer in one short sentence."
    async with peer(running.voice_url, start={"instructions": persona}) as client:
        check_turn(await turn(client, "Tell me something about the sea."))
        second = await turn(client, "And about the wind?")
        check_turn(second)
        cached = next(f for f in second if f["type"] == "reply.done")["usage"]["cached_tokens"]
        assert cached > 10, "the second turn's prompt begins with the first one"

        await client.send(type="text", text="Tell me a very long story about a ship.")
        await client.until("audio")
        await client.send(type="cancel", id="stop")
        interrupted = await client.until("interrupted")
        await client.send(type="playout", turn=interrupted["turn"], played_ms=20, final=True)
        rest = await client.frames_until("turn.done")
        assert [f["type"] for f in rest if f.get("turn") == interrupted["turn"]] == ["heard", "turn.done"]
        check_turn(await turn(client, "Where were we?"))

        async with peer(running.voice_url, start={}) as other:
            both = await asyncio.gather(turn(client, "Count to three."), turn(other, "What is rain?"))
        for frames in both:
            check_turn(frames)
