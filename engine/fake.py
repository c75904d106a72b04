"""Scripted engines for tests and benches: they keep every promise of `engine/api` and run no model.

All waits are timers of the running loop, so a virtual-time loop drives them and nothing sleeps in a test. Moments are
absolute (start + TTFT + n * ITL): a slow consumer does not slow the script down, as with a real engine.
What was asked, finished, cancelled and abandoned is kept in bounded records that tests read.
"""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, Literal

from msgspec import Struct

from engine.api import (
    ContextTooLong,
    Delta,
    EngineError,
    EngineNotReady,
    FinishReason,
    Generation,
    Health,
    Kept,
    Message,
    Prompt,
    SpeechChunk,
    Synthesis,
    ToolCall,
    Usage,
    Voice,
    VoiceUnavailable,
    WordTiming,
)

CACHE_BLOCK_TOKENS = 16  # vLLM's default block: a prefix is cached in whole blocks only
N_RECORDS = 1000  # a bench of an hour must not grow; no test asks for more
WARM_UP_PRIORITY = 20  # such requests get one token and use up no script
DEFAULT_REPLY = (
    "The sea covers most of our planet, and we have seen less of it than of the moon. "
    "Its deepest valley lies almost eleven kilometers down. "
    "Even there, in the cold and the dark, small animals live and glow."
)

_TOKEN = re.compile(r" ?[^\W\d_\u2e80-\ud7ff\uf900-\ufaff]{1,6}| ?\d{1,3}|[\u2e80-\ud7ff\uf900-\ufaff]{1,2}| ?[^\w\s]|\s|.", re.DOTALL)
_WIDE = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def tokenize(text: str) -> tuple[str, ...]:
    """Pieces of about the size of a model's tokens; joined they are `text`.

    A word with its leading space (long words in pieces of six), up to three digits, one or two wide characters, one mark.
    """
    return tuple(_TOKEN.findall(text))


def token_id(token: str) -> int:
    """A stable id, the same in every process; 0 to 999 stay free for control tokens."""
    return 1000 + zlib.crc32(token.encode("utf-8", "surrogatepass")) % 100_000


def speech_ms(text: str) -> int:
    """How long a fake voice speaks `text`: 60 ms a character, 200 ms a wide (East Asian) one, at least 200 ms in all."""
    n_wide = len(_WIDE.findall(text))
    return max(200, 60 * (len(text) - n_wide) + 200 * n_wide)


class Fault(Struct, frozen=True, kw_only=True):
    """What goes wrong before the `at`-th delta or chunk (0 is the first): an error, or silence without end (`error` None)."""

    at: int
    error: type[EngineError] | None = EngineError


class Script(Struct, frozen=True, kw_only=True):
    """One reply: its deltas in order. Timings that are None are the model's."""

    tokens: tuple[str, ...]
    ttft_ms: float | None = None
    itl_ms: float | None = None
    fault: Fault | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class _Request:
    """The one wait of an open request; it ends by its timer, by `cancel`, or by the engine's death."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.started_s = self._loop.time()
        self.end: Literal["cancelled", "dead"] | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def wait_until(self, due_s: float | None) -> None:
        """Return at `due_s` (None: never), or as soon as `stop` was called."""
        if self.end is not None or (due_s is not None and due_s <= self._loop.time()):
            return
        self._waiter = self._loop.create_future()
        timer = None if due_s is None else self._loop.call_at(due_s, _release, self._waiter)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()

    def stop(self, end: Literal["cancelled", "dead"]) -> None:
        if self.end is None:
            self.end = end
        if self._waiter is not None:
            _release(self._waiter)

    async def meet(self, fault: Fault | None, index: int) -> None:
        """Fail or fall silent when `fault` is due at `index`."""
        if fault is None or fault.at != index or self.end is not None:
            return
        if fault.error is not None:
            raise fault.error(f"scripted failure before item {index}")
        await self.wait_until(None)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _PrefixCache:
    """Counts cached prompt tokens as vLLM does: whole blocks of a known prefix, never the prompt's last token."""

    def __init__(self) -> None:
        self._blocks: dict[int, None] = {}

    def count(self, ids: Sequence[int]) -> int:
        n_blocks = 0
        for key in _chain(ids[:-1]):
            if key not in self._blocks:
                break
            n_blocks += 1
        return n_blocks * CACHE_BLOCK_TOKENS

    def keep(self, ids: Sequence[int]) -> None:
        for key in _chain(ids):
            self._blocks.pop(key, None)
            self._blocks[key] = None
        while len(self._blocks) > 100_000:  # 1.6 million tokens: a generous GPU
            del self._blocks[next(iter(self._blocks))]


def _chain(ids: Sequence[int]) -> list[int]:
    keys, key = [], 0
    for start in range(0, len(ids) - CACHE_BLOCK_TOKENS + 1, CACHE_BLOCK_TOKENS):
        key = hash((key, *ids[start : start + CACHE_BLOCK_TOKENS]))
        keys.append(key)
    return keys


class _Scripted:
    """Life and death of a scripted engine, and its open requests."""

    def __init__(self) -> None:
        self.abandoned: deque[str] = deque(maxlen=N_RECORDS)  # streams closed, or their consumer cancelled, before the end
        self._open: dict[str, _Request] = {}
        self._health = Health(ready=False, detail="not started")

    @property
    def n_open(self) -> int:
        """Requests now being worked on."""
        return len(self._open)

    async def start(self) -> None:
        self._health = Health(ready=True, detail="fake")

    async def close(self) -> None:
        self.die("closed")

    def die(self, detail: str = "died") -> None:
        """As a killed process: not ready, and every open request ends with `EngineNotReady`."""
        self._health = Health(ready=False, detail=detail)
        for request in self._open.values():
            request.stop("dead")

    def health(self) -> Health:
        return self._health

    def _admit(self, request_id: str) -> _Request:
        self._check_ready()
        if request_id in self._open:
            raise EngineError(f"request {request_id} is open already")
        request = self._open[request_id] = _Request()
        return request

    def _is_stopped(self, request: _Request) -> bool:
        if request.end == "dead":
            raise EngineNotReady(self._health.detail)
        return request.end is not None

    def _check_ready(self) -> None:
        if not self._health.ready:
            raise EngineNotReady(self._health.detail)


class ScriptedModel(_Scripted):
    """A `LanguageModel` that answers from a script, round and round. `token_ids=False`: an engine that hides its ids."""

    def __init__(
        self,
        replies: Sequence[Script | str] = (DEFAULT_REPLY,),
        *,
        ttft_ms: float = 50.0,
        itl_ms: float = 20.0,
        context_tokens: int = 4096,
        token_ids: bool = True,
    ) -> None:
        super().__init__()
        if not replies:
            raise ValueError("replies is empty; a scripted model needs at least one")
        self.scripts = [Script(tokens=tokenize(r)) if isinstance(r, str) else r for r in replies]
        self.ttft_ms, self.itl_ms = ttft_ms, itl_ms
        self.context_tokens, self.token_ids = context_tokens, token_ids
        self.requests: deque[Generation] = deque(maxlen=N_RECORDS)
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

    async def _stream(self, generation: Generation, script: Script, request: _Request) -> AsyncGenerator[Delta, None]:
        prompt_ids = generation.prompt.ids or tuple(token_id(t) for m in generation.prompt.messages for t in tokenize(m.text))
        n_cached = self._cache.count(prompt_ids)
        self._cache.keep(prompt_ids)
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
            yield Delta(text=token, n_tokens=1, ids=ids[n_sent : n_sent + 1] if self.token_ids else ())
        else:
            n_sent = len(tokens)
            await request.meet(script.fault, n_sent)
            self._is_stopped(request)
        finish = _finish_reason(request, script, generation)
        self._cache.keep(prompt_ids + ids[:n_sent])
        self.finished.append((generation.request_id, finish))
        usage = Usage(prompt_tokens=len(prompt_ids), cached_tokens=n_cached, output_tokens=n_sent)
        yield Delta(text="", finish=finish, usage=usage, tool_calls=script.tool_calls if finish == "tool_calls" else ())

    def cancel(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None and request.end is None:
            self.cancelled.append(request_id)
            request.stop("cancelled")


def _finish_reason(request: _Request, script: Script, generation: Generation) -> FinishReason:
    if request.end == "cancelled":
        return "cancelled"
    if len(script.tokens) > generation.sampling.max_tokens:
        return "length"
    return "tool_calls" if script.tool_calls else "stop"


class ScriptedVoice(_Scripted):
    """A `Synthesizer` that hums: a sine wave as long as `speech_ms` says, in chunks made at `rtf`.

    `reads_han=False`: refuses Chinese, as Piper's English voices do. `faults`: a fragment of the text -> what goes wrong.
    """

    def __init__(
        self,
        *,
        first_chunk_ms: float = 60.0,
        rtf: float = 0.1,
        chunk_ms: int = 100,
        reads_han: bool = True,
        word_timings: bool = False,
        faults: Mapping[str, Fault] | None = None,
    ) -> None:
        super().__init__()
        self.first_chunk_ms, self.rtf, self.chunk_ms = first_chunk_ms, rtf, chunk_ms
        self.reads_han, self.word_timings = reads_han, word_timings
        self.faults = dict(faults or {})
        self.requests: deque[Synthesis] = deque(maxlen=N_RECORDS)
        self.finished: deque[str] = deque(maxlen=N_RECORDS)

    @property
    def name(self) -> str:
        return "fake"

    def voices(self) -> tuple[Voice, ...]:
        voices = (Voice(id="fake-en", languages=("en",), engine="fake"), Voice(id="fake-low", languages=("en",), engine="fake"))
        return (*voices, Voice(id="fake-zh", languages=("zh", "en"), engine="fake")) if self.reads_han else voices

    def can_speak(self, text: str, voice: str) -> bool:
        return any(v.id == voice for v in self.voices()) and (self.reads_han or _HAN.search(text) is None)

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        self._check_ready()
        if not self.can_speak(synthesis.text, synthesis.voice):
            raise VoiceUnavailable(f"{synthesis.voice!r} cannot speak this text; voices: {[v.id for v in self.voices()]}")
        request = self._admit(synthesis.request_id)
        self.requests.append(synthesis)
        try:
            async with aclosing(self._stream(synthesis, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self.finished.append(synthesis.request_id)
        except (GeneratorExit, asyncio.CancelledError):
            self.abandoned.append(synthesis.request_id)
            raise
        finally:
            del self._open[synthesis.request_id]

    async def _stream(self, synthesis: Synthesis, request: _Request) -> AsyncGenerator[SpeechChunk, None]:
        fault = next((fault for fragment, fault in self.faults.items() if fragment in synthesis.text), None)
        total_ms = round(speech_ms(synthesis.text) / synthesis.style.rate)
        words = _word_timings(synthesis.text, total_ms) if self.word_timings else ()
        for index, start_ms in enumerate(range(0, total_ms, self.chunk_ms)):
            await request.wait_until(request.started_s + (self.first_chunk_ms + start_ms * self.rtf) / 1000)
            await request.meet(fault, index)
            self._is_stopped(request)
            pcm = hum(synthesis.voice, synthesis.sample_rate_hz, start_ms, min(self.chunk_ms, total_ms - start_ms))
            yield SpeechChunk(pcm=pcm, words=words if index == 0 else ())


def hum(voice: str, sample_rate_hz: int, start_ms: int, length_ms: int) -> bytes:
    """Mono s16le of a voice's note from `start_ms` on; pieces that follow one another join without a click."""
    second = _one_second(220 if voice == "fake-low" else 440, sample_rate_hz)
    start = start_ms * sample_rate_hz // 1000
    end = (start_ms + length_ms) * sample_rate_hz // 1000
    offset = start % sample_rate_hz
    n_seconds = (offset + end - start) // sample_rate_hz + 1
    return (second * n_seconds)[2 * offset : 2 * (offset + end - start)]


@cache
def _one_second(pitch_hz: int, sample_rate_hz: int) -> bytes:
    """A whole number of periods, so that the second repeats seamlessly; a quarter of full scale is easy on ears."""
    step = 2 * math.pi * pitch_hz / sample_rate_hz
    return array("h", [round(8000 * math.sin(step * n)) for n in range(sample_rate_hz)]).tobytes()


def _word_timings(text: str, total_ms: int) -> tuple[WordTiming, ...]:
    per_character = total_ms / max(1, len(text))
    return tuple(
        WordTiming(start_ms=round(m.start() * per_character), end_ms=round(m.end() * per_character), start=m.start(), end=m.end())
        for m in re.finditer(r"\S+", text)
    )
