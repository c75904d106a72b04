"""Interruptions at random moments, from many conversations at once; run as a process of its own: `barge.py URL TALKERS TIMES`."""

from __future__ import annotations

import asyncio
import json
import random
import sys

from gateway.client import connect
from gateway.events import StartSession

LONGEST_S = 1.5  # a reply's generation is over by then at most sizes; about half of the interruptions meet a running request


async def main(url: str, n_talkers: int, n_times: int) -> None:
    """Prints one JSON object."""
    statuses: dict[str, int] = {}

    async def one(talker: int) -> None:
        rng = random.Random(talker)
        async with connect(url, start=StartSession(language="en", output="audio"), timeout_s=60) as conversation:
            for turn in range(n_times // n_talkers):
                reply = await conversation.text(f"Tell me thing number {turn} about the sea.")
                await asyncio.sleep(rng.uniform(0, LONGEST_S))
                await conversation.cancel(reply.turn)
                done = await reply.finished()
                statuses[done.status] = statuses.get(done.status, 0) + 1

    async with asyncio.TaskGroup() as tasks:
        for talker in range(n_talkers):
            tasks.create_task(one(talker), name=f"interrupter {talker}")
    print(json.dumps(statuses))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
