"""Faults on purpose, and one table of what came of them.

python -m tests.chaos            everything this machine has: scripted engines with 50 people, then real ones with a few
python -m tests.chaos --short    scripted engines alone, 20 people: under 90 seconds
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.chaos import real, stages
from tests.chaos.faults import HEADER, Row


def main() -> int:
    """Run; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("-n", "--people", type=int, help="how many talk (50; short: 20)")
    options = parser.parse_args()
    print(HEADER, flush=True)
    found = stages.Found(_show)
    asyncio.run(play(found, options.people or (20 if options.short else 50), with_real=not options.short))
    for line in found.wrong:
        print(f"WRONG: {line}")
    return 1 if found.wrong else 0


async def play(found: stages.Found, n_people: int, *, with_real: bool) -> None:
    """All stages, one after the other."""
    await stages.engines_break(found, n_people)
    await stages.processes_die(found, n_people)
    await stages.told_twice(found, n_people)
    if with_real:
        await real.engines_die(found)


def _show(row: Row) -> None:
    print(row.line(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
