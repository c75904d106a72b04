"""vLLM's own server beside the gateway: started, watched, and left running when the gateway restarts."""

from engine.llm.serving.model import ServedVllm
from engine.llm.serving.process import ServerProcess, stop_all

__all__ = ["ServedVllm", "ServerProcess", "stop_all"]
