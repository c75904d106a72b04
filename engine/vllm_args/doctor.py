"""Examines a pasted vLLM command: does each flag exist, what replaced it, does it help or hurt voice and by how much; and the profile.

Pure. The figures are in `rules.py`. The profile that comes out is one that `arguments.plan` accepts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from engine.vllm_args import rules, signatures, values
from engine.vllm_args.arguments import DEVICE, SHARED
from engine.vllm_args.command_line import CommandLine, Flag, parse
from engine.vllm_args.rules import Verdict
from engine.vllm_args.toml import toml

_RENAMED = {"max_seq_len": "max_model_len", "max_sequence_length": "max_model_len"}
_DRAFT = {"draft_model", "speculative_model", "num_draft_tokens", "num_speculative_tokens"}
_OURS = {  # the server's flags that Stretto has a setting for
    "host": "server.host",
    "port": "server.port",
    "api_key": "server.keys",
    "ssl_certfile": "server.tls_certificate",
    "ssl_keyfile": "server.tls_key",
    "allowed_origins": "server.origins",
    "default_chat_template_kwargs": "llm.vllm.template",
}
_UNLISTED = frozenset(values.table().flags) - signatures.names("arguments") - signatures.names("server")  # of `vllm serve` itself
_SHOWN = ("max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold", "gpu_memory_utilization", "performance_mode")
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")  # whose product is the number of GPUs
_OVER_MACHINES = frozenset({"nnodes", "node_rank", "data_parallel_address", "data_parallel_size_local", "data_parallel_rank", "headless"})
_CONTEXT_TOKENS = 8192


class Finding(Struct, frozen=True, kw_only=True):
    """About one part of the command. `exists`: the vLLM of today takes it as written."""

    written: str
    value: Any  # Any: as parsed
    exists: bool
    verdict: Verdict
    says: str
    instead: str = ""

    def __str__(self) -> str:
        value = "" if isinstance(self.value, bool) else f" {self.value}"
        instead = f" -> {self.instead}" if self.instead else ""
        return f"{self.verdict:<8}{self.written}{value}: {self.says}{instead}"


_NO_MODEL = Finding(
    written="MODEL",
    value=True,
    exists=True,
    verdict="risky",
    says="is missing: vLLM takes a default one, or that of --config; the profile's llm.model is empty",
    instead="vllm serve MODEL",
)


class Report(Struct, frozen=True, kw_only=True):
    """All findings in the order of the command, and the profile as TOML."""

    findings: tuple[Finding, ...]
    profile: str


def examine(text: str, release: str | None = None) -> Report:
    """Examine a pasted command against one vLLM release (None: all of the table). Raises `EngineSetupError` for text that is none."""
    command = parse(text)
    findings = [*_about_program(command), *_about_gpus(command)]
    for place, flag in enumerate(command.flags):
        is_again = any(later.name == flag.name for later in command.flags[place + 1 :])
        findings.append(_overruled(flag) if is_again else _about(flag, release))
    findings += [
        Finding(written=word, value=True, exists=False, verdict="never", says="stands alone; vLLM takes one model")
        for word in command.leftover
    ]
    if command.program and not command.model:
        findings.append(_NO_MODEL)
    return Report(findings=tuple(findings), profile=_profile(command))


def _about_program(command: CommandLine) -> list[Finding]:
    program = command.program
    if program in {"", "vllm serve"}:
        return []
    says: list[str] = []
    if program != program.lower():
        says.append("module names are case-sensitive, Python does not find this one")
    gone = program.lower() == "vllm.entrypoints.api_server"
    if gone:
        says.append("this server was removed from vLLM")
    if not says:
        says.append("is the long form of `vllm serve`")
    verdict: Verdict = "gone" if gone else "never" if program != program.lower() else "neutral"
    return [
        Finding(
            written=f"-m {program}",
            value=True,
            exists=verdict == "neutral",
            verdict=verdict,
            says="; ".join(says),
            instead="vllm serve MODEL",
        )
    ]


def _overruled(flag: Flag) -> Finding:
    return Finding(
        written=flag.written, value=_given(flag), exists=True, verdict="risky", says="is given again behind: the last one counts"
    )


def _about_gpus(command: CommandLine) -> list[Finding]:
    """Whether the GPUs that the command names are as many as it wants; those of other machines are not named."""
    named, given = command.environment.get("CUDA_VISIBLE_DEVICES", ""), {flag.name: flag.value for flag in command.flags}
    sizes = [value for name, value in given.items() if name in _SIZES and isinstance(value, int)]
    n_named, wanted = len(named.split(",")), math.prod(sizes)
    spans_machines = bool(_OVER_MACHINES & given.keys()) or given.get("distributed_executor_backend") == "ray"
    if not named or values.SHELL.search(named) or n_named == wanted or spans_machines:
        return []
    says = f"names {n_named} GPU(s); the command's parallel sizes want {wanted}"
    verdict: Verdict = "never" if n_named < wanted else "risky"
    return [Finding(written=f"CUDA_VISIBLE_DEVICES={named}", value=True, exists=n_named >= wanted, verdict=verdict, says=says)]


def _about(flag: Flag, release: str | None) -> Finding:
    exists = flag.name in signatures.names("arguments", release) | signatures.names("server", release) | _UNLISTED
    rule = rules.judge(flag.name, flag.value)
    is_told = rule is not None and rule.verdict in {"gone", "never"}
    if exists and not is_told and (wrong := values.fault(flag.name, flag.words, is_off=flag.value is False and not flag.words)) is not None:
        near = " or ".join(values.nearest(flag.name, flag.words))
        return Finding(written=flag.written, value=_given(flag), exists=False, verdict="never", says=wrong, instead=near)
    if any(values.SHELL.search(word) for word in flag.words):
        return Finding(
            written=flag.written, value=_given(flag), exists=exists, verdict="neutral", says="is filled in by your shell: not judged"
        )
    if rule is not None:
        span = signatures.span("arguments", flag.name)
        says = f"{rule.says} ({span})" if span is not None and rule.verdict not in {"gone", "never"} else rule.says
        is_value = rule.name in signatures.names("arguments")
        return Finding(
            written=flag.written,
            value=flag.value,
            exists=exists and not (is_value and rule.verdict in {"gone", "never"}),
            verdict=rule.verdict,
            says=says,
            instead=_spelled(rule.instead),
        )
    return _without_rule(flag, exists, release)


def _given(flag: Flag) -> Any:
    """The value as it stood there; True where none did."""
    return " ".join(flag.words) if flag.words else True


def _without_rule(flag: Flag, exists: bool, release: str | None) -> Finding:
    instead = ""
    verdict: Verdict = "neutral"
    if flag.name == "config":
        verdict, says = "risky", "brings more flags, which are not judged here"
        instead = "write them on the line"
    elif flag.name in signatures.names("server", release) | _UNLISTED:
        says = "belongs to vLLM's own HTTP server, which does not run when the engine is embedded"
        instead = _OURS.get(flag.name, "")
    elif exists:
        says = "exists; it makes no known difference to voice"
        if (span := signatures.span("arguments", flag.name)) is not None:
            says += f" ({span})"
    elif flag.name in signatures.names("arguments"):
        verdict, says = "gone", f"is not in this release ({signatures.span('arguments', flag.name)})"
    else:
        verdict, says = "never", "is no flag of vLLM 0.26 to 0.33, which refuses to start with an unknown one"
        instead = " or ".join(_spelled(name) for name in signatures.similar(flag.name)) or _apart(flag.written)
    return Finding(written=flag.written, value=flag.value, exists=exists, verdict=verdict, says=says, instead=instead)


def _apart(written: str) -> str:
    """-tp 2 for -tp2."""
    found = re.fullmatch(r"(-[a-z]+)(\d+)", written)
    return f"{found[1]} {found[2]}" if found is not None and found[1] in values.table().short else ""


def _spelled(instead: str) -> str:
    """A replacement as a flag where it is an argument's name."""
    return f"--{instead.replace('_', '-')}" if instead in signatures.names("arguments") else instead


def _profile(command: CommandLine) -> str:
    kept: dict[str, Any] = {}
    was: dict[str, Any] = {}
    dropped: list[str] = []
    for flag in command.flags:
        name = _RENAMED.get(flag.name, flag.name)
        rule = rules.judge(name, flag.value)
        if name in _DRAFT:
            continue
        is_wrong = values.fault(name, flag.words) is not None or any(values.SHELL.search(word) for word in flag.words)
        if is_wrong or name not in signatures.names("arguments") or (rule is not None and (rule.refuse or rule.instead == "leave it out")):
            dropped.append(flag.written)
            continue
        better = _number(rule.instead) if rule is not None else None
        kept[name] = flag.value if better is None else better
        if better is not None:
            was[name] = flag.value
    if (draft := _draft(command)) is not None:
        kept["speculative_config"] = draft
    context = kept.pop("max_model_len", _CONTEXT_TOKENS)
    shown = {**{name: DEVICE["cuda"][name] for name in _SHOWN}, "scheduling_policy": SHARED["scheduling_policy"], **kept}
    return _written(command.model, context if isinstance(context, int) and context > 0 else _CONTEXT_TOKENS, shown, was, dropped)


def _number(text: str) -> float | int | None:
    """A better value that a rule names, None where it names something else."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return None


def _draft(command: CommandLine) -> Mapping[str, Any] | None:
    """The old draft flags as today's table; three tokens at most, the best number where it was measured."""
    given = {flag.name: flag.value for flag in command.flags if flag.name in _DRAFT}
    model = given.get("draft_model", given.get("speculative_model"))
    if not isinstance(model, str):
        return None
    tokens = given.get("num_draft_tokens", given.get("num_speculative_tokens", 3))
    return {"method": "draft_model", "model": model, "num_speculative_tokens": min(3, tokens) if isinstance(tokens, int) else 3}


def _written(model: str, context_tokens: int, shown: Mapping[str, Any], was: Mapping[str, Any], dropped: list[str]) -> str:
    head = f"# left out: {' '.join(dropped)}\n" if dropped else ""
    lines = [f"{name} = {toml(value)}" + (f"  # the command had {was[name]}" if name in was else "") for name, value in shown.items()]
    return (
        f'{head}[llm]\nengine = "vllm"\nmodel = {toml(model)}\ncontext_tokens = {context_tokens}\n\n[llm.vllm]\n' + "\n".join(lines) + "\n"
    )
