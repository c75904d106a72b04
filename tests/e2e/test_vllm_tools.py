"""vLLM's own tool parsers behind our reader: fed in pieces of any size, calls come whole and text before them streams."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.api import Delta, EngineSetupError
from engine.llm.vllm.tools import ToolReader, load, parser_name

MODEL = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser() / "weights/smollm2-135m-hf"

if importlib.util.find_spec("vllm") is None:
    pytest.skip("NOT RUN HERE: vLLM's parsers; use .venv-vllm/bin/python -m pytest tests/e2e/test_vllm_tools.py", allow_module_level=True)

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"town": "Bergen"}}\n</tool_call>'
REPLIES = {
    "hermes": f"I will look.\n{CALL}",
    "pythonic": '[weather(town="Bergen")]',
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(MODEL))


def read(reader: ToolReader, tokenizer: Any, reply: str, size: int) -> list[Delta]:
    """The reply in deltas of `size` tokens, the last one empty."""
    ids = tokenizer.encode(reply, add_special_tokens=False)
    pieces = [tuple(ids[start : start + size]) for start in range(0, len(ids), size)]
    deltas = [reader.read(Delta(text=tokenizer.decode(piece), ids=piece, n_tokens=len(piece))) for piece in pieces]
    return [*deltas, reader.read(Delta(text="", finish="stop"))]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("name", REPLIES)
def test_a_call_comes_whole(name: str, size: int, tokenizer: Any) -> None:
    deltas = read(load(name, tokenizer)([WEATHER]), tokenizer, REPLIES[name], size)
    (call,) = deltas[-1].tool_calls
    assert call.name == "weather"
    assert json.loads(call.arguments) == {"town": "Bergen"}
    assert deltas[-1].finish == "tool_calls"
    said = "".join(delta.text for delta in deltas)
    assert said.strip() == ("I will look." if name == "hermes" else "")


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("reply", ["Just a plain answer.", "A < b and <tool is fine", "2 < 3"])
def test_plain_text_is_not_touched(reply: str, size: int, tokenizer: Any) -> None:
    deltas = read(load("hermes", tokenizer)([WEATHER]), tokenizer, reply, size)
    assert "".join(delta.text for delta in deltas) == reply
    assert tokenizer.decode([token for delta in deltas for token in delta.ids]) == reply
    assert deltas[-1].finish == "stop"


def test_an_unknown_parser_is_refused_with_the_known_ones(tokenizer: Any) -> None:
    with pytest.raises(EngineSetupError, match="hermes"):
        load("nonsense", tokenizer)


def test_a_parser_that_misses_its_tokens_is_refused(tokenizer: Any) -> None:
    with pytest.raises(EngineSetupError, match="does not go with this model"):
        load("llama3_json", tokenizer)


def test_parsers_that_templates_point_to_exist(tokenizer: Any) -> None:
    from vllm.tool_parsers import ToolParserManager

    for mark in ("<function=", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>"):
        assert parser_name(None, f"... {mark} ...") in ToolParserManager.list_registered()
    assert parser_name(None, "plain chatml") is None
    assert parser_name("mistral", "<tool_call>") == "mistral"
