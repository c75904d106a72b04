"""The same for vLLM's model runner V1: a logits processor that leaves one token possible."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from scripts.gpu.forced import reply_of, rows


class ForcedReplies(LogitsProcessor):
    """Rows of the batch -> (its reply, its running output tokens)."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # Any: vLLM's config
        self._device = device
        self._by_row: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        process_dict_updates(
            self._by_row, batch_update, lambda _, prompt, output: (rows()[reply_of(len(prompt or ()), len(rows()))], output)
        )

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        wanted = [(row, reply[len(output)]) for row, (reply, output) in self._by_row.items() if len(output) < len(reply)]
        if wanted:
            at = torch.tensor(wanted, device=self._device)
            logits[at[:, 0]] = float("-inf")
            logits[at[:, 0], at[:, 1]] = 0.0
        return logits
