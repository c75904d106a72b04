"""What crosses between a conversation and a language model, and the promise that the model keeps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from engine.api.health import Health

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


class ToolCall(Struct, frozen=True, kw_only=True):
    """A function call that the model asked for; `arguments` is a JSON object as text."""

    call_id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, kw_only=True):
    """One message of the prompt. `text` is plain text: special tokens in it are never control tokens."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class Kept(Struct, frozen=True, kw_only=True):
    """Token ids of a conversation's prefix and exactly the text they stand for, so that the prefix cache hits."""

    ids: tuple[int, ...]
    text: str


class Prompt(Struct, frozen=True, kw_only=True):
    """A rendered prompt. Engines without token ids leave `ids` and `text` empty. `reused` counts tokens taken from `Kept`."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()  # Any: JSON schema of the tool's parameters
    ids: tuple[int, ...] = ()
    text: str = ""
    reused: int = 0


class Usage(Struct, frozen=True, kw_only=True):
    """Real token counts of one request."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Delta(Struct, frozen=True, kw_only=True):
    """Text from the engine, whole code points. `ids` are its tokens where the engine knows them.

    `usage` holds the counts of the request so far: the last delta has it, beside `finish` (its text may be empty), and the first one
    wherever the engine knows by then what it has read, so that an interrupted request is counted too.
    """

    text: str
    n_tokens: int = 0
    ids: tuple[int, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None


class Sampling(Struct, frozen=True, kw_only=True):
    """Bounded sampling settings. No `n`, no log-probabilities: both slow down everyone else's first token."""

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int | None = None


class Generation(Struct, frozen=True, kw_only=True):
    """One request. `priority`: lower runs earlier (0 real turn, 10 draft, 20 warm-up). `cache_salt`: whose prefix cache; None is shared.

    `place`: which of the model's `places` is to answer; None: its conversation's own.
    """

    request_id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    priority: int = 0
    cache_salt: str | None = None
    place: int | None = None


class Facts(Struct, frozen=True, kw_only=True):
    """What a language model can do.

    `takes_tools`: it is told of tools, and its calls are understood. `keeps_prefixes`: every prompt that it has read stays in a cache
    by its prefix, for whoever begins alike. `isolates`: nothing that was read with one `cache_salt` serves, and so betrays itself to,
    requests with another. `places`: how many engines answer, each with a cache of its own; a conversation stays with one of them.
    """

    takes_tools: bool = True
    keeps_prefixes: bool = False
    isolates: bool = False
    places: int = 1


class LanguageModel(Protocol):
    """A chat model that streams text."""

    @property
    def name(self) -> str:
        """Model and engine, for the banner and logs."""

    @property
    def facts(self) -> Facts:
        """What it can do; sure once it was started."""

    async def start(self) -> None:
        """Load; returns when requests are accepted. Raises `EngineSetupError`."""

    async def close(self) -> None:
        """Stop within a few seconds; open requests end with `EngineNotReady`."""

    def health(self) -> Health:
        """Current state, without waiting."""

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """Prompt for `messages`; appends to `kept` where the template allows it, else renders anew.

        Raises `ContextTooLong`, `EngineNotReady`.
        """

    def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Closing the generator or cancelling its consumer aborts the request.

        Raises `EngineNotReady`, `EngineStalled`, `EngineBusy`, `ContextTooLong`, `EngineError`.
        """

    def cancel(self, request_id: str) -> None:
        """Abort at once, without waiting; unknown and finished ids are ignored. The stream ends with finish `cancelled`."""
