"""A generation as the body of `POST /chat/completions`. Pure. Source: OpenAI API reference, "Create chat completion"; vLLM's additions."""

from __future__ import annotations

from typing import Any

from engine.api import Generation, Message
from engine.llm.openai.disarming import disarmed
from engine.llm.openai.settings import Dialect


def body_of(generation: Generation, model: str, dialect: Dialect, extra: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """The request; keys of `extra` win."""
    sampling, prompt = generation.sampling, generation.prompt
    options: dict[str, Any] = {"include_usage": True}
    body: dict[str, Any] = {
        "model": model,
        "messages": [_plain(message) for message in prompt.messages],
        "stream": True,
        "stream_options": options,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    if dialect == "vllm":
        options["continuous_usage_stats"] = True  # real token counts on every piece
        body["priority"] = generation.priority
        body["request_id"] = generation.request_id
        if generation.cache_salt is not None:
            body["cache_salt"] = generation.cache_salt
    return body | extra


def _plain(message: Message) -> dict[str, Any]:
    text = disarmed(message.text)
    plain: dict[str, Any] = {"role": message.role, "content": text}
    if message.tool_calls:
        plain["content"] = text or None
        plain["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": disarmed(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.call_id is not None:
        plain["tool_call_id"] = message.call_id
    return plain
