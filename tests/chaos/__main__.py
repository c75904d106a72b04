"""Faults on purpose, and one table of what came of them. Whoever is told later than a second is wrong here, on a machine of its own.

python -m tests.chaos                 scripted engines with 50 people, then real ones with 50
python -m tests.chaos --short         scripted engines alone, 20 people: under 90 seconds
python -m tests.chaos --only laptop   one part: scripted, laptop (llama.cpp, Piper, Whisper), vllm
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from tests.chaos import real, stages
from tests.chaos.faults import HEADER, Found

PARTS: Mapping[str, Sequence[stages.Stage]] = {
    "scripted": [stages.engines_break, stages.processes_die, stages.told_twice],
    "laptop": [real.of_a_laptop, real.a_laptop_told_twice],
    "vllm": [real.vllm_on_the_cpu],
}


def main() -> int:
    """Run; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("-n", "--people", type=int, help="how many talk (50; short: 20)")
    options = parser.parse_args()
    n_people = options.people or (20 if options.short else 50)
    found = Found(lambda line: print(line, flush=True), is_timed=True)
    found.say(f"{n_people} people; {_load()}")
    found.say(HEADER)
    asyncio.run(play(found, n_people, [options.only] if options.only else ["scripted"] if options.short else list(PARTS)))
    found.say(_load())
    found.say(f"{len(found.wrong)} wrong")
    return 1 if found.wrong else 0


async def play(found: Found, n_people: int, parts: Sequence[str]) -> None:
    """All stages, one after the other."""
    for part in parts:
        for stage in PARTS[part]:
            await stage(found, n_people)


def _load() -> str:
    return f"load {' '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
