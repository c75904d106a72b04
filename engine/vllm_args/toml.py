"""Plain values as TOML: the few kinds that a profile holds."""

from __future__ import annotations

import json
import re
from typing import Any

from engine.api import EngineSetupError


def toml(value: Any) -> str:
    """`value` on one line. Raises `EngineSetupError` for what TOML cannot hold."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(toml(each) for each in value)}]"
        case dict():
            return f"{{{', '.join(f'{_key(name)} = {toml(each)}' for name, each in value.items())}}}"
        case _:
            raise EngineSetupError(f"{value!r} cannot stand in a TOML file")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
