"""Messages become a prompt: the model's own chat template for the words around them, plain text for what people said.

Assumes a fast Hugging Face tokenizer. Two promises:

* Text is never control. A user may type `<|im_start|>system`; the template's own `<|im_start|>` must become the control
  token and the user's must not. Before rendering, a seam (a code point that is no character) is put behind the first
  character of every control word inside a message; after rendering the prompt is cut at the seams and each piece is
  tokenized alone, so that no piece holds the whole word. Text without such words, that is nearly all, is tokenized in one go.
* Token ids of history are kept. What the engine generated need not tokenize back to the same ids, and ids are what the
  prefix cache knows. The new text is compared with the kept text; as far as they agree the kept ids are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any

from engine.api import ContextTooLong, EngineError, EngineSetupError, Kept, Message, Prompt
from engine.llm.seams import parted

_SEAMS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))  # Unicode noncharacters: never in text that means something
_LOOKS_LIKE_CONTROL = re.compile(r"[<\[{].*[A-Za-z_|｜].*[>\]}]", re.DOTALL)  # a tag that a model knows though it is not marked special


class PromptRenderer:
    """Renders with one model's tokenizer and template.

    `context_tokens` bounds prompt and reply together; `options` go to the template (such as `enable_thinking`).
    """

    def __init__(self, tokenizer: Any, context_tokens: int, options: Mapping[str, Any] | None = None) -> None:  # Any: a transformers class
        if not getattr(tokenizer, "chat_template", None):
            raise EngineSetupError("the model has no chat template: it is a base model, or its tokenizer_config.json lacks it")
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self.context_tokens = context_tokens
        self._options = dict(options or {})
        self._control = _control_pattern(self._backend)
        self._takes_system = self._accepts([Message(role="system", text="a"), Message(role="user", text="b")])
        self._takes_repeats = self._accepts([Message(role="user", text="a"), Message(role="user", text="b")])
        added = self._backend.get_added_tokens_decoder()
        self.control_ids = frozenset(number for number, token in added.items() if token.special)
        self.n_anew = 0  # prompts that had kept ids and could not use all of them

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """Prompt of `messages`, ready for the assistant to speak. Raises `ContextTooLong`, `EngineError`."""
        pieces = self._pieces(messages, tools)
        text = "".join(pieces)
        reused = self._usable(kept, text) if kept is not None else None
        if reused is None:
            ids = self._encode(pieces, 0)
            n_reused = 0
        else:
            n_reused = len(reused.ids)
            ids = reused.ids + self._encode(pieces, len(reused.text))
        if len(ids) >= self.context_tokens:
            raise ContextTooLong(f"the prompt has {len(ids)} tokens; with the reply, {self.context_tokens} are allowed")
        return Prompt(messages=tuple(messages), tools=tuple(tools), ids=ids, text=text, reused=n_reused)

    def ends_inside_character(self, ids: Sequence[int]) -> bool:
        """Whether the last tokens stop halfway through a UTF-8 sequence."""
        return bool(self._backend.decode(list(ids[-8:]), skip_special_tokens=False).endswith("\ufffd"))

    def _usable(self, kept: Kept, text: str) -> Kept | None:
        """As much of `kept` as `text` begins with."""
        if text.startswith(kept.text):
            return kept
        self.n_anew += 1
        same = commonprefix((kept.text, text))  # noqa: RUF071  characters are meant, these are no paths
        ids = list(kept.ids)
        low, high = 0, len(ids)
        while low < high:  # a prefix of the ids decodes to a prefix of the text; about 12 decodes for a full context
            middle = (low + high + 1) // 2
            if same.startswith(self._backend.decode(ids[:middle], skip_special_tokens=False)):
                low = middle
            else:
                high = middle - 1
        if not low:
            return None
        return Kept(ids=kept.ids[:low], text=self._backend.decode(ids[:low], skip_special_tokens=False))

    def _pieces(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[str]:
        """The rendered prompt, cut where a control word inside a message has to fall apart."""
        if not any(self._control.search(text) for text in _texts(messages)):
            return [self._apply(self._shaped(messages), tools)]
        seam = next((char for char in _SEAMS if not any(char in text for text in _texts(messages))), None)
        if seam is None:
            raise EngineError("the text contains every Unicode noncharacter; it cannot be tokenized safely")
        parted = [_part(message, self._control, seam) for message in messages]
        # A template may write strings as JSON, with escapes.
        return self._apply(self._shaped(parted), tools).replace(json.dumps(seam)[1:-1], seam).split(seam)

    def _encode(self, pieces: list[str], start: int) -> tuple[int, ...]:
        """Token ids of the joined pieces from code point `start`."""
        ids: list[int] = []
        for piece in pieces:
            rest = piece[start:]
            start = max(0, start - len(piece))
            if rest:
                ids.extend(self._backend.encode(rest, add_special_tokens=False).ids)
        return tuple(ids)

    def _shaped(self, messages: Sequence[Message]) -> list[Message]:
        """What this template accepts: some know no system role, some insist that roles alternate."""
        shaped = list(messages)
        if not self._takes_system:
            shaped = _fold_system(shaped)
        if not self._takes_repeats:
            shaped = _merge_repeats(shaped)
        return shaped

    def _apply(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
        try:
            rendered = self._tokenizer.apply_chat_template(
                [_plain(message) for message in messages],
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=True,
                **self._options,
            )
        except Exception as error:  # whatever a model's own template may raise
            raise EngineError(f"the model's chat template refused the conversation: {error}") from error
        return str(rendered)

    def _accepts(self, messages: Sequence[Message]) -> bool:
        try:
            rendered = self._apply(messages, ())
        except EngineError:
            return False
        return all(message.text in rendered for message in messages)


def _control_pattern(backend: Any) -> re.Pattern[str]:  # Any: tokenizers.Tokenizer
    """Matches every word that the tokenizer turns into one control token. One that matches nothing, if there is none."""
    added = backend.get_added_tokens_decoder().values()
    words = {token.content for token in added if len(token.content) > 1 and (token.special or _LOOKS_LIKE_CONTROL.fullmatch(token.content))}
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)")


def _texts(messages: Sequence[Message]) -> list[str]:
    """Every string of the conversation that a person, a tool or the model wrote."""
    calls = [call for message in messages for call in message.tool_calls]
    return [message.text for message in messages] + [call.arguments for call in calls] + [call.name for call in calls]


def _part(message: Message, control: re.Pattern[str], seam: str) -> Message:
    """`message` with a seam inside each control word."""
    calls = tuple(
        type(call)(call_id=call.call_id, name=parted(call.name, control, seam), arguments=parted(call.arguments, control, seam))
        for call in message.tool_calls
    )
    return Message(role=message.role, text=parted(message.text, control, seam), tool_calls=calls, call_id=message.call_id)


def _plain(message: Message) -> dict[str, Any]:
    """The message as chat templates expect it; call arguments as an object, which most of them print themselves."""
    plain: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": _object(call.arguments)}}
            for call in message.tool_calls
        ]
    if message.call_id is not None:
        plain["tool_call_id"] = message.call_id
    return plain


def _object(arguments: str) -> Any:
    """The JSON object, or the text itself where a model wrote none."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _fold_system(messages: Sequence[Message]) -> list[Message]:
    """System text in front of the first user message."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    rest = [message for message in messages if message.role != "system"]
    if not system:
        return rest
    for place, message in enumerate(rest):
        if message.role == "user":
            rest[place] = Message(role="user", text=f"{system}\n\n{message.text}")
            return rest
    return [Message(role="user", text=system), *rest]


def _merge_repeats(messages: Sequence[Message]) -> list[Message]:
    """Neighbors of the same role as one message."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and last.role == message.role and not message.tool_calls and not last.tool_calls and message.call_id is None:
            merged[-1] = Message(role=last.role, text=f"{last.text}\n\n{message.text}")
        else:
            merged.append(message)
    return merged
