"""A scripted model that answers by what it is asked: the first key found in the prompt's last message chooses the reply.

The same conversation gets the same answers in any order and through any door.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.api import Generation, ToolCall
from engine.fake import Script, ScriptedModel, tokenize

LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))
WEATHER = ToolCall(call_id="call_w", name="get_weather", arguments='{"city": "Paris"}')
ANSWERS: dict[str, Script | str] = {
    "Hello": "Hello there. Nice to meet you.",
    "weather": Script(tokens=tokenize("Let me look. "), tool_calls=(WEATHER,)),
    "silently": Script(tokens=(), tool_calls=(WEATHER,)),
    "both": Script(tokens=(), tool_calls=(WEATHER, ToolCall(call_id="call_t", name="get_time", arguments="{}"))),
    "sunny": "It is sunny in Paris.",
    "at length": LONG,
    "Classify": "greeting",
    "again and again": Script(tokens=(), tool_calls=(WEATHER,)),
}


class AnsweringModel(ScriptedModel):
    """`answers`: key -> reply; nothing found: "Yes."."""

    def __init__(self, answers: Mapping[str, Script | str] = ANSWERS, *, ttft_ms: float = 50.0, itl_ms: float = 20.0) -> None:
        super().__init__(("Yes.",), ttft_ms=ttft_ms, itl_ms=itl_ms)
        self._answers = {key: Script(tokens=tokenize(reply)) if isinstance(reply, str) else reply for key, reply in answers.items()}

    def _next_script(self, generation: Generation) -> Script:
        asked = generation.prompt.messages[-1].text if generation.prompt.messages else ""
        return next((script for key, script in self._answers.items() if key in asked), super()._next_script(generation))
