"""Reads prompts into the engine's prefix cache before somebody waits for them: personas at start, a history after a barge-in.

Works with any language model; a warm-up is a request for one token that real turns overtake.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from engine.api import EngineError, Generation, Kept, LanguageModel, Message, Sampling

PRIORITY = 20  # real turns are 0, drafts 10
_log = logging.getLogger(__name__)


async def warm(model: LanguageModel, messages: Sequence[Message], request_id: str, kept: Kept | None = None) -> int:
    """Read one prompt; returns how many of its tokens were new. A cancel aborts it. Raises `EngineError`."""
    prompt = await model.render(messages, (), kept)
    generation = Generation(request_id=request_id, prompt=prompt, sampling=Sampling(max_tokens=1, temperature=0.0), priority=PRIORITY)
    async with aclosing(model.generate(generation)) as deltas:
        usages = [delta.usage async for delta in deltas if delta.usage is not None]
    return sum(usage.prompt_tokens - usage.cached_tokens for usage in usages)


async def warm_personas(model: LanguageModel, instructions: Iterable[str]) -> int:
    """Read each persona, one after the other, so that a first turn finds it cached; returns how many were read.

    A persona that cannot be read is logged and left out: a warm-up never keeps the gateway from serving.
    """
    n_read = 0
    for number, text in enumerate(dict.fromkeys(instructions)):
        began = time.monotonic()
        # The user's words differ; all that stands before them is the same in every conversation.
        messages = (Message(role="system", text=text), Message(role="user", text="Hello."))
        try:
            n_new = await warm(model, messages, f"warm-up-{number}")
        except EngineError as error:
            _log.warning("persona not warmed", extra={"persona": number, "error": str(error)})
            continue
        n_read += 1
        _log.info("persona warmed", extra={"persona": number, "new_tokens": n_new, "s": round(time.monotonic() - began, 3)})
    return n_read
