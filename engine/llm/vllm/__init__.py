"""vLLM inside the gateway's process: the product's engine."""

from engine.llm.vllm.embedded import Plan
from engine.llm.vllm.model import Limits, VllmModel
from engine.llm.vllm.rendering import PromptRenderer
from engine.llm.vllm.watch import WatchLimits

__all__ = ["Limits", "Plan", "PromptRenderer", "VllmModel", "WatchLimits"]
