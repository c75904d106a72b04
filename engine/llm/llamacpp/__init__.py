"""llama.cpp as `engine.api.LanguageModel`: any GGUF file, on the CPU or whatever llama.cpp finds, in a worker process."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from engine.api import Delta, EngineError, EngineNotReady, EngineSetupError, Facts, Generation, Health, Kept, Message, Prompt, Usage
from engine.llm.llamacpp.cores import physical_cores
from engine.llm.llamacpp.words import Piece, Request, Setup
from engine.worker import Worker, WorkerSpec

_MAGIC = b"GGUF"
_MOST_THREADS = 8  # beyond that memory is the limit, not arithmetic
_WAITING_PER_SLOT = 16  # replies that may wait for a slot before the engine says that it is busy
_STALL_S = 30.0  # a batch of 64 tokens of a 7B model on a slow laptop takes ten


class LlamaCpp:
    """Answers with the GGUF file at `path`. `context_tokens` for each of `slots` conversations at once; `threads` 0: as the machine allows.

    Raises `EngineSetupError` where the file is missing or is no GGUF.
    """

    def __init__(self, path: Path, context_tokens: int, slots: int, threads: int = 0) -> None:
        check_gguf(path)
        self._path = path
        self._context_tokens, self._slots = context_tokens, slots
        self._threads = threads or default_threads(physical_cores())
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._worker: Worker | None = None

    @property
    def name(self) -> str:
        return f"{self._path.stem} on llama.cpp"

    @property
    def facts(self) -> Facts:
        """No tools: its template is run over marks in the place of texts, and no parser reads calls. A prefix is found again only in a slot
        that nobody has taken since."""
        return Facts(takes_tools=False)

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return None if self._worker is None else self._worker.pid

    async def start(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="stretto-llama-")  # mode 0700: nobody else reaches the server's socket
        setup = Setup(str(self._path), folder.name, self._context_tokens, self._slots, self._threads)
        worker = Worker(
            WorkerSpec(
                name="llama.cpp",
                factory="engine.llm.llamacpp.stage:LlamaStage",
                setup=setup,
                capacity=self._slots * (1 + _WAITING_PER_SLOT),
                stall_s=_STALL_S,
            )
        )
        self._folder, self._worker = folder, worker
        try:
            await worker.start()
        except BaseException:
            folder.cleanup()
            raise

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.close()
        if self._folder is not None:
            self._folder.cleanup()

    def health(self) -> Health:
        return Health(ready=False, detail="not started") if self._worker is None else self._worker.health()

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """The messages as they are: the worker applies the template and finds the cached prefix by itself. Refuses tools."""
        if not self.health().ready:
            raise EngineNotReady(f"llama.cpp is {self.health().detail}")
        if tools:
            raise EngineError(f"got {len(tools)} tools, and the llama.cpp engine takes none (its `facts` say so)")
        return Prompt(messages=tuple(messages))

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """See `LanguageModel.generate`. A cancel is noticed at the next token, or after the next 64 tokens of a prefill."""
        if self._worker is None:
            raise EngineNotReady("llama.cpp was not started")
        sampling = generation.sampling
        body = Request(generation.prompt.messages, sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.seed)
        usage, is_over, is_counted = Usage(), False, False
        async with aclosing(self._worker.stream(generation.request_id, body, generation.priority)) as stream:
            async for message in stream:
                piece = msgspec.convert(message, Piece)
                usage = piece.usage or msgspec.structs.replace(usage, output_tokens=usage.output_tokens + piece.n_tokens)
                is_over = piece.finish is not None
                if is_over or piece.text:
                    counts = usage if is_over or not is_counted else None
                    is_counted = True
                    yield Delta(text=piece.text, n_tokens=piece.n_tokens, finish=piece.finish, usage=counts)
        if not is_over:
            yield Delta(text="", finish="cancelled", usage=usage)

    def cancel(self, request_id: str) -> None:
        if self._worker is not None:
            self._worker.cancel(request_id)


def default_threads(n_cores: int) -> int:
    """One core is left to the voice and the gateway: a llama.cpp thread that has to share its core makes all of them wait, measured
    6 instead of 50 tokens a second on two cores with one other job."""
    return min(max(1, n_cores - 1), _MOST_THREADS)


def check_gguf(path: Path) -> None:
    """Raises `EngineSetupError` where `path` is no GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise EngineSetupError(f"llm.model names {path}: {error.strerror}; expected a GGUF file") from error
    if magic != _MAGIC:
        raise EngineSetupError(f"{path} begins with {magic!r}, expected {_MAGIC!r}: it is not a GGUF file")
