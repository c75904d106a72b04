"""The pages of the documentation that are made from the code: every setting, every message.

scripts/docs_pages.py FOLDER    writes configuration.md and messages.md there
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.config import Settings

ROOT = Path(__file__).parents[1]
DEFAULTS = ROOT / "configs" / "default.toml"
_KEY = re.compile(r"^([A-Za-z_]\w*)\s*=")
_SECTION = re.compile(r"^\[([\w.]+)\]")
_EXAMPLE = re.compile(r"^(\[|\w+ = )")

Schema = dict[str, Any]  # Any: JSON schema


class NoComment(Exception):
    """A setting without an explanation in `configs/default.toml`."""


def comments() -> dict[str, str]:
    """Dotted key -> what `configs/default.toml` says above it; keys in a row share the comment above the first."""
    found: dict[str, str] = {}
    section, block, is_fresh = "", [], False
    for line in DEFAULTS.read_text("utf-8").splitlines():
        if line.startswith("#"):
            block = [*(block if is_fresh else []), line.lstrip("# ").rstrip()]
            is_fresh = True
            continue
        if match := _SECTION.match(line):
            section = match[1] + "."
            if is_fresh:
                found[match[1]] = " ".join(line for line in block if not _EXAMPLE.match(line))
        elif match := _KEY.match(line):
            found[section + match[1]] = " ".join(block)
        elif not line.strip():
            block = []
        is_fresh = False
    return found


def configuration() -> str:
    """Every setting, from the tree itself and its comments. Raises `NoComment`."""
    schema = msgspec.json.schema(Settings)
    shapes: dict[str, Schema] = schema["$defs"]
    notes = comments()
    lines = [
        "# Configuration",
        "Every setting with its type, range and default. A setting stands in a TOML file (`stretto serve --config FILE`) under its",
        "section, or in the environment as `STRETTO_SECTION__KEY`, which wins: `STRETTO_SERVER__PORT=9000`. An unknown key, a wrong type",
        "and an impossible pair stop the start and say what would be valid. `stretto check FILE` says what a configuration would run.",
        "",
    ]
    for name, rows in _sections(shapes["Settings"], shapes, ""):
        lines += [f"## {name or 'Top level'}", notes.get(name, ""), "", "| key | takes | default | |", "|---|---|---|---|"]
        for key, shape in rows:
            dotted = f"{name}.{key}" if name else key
            lines.append(f"| `{key}` | {_takes(shape, shapes)} | {_default(shape)} | {_cell(_note(dotted, notes))} |")
        lines.append("")
    return "\n".join(lines)


def _note(dotted: str, notes: dict[str, str]) -> str:
    if dotted in notes:
        return notes[dotted]
    if "NAME" in dotted or ".0." in dotted:  # a table of tables: its section's comment speaks for all
        return ""
    raise NoComment(f"{dotted} has no comment in {DEFAULTS.name}")


def _sections(shape: Schema, shapes: dict[str, Schema], name: str) -> Iterator[tuple[str, list[tuple[str, Schema]]]]:
    """Every table with the keys that are no tables, depth first, as they stand in the tree."""
    inner = [(key, below) for key, value in shape["properties"].items() if (below := _table(value, shapes)) is not None]
    names = {key for key, _ in inner}
    plain = [(key, value) for key, value in shape["properties"].items() if key not in names]
    if plain:
        yield name, plain
    for key, (below, suffix) in inner:
        yield from _sections(below, shapes, f"{name}.{key}{suffix}".lstrip("."))


def _table(value: Schema, shapes: dict[str, Schema]) -> tuple[Schema, str] | None:
    """The struct that a key holds, or holds by name."""
    several = value.get("additionalProperties")
    options = value.get("anyOf") or [value]
    for one, suffix in ((options[0], ""), (several if isinstance(several, dict) else {}, ".NAME")):
        if "$ref" in one:
            return shapes[one["$ref"].rpartition("/")[2]], suffix
    return None


def _takes(shape: Schema, shapes: dict[str, Schema]) -> str:
    if "anyOf" in shape:
        return " or ".join(_takes(option, shapes) for option in shape["anyOf"] if option.get("type") != "null")
    if "$ref" in shape:
        return "table"
    if "enum" in shape:
        return ", ".join(f"`{word}`" for word in shape["enum"])
    if shape.get("type") == "array":
        return f"list of {_takes(shape.get('items') or {}, shapes)}"
    bounds = [f"{sign} {shape[word]:,}" for word, sign in _BOUNDS.items() if word in shape]
    return " ".join([_KINDS.get(shape.get("type", ""), "any"), *bounds])


_KINDS = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text", "object": "table"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _default(shape: Schema) -> str:
    if "default" not in shape:
        return "none: required"
    text = json.dumps(shape["default"], ensure_ascii=False)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def messages() -> str:
    """Every message of the native protocol with its fields, from docs/asyncapi.json."""
    document = json.loads((ROOT / "docs" / "asyncapi.json").read_text("utf-8"))
    shapes: dict[str, Schema] = document["components"]["schemas"]
    by_name: dict[str, Any] = document["components"]["messages"]
    lines = [
        "# Messages of the native protocol",
        "Made from [asyncapi.json](asyncapi.json). What may follow what stands in [protocol.md](protocol.md).",
        "",
    ]
    for title, operation in (("From the client", "receiveFromClient"), ("From the gateway", "sendToClient")):
        lines += [f"## {title}", ""]
        for reference in document["operations"][operation]["messages"]:
            name = reference["$ref"].rpartition("/")[2]
            lines += [f"### {by_name[name]['name']}", by_name[name].get("summary", ""), "", *_fields(shapes[name], shapes), ""]
    used = sorted(name for name in shapes if name not in by_name)
    lines += ["## Parts", ""]
    for name in used:
        if "properties" in shapes[name]:
            lines += [f"### {name}", shapes[name].get("description", ""), "", *_fields(shapes[name], shapes), ""]
    return "\n".join(lines)


def _fields(shape: Schema, shapes: dict[str, Schema]) -> list[str]:
    rows = [(key, value) for key, value in shape.get("properties", {}).items() if key != "type"]
    if not rows:
        return ["No fields of its own."]
    required = set(shape.get("required", ()))
    lines = ["| field | takes | |", "|---|---|---|"]
    for key, value in rows:
        needed = "required" if key in required else f"default {_default(value)}" if value.get("default") is not None else ""
        lines.append(f"| `{key}` | {_cell(_part(value, shapes))} | {needed} |")
    return lines


def _part(value: Schema, shapes: dict[str, Schema]) -> str:
    """As `_takes`, with the names of parts."""
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(_part(option, shapes) for option in value["anyOf"] if option.get("type") != "null")
    if value.get("type") == "array":
        return f"list of {_part(value.get('items') or {}, shapes)}"
    return "bytes" if value.get("contentEncoding") else _takes(value, shapes)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "configuration.md").write_text(configuration(), "utf-8")
    (folder / "messages.md").write_text(messages(), "utf-8")
