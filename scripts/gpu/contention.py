"""Rows about strangers: what a long prompt, a crowd of background replies or a cold history does to people who talk.

The engine runs with `step_rules.StepRules`, so that one start measures all settings.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from engine.api import Prompt
from gateway.bench.scenario import Plan
from scripts.gpu.rows import Marks, RawEngine, percentile, summary, talk, tokens

LONG_TOKENS = 6000
CROWD = 96  # background replies wanted at any moment: more than max_num_seqs, so that a queue forms
# (tokens of a step, tokens of one prompt in a step, priority of the long prompt); None: nobody sends one
RULES: tuple[tuple[int, int, int | None], ...] = (
    (4096, 1024, None),
    (4096, 0, 0), (4096, 0, 20),
    (4096, 1024, 0), (4096, 1024, 20),
    (4096, 512, 20), (4096, 256, 20), (4096, 128, 20),
    (512, 0, 20),
)  # fmt: skip


class Intruder:
    """A fresh long prompt every second."""

    def __init__(self, priority: int) -> None:
        self.found: list[Marks] = []
        self._priority = priority
        self._rng = random.Random(time.monotonic_ns())  # a prompt that the cache has seen would intrude on nobody

    async def run(self, raw: RawEngine, until: float) -> None:
        """Until `until`."""

        async def one() -> None:
            self.found.append(await raw.ask(tokens(self._rng, LONG_TOKENS), max_tokens=4, priority=self._priority))

        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < until:
                tasks.create_task(one(), name="long prompt")
                await asyncio.sleep(1.0)


async def long_prompts(raw: RawEngine, plan: Plan, persona: str, rules: Path) -> AsyncGenerator[dict[str, Any], None]:
    """`plan`'s talkers beside a prompt of 6,000 tokens every second, by step rules and by its priority."""
    for budget, cap, priority in RULES:
        _tell(rules, budget=budget, cap=cap)
        await raw.forget(persona)
        intruder = None if priority is None else Intruder(priority)
        row = await talk(raw, plan, persona, None if intruder is None else intruder.run)
        own = [marks.ttft for marks in intruder.found if marks.ttft is not None] if intruder is not None else []
        yield {"kind": "priority", "budget": budget, "cap": cap, "intruder": priority, "intruder_ttft_p50_ms": percentile(own, 0.5), **row}
    for cap in (0, 1024, 512, 256, 128):
        _tell(rules, cap=cap)
        rng = random.Random(cap)
        alone = [(await raw.ask(tokens(rng, 2048), max_tokens=4)).ttft or 0.0 for _ in range(5)]
        yield {"kind": "capped", "cap": cap, "prompt_tokens": 2048, "ttft_p50_ms": percentile(alone, 0.5)}
    _tell(rules)


def _tell(path: Path, **rules: int) -> None:
    path.write_text(json.dumps(rules), "utf-8")


async def _crowd(raw: RawEngine, until: float, priority: int) -> None:
    rng = random.Random(3)

    async def one() -> None:
        while time.monotonic() < until:
            await raw.ask(tokens(rng, 200), priority=priority)

    async with asyncio.TaskGroup() as tasks:
        for n in range(CROWD):
            tasks.create_task(one(), name=f"background {n}")


async def crowd(raw: RawEngine, plan: Plan, persona: str) -> AsyncGenerator[dict[str, Any], None]:
    """`plan`'s talkers beside more background replies than the engine makes at once, at the same priority and at a lower one."""
    for priority in (0, 20):
        await raw.forget(persona)
        row = await talk(raw, plan, persona, functools.partial(_crowd, priority=priority))
        yield {"kind": "crowd", "background": CROWD, "priority": priority, **row}


async def history(raw: RawEngine, length: int) -> AsyncGenerator[dict[str, Any], None]:
    """A conversation of `length` tokens goes on: its history unread, read before, and read while the caller still spoke."""
    rng = random.Random(11)
    for at_once in (1, 16):
        cold, warm, ahead = [], [], []
        for _ in range(8 if at_once == 1 else 3):
            cold += await _together(raw, [tokens(rng, length + 30) for _ in range(at_once)])
            known = [tokens(rng, length) for _ in range(at_once)]
            for found in (warm, ahead):  # the first time the whole history was read long ago, the second time nine tenths of a new one
                for prompt in known:
                    await raw.ask(Prompt(messages=(), ids=prompt.ids if found is warm else prompt.ids[: length * 9 // 10]), max_tokens=1)
                found += await _together(raw, [Prompt(messages=(), ids=prompt.ids + tokens(rng, 30).ids) for prompt in known])
                known = [tokens(rng, length) for _ in range(at_once)]
        for name, marks in (("cold", cold), ("warm", warm), ("nine tenths read", ahead)):
            yield {"kind": "history", "history": name, "history_tokens": length, "at_once": at_once, **summary(marks)}


async def _together(raw: RawEngine, prompts: list[Prompt]) -> list[Marks]:
    """Asked within a second, evenly."""

    async def one(n: int, prompt: Prompt) -> Marks:
        await asyncio.sleep(n / len(prompts))
        return await raw.ask(prompt)

    return await asyncio.gather(*(one(n, prompt) for n, prompt in enumerate(prompts)))
