"""Makes a model of random weights say sensible things: the sampled token is replaced by the next one of a fixed reply.

Every token still costs a whole forward pass and a whole sampling step of the real size, and a reply has the number of tokens that
its text naturally has. Which reply a request gets follows from the length of its prompt, so that all workers of a tensor-parallel
engine agree, and a request needs no field of its own. Nothing waits for the GPU in a step: a logits processor of vLLM's own kind
would, would hide what async scheduling gains, and is refused together with speculation.

Loaded in vLLM's workers by name (`worker_extension_cls`). Model runner V1: the logits are narrowed to one token before sampling, so
drafts are accepted where they guess the reply. Model runner V2 (vLLM's default on a GPU): the sampled token is replaced.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scripts.gpu.settings import REPLIES_VARIABLE

_STEP = 7  # neighboring prompt lengths get replies that are far apart


def reply_of(prompt_len: Any, n_replies: int) -> Any:  # Any: int or tensor
    """Index of the reply to a prompt of so many tokens."""
    return (prompt_len * _STEP) % n_replies


@functools.cache
def rows() -> list[list[int]]:
    """Token ids of each reply."""
    loaded: list[list[int]] = json.loads(Path(os.environ[REPLIES_VARIABLE]).read_text("utf-8"))
    return loaded


@functools.cache
def table(device: torch.device) -> torch.Tensor:
    """(n_replies, longest reply) int64, padded with -1."""
    longest = max(map(len, rows()))
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows()], dtype=torch.int64, device=device)


def wanted(prompt_len: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The token that follows `position` (the last input token's) in each request's reply, -1 where nothing is forced: past the
    reply's end, and inside a prompt that is read in steps. All (n_rows,) int64 on one device.
    """
    replies = table(prompt_len.device)
    step = position + 1 - prompt_len
    found = replies[reply_of(prompt_len, replies.shape[0]), step.clamp(0, replies.shape[1] - 1)]
    return torch.where((step >= 0) & (step < replies.shape[1]), found, -1)


def narrow(logits: torch.Tensor, tokens: torch.Tensor) -> None:
    """Leave one token possible in each row of `logits` that has one wanted; in place."""
    narrowed = torch.full_like(logits, float("-inf")).scatter_(1, tokens.clamp(min=0)[:, None], 0.0)
    logits.copy_(torch.where(tokens[:, None] >= 0, narrowed, logits))


def _prompt_lens(runner: Any, n: int) -> torch.Tensor:  # Any: vLLM's model runner V1
    """(n,) int64 on the runner's device; copied there, without waiting, when the batch has changed."""
    now = runner.input_batch.num_prompt_tokens[:n]
    kept: tuple[Any, torch.Tensor] | None = getattr(runner, "_forced_prompt_lens", None)
    if kept is None or not np.array_equal(kept[0], now):
        host = torch.from_numpy(now.astype(np.int64))
        kept = now.copy(), host.pin_memory().to(runner.device, non_blocking=True) if runner.device.type == "cuda" else host
        runner._forced_prompt_lens = kept
    return kept[1]


def tokens_v1(runner: Any, drafts: Any) -> torch.Tensor:  # Any: GPUModelRunner, SpecDecodeMetadata or None
    """What is wanted in one step: a row for each request, with speculation one for each of its drafts and one more."""
    n = runner.input_batch.num_reqs
    prompt_len = _prompt_lens(runner, n)
    if drafts is None:
        at = runner.query_start_loc.gpu[1 : n + 1].to(torch.int64) - 1
    else:
        at = drafts.logits_indices.to(torch.int64)
        row = torch.arange(at.shape[0], device=at.device, dtype=drafts.cu_num_sampled_tokens.dtype)
        prompt_len = prompt_len[torch.searchsorted(drafts.cu_num_sampled_tokens, row, right=True)]
    return wanted(prompt_len, runner.positions[at].to(torch.int64))


def accepted(tokens: torch.Tensor, draft_ids: torch.Tensor, ends: torch.Tensor, sampled: torch.Tensor) -> torch.Tensor:
    """`sampled` (n, drafts + 1, -1 behind the last token) with the reply's tokens instead: the drafts that guessed it, and one more.

    `tokens` are the rows' wanted ones, `ends` where each request's rows end; a request that wants nothing keeps its sample.
    """
    starts = torch.cat((ends.new_zeros(1), ends[:-1])).to(torch.int64)
    column = torch.arange(sampled.shape[1], device=tokens.device)
    is_there = column < (ends - starts)[:, None]
    row = (starts[:, None] + column).clamp(max=tokens.shape[0] - 1)
    reply = torch.where(is_there, tokens[row], -1)
    before = torch.arange(starts.shape[0], device=tokens.device)  # each request before has one row more than drafts
    draft = (starts - before)[:, None] + column[:-1]
    is_guessed = is_there[:, 1:] & (draft_ids[draft.clamp(max=draft_ids.shape[0] - 1)] == reply[:, :-1])
    n_guessed = is_guessed.to(torch.int64).cumprod(dim=1).sum(dim=1, keepdim=True)
    ours = torch.where(column <= n_guessed, reply, -1).to(sampled.dtype)
    return torch.where(reply[:, :1] >= 0, ours, sampled)


def wrap_v1(sample: Any) -> Any:  # Any: GPUModelRunner._sample
    """The same with narrowed logits; after the rejection sampler has done its work, with the tokens that it should have found."""

    @functools.wraps(sample)
    def forced(self: Any, logits: Any, spec_decode_metadata: Any, *rest: Any, **others: Any) -> Any:
        if logits is None or not self.input_batch.num_reqs:
            return sample(self, logits, spec_decode_metadata, *rest, **others)
        drafts = spec_decode_metadata
        tokens = tokens_v1(self, drafts)
        narrow(logits, tokens)
        output = sample(self, logits, drafts, *rest, **others)
        if drafts is not None and drafts.draft_token_ids.shape[0]:
            output.sampled_token_ids = accepted(tokens, drafts.draft_token_ids, drafts.cu_num_sampled_tokens, output.sampled_token_ids)
        return output

    return forced


def wrap_v2(sample: Any) -> Any:  # Any: the V2 sampler's method; its parameters differ between releases
    """`sample(self, ...) -> (sampled, logits)` with forced tokens."""
    signature = inspect.signature(sample)

    @functools.wraps(sample)
    def forced(self: Any, *args: Any, **kwargs: Any) -> Any:
        sampled, *rest = sample(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        prompt_len = self.req_states.prompt_len.gpu[given["expanded_idx_mapping"].to(torch.int64)].to(torch.int64)
        tokens = wanted(prompt_len, given["pos"].to(torch.int64))
        return (torch.where(tokens >= 0, tokens.to(sampled.dtype), sampled), *rest)

    return forced


def _install() -> None:
    owner: Any
    if os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
        from vllm.v1.worker.gpu.sample.sampler import Sampler as owner

        name, wrap = "sample", wrap_v2
    else:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner as owner  # the CPU's runner inherits it

        name, wrap = "_sample", wrap_v1
    if not hasattr(getattr(owner, name), "__wrapped__"):
        setattr(owner, name, wrap(getattr(owner, name)))


class Forcing:
    """For `worker_extension_cls`: being imported is all that it does."""


if REPLIES_VARIABLE in os.environ:
    _install()
