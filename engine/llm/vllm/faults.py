"""vLLM's errors in our words.

Pure. By class name, because the classes move between releases (0.26 to 0.33) and some exist in the later ones only; start-up
errors by their text, because vLLM raises plain `ValueError` and `RuntimeError` there.
"""

from __future__ import annotations

from engine.api import EngineBusy, EngineError, EngineNotReady

_BUSY = {"QueueOverflowError", "MaxQueuedTokensError"}
_HINTS: tuple[tuple[str, str], ...] = (  # the first whose words are all in the message, lower case, `+` between them
    (
        "out of memory",
        "too little free GPU memory: lower llm.vllm.gpu_memory_utilization or llm.context_tokens, take an FP8 checkpoint, or more GPUs",
    ),
    ("free memory on device", "another process holds the GPU: stop it, or lower llm.vllm.gpu_memory_utilization"),
    ("kv cache+larger than", "no room for one conversation of that length: lower llm.context_tokens or raise the KV cache's memory"),
    ("kv cache+needed", "no room for one conversation of that length: lower llm.context_tokens or raise the KV cache's memory"),
    ("divisible by tensor parallel", "llm.vllm.tensor_parallel_size must divide the model's attention heads"),
    ("max_model_len+greater than", "llm.context_tokens is longer than the model's own context"),
    ("quantization", "leave llm.vllm.quantization out: it is read from the checkpoint"),
    ("not a valid model identifier", "llm.model is neither a folder nor a known Hugging Face id, or this machine has no network"),
)


def translate(error: Exception) -> EngineError:
    """Our error for one of vLLM's, raised on a request."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "EngineDeadError" in names:
        return EngineNotReady("vLLM's engine core has died; it is being restarted")
    if names & _BUSY:
        return EngineBusy("vLLM's queue is full")
    return EngineError(f"vLLM failed on this request: {type(error).__name__}: {first_line(error)}")


def explain(error: Exception, model: str) -> str:
    """A failed start and what to do about it, for a tired operator."""
    text = f"{error}\n{error.__cause__ or ''}".lower()
    hint = next((hint for words, hint in _HINTS if all(word in text for word in words.split("+"))), "vLLM's own log above has the cause")
    return f"vLLM did not start with {model!r}: {first_line(error)} ({hint})"


def first_line(error: Exception) -> str:
    """The message without the pages behind it."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:400]
