"""Control words of chat templates in what people write. Pure.

A chat server renders the template itself and then reads the whole prompt with its control tokens, so that a user who types `<|im_end|>`
would end their own message and begin one of the system's. We do not know the server's tokenizer; the words of the common families are
known, and one with an invisible character inside is no such word any more. (Engines in our own care tokenize text apart, unchanged.)
"""

from __future__ import annotations

import re

from engine.llm.seams import parted

_SEAM = "\u200b"  # zero width space
_CONTROL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>"  # ChatML, Llama 3, Phi, GPT
    "|<\uff5c[^<>\uff5c]{1,40}\uff5c>"  # DeepSeek
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|begin_of_text|end_of_text)>"  # Llama 2, Mistral, Gemma
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<</?SYS>>"
    r"|</?tool_(?:call|response)>",  # Hermes, Qwen
    re.IGNORECASE,
)


def disarmed(text: str) -> str:
    """The text, reading the same, without a control word. Control words put together from the outside in fall apart, too."""
    return parted(text, _CONTROL, _SEAM)
