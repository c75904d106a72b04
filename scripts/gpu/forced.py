"""Makes a model of random weights say sensible things: the sampled token is replaced by the next one of a fixed reply.

Every token still costs a whole forward pass and a whole sampling step of the real size, and a reply has the number of tokens that
its text naturally has. Which reply a request gets follows from the length of its prompt, so that all workers of a tensor-parallel
engine agree, nothing is copied to the GPU in a step, and a request needs no field of its own.

Loaded in vLLM's workers, by name: `worker_extension_cls` for its model runner V2 (0.26 on a GPU), which has no custom logits
processors; `logits_processors` (`scripts.gpu.forced_logits`) for runner V1, which calls those.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from pathlib import Path
from typing import Any

import torch

VARIABLE = "STRETTO_FORCED_REPLIES"
_STEP = 7  # neighboring prompt lengths get replies that are far apart


def reply_of(prompt_len: Any, n_replies: int) -> Any:  # Any: int or tensor
    """Index of the reply to a prompt of so many tokens."""
    return (prompt_len * _STEP) % n_replies


@functools.cache
def rows() -> list[list[int]]:
    """Token ids of each reply."""
    loaded: list[list[int]] = json.loads(Path(os.environ[VARIABLE]).read_text("utf-8"))
    return loaded


@functools.cache
def table(device: torch.device) -> torch.Tensor:
    """(n_replies, longest reply) int64, padded with -1."""
    longest = max(map(len, rows()))
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows()], dtype=torch.int64, device=device)


def force(sampled: torch.Tensor, prompt_len: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """`sampled`, each replaced by what its request's reply has there. All (n_rows,) on one device.

    `position` is the last input token's; past the reply's end, and inside a prompt that is read in steps, the sample stays.
    """
    replies = table(sampled.device)
    step = position.to(torch.int64) + 1 - prompt_len
    wanted = replies[reply_of(prompt_len, replies.shape[0]), step.clamp(0, replies.shape[1] - 1)]
    is_inside = (step >= 0) & (step < replies.shape[1]) & (wanted >= 0)
    return torch.where(is_inside, wanted.to(sampled.dtype), sampled)


def wrap(sample: Any) -> Any:  # Any: the V2 sampler's method; its parameters differ between releases
    """`sample(self, ...) -> (sampled, logits)` with forced tokens."""
    signature = inspect.signature(sample)

    @functools.wraps(sample)
    def forced(self: Any, *args: Any, **kwargs: Any) -> Any:
        sampled, *rest = sample(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        prompt_len = self.req_states.prompt_len.gpu[given["expanded_idx_mapping"].to(torch.int64)].to(torch.int64)
        return (force(sampled, prompt_len, given["pos"]), *rest)

    return forced


def _install() -> None:
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    if not hasattr(Sampler.sample, "__wrapped__"):
        Sampler.sample = wrap(Sampler.sample)


class Forcing:
    """For `worker_extension_cls`: being imported is all that it does."""


if VARIABLE in os.environ and torch.cuda.is_available():
    _install()
