"""What the tests of the local engines share: where the weights are, and how to listen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from engine.api import Style, Synthesis, Synthesizer
from engine.weights import Weights, fetch

T = TypeVar("T")
CACHE = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser()
USUAL = Style()
PATIENCE_S = 90.0  # a real engine on two cores that others use too


def weights(wanted: Weights) -> Path:
    """The first file of a model, fetched once."""
    return fetch(wanted, CACHE, print) / wanted.files[0].name


async def listen(voices: Synthesizer, text: str, voice: str, *, hz: int = 24_000, style: Style = USUAL, name: str = "r") -> list[bytes]:
    """The chunks of one synthesis."""
    synthesis = Synthesis(request_id=name, text=text, voice=voice, language="en", sample_rate_hz=hz, style=style)
    async with asyncio.timeout(PATIENCE_S), aclosing(voices.synthesize(synthesis)) as chunks:
        return [chunk.pcm async for chunk in chunks]


async def take_first(stream: AsyncGenerator[T, None]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(stream)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fact():
            await asyncio.sleep(0.01)
