"""Which metrics a PromQL expression names, and which names a scrape offers. Text in, sets out.

Prometheus has no command that lists the selectors of an expression. Outside of strings, matchers, ranges and label lists every
identifier that is no keyword and is not called is a metric; promtool has checked the grammar before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`')
_BRACES = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w.:$])[a-zA-Z_:][\w:]*(?!\w)(?!\s*\()")
_WORDS = frozenset(
    ("and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right", "atan2", "inf", "nan")
)
_ENDINGS = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def metrics_in(expression: str) -> set[str]:
    """The metric names that `expression` reads."""
    for pattern in (_STRING, _BRACES, _RANGE, _LABELS):
        expression = pattern.sub(" ", expression)
    return {name for name in _NAME.findall(expression) if name.lower() not in _WORDS}


def metrics_of(scrape: str) -> set[str]:
    """The metric names of a text exposition, those too that have had no sample yet."""
    types = re.findall(r"^# TYPE (\S+) (\w+)$", scrape, re.MULTILINE)
    return {name + ending for name, kind in types for ending in _ENDINGS.get(kind, ("",))}


def unknown_metrics(rules: Iterable[Mapping[str, Any]], known: set[str]) -> dict[str, set[str]]:  # Any: YAML
    """By rule (its alert's or record's name): the metrics that neither `known` nor the rules' own records have."""
    rules = list(rules)
    there = known | {rule["record"] for rule in rules if "record" in rule}
    missing = {str(rule.get("alert") or rule.get("record")): metrics_in(str(rule["expr"])) - there for rule in rules}
    return {name: names for name, names in missing.items() if names}
