"""Reads prompts into an engine's prefix cache before somebody waits for them.

Works with any language model; a warm-up is a request for one token that replies and drafts overtake.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from engine.api import Generation, Kept, LanguageModel, Message, Sampling, Usage

PRIORITY = 20  # real turns are 0, drafts 10


async def warm(
    model: LanguageModel,
    messages: Sequence[Message],
    request_id: str,
    *,
    tools: Sequence[dict[str, Any]] = (),  # Any: JSON schema
    kept: Kept | None = None,
    cache_salt: str | None = None,
    place: int | None = None,
) -> int:
    """Read one prompt; returns how many of its tokens were new. A cancel aborts it. Raises `EngineError`."""
    prompt = await model.render(messages, tools, kept)
    generation = Generation(
        request_id=request_id,
        prompt=prompt,
        sampling=Sampling(max_tokens=1, temperature=0.0),
        priority=PRIORITY,
        cache_salt=cache_salt,
        place=place,
    )
    usage = Usage()
    try:
        async with aclosing(model.generate(generation)) as deltas:
            async for delta in deltas:
                usage = delta.usage or usage
    finally:
        model.cancel(request_id)
    return usage.prompt_tokens - usage.cached_tokens
