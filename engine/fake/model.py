"""A language model that answers from a script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from engine.api import ContextTooLong, Delta, Facts, FinishReason, Generation, Kept, Message, Prompt, Usage
from engine.fake.script import N_RECORDS, OpenRequest, Script, Scripted, token_id, tokenize

CACHE_BLOCK_TOKENS = 16  # vLLM's default block: a prefix is cached in whole blocks only
WARM_UP_PRIORITY = 20  # such requests get one token and use up no script
DEFAULT_REPLY = (
    "The sea covers most of our planet, and we have seen less of it than of the moon. "
    "Its deepest valley lies almost eleven kilometers down. "
    "Even there, in the cold and the dark, small animals live and glow."
)


class ScriptedModel(Scripted):
    """A `LanguageModel` that answers from a script, round and round. `token_ids=False`: an engine that hides its ids."""

    def __init__(
        self,
        replies: Sequence[Script | str] = (DEFAULT_REPLY,),
        *,
        ttft_ms: float = 50.0,
        itl_ms: float = 20.0,
        context_tokens: int = 4096,
        token_ids: bool = True,
        takes_tools: bool = True,
    ) -> None:
        super().__init__()
        if not replies:
            raise ValueError("replies is empty; a scripted model needs at least one")
        self.scripts = [Script(tokens=tokenize(r)) if isinstance(r, str) else r for r in replies]
        self.ttft_ms, self.itl_ms = ttft_ms, itl_ms
        self.context_tokens, self.token_ids = context_tokens, token_ids
        self.facts = Facts(takes_tools=takes_tools, keeps_prefixes=True, isolates=True)
        self.requests: deque[Generation] = deque(maxlen=N_RECORDS)
        self.usages: deque[Usage] = deque(maxlen=N_RECORDS)  # of those that ended by themselves or by cancel()
        self.finished: deque[tuple[str, FinishReason]] = deque(maxlen=N_RECORDS)
        self.cancelled: deque[str] = deque(maxlen=N_RECORDS)  # ids given to cancel() while open
        self._cache = _PrefixCache()
        self._n_answered = 0

    @property
    def name(self) -> str:
        return "scripted model (fake: no language model runs)"

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        self._check_ready()
        text = "".join(f"<{m.role}>{m.text}\n" for m in messages) + "<assistant>"
        reused = kept if self.token_ids and kept is not None and text.startswith(kept.text) else None
        rest = text if reused is None else text[len(reused.text) :]
        ids = (() if reused is None else reused.ids) + tuple(map(token_id, tokenize(rest)))
        if len(ids) >= self.context_tokens:
            raise ContextTooLong(f"got {len(ids)} tokens, the context holds {self.context_tokens}")
        prompt = Prompt(messages=tuple(messages), tools=tuple(tools))
        if not self.token_ids:
            return prompt
        return Prompt(messages=prompt.messages, tools=prompt.tools, ids=ids, text=text, reused=0 if reused is None else len(reused.ids))

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        request = self._admit(generation.request_id)
        script = self._next_script(generation)
        self.requests.append(generation)
        is_over = False
        try:
            async with aclosing(self._stream(generation, script, request)) as deltas:
                async for delta in deltas:
                    is_over = delta.finish is not None
                    yield delta
        except (GeneratorExit, asyncio.CancelledError):
            if not is_over:
                self.abandoned.append(generation.request_id)
            raise
        finally:
            del self._open[generation.request_id]

    def _next_script(self, generation: Generation) -> Script:
        if generation.priority >= WARM_UP_PRIORITY:
            return Script(tokens=("ok",))
        self._n_answered += 1
        return self.scripts[(self._n_answered - 1) % len(self.scripts)]

    async def _stream(self, generation: Generation, script: Script, request: OpenRequest) -> AsyncGenerator[Delta, None]:
        prompt_ids = generation.prompt.ids or tuple(token_id(t) for m in generation.prompt.messages for t in tokenize(m.text))
        n_cached = self._cache.count(prompt_ids, generation.cache_salt)
        self._cache.keep(prompt_ids, generation.cache_salt)
        ttft_s = (self.ttft_ms if script.ttft_ms is None else script.ttft_ms) / 1000
        itl_s = (self.itl_ms if script.itl_ms is None else script.itl_ms) / 1000
        tokens = script.tokens[: generation.sampling.max_tokens]
        ids = tuple(map(token_id, tokens))
        n_sent = 0
        for n_sent, token in enumerate(tokens):
            await request.wait_until(request.started_s + ttft_s + n_sent * itl_s)
            await request.meet(script.fault, n_sent)
            if self._is_stopped(request):
                break
            counts = Usage(prompt_tokens=len(prompt_ids), cached_tokens=n_cached, output_tokens=1) if n_sent == 0 else None
            yield Delta(text=token, n_tokens=1, ids=ids[n_sent : n_sent + 1] if self.token_ids else (), usage=counts)
        else:
            n_sent = len(tokens)
            await request.meet(script.fault, n_sent)
            self._is_stopped(request)
        finish = _finish_reason(request, script, generation)
        self._cache.keep(prompt_ids + ids[:n_sent], generation.cache_salt)
        self.finished.append((generation.request_id, finish))
        usage = Usage(prompt_tokens=len(prompt_ids), cached_tokens=n_cached, output_tokens=n_sent)
        self.usages.append(usage)
        yield Delta(text="", finish=finish, usage=usage, tool_calls=script.tool_calls if finish == "tool_calls" else ())

    def cancel(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None and request.end is None:
            self.cancelled.append(request_id)
            request.stop("cancelled")


def _finish_reason(request: OpenRequest, script: Script, generation: Generation) -> FinishReason:
    if request.end == "cancelled":
        return "cancelled"
    if len(script.tokens) > generation.sampling.max_tokens:
        return "length"
    return "tool_calls" if script.tool_calls else "stop"


class _PrefixCache:
    """Counts cached prompt tokens as vLLM does: whole blocks of a known prefix, never the prompt's last token."""

    def __init__(self) -> None:
        self._blocks: dict[int, None] = {}

    def count(self, ids: Sequence[int], salt: str | None) -> int:
        n_blocks = 0
        for key in _chain(ids[:-1], salt):
            if key not in self._blocks:
                break
            n_blocks += 1
        return n_blocks * CACHE_BLOCK_TOKENS

    def keep(self, ids: Sequence[int], salt: str | None) -> None:
        for key in _chain(ids, salt):
            self._blocks.pop(key, None)
            self._blocks[key] = None
        while len(self._blocks) > 100_000:  # 1.6 million tokens: a generous GPU
            del self._blocks[next(iter(self._blocks))]


def _chain(ids: Sequence[int], salt: str | None) -> list[int]:
    keys, key = [], hash(salt)
    for start in range(0, len(ids) - CACHE_BLOCK_TOKENS + 1, CACHE_BLOCK_TOKENS):
        key = hash((key, *ids[start : start + CACHE_BLOCK_TOKENS]))
        keys.append(key)
    return keys
