"""A scheduler whose step budget and long-prompt cap change while the engine runs: one engine start measures many settings.

For `scheduler_cls`. Reads a small JSON file whenever it has changed; an empty object means the engine's own values.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from scripts.gpu.settings import RULES_VARIABLE


class StepRules(AsyncScheduler):
    """`budget`: tokens of a step; `cap`: tokens of one prompt in a step, 0 for no cap."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: vLLM's own
        super().__init__(*args, **kwargs)
        self._own = self.max_num_scheduled_tokens, self.scheduler_config.long_prefill_token_threshold
        self._path, self._seen_ns = Path(os.environ[RULES_VARIABLE]), 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:  # Any: vLLM's own
        """vLLM's, by the rules of now."""
        changed_ns = os.stat(self._path).st_mtime_ns
        if changed_ns != self._seen_ns:
            self._seen_ns = changed_ns
            rules = json.loads(self._path.read_text("utf-8"))
            self.max_num_scheduled_tokens = min(self._own[0], rules.get("budget", self._own[0]))
            self.scheduler_config.long_prefill_token_threshold = rules.get("cap", self._own[1])
        return super().schedule(*args, **kwargs)
