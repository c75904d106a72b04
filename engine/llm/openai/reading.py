"""Chunks of a streamed chat completion -> deltas. Pure. Source: OpenAI API reference, "Chat completion chunk".

Servers differ, and all of this was seen: `content: null`, no choices at all, usage on a chunk of its own or on every chunk, tool
calls in pieces with or without an index, arguments as an object, a last chunk without `[DONE]`, an error in the middle.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from engine.api import ContextTooLong, Delta, EngineBusy, EngineError, EngineNotReady, FinishReason, ToolCall, Usage
from engine.llm.openai.sse import DONE

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "function_call": "tool_calls"}
_SHOWN = 160  # characters of a server's words in a message
_TOO_LONG = ("context length", "context_length", "maximum context", "too many tokens", "maximum model length", "longer than the maximum")


class Unreadable(EngineError):
    """The server does not speak the protocol."""

    kind = "unreadable"


class _Function(Struct):
    name: str | None = None
    arguments: Any = None  # Any: text, by the protocol; an object from some servers


class _CallPart(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(Struct):
    content: str | None = None
    tool_calls: list[_CallPart] | None = None


class _Choice(Struct):
    index: int | None = None
    delta: _Part | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Counts(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Counts | None = None
    error: Any = None  # Any: whatever the server says


_decode = msgspec.json.Decoder(_Chunk).decode


class _Call:
    """A call whose arguments still arrive."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments = ""


class ReplyReader:
    """Reads one reply. `is_over`: nothing follows."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._n_counted = 0
        self._n_pieces = 0
        self.is_over = False

    @property
    def has_finished(self) -> bool:
        """Whether the model has ended its reply; the counts may still come."""
        return self._finish is not None

    def read(self, payload: bytes) -> Delta | None:
        """The text of a chunk; None where it has none. Raises `EngineError` for what is no chunk, and for the server's own errors."""
        if payload == DONE:
            self.is_over = True
            return None
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreadable(f"expected a chat completion chunk, got {_shown(payload)} ({error})") from error
        if chunk.error is not None:
            raise fault_of(None, msgspec.json.encode(chunk.error))
        n_new = self._count(chunk.usage)
        text = ""
        for choice in chunk.choices or ():
            if choice.index:
                continue  # only one was asked for
            text += self._take(choice)
        if not text:
            return None
        self._n_pieces += 1
        return Delta(text=text, n_tokens=1 if n_new is None else n_new, usage=None if n_new is None else self._usage)

    def last(self) -> Delta:
        """The end of the reply. Raises `EngineError` where it broke off before the model had finished."""
        if self._finish is None and not (self.is_over and (self._n_pieces or self._calls)):
            raise EngineError(f"the server broke off after {self._n_pieces} pieces of the reply; expected a finish_reason")
        if self._finish == "content_filter" and not self._n_pieces:
            raise EngineError("the server's content filter withheld the reply")
        calls = tuple(self._whole(n, call) for n, call in enumerate(self._calls))
        finish: FinishReason = "tool_calls" if calls else _FINISH.get(self._finish or "stop", "stop")
        usage = self._usage or Usage(output_tokens=self._n_pieces)
        return Delta(text="", tool_calls=calls, finish=finish, usage=usage)

    def _count(self, counts: _Counts | None) -> int | None:
        """New tokens by the server's running count; None where it keeps none."""
        if counts is None:
            return None
        cached = counts.prompt_tokens_details.cached_tokens if counts.prompt_tokens_details else None
        output = counts.completion_tokens or 0
        self._usage = Usage(prompt_tokens=counts.prompt_tokens or 0, cached_tokens=cached or 0, output_tokens=output)
        n_new, self._n_counted = output - self._n_counted, output
        return max(0, n_new)

    def _take(self, choice: _Choice) -> str:
        self._finish = choice.finish_reason or self._finish
        if choice.delta is None:
            return ""
        for part in choice.delta.tool_calls or ():
            self._add(part)
        return choice.delta.content or ""

    def _add(self, part: _CallPart) -> None:
        call = self._call_of(part)
        call.call_id = part.id or call.call_id
        if part.function is None:
            return
        call.name = part.function.name or call.name
        arguments = part.function.arguments
        if arguments is not None:
            call.arguments += arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()

    def _call_of(self, part: _CallPart) -> _Call:
        """By index; without one, a new id or name begins a call."""
        if part.index is not None:
            if part.index not in self._by_index:
                self._by_index[part.index] = self._begin()
            return self._by_index[part.index]
        is_new = not self._calls or (part.id is not None and part.id != self._calls[-1].call_id)
        return self._begin() if is_new else self._calls[-1]

    def _begin(self) -> _Call:
        self._calls.append(_Call())
        return self._calls[-1]

    def _whole(self, n: int, call: _Call) -> ToolCall:
        if not call.name:
            raise Unreadable("the server sent a tool call without a name")
        return ToolCall(call_id=call.call_id or f"{self._request_id}-call-{n}", name=call.name, arguments=call.arguments or "{}")


def fault_of(status: int | None, body: bytes) -> EngineError:
    """Our error for the server's: by HTTP status, else (an error in the stream) by its words."""
    said = _shown(body)
    if any(words in said.lower() for words in _TOO_LONG):
        return ContextTooLong(f"the server says that the prompt is too long: {said}")
    if status == 429:
        return EngineBusy(f"the server is busy (HTTP 429): {said}")
    if status is None or status >= 500:
        return EngineNotReady(f"the server failed ({'in the stream' if status is None else f'HTTP {status}'}): {said}")
    error = EngineError(f"the server refuses the request (HTTP {status}): {said}")
    error.retryable = False
    return error


def _shown(data: bytes) -> str:
    text = " ".join(data.decode("utf-8", "replace").split())
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
