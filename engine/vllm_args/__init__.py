"""Settings and profiles become vLLM's engine arguments; stale and harmful flags are explained."""

from engine.vllm_args.arguments import plan
from engine.vllm_args.plan import Device, Plan

__all__ = ["Device", "Plan", "plan"]
