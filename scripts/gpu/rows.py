"""What the raw engine takes, without a gateway: the same conversations as `stretto bench` holds, straight to vLLM.

Times in seconds of one monotonic clock inside, milliseconds in rows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from engine.api import Generation, Kept, Message, Prompt, Sampling
from gateway.bench.scenario import Plan, lines, start_s
from gateway.speech.segmenter import DEFAULT as OPTIONS
from gateway.speech.stream import SpeechStream
from scripts.gpu.pace import heard_ms

MAX_TOKENS = 120


@dataclasses.dataclass
class Marks:
    """When things of one reply arrived, from asking on; None where they never did. `texts`: each piece, and when it came."""

    ttft: float | None = None
    itl: float | None = None
    texts: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    n_tokens: int = 0
    n_outputs: int = 0  # fewer than tokens where speculation brings several at once
    n_cached: int = 0
    text: str = ""
    ids: tuple[int, ...] = ()


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank, in milliseconds."""
    if not values:
        return None
    ordered = sorted(values)
    return round(1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)], 2)


class RawEngine:
    """Asks vLLM as the gateway's adapter does, and marks what comes."""

    def __init__(self, model: Any) -> None:  # Any: engine.llm.vllm.VllmModel, started
        self._model = model
        self._engine = model._engine  # the embedded engine: the adapter around it is what these rows leave out
        self._n = 0

    async def render(self, messages: Sequence[Message], kept: Kept | None = None) -> Prompt:
        prompt: Prompt = await self._model.render(messages, (), kept)
        return prompt

    async def forget(self, persona: str) -> None:
        """Empty the prefix cache but for the persona, which a gateway keeps warm: a row must not find the one before."""
        await self._engine._engine.reset_prefix_cache()
        hello = [Message(role="system", text=persona), Message(role="user", text="Hello.")]
        await self.ask(await self.render(hello), max_tokens=1)

    async def ask(self, prompt: Prompt, max_tokens: int = MAX_TOKENS, priority: int = 0) -> Marks:
        """One request."""
        self._n += 1
        generation = Generation(
            request_id=f"raw-{self._n}",
            prompt=prompt,
            sampling=Sampling(max_tokens=max_tokens, temperature=0.7, top_p=0.95),
            priority=priority,
        )
        marks, ids = Marks(), []
        began = last = time.monotonic()
        async with aclosing(self._engine.stream(generation, max_tokens)) as outputs:
            async for output in outputs:
                last = time.monotonic() - began
                completion = output.outputs[0]
                if completion.token_ids and marks.ttft is None:
                    marks.ttft = last
                ids.extend(completion.token_ids)
                marks.n_outputs += bool(completion.token_ids)
                marks.texts.append((last, completion.text))
                marks.n_cached = output.num_cached_tokens or marks.n_cached
        marks.n_tokens = len(ids)
        marks.itl = (last - marks.ttft) / (len(ids) - 1) if marks.ttft is not None and len(ids) > 1 else None
        marks.text = "".join(text for _, text in marks.texts)
        marks.ids = tuple(ids[:-1])
        return marks


def first_segment(texts: Sequence[tuple[float, str]], *, early: bool) -> float | None:
    """When the gateway's own segmenter has the first segment; judged after the fact, so that it costs the engine nothing."""
    stream = SpeechStream(language="en", options=dataclasses.replace(OPTIONS, early_first=early))
    for when, text in texts:
        if stream.feed(text).segments:
            return when
    return texts[-1][0] if texts and stream.flush().segments else None


async def prefill(raw: RawEngine, lengths: Sequence[int], n: int = 8) -> AsyncGenerator[dict[str, Any], None]:
    """TTFT of fresh prompts, one at a time; then the same length with nine tenths of it read before."""
    rng = random.Random(7)
    for length in lengths:
        values = [(await raw.ask(tokens(rng, length), max_tokens=4)).ttft or 0.0 for _ in range(n)]
        yield {"kind": "prefill", "prompt_tokens": length, "ttft_p50_ms": percentile(values, 0.5), "ttft_max_ms": percentile(values, 1.0)}
    length, warm = lengths[-1], []
    for _ in range(n):
        prompt = tokens(rng, length)
        await raw.ask(Prompt(messages=(), ids=prompt.ids[: length * 9 // 10]), max_tokens=1)
        warm.append((await raw.ask(prompt, max_tokens=4)).ttft or 0.0)
    yield {"kind": "prewarmed", "prompt_tokens": length, "ttft_p50_ms": percentile(warm, 0.5), "ttft_max_ms": percentile(warm, 1.0)}


def tokens(rng: random.Random, length: int) -> Prompt:
    """A prompt of exactly so many tokens that no cache has seen."""
    return Prompt(messages=(), ids=tuple(rng.randrange(1000, 40_000) for _ in range(length)))


async def talk(
    raw: RawEngine, plan: Plan, persona: str, beside: Callable[[RawEngine, float], Coroutine[Any, Any, None]] | None = None
) -> dict[str, Any]:
    """`plan.n_talkers` conversations that ask, listen as long as the reply would sound, think, and ask again, history growing: those
    of `stretto bench`, word for word. `beside(raw, until)` runs next to them.
    """
    found: list[Marks] = []
    began = time.monotonic()
    until = began + plan.seconds

    async def one(talker: int) -> None:
        await asyncio.sleep(start_s(plan, talker))
        messages, kept = [Message(role="system", text=persona)], None
        for line in lines(plan, talker):
            await asyncio.sleep(line.think_s)
            if time.monotonic() >= until:
                return
            messages.append(Message(role="user", text=line.text))
            prompt = await raw.render(messages, kept)
            marks = await raw.ask(prompt)
            found.append(marks)
            kept = Kept(ids=prompt.ids + marks.ids, text=prompt.text + marks.text)
            messages.append(Message(role="assistant", text=marks.text))
            await asyncio.sleep(heard_ms(marks.text) / 1000 if plan.output == "audio" else 0)

    async with asyncio.TaskGroup() as tasks:
        talkers = [tasks.create_task(one(n), name=f"raw talker {n}") for n in range(plan.n_talkers)]
        neighbor = tasks.create_task(beside(raw, until), name="neighbor") if beside is not None else None
        await asyncio.wait(talkers)
        if neighbor is not None:
            neighbor.cancel()
    wall_s = time.monotonic() - began
    return {"n": plan.n_talkers, "turns": len(found), **summary(found), "tokens_per_s": round(sum(m.n_tokens for m in found) / wall_s, 1)}


def summary(found: Sequence[Marks]) -> dict[str, Any]:
    """Percentiles of everything."""
    series = {
        "ttft": [marks.ttft for marks in found],
        "first_segment": [first_segment(marks.texts, early=True) for marks in found],
        "first_segment_without_early_cut": [first_segment(marks.texts, early=False) for marks in found],
        "itl": [marks.itl for marks in found],
    }
    row: dict[str, Any] = {}
    for name, values in series.items():
        known = [value for value in values if value is not None]
        row |= {f"{name}_p{share:.0f}_ms": percentile(known, share / 100) for share in (50, 95, 99)}
    n_tokens = sum(marks.n_tokens for marks in found)
    row["tokens_per_reply"] = round(n_tokens / max(1, len(found)), 1)
    row["tokens_per_output"] = round(n_tokens / max(1, sum(marks.n_outputs for marks in found)), 2)
    return row
