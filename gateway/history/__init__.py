"""The items of a conversation: what the model is told was said, cut to what was heard, within a token budget.

Pure. The persona's instructions are never dropped; the oldest items are. An assistant item holds the model's own words
(raw text less reasoning), so that the next prompt repeats them exactly and the engine's prefix cache hits.
"""

from __future__ import annotations

from gateway.history.budget import Budget
from gateway.history.items import Item
from gateway.history.past import History
from gateway.history.prompt import estimate_tokens, estimated_tokens, prompt_messages, without_oldest, without_reasoning

__all__ = ["Budget", "History", "Item", "estimate_tokens", "estimated_tokens", "prompt_messages", "without_oldest", "without_reasoning"]
