"""vLLM inside the gateway's process: the product's engine."""

from engine.llm.vllm.model import VllmModel
from engine.llm.vllm.rendering import PromptRenderer

__all__ = ["PromptRenderer", "VllmModel"]
