"""Arguments that are tables or names of vLLM's own: speculation, loaders, sampling. What vLLM would refuse after minutes, or take and not
mean, is refused at once.

Pure. Source: vLLM 0.26 to 0.33, `SpeculativeConfig`, `LoadFormats`, `SamplingParams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_COMMON = {
    "method",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "rejection_sample_method",
    "draft_sample_method",
    "disable_by_batch_size",
}
_DRAFTED = {"model", "revision", "quantization", "draft_tensor_parallel_size", "max_model_len", "use_heterogeneous_vocab"}
METHODS: dict[
    str, tuple[frozenset[str], frozenset[str]]
] = {  # method -> keys that it needs, and keys that it may have beside the common ones
    "eagle3": (frozenset({"model"}), frozenset(_DRAFTED)),
    "eagle": (frozenset({"model"}), frozenset(_DRAFTED)),
    "draft_model": (frozenset({"model"}), frozenset(_DRAFTED)),
    "mtp": (frozenset(), frozenset(_DRAFTED)),
    "ngram": (frozenset({"prompt_lookup_max"}), frozenset({"prompt_lookup_min"})),
}
MOST_DRAFT_TOKENS = 8  # beyond, TTFT suffers: p99 regressions were reported with 15
LOADERS: dict[str, str] = {  # load format -> the Python package that it needs
    "auto": "",
    "hf": "",
    "safetensors": "",
    "pt": "",
    "npcache": "",
    "dummy": "",
    "mistral": "",
    "bitsandbytes": "bitsandbytes",
    "sharded_state": "",
    "fastsafetensors": "fastsafetensors",
    "runai_streamer": "runai_model_streamer",
    "runai_streamer_sharded": "runai_model_streamer",
    "tensorizer": "tensorizer",
    "instanttensor": "instanttensor",
    "modelexpress": "modelexpress",
    "ipc_cache": "",
}
_SAMPLING: dict[str, tuple[str, Callable[[Any], bool]]] = {  # what an operator may add to every request
    "top_k": ("a whole number, -1 or above 0", lambda value: _is_int(value) and (value == -1 or value > 0)),
    "min_p": ("0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "repetition_penalty": ("above 0 to 2", lambda value: _is_number(value) and 0 < value <= 2),
    "presence_penalty": ("-2 to 2", lambda value: _is_number(value) and -2 <= value <= 2),
    "frequency_penalty": ("-2 to 2", lambda value: _is_number(value) and -2 <= value <= 2),
    "stop_token_ids": ("a list of token ids", lambda value: isinstance(value, list) and all(_is_int(one) and one >= 0 for one in value)),
}
_LOGPROBS = "log-probabilities slow down everyone else's first token (76 to 423 times was reported)"
UNBOUNDED: dict[str, str] = {  # what no request may have, on any server
    "n": "several replies at once slow down everyone else's first token",
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    "top_logprobs": _LOGPROBS,
}
_ELSEWHERE: dict[str, str] = {
    "stop": "a stop string holds back the last characters of every piece; use stop_token_ids",
    "max_tokens": "set turn.max_tokens",
    "temperature": "set turn.temperature",
    "top_p": "set turn.top_p",
}


def option_faults(arguments: Mapping[str, Any], sampling: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each value that cannot be meant; it names the key, what was got, and what would do."""
    if (speculation := arguments.get("speculative_config")) is not None:
        yield from _speculation(speculation)
    loader = arguments.get("load_format", "auto")
    if loader not in LOADERS:
        yield f"llm.vllm.load_format is {loader!r}; vLLM has {', '.join(sorted(LOADERS))}"
    yield from _sampling(sampling)


def package_of_loader(arguments: Mapping[str, Any]) -> str:
    """The Python package that the chosen loader needs; empty where vLLM brings it along."""
    return LOADERS.get(arguments.get("load_format", "auto"), "")


def _speculation(given: Any) -> Iterator[str]:  # Any: TOML
    where = "llm.vllm.speculative_config"
    if not isinstance(given, dict):
        yield f'{where} is {given!r}; expected a table such as {{method = "eagle3", model = "...", num_speculative_tokens = 3}}'
        return
    method = given.get("method")
    if method not in METHODS:
        yield f"{where}.method is {method!r}; expected {', '.join(METHODS)}"
        return
    needed, allowed = METHODS[method]
    for key in sorted(needed - given.keys()):
        yield f"{where}.{key} is missing; {method} needs it"
    for key in sorted(given.keys() - needed - allowed - _COMMON):
        known = sorted((needed | allowed | _COMMON) - {"method"})
        yield f"{where}.{key} is no key of {method}; it has {', '.join(known)}"
    n_draft = given.get("num_speculative_tokens", 0)
    if not _is_int(n_draft) or not 1 <= n_draft <= MOST_DRAFT_TOKENS:
        yield f"{where}.num_speculative_tokens is {n_draft!r}; expected 1 to {MOST_DRAFT_TOKENS}, best 2 or 3"
    yield from _lookup(given, where)


def _lookup(given: Mapping[str, Any], where: str) -> Iterator[str]:
    most, least = given.get("prompt_lookup_max"), given.get("prompt_lookup_min", 1)
    if most is None:
        return
    if not _is_int(most) or not _is_int(least) or not 1 <= least <= most:
        yield f"{where}.prompt_lookup_min is {least!r} and prompt_lookup_max {most!r}; expected 1 <= min <= max"


def _sampling(given: Mapping[str, Any]) -> Iterator[str]:
    for key, value in given.items():
        if (why := UNBOUNDED.get(key) or _ELSEWHERE.get(key)) is not None:
            yield f"llm.vllm.sampling.{key}: {why}"
        elif key not in _SAMPLING:
            yield f"llm.vllm.sampling.{key} is not taken; expected {', '.join(_SAMPLING)}"
        elif not _SAMPLING[key][1](value):
            yield f"llm.vllm.sampling.{key} is {value!r}; expected {_SAMPLING[key][0]}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
