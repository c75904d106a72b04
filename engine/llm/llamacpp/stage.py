"""llama.cpp inside its worker: a model, its slots, and a thread for each running reply.

A reply's tokens come through a callback that blocks its thread; the callback also hears of the progress of a prefill, so that a cancel is
noticed there too. A slot keeps the tokens of its last conversation, and the server gives a prompt the slot whose tokens it repeats.
"""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import xllamacpp

from engine.api import ContextTooLong, EngineError, EngineSetupError, Message, Usage
from engine.llm.llamacpp.local_http import LocalHttp, Refused
from engine.llm.llamacpp.template import BrokenTemplate, Piece, mark, merge_neighbors, split_rendered
from engine.llm.llamacpp.words import Piece as Words
from engine.llm.llamacpp.words import Request, Setup
from engine.worker.jobs import Job

_SILENT = -1  # verbosity; louder levels write prompts
# Tokens of a prefill between two looks at the callback: 0.4 s on a core, and other slots' tokens go in between. Costs nothing against 512;
# 32 would cost a quarter more.
_BATCH_TOKENS = 64
_CACHE_MIB = 512  # states of conversations that lost their slot; llama.cpp's default is 8192
_REMEMBERED_TEXTS = 1024  # tokenized messages: a turn tokenizes what is new
_RANDOM_SEED = 0xFFFF_FFFF  # LLAMA_DEFAULT_SEED: a new one each time
_SEED_BITS = 0x7FFF_FFFF
_PROBE = (Message(role="system", text="Be brief."), Message(role="user", text="Hello."))


class LlamaStage:
    """The model and its server."""

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        self._setup = msgspec.convert(setup, Setup)
        self.concurrency = self._setup.slots
        address, key = f"{self._setup.folder}/{os.getpid()}.sock", secrets.token_hex(16)
        self._server = _load(self._setup, address, key)
        self._http = LocalHttp(address, key)
        self._tokenize = lru_cache(_REMEMBERED_TEXTS)(self._tokenize_anew)
        self._begin = self._tokenize_beginning()
        try:
            self.prompt_ids(_PROBE)
        except (EngineError, BrokenTemplate) as error:
            raise EngineSetupError(f"the chat template in {self._setup.path} cannot be used: {error}") from error
        self._complete(None, self.prompt_ids(_PROBE), Request(_PROBE, max_tokens=1, temperature=0.0, top_p=1.0, seed=0))  # warm

    def describe(self) -> Any:  # Any: msgpack values
        return {"context_tokens": self._setup.context_tokens}

    def handle(self, job: Job) -> tuple[()]:
        """Sends `Words` from inside."""
        request = msgspec.convert(job.body, Request)
        ids = self.prompt_ids(request.messages)
        if len(ids) >= self._setup.context_tokens:
            raise ContextTooLong(f"the prompt has {len(ids)} tokens, the context {self._setup.context_tokens}")
        if not job.cancelled:
            self._complete(job, ids, request)
        return ()

    def prompt_ids(self, messages: tuple[Message, ...]) -> list[int]:
        """Tokens of the rendered conversation. Raises `EngineError` where the template refuses it."""
        try:
            pieces = self._render(messages)
        except Refused:  # many templates insist on a strict change of user and assistant, some on no system
            pieces = self._render(tuple(merge_neighbors(messages)))
        ids = list(self._begin)
        for piece in pieces:
            ids += self._tokenize(piece.text, piece.is_text)
        return ids

    def _render(self, messages: tuple[Message, ...]) -> list[Piece]:
        marked = [{"role": message.role, "content": mark(index)} for index, message in enumerate(messages)]
        rendered = self._http.ask("/apply-template", {"messages": marked})["prompt"]
        return split_rendered(rendered, messages)

    def _tokenize_anew(self, text: str, is_text: bool) -> tuple[int, ...]:
        return tuple(self._http.ask("/tokenize", {"content": text, "add_special": False, "parse_special": not is_text})["tokens"])

    def _tokenize_beginning(self) -> tuple[int, ...]:
        """What this model wants before every prompt: a token or nothing. The server takes the template's own away."""
        return tuple(self._http.ask("/tokenize", {"content": "", "add_special": True})["tokens"][:1])

    def _complete(self, job: Job | None, ids: list[int], request: Request) -> None:
        stream = _Stream(job, len(ids))
        self._server.handle_completions(
            {
                "prompt": ids,
                "n_predict": request.max_tokens,
                "temperature": request.temperature,
                "top_p": request.top_p,
                "seed": _RANDOM_SEED if request.seed is None else request.seed & _SEED_BITS,
                "cache_prompt": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": True,
                "timings_per_token": True,
            },
            stream.take,
        )
        stream.close()


class _Stream:
    """One completion as the callback hears of it. The callback's exceptions vanish in llama.cpp, so they are kept and raised after it."""

    def __init__(self, job: Job | None, n_prompt: int) -> None:
        self._job = job
        self._usage = Usage(prompt_tokens=n_prompt)
        self._fault: Exception | None = None
        self._finish: str | None = None

    def take(self, event: dict[str, Any]) -> bool:  # Any: JSON
        """The callback; True ends the completion."""
        try:
            self._take(event)
        except Exception as error:  # the callback's owner is C++
            self._fault = error
        return self._fault is not None or (self._job is not None and self._job.cancelled)

    def close(self) -> None:
        """The completion is over. Raises what went wrong in it."""
        if self._fault is not None:
            raise self._fault
        if self._job is not None and self._finish is not None:
            self._job.send(Words(usage=self._usage, finish="length" if self._finish == "length" else "stop"))
        elif self._finish is None and not (self._job is not None and self._job.cancelled):
            raise EngineError("llama.cpp ended a reply without a reason")

    def _take(self, event: dict[str, Any]) -> None:  # Any: JSON
        if "error" in event:
            raise _error_of(event["error"])
        if "prompt_progress" in event:
            self._on_progress(event["prompt_progress"])
        usage = event.get("usage")
        if usage:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", self._usage.cached_tokens)
            self._usage = Usage(prompt_tokens=usage["prompt_tokens"], cached_tokens=cached, output_tokens=usage["completion_tokens"])
        for choice in event.get("choices", ()):
            self._finish = choice.get("finish_reason") or self._finish
            if choice["text"]:
                self._on_text(choice["text"], event.get("timings", {}).get("predicted_n"))

    def _on_progress(self, progress: dict[str, int]) -> None:
        if self._job is None:
            return
        if self._usage.cached_tokens != progress["cache"] or not progress["processed"]:
            self._usage = msgspec.structs.replace(self._usage, cached_tokens=progress["cache"])
        self._job.send(Words(usage=self._usage))

    def _on_text(self, text: str, n_so_far: int | None) -> None:
        before = self._usage.output_tokens
        now = before + 1 if n_so_far is None else n_so_far
        self._usage = msgspec.structs.replace(self._usage, output_tokens=now)
        if self._job is not None:
            self._job.send(Words(text, now - before))


def _error_of(error: dict[str, Any]) -> EngineError:  # Any: JSON
    if error.get("type") == "exceed_context_size_error":
        return ContextTooLong(f"the prompt has {error.get('n_prompt_tokens')} tokens, the context {error.get('n_ctx')}")
    return EngineError(f"llama.cpp refused a request: {error.get('type')}, code {error.get('code')}")


def _load(setup: Setup, address: str, key: str) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = setup.path
    params.n_ctx = setup.context_tokens * setup.slots
    params.n_parallel = setup.slots
    params.kv_unified = False  # each slot has its whole context, whatever the others hold
    params.fit_params = False  # no smaller context than was asked for, silently
    params.n_batch = _BATCH_TOKENS
    params.cache_ram_mib = _CACHE_MIB
    params.verbosity = _SILENT
    params.hostnames = [address]
    params.api_keys = [key]
    params.ui = False
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = setup.threads
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        size = Path(setup.path).stat().st_size
        raise EngineSetupError(f"llama.cpp cannot load {setup.path} ({size} bytes): expected a whole GGUF file. {error}") from error
