"""vLLM's outputs of one request become deltas.

Pure. Token ids are given out together with the text they stand for: ids of a character that is not whole yet wait for it,
the token that ended the reply (it has no text) is left out. So ids and text of all deltas together are a `Kept`.
Behind a control token that the model wrote into its reply no ids are given out any more: it has no text, and kept it would stay in
the conversation for good, as if the template had put it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.api import Delta, EngineError, FinishReason, Usage

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "repetition": "stop", "abort": "cancelled"}


class DeltaReader:
    """Reads the outputs of one request; `ends_inside_character` asks the tokenizer, `control` are ids without text."""

    def __init__(
        self, n_prompt_tokens: int, ends_inside_character: Callable[[Sequence[int]], bool], control: frozenset[int] = frozenset()
    ) -> None:
        self._n_prompt = n_prompt_tokens
        self._n_cached = 0
        self._n_output = 0
        self._waiting: list[int] = []
        self._ends_inside_character = ends_inside_character
        self._control = control
        self._is_counted = False
        self._is_over = False  # of the ids, not of the text

    @property
    def usage(self) -> Usage:
        """Real counts so far."""
        return Usage(prompt_tokens=self._n_prompt, cached_tokens=self._n_cached, output_tokens=self._n_output)

    def read(self, output: Any) -> Delta:  # Any: vllm.RequestOutput in DELTA mode, with exactly one completion
        """The delta of one output. Raises `EngineError` where vLLM reports a failed request."""
        completion = output.outputs[0]
        reason: str | None = completion.finish_reason if output.finished else None
        if reason is not None and reason not in _FINISH:
            raise EngineError(f"vLLM ended the request with {reason!r}: {completion.stop_reason!r}")
        new: Sequence[int] = completion.token_ids
        self._n_output += len(new)
        self._n_cached = output.num_cached_tokens or self._n_cached
        self._waiting.extend(new)
        finish = _FINISH[reason] if reason is not None else None
        ids = self._take(finish, bool(completion.text), bool(new))
        usage = self.usage if finish is not None or not self._is_counted else None
        self._is_counted = True
        return Delta(text=completion.text, n_tokens=len(new), ids=ids, finish=finish, usage=usage)

    def _take(self, finish: FinishReason | None, has_text: bool, has_new: bool) -> tuple[int, ...]:
        """The ids that belong to the text given out now."""
        if finish == "stop" and has_new:
            self._waiting.pop()
        self._is_over = self._is_over or not self._control.isdisjoint(self._waiting)
        if self._is_over:
            self._waiting.clear()
        if not has_text:
            return ()
        if finish is not None:
            while self._waiting and self._ends_inside_character(self._waiting):
                self._waiting.pop()
        ids = tuple(self._waiting)
        self._waiting.clear()
        return ids
