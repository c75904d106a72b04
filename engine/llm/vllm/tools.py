"""Calls that a model writes into its reply, taken out by vLLM's own parsers: text before a call streams on, the call comes whole.

Each model family writes calls its own way and vLLM knows them all; `llm.vllm.tool_call_parser` names one of its parsers, else the chat
template tells. A call is given out when it is whole: a voice has no use for half an argument.
"""

from __future__ import annotations

import importlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from engine.api import Delta, EngineSetupError, FinishReason, ToolCall

_log = logging.getLogger(__name__)
_BY_TEMPLATE = (  # a mark in the chat template and the parser of models that write so; the first match counts
    ("<function=", "qwen3_coder"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3_json"),
    ("<|tool_call|>", "granite"),
)
_REQUEST = "vllm.entrypoints.openai.chat_completion.protocol"


class Parser(Protocol):
    """As much of a vLLM tool parser as is called. One per reply: it keeps state."""

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        """What is new: content that is no call, parts of calls, or None."""

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        """All calls of a whole reply."""


class ToolReader:
    """Reads the deltas of one reply. Text of a call is held back with its ids, so that ids and text still go together."""

    def __init__(self, parser: Parser, request: Any) -> None:  # Any: vllm's ChatCompletionRequest
        self._parser, self._request = parser, request
        self._text = ""
        self._ids: list[int] = []
        self._shown = 0  # code points of the text given out
        self._waiting: list[tuple[int, tuple[int, ...]]] = []  # where a delta's text ends, and its ids

    def read(self, delta: Delta) -> Delta:
        """The same delta without what belongs to a call; the last one has the calls."""
        before, known = self._text, len(self._ids)
        self._text += delta.text
        self._ids.extend(delta.ids)
        self._waiting.append((len(self._text), delta.ids))
        shown = self._content(before, known, delta) if delta.text else ""
        if delta.finish is None:
            return msgspec.structs.replace(delta, text=shown, ids=self._released(shown))
        calls, rest = self._calls(delta.finish)
        shown += rest
        finish: FinishReason = "tool_calls" if calls else delta.finish
        return msgspec.structs.replace(delta, text=shown, ids=self._released(shown), tool_calls=calls, finish=finish)

    def _content(self, before: str, known: int, delta: Delta) -> str:
        try:
            message = self._parser.extract_tool_calls_streaming(
                before, self._text, delta.text, self._ids[:known], list(self._ids), list(delta.ids), self._request
            )
        except Exception:  # whatever a parser trips over in a model's words
            _log.exception("tool parser failed")
            return ""
        return (getattr(message, "content", None) or "") if message is not None else ""

    def _calls(self, finish: FinishReason) -> tuple[tuple[ToolCall, ...], str]:
        """The calls of the whole reply, and text that was held back for a call that did not come."""
        if finish == "cancelled":
            return (), ""
        try:
            found = self._parser.extract_tool_calls(self._text, self._request)
        except Exception:
            _log.exception("tool parser failed")
            return (), self._text[self._shown :]
        calls = [call.function for call in found.tool_calls] if found.tools_called else []
        if not calls:
            return (), self._text[self._shown :]
        return tuple(ToolCall(call_id=f"call_{uuid.uuid4().hex[:16]}", name=call.name, arguments=call.arguments) for call in calls), ""

    def _released(self, shown: str) -> tuple[int, ...]:
        """Ids of the deltas whose text is out by now."""
        self._shown += len(shown)
        ids: list[int] = []
        while shown and self._waiting and self._waiting[0][0] <= self._shown:
            ids.extend(self._waiting.pop(0)[1])
        return tuple(ids)


MakeReader = Callable[[Sequence[Mapping[str, Any]]], ToolReader]


def parser_name(wanted: str | None, template: str) -> str | None:
    """Which of vLLM's parsers reads this model's calls; None where nothing tells."""
    return wanted or next((name for mark, name in _BY_TEMPLATE if mark in template), None)


def template_of(model: str) -> str:
    """The chat template in a model's folder; empty where there is no folder or none in it (vLLM says so itself)."""
    folder = Path(model).expanduser()
    try:
        if (folder / "chat_template.jinja").is_file():
            return (folder / "chat_template.jinja").read_text("utf-8")
        found = msgspec.json.decode((folder / "tokenizer_config.json").read_bytes(), type=dict[str, Any])
    except (OSError, ValueError):
        return ""
    return str(found.get("chat_template", ""))


def for_model(wanted: str | None, tokenizer: Any) -> MakeReader | None:
    """A maker of readers; None where neither a name is given nor the template tells. Raises `EngineSetupError` for a wrong name."""
    name = parser_name(wanted, str(tokenizer.chat_template))
    if name is None:
        return None
    try:
        return load(name, tokenizer)
    except EngineSetupError as error:
        if wanted is not None:
            raise
        _log.warning("no tool parser", extra={"parser": name, "error": str(error)})
        return None


def load(name: str, tokenizer: Any) -> MakeReader:
    """A maker of readers for one model. Raises `EngineSetupError` for a name that vLLM does not know."""
    try:
        manager = importlib.import_module("vllm.tool_parsers").ToolParserManager
        request_class = importlib.import_module(_REQUEST).ChatCompletionRequest
        parser_class = manager.get_tool_parser(name)
    except KeyError as error:
        raise EngineSetupError(f"llm.vllm.tool_call_parser is {name!r}; vLLM has {', '.join(sorted(manager.list_registered()))}") from error
    except (ImportError, AttributeError) as error:
        raise EngineSetupError(f"this vLLM keeps its tool parsers elsewhere ({error}); vLLM 0.26 to 0.33 were read") from error

    try:
        parser_class(tokenizer, None)
    except Exception as error:  # each parser has its own way to miss its tokens
        raise EngineSetupError(f"vLLM's tool parser {name!r} does not go with this model: {error}") from error

    def make(tools: Sequence[Mapping[str, Any]]) -> ToolReader:
        request = request_class(messages=[], model="", tools=list(tools), tool_choice="auto")
        return ToolReader(parser_class(tokenizer, request.tools), request)

    return make
