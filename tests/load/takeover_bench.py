"""How long a client waits on another gateway when its own is killed, and how much of what it heard is forgotten.

Run: `python -m tests.load.takeover_bench [N]`. N conversations with scripted engines over a real Redis; all are speaking when their gateway
gets SIGKILL; each then resumes on another one. Prints JSON: milliseconds from the dial to `session.ready`, and how many milliseconds of
speech the client had played beyond what the other gateway knows to be heard. Needs redis-server.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack

from tests.doubles.redis_server import redis_server
from tests.protocol.peer import Frame, Peer, peer
from tests.running import gateway

TALK_S = 2.0  # of speech before the end
REPLY = " ".join(["One two three four five six seven."] * 20)


async def speaking(client: Peer) -> tuple[Frame, float]:
    """What `session.ready` said, and the milliseconds played at the end."""
    await client.send(type="session.start", id="s", language="en")
    ready = await client.until("session.ready")
    await client.send(type="text", text="Count.")
    await client.until("audio")
    began = time.monotonic()
    while (played_ms := (time.monotonic() - began) * 1000) < TALK_S * 1000:
        await client.send(type="playout", turn=1, played_ms=round(played_ms))
        await asyncio.sleep(0.25)
    return ready, played_ms


async def take_over(n: int) -> None:
    with redis_server() as redis:
        settings = {"STRETTO_SESSION__STORE_URL": redis.url, "STRETTO_FAKE__REPLY": REPLY, "STRETTO_FAKE__TTS_RTF": "0.1"}
        with gateway(settings) as doomed, gateway(settings) as other:
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(peer(doomed.voice_url)) for _ in range(n)]
                told = await asyncio.gather(*map(speaking, clients))
                doomed.process.kill()
            waits_ms, forgotten_ms = [], []
            for ready, played_ms in told:
                dialed = time.monotonic()
                async with peer(other.voice_url) as again:
                    resume = {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": 0}
                    await again.send(type="session.start", id="r", resume=resume)
                    answer = await again.until("session.ready")
                    waits_ms.append((time.monotonic() - dialed) * 1000)
                    assert answer["resumed"], answer
                    forgotten_ms.append(played_ms - float((await again.until("heard"))["heard_ms"]))
    for name, figures in (("dial_to_ready_ms", waits_ms), ("forgotten_ms", forgotten_ms)):
        print(json.dumps({name: {"n": n, "p50": round(statistics.median(figures), 1), "max": round(max(figures), 1)}}))


if __name__ == "__main__":
    asyncio.run(take_over(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
